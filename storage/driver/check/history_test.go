package check

import (
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

func TestHistory(t *testing.T) {
	sound := func() []driver.Version {
		vs := []driver.Version{
			{Key: "k", Number: 1, RecordedAt: 10, SupersededAt: 20, Op: driver.OpCreate, Data: []byte(`{}`)},
			{Key: "k", Number: 2, RecordedAt: 20, SupersededAt: 30, Op: driver.OpDelete, Deleted: true},
			{Key: "k", Number: 3, RecordedAt: 30, SupersededAt: driver.Forever, Op: driver.OpCreate, Data: []byte(`{}`)},
		}
		var before []byte
		for i := range vs {
			before = seal.New(before, &vs[i], 0)
			vs[i].Seal = before
		}
		return vs
	}
	for name, c := range map[string]struct {
		change func(vs []driver.Version) []driver.Version
		want   string // empty: all is well
	}{
		"sound":                {func(vs []driver.Version) []driver.Version { return vs }, ""},
		"empty":                {func([]driver.Version) []driver.Version { return nil }, "no history"},
		"cut at the beginning": {func(vs []driver.Version) []driver.Version { return vs[1:] }, "the first version is number 2"},
		"cut at the end":       {func(vs []driver.Version) []driver.Version { return vs[:2] }, "the current version, 2, was superseded"},
		"a gap":                {func(vs []driver.Version) []driver.Version { return append(vs[:1], vs[2]) }, "version 3 follows version 1"},
		"a hole in time":       {func(vs []driver.Version) []driver.Version { vs[0].SupersededAt = 15; return vs }, "the one before it ended at"},
		"back in time": {func(vs []driver.Version) []driver.Version {
			vs[1].RecordedAt, vs[0].SupersededAt = 10, 10
			return vs
		}, "is not later than the one before"},
		"ended before it began": {func(vs []driver.Version) []driver.Version { vs[2].SupersededAt = 30; return vs }, "and was superseded at"},
		"of no time":            {func(vs []driver.Version) []driver.Version { vs[0].RecordedAt = 0; return vs }, "and was superseded at"},
		"another key":           {func(vs []driver.Version) []driver.Version { vs[1].Key = "l"; return vs }, `has the key "l"`},
		"a tombstone with data": {func(vs []driver.Version) []driver.Version { vs[1].Data = []byte(`{}`); return vs }, "a tombstone has no data"},
		"another author":        {func(vs []driver.Version) []driver.Version { vs[1].Author = "eve"; return vs }, "version 2 is not as it was sealed"},
		"sealed anew":           {func(vs []driver.Version) []driver.Version { vs[1].Seal = seal.New(vs[0].Seal, &vs[1], 0); return vs }, "version 3 is not as it was sealed, or does not follow"},
		"broken data":           {func(vs []driver.Version) []driver.Version { vs[2].Data = []byte(`{`); return vs }, "not a JSON object"},
	} {
		var h History
		var problems []string
		vs := c.change(sound())
		for i := range vs {
			problems = append(problems, h.Next(&vs[i])...)
		}
		problems = append(problems, h.End()...)
		if got := strings.Join(problems, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
