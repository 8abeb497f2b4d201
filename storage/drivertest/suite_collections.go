package drivertest

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) testUnknownCollection(t *testing.T) {
	f := s.fixture(t)
	for _, name := range []string{"", "unknown", "Things", "things ", "things\x00", "sqlite_master", `things"`} {
		_, err := f.engine.Get(f.ctx, name, []driver.Ref{{Key: "a", At: 1}}, nil)
		f.wantCode(fmt.Sprintf("Get of %q", name), err, driver.CodeInvalid)
		_, err = f.engine.Query(f.ctx, &driver.Query{Collection: name, At: 1})
		f.wantCode(fmt.Sprintf("Query of %q", name), err, driver.CodeInvalid)
		_, err = f.engine.Count(f.ctx, &driver.Query{Collection: name, At: 1})
		f.wantCode(fmt.Sprintf("Count of %q", name), err, driver.CodeInvalid)
		_, err = driver.CommitOne(f.ctx, f.engine, &driver.Write{ID: f.id(), Collection: name, Key: "a", Op: driver.OpCreate, Data: []byte(`{}`)})
		f.wantCode(fmt.Sprintf("Commit to %q", name), err, driver.CodeInvalid)
		_, err = f.engine.Load(f.ctx, []driver.Version{{Collection: name, Key: "a", RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}})
		f.wantCode(fmt.Sprintf("Load to %q", name), err, driver.CodeInvalid)
		for _, err := range f.engine.Log(f.ctx, &driver.LogQuery{Collections: []string{collection, name}}) {
			f.wantCode(fmt.Sprintf("Log of %q", name), err, driver.CodeInvalid)
		}
	}
}

func (s *suite) testCollectionsApart(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	f.commit(&driver.Write{ID: f.id(), Collection: "others", Key: "a", Op: driver.OpCreate, Data: []byte(`{"n":2}`)})
	f.put("a", `{"n":3}`)
	for name, want := range map[string]string{collection: `2 {"n":3}`, "others": `1 {"n":2}`} {
		vs, err := f.engine.Get(f.ctx, name, []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %s", vs[0].Number, vs[0].Data); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if got := f.query(&driver.Query{Collection: name, At: driver.Forever}); len(got) != 1 || !sameButEnd(got[0], vs[0]) {
			t.Errorf("Query of %s: %+v", name, got)
		}
	}
}
