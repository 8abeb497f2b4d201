package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A program whose clock is further from the database's than 500 ms refuses to start,
// and says by how much and what to do; one that is less far starts.
func TestClockIsTooFarFromTheDatabase(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	for _, c := range []struct {
		skew   time.Duration
		status int
	}{{-time.Hour, 1}, {0, 0}, {time.Hour, 1}} {
		var said bytes.Buffer
		m := app.Main{
			Types: model.Types, Schema: resolvers.NewSchema,
			Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said,
			Now: func() time.Time { return time.Now().Add(c.skew) },
		}
		status := m.Run(t.Context(), []string{"import", "--store", uri, emptyFile(t)})
		refused := strings.Contains(said.String(), "asof: the clocks are too far apart") && strings.Contains(said.String(), "the bound is 500ms; synchronize them (NTP)")
		if status != c.status || refused != (c.status != 0) {
			t.Errorf("%v apart, it ended with status %d, want %d:\n%s", c.skew, status, c.status, said.String())
		}
	}
}
