package driver

import (
	"context"
	"errors"
	"testing"
)

func TestRefused(t *testing.T) {
	const closed = "the store is closed"
	own := Errorf(CodeInvalid, "only looked at")
	for _, c := range []struct {
		err  error
		code Code
		why  string
		is   error
	}{
		{Closed(), CodeUnavailable, closed, nil},
		{GivenUp(context.Canceled), CodeUnavailable, "the request was given up by its sender", context.Canceled},
		{GivenUp(context.DeadlineExceeded), CodeUnavailable, "the request took longer than this server allows", context.DeadlineExceeded},
		{Refused("why", own), CodeInvalid, "why", own},
	} {
		if got := CodeOf(c.err); got != c.code {
			t.Errorf("%v has the code %s, want %s", c.err, got, c.code)
		}
		if got := RefusalOf(c.err); got != c.why {
			t.Errorf("%v tells clients %q, want %q", c.err, got, c.why)
		}
		if c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%v does not hold its cause, %v", c.err, c.is)
		}
	}
	if RefusalOf(own) != "" {
		t.Error("an error that others may have was changed")
	}
}
