package sqlitestore

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/seal"
)

// One look at a clock that is a year ahead for a moment changes nothing of what is
// committed afterwards.
func TestAClockThatJumpedOnce(t *testing.T) {
	day, passed := formatClock(), time.Duration(0)
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{
		Collections: formatDeclared(), Clock: func() time.Time { return day }, Elapsed: func() time.Duration { return passed },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	day = day.AddDate(1, 0, 0)
	if _, err := s.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), []driver.Version{{Collection: "things", Key: "loaded", RecordedAt: driver.InstantOf(day), Op: driver.OpImport, Data: []byte(`{}`)}}); driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("a version of the future was loaded: %v", err)
	}
	day, passed = day.AddDate(-1, 0, 0).Add(time.Second), passed+time.Second
	v, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: "1", Collection: "things", Key: "a", Op: driver.OpCreate, Data: []byte(`{"n":1}`)})
	if err != nil || v.RecordedAt != driver.InstantOf(day) {
		t.Fatalf("a commit afterwards: %+v, %v; want it at %s", v, err, day)
	}
	found, err := s.Query(t.Context(), &driver.Query{Collection: "things", At: driver.InstantOf(day)})
	if err != nil || len(found) != 1 {
		t.Errorf("as of now there are %v, %v", found, err)
	}
}

// What a clock that was wrong has left is repaired: times lie between what was right
// and now, in their order, at those of the attempts where these are known; all else
// is as it was.
func TestRepair(t *testing.T) {
	start := formatClock()
	path, at := filepath.Join(t.TempDir(), "asof.db"), &leaseClock{start}
	open := func(repair bool) (*Store, error) {
		return open(t.Context(), path, Options{Collections: benchDeclared(), Clock: at.now, Elapsed: drivertest.Elapsed(at.now), epochSlack: 2, Repair: repair})
	}
	s, err := open(false)
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int64{}
	put := func(id, key string) *driver.Version {
		t.Helper()
		n := numbers[key]
		v, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: id, Collection: benchCollection, Key: key, Expected: n, Op: driver.OpUpdate, Schema: 7, Data: fmt.Appendf(nil, `{"name":"%s","stars":%d}`, id, n)})
		if err != nil {
			t.Fatal(err)
		}
		numbers[key] = v.Number
		return v
	}
	attempt := func(at time.Time) string {
		id := uuid.Must(uuid.NewV7())
		ms := at.UnixMilli()
		for i := range 6 {
			id[i] = byte(ms >> (40 - 8*i))
		}
		return id.String()
	}
	var right []*driver.Version
	for i := range 20 {
		right = append(right, put(fmt.Sprint("right", i), fmt.Sprint("k", i%5)))
		at.t = at.t.Add(time.Second)
	}
	last := right[len(right)-1].RecordedAt
	before := at.t
	at.t = at.t.AddDate(1, 0, 0)
	put(attempt(at.t), "k0") // while the clock was ahead
	at.t = before
	var attempted []driver.Instant
	for i := range 20 { // since then
		at.t = at.t.Add(time.Minute)
		if i%2 == 0 {
			attempted = append(attempted, driver.InstantOf(at.t))
			put(attempt(at.t), fmt.Sprint("k", i%5))
			continue
		}
		put(fmt.Sprint("unknown", i), fmt.Sprint("k", i%5))
	}
	whole := versionsIn(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	at.t = at.t.Add(time.Minute)
	s, err = open(true)
	if err != nil {
		t.Fatal(err)
	}
	present := driver.InstantOf(at.t)
	if now, err := s.Now(t.Context()); err != nil || now != present {
		t.Errorf("repaired, Now is %s, %v; want %s", now, err, present)
	}
	repaired := versionsIn(t, s)
	latest, n := last, 0
	var found []driver.Instant
	for i, v := range repaired {
		if i < len(right) {
			continue
		}
		if v.RecordedAt <= latest || v.RecordedAt > present {
			t.Errorf("version %d of all is at %s, the one before at %s, and now is %s", i, v.RecordedAt, latest, present)
		}
		if latest = v.RecordedAt; (i-len(right))%2 == 1 {
			found = append(found, v.RecordedAt)
		}
		if schema := seal.Schema(v.Seal); schema != 7 {
			t.Errorf("version %d of all was written under schema 7, and now says %d", i, schema)
		}
		n++
	}
	if diff := cmp.Diff(attempted, found); diff != "" || n != 21 {
		t.Errorf("%d versions; -when they were attempted, +their times:\n%s", n, diff)
	}
	for _, all := range [][]*driver.Version{whole, repaired} {
		for i, v := range all {
			c := *v
			c.Notes, c.SupersededAt = nil, 0
			if i >= len(right) {
				c.RecordedAt, c.Seal = 0, nil // it is sealed anew
			}
			all[i] = &c
		}
	}
	if diff := cmp.Diff(whole, repaired); diff != "" {
		t.Errorf("-what was, +what is, beside times:\n%s", diff)
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	if v := put("next", "k0"); v.RecordedAt != present+1 {
		t.Errorf("the next commit is at %s, want %s", v.RecordedAt, present+1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Where there is no room for times, nothing is changed.
func TestRepairWithoutRoom(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "asof.db"), &leaseClock{formatClock()}
	s := openAt(t, path, at)
	for i := range 3 {
		if _, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: fmt.Sprint(i), Collection: "things", Key: fmt.Sprint(i), Op: driver.OpCreate, Data: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	before := versionsIn(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	at.t = before[0].RecordedAt.Time()
	if _, err := open(t.Context(), path, Options{Clock: at.now, Elapsed: drivertest.Elapsed(at.now), Repair: true}); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("repaired without room: %v", err)
	}
	if diff := cmp.Diff(before, versionsIn(t, openAt(t, path, at))); diff != "" {
		t.Errorf("-what was, +what is:\n%s", diff)
	}
}

func versionsIn(t *testing.T, s *Store) []*driver.Version {
	t.Helper()
	var all []*driver.Version
	for v, err := range s.Log(t.Context(), &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return slices.Clip(all)
}

// A load that was made while the clock was ahead is not in the future afterwards, also
// where no version is.
func TestRepairOfLoad(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "asof.db"), &leaseClock{formatClock()}
	at.t = at.t.AddDate(1, 0, 0)
	s := openAt(t, path, at)
	if _, err := s.Load(t.Context(), []driver.Version{{Collection: "things", Key: "a", RecordedAt: 1000, Op: driver.OpImport, Data: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	at.t = formatClock()
	s, err := open(t.Context(), path, Options{Clock: at.now, Elapsed: drivertest.Elapsed(at.now), Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if loaded, err := s.Loaded(t.Context()); err != nil || loaded > now {
		t.Errorf("loaded at %s, %v, now it is %s", loaded, err, now)
	}
}
