package app

import (
	"maps"
	"strings"
	"testing"

	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/record"
)

func TestEmbedBounds(t *testing.T) {
	types := []*record.Type{{Name: "Project", Collection: "software"}, {Name: "Tag", Collection: "tags"}}
	for _, c := range []struct {
		values string
		want   map[string]mongostore.Bounds
		err    string
	}{
		{"", map[string]mongostore.Bounds{}, ""},
		{"32", map[string]mongostore.Bounds{"software": {Versions: 32}, "tags": {Versions: 32}}, ""},
		{"Project=128:128KB", map[string]mongostore.Bounds{"software": {Versions: 128, Bytes: 128 << 10}}, ""},
		{"Project=128 16:1000", map[string]mongostore.Bounds{"software": {Versions: 128}, "tags": {Versions: 16, Bytes: 1000}}, ""},
		{"16 Project=128", map[string]mongostore.Bounds{"software": {Versions: 128}, "tags": {Versions: 16}}, ""},
		{"Projekt=1", nil, `--mongodb-embed Projekt=1: there is no type "Projekt"`},
		{"software=1", nil, `there is no type "software"`},
		{"Project=1 Project=2", map[string]mongostore.Bounds{"software": {Versions: 2}}, ""},
		{"0", nil, "with 1 to 10000 versions"},
		{"Tag=-1", nil, "with 1 to 10000 versions"},
		{"10001", nil, "with 1 to 10000 versions"},
		{"many", nil, "want VERSIONS or VERSIONS:SIZE"},
		{":64KB", nil, "want VERSIONS or VERSIONS:SIZE"},
		{"64:", nil, "want a size such as 64KB"},
		{"64:much", nil, "want a size such as 64KB"},
		{"64:9MB", nil, "at most 8MB"},
	} {
		got, err := embedBounds(strings.Fields(c.values), types)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.values, err, c.err)
			}
			continue
		}
		if err != nil || !maps.Equal(c.want, got) {
			t.Errorf("%s: %v, %v; want %v", c.values, got, err, c.want)
		}
	}
}
