package sqlitestore

import (
	"encoding/json"
	"testing"
)

func TestEncodeNames(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"stars", "updated_at2"}, {"A", "", "z"}, {"ключ"}, {`a"b`}, {"a.b", "<"}, {"@", "[", "`", "{"}} {
		want, err := json.Marshal(names)
		if err != nil {
			t.Fatal(err)
		}
		got, err := encodeNames(names)
		if err != nil || got != string(want) {
			t.Errorf("%q became %s, %v; want %s", names, got, err, want)
		}
	}
	if got, err := encodeNames(nil); err != nil || got != "" {
		t.Errorf("no names became %q, %v", got, err)
	}
}
