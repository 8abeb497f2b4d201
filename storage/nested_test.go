package storage_test

import (
	"testing"

	"github.com/asof/asof/storage"
)

// One object of a list after another is what the list has, and its errors are those of the list.
func TestObjectsOneByOne(t *testing.T) {
	e := newEnv(t)
	for key, data := range map[string]string{
		"a": `{"name":"n","current_release":{"tag":"v1","published_at":"2026-01-01","notes":["x"]},"releases":[{"tag":"v1"},null,{"published_at":"2026-01-02","tag":"v2"}]}`,
		"b": `{"name":"n","current_release":null,"releases":[]}`,
		"c": `{"name":"n","current_release":7,"releases":[{"tag":"v1"},8]}`,
		"d": `{"name":"n","current_release":{},"releases":"x"}`,
		"e": `{"name":"n","releases":null}`,
	} {
		e.load("software", key, data)
		d := must(e.projects.Get(e.begin(), key, nil, nil))(t)
		list, wantErr := d.Objects(fReleases)
		n := 0
		isList, err := d.EachObject(fReleases, func(o *storage.Object) {
			if (o == nil) != (list[n] == nil) {
				t.Errorf("%s: element %d is %v", key, n, o)
			} else if o != nil {
				sameTags(t, key, o, list[n])
			}
			n++
		})
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || isList != (list != nil) || n != len(list) {
			t.Errorf("%s: %d elements, %v, want %d, %v", key, n, err, len(list), wantErr)
		}
	}
}

func sameTags(t *testing.T, key string, got, want *storage.Object) {
	t.Helper()
	for field := range 2 {
		a, errA := got.RawField(field)
		b, errB := want.RawField(field)
		if string(a) != string(b) || errA != nil || errB != nil {
			t.Errorf("%s: %s (%v), want %s (%v)", key, a, errA, b, errB)
		}
	}
}
