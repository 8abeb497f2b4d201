package plantest

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-cmp/cmp"
)

// Pair is the servers that are compared: the one that is trusted, and another.
type Pair struct {
	Trusted, Other http.Handler
	sockets        [2]*socket
}

// Difference is an operation that the servers answer differently.
type Difference struct {
	Operation   *Operation
	Way         Transport
	Want, Got   answer
	Concurrency bool // it was seen among operations that ran at the same time
}

func (d *Difference) String() string {
	when := ""
	if d.Concurrency {
		when = ", while others were executed"
	}
	return fmt.Sprintf("%s%s:\n%s\nanswers (-trusted +other):\n%s", d.Way, when, d.Operation, cmp.Diff(d.Want.String(), d.Got.String()))
}

// Compare sends an operation to both servers. It returns the trusted one's
// answer, how the other one's was made, and the difference, nil if there is none.
func (p *Pair) compare(ctx context.Context, op *Operation, way Transport, number int) (want, got answer, d *Difference, err error) {
	if way == WebSocket {
		if want, err = p.overSocket(ctx, 0, op, number); err == nil {
			got, err = p.overSocket(ctx, 1, op, number)
		}
		if err != nil {
			return want, got, nil, err
		}
	} else {
		want, got = send(ctx, p.Trusted, op, way, number), send(ctx, p.Other, op, way, number)
	}
	if !want.same(got) {
		d = &Difference{Operation: op, Way: way, Want: want, Got: got}
	}
	return want, got, d, nil
}

// shrink returns the smallest operation that it finds that is still answered
// differently.
func (p *Pair) shrink(ctx context.Context, d *Difference) *Difference {
	const most = 4000 // attempts
	attempts := 0
	for smaller := true; smaller; {
		smaller = false
		for candidate := range smallerThan(d.Operation) {
			if attempts++; attempts > most || ctx.Err() != nil {
				return d
			}
			if _, _, again, err := p.compare(ctx, candidate, d.Way, attempts); err == nil && again != nil {
				again.Concurrency = d.Concurrency
				d, smaller = again, true
				break
			}
		}
	}
	return d
}
