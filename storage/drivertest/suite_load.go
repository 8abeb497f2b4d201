package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

func (s *suite) loadTests() []test {
	return []test{
		{"SkipsWhatIsThere", s.testLoadSkips},
		{"RefusesWhatDoesNotFit", s.testLoadRefuses},
		{"RefusedLoadsAddNothing", s.testLoadRefused},
		{"APrefixOfEachDocument", s.testLoadPrefix},
		{"InTheFuture", s.testLoadFuture},
		{"BeforeTheVersionsOfOthers", s.testLoadBackDated},
		{"HasAnInstant", s.testLoaded},
		{"KeepsSeals", s.testLoadSeals},
	}
}

func loaded(key string, at driver.Instant, data string) driver.Version {
	v := driver.Version{
		Collection: collection, Key: key, RecordedAt: at, Op: driver.OpImport, Author: "ann", Message: "m", Group: "g", Changed: []string{"n"},
	}
	if data == "" {
		v.Deleted = true
	} else {
		v.Data = []byte(data)
	}
	return v
}

// A history that is loaded with its seals keeps them, and goes on from them; with a seal that
// does not hold, it is refused.
func (s *suite) testLoadSeals(t *testing.T) {
	f := s.fixture(t)
	vs := []driver.Version{loaded("a", 1, `{"n":1}`), loaded("a", 2, ""), loaded("a", 3, `{"n":3}`)}
	var before []byte
	for i := range vs {
		numbered := vs[i]
		numbered.Number = int64(i) + 1
		before = seal.New(before, &numbered, uint32(i)) // of which one has no schema
		vs[i].Seal = before
	}
	wrong := func(what string, index int, vs ...driver.Version) {
		t.Helper()
		_, err := f.engine.Load(f.ctx, vs)
		var refused *driver.LoadError
		if !errors.As(err, &refused) || refused.Index != index {
			t.Errorf("%s: got %v, want a *LoadError for index %d", what, err, index)
		}
	}
	flipped := vs[1]
	flipped.Seal = bytes.Clone(flipped.Seal)
	flipped.Seal[3] ^= 4
	wrong("a salt that is wrong", 1, vs[0], flipped)
	other := vs[1]
	other.Author = "bob"
	wrong("another author", 1, vs[0], other)
	wrong("the second as the first", 0, vs[1])
	f.load(vs[:2]...)
	wrong("the seal of another version", 0, func() driver.Version { v := vs[2]; v.Seal = vs[1].Seal; return v }())
	f.load(vs[2])
	apart := loaded("a", 1, `{"n":1}`)
	apart.Seal = seal.New(nil, &apart, 0)
	if got := f.load(apart, vs[1]); got.Skipped != 2 {
		t.Errorf("what is there, one with another seal: %+v", got)
	}
	for range 2 {
		for i := range vs {
			if got := f.get(driver.Ref{Key: "a", Number: int64(i) + 1}); !bytes.Equal(got.Seal, vs[i].Seal) {
				t.Errorf("version %d has the seal %x, was loaded with %x", i+1, got.Seal, vs[i].Seal)
			}
		}
		f.reopen()
	}
	f.load(loaded("a", 4, `{"n":4}`)) // which gets its own
	f.put("a", `{"n":5}`)
	w := f.next("a")
	w.Schema, w.Data = 7, []byte(`{"n":6}`)
	for _, v := range []*driver.Version{f.commit(w), f.get(driver.Ref{Key: "a", At: driver.Forever})} {
		if got := seal.Schema(v.Seal); got != 7 {
			t.Errorf("the schema of a commit is %d, was 7", got)
		}
	}
}

// A version may come twice in one load, and how it came about is not part of its content.
func (s *suite) testLoadSkips(t *testing.T) {
	f := s.fixture(t)
	vs := []driver.Version{loaded("a", 100, `{}`), loaded("a", 100, `{}`), loaded("a", 101, ""), loaded("a", 100, `{}`)}
	if got, want := f.load(vs...), (driver.LoadResult{Added: 2, Skipped: 2}); got != want {
		t.Errorf("twice in one call: %+v, want %+v", got, want)
	}
	again := vs[0]
	again.Op, again.Changed, again.Number = driver.OpCreate, nil, 1
	if got, want := f.load(again), (driver.LoadResult{Skipped: 1}); got != want {
		t.Errorf("with another operation: %+v, want %+v", got, want)
	}
}

func (s *suite) testLoadRefuses(t *testing.T) {
	change := func(v driver.Version, change func(*driver.Version)) driver.Version {
		change(&v)
		return v
	}
	f := s.fixture(t)
	second := loaded("a", 20, `{"n":2}`)
	f.load(loaded("a", 10, `{"n":1}`), second)
	before := names(f.log(&driver.LogQuery{}))
	for _, test := range []struct {
		name string
		v    driver.Version
	}{
		{"before the last version", loaded("a", 15, `{"n":9}`)},
		{"before the first version", loaded("a", 5, `{"n":9}`)},
		{"other data at the same time", loaded("a", 20, `{"n":9}`)},
		{"other data at an earlier version's time", loaded("a", 10, `{"n":9}`)},
		{"a tombstone at the same time", loaded("a", 20, "")},
		{"another author", change(second, func(v *driver.Version) { v.Author = "bob" })},
		{"another message", change(second, func(v *driver.Version) { v.Message = "" })},
		{"another group", change(second, func(v *driver.Version) { v.Group = "h" })},
		{"another number", change(second, func(v *driver.Version) { v.Number = 1 })},
		{"a gap in the numbers", change(loaded("a", 30, `{}`), func(v *driver.Version) { v.Number = 4 })},
		{"a number that is taken", change(loaded("a", 30, `{}`), func(v *driver.Version) { v.Number = 2 })},
		{"a first number that is not 1", change(loaded("b", 30, `{}`), func(v *driver.Version) { v.Number = 2 })},
		{"for ever", loaded("b", driver.Forever, `{}`)},
	} {
		for index, vs := range [][]driver.Version{
			{test.v},
			{loaded("c", 1, `{}`), test.v, loaded("d", 1, `{}`)},
			{loaded("a", 10, `{"n":1}`), second, test.v, loaded("d", 1, `{}`)},
		} {
			_, err := f.engine.Load(f.ctx, vs)
			var refused *driver.LoadError
			if !errors.As(err, &refused) || refused.Index != index || driver.CodeOf(err) != driver.CodeInvalid {
				t.Errorf("%s: got %v (%T), want a *LoadError for index %d", test.name, err, err, index)
			}
		}
	}
	if after := names(f.log(&driver.LogQuery{})); !slices.Equal(after, before) {
		t.Errorf("refused loads changed the log from %q to %q", before, after)
	}
}

func (s *suite) testLoadRefused(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1,"tags":["x"]}`)
	now := f.now()
	var vs []driver.Version
	for i := range 3000 {
		vs = append(vs, loaded(fmt.Sprintf("k%d", i%100), driver.Instant(i+1), fmt.Sprintf(`{"n":%d,"tags":["x"]}`, i)))
	}
	bad := append(slices.Clip(vs), loaded("k0", 7, `{"n":-1}`))
	_, err := f.engine.Load(f.ctx, bad)
	var refused *driver.LoadError
	if !errors.As(err, &refused) || refused.Index != 3000 {
		t.Fatalf("got %v, want a *LoadError for index 3000", err)
	}
	for range 2 {
		for name, q := range map[string]*driver.Query{
			"all":       {At: now},
			"by number": {At: now, Filter: driver.Compare{Field: intField("n"), Op: driver.Ge, Value: int64(0)}},
			"by tag":    {At: now, Filter: driver.Any{Field: stringField("tags"), Filter: eq(stringField(), "x")}},
		} {
			if got := f.count(q); got != 1 {
				t.Errorf("%s: %d documents, want 1", name, got)
			}
		}
		if got := f.log(&driver.LogQuery{}); len(got) != 1 {
			t.Errorf("%d versions, want 1", len(got))
		}
		f.reopen()
	}
	if got := f.load(vs...); got.Added != 3000 {
		t.Errorf("without the bad one: %+v", got)
	}
	if got := f.count(&driver.Query{At: driver.Forever}); got != 101 {
		t.Errorf("%d documents, want 101", got)
	}
}

// A load is cut off as soon as anything of it is seen. What is there then, and what readers
// see meanwhile, is a prefix of the versions of each document, and the same load adds
// the rest.
func (s *suite) testLoadPrefix(t *testing.T) {
	f := s.fixture(t)
	const documents, versions = 150, 20
	var vs []driver.Version
	for n := range versions {
		for d := range documents {
			vs = append(vs, loaded(fmt.Sprintf("k%d", d), driver.Instant(1+n), fmt.Sprintf(`{"n":%d}`, n)))
		}
	}
	// there is how many versions there are, each of which has to be the next one of
	// its document.
	there := func() (count int) {
		t.Helper()
		next := make(map[string]int64)
		for v, err := range f.engine.Log(f.ctx, &driver.LogQuery{Collections: []string{collection}}) {
			if err != nil {
				t.Fatal(err)
			}
			next[v.Key]++
			if count++; v.Number != next[v.Key] || int64(v.RecordedAt) != v.Number || string(v.Data) != fmt.Sprintf(`{"n":%d}`, v.Number-1) {
				t.Fatalf("%q has version %d of %d, %s, in the place of number %d", v.Key, v.Number, v.RecordedAt, v.Data, next[v.Key])
			}
		}
		return count
	}
	cut, cancel := context.WithCancel(f.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := f.engine.Load(cut, vs)
		done <- err
	}()
	var err error
	for running := true; running; {
		select {
		case err = <-done:
			running = false
		default:
			if there() > 0 {
				cancel()
			}
		}
	}
	if code := driver.CodeOf(err); err != nil && code != driver.CodeUnavailable {
		t.Errorf("the load that was cut off: %v", err)
	}
	if n := there(); err == nil && n != len(vs) {
		t.Errorf("%d of %d versions after a load that succeeded", n, len(vs))
	}
	before := there()
	result, again, err := f.loadAgain(f.ctx, vs)
	if err != nil || !again && result != (driver.LoadResult{Added: int64(len(vs) - before), Skipped: int64(before)}) {
		t.Errorf("the same load again, where %d of %d versions were there: %+v, %v", before, len(vs), result, err)
	}
	for range 2 {
		if n := there(); n != len(vs) {
			t.Errorf("%d of %d versions in the end", n, len(vs))
		}
		f.reopen()
	}
}

func (s *suite) testLoadFuture(t *testing.T) {
	f := s.fixture(t)
	at := driver.InstantOf(f.clock.now())
	if _, err := f.engine.Load(f.ctx, []driver.Version{loaded("a", at+60_000_000, `{}`)}); driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("a minute ahead: got %v, want CodeInvalid", err)
	}
	if got := f.load(loaded("a", at, `{}`)); got.Added != 1 {
		t.Errorf("at the clock's time: %+v", got)
	}
	f.clock.move(time.Minute)
	if got := f.load(loaded("a", at+60_000_000, `{}`)); got.Added != 1 {
		t.Errorf("a minute later: %+v", got)
	}
	if now := f.now(); now < at+60_000_000 {
		t.Errorf("Now is %d, before what was loaded", now)
	}
}

// A document that is loaded late is there at its own times, in every read.
func (s *suite) testLoadBackDated(t *testing.T) {
	f := s.fixture(t)
	first := f.put("a", `{"n":1}`)
	f.clock.move(time.Hour)
	second := f.put("a", `{"n":2}`)
	f.load(loaded("late", first.RecordedAt-10, `{"n":1}`), loaded("late", first.RecordedAt+10, `{"n":2}`), loaded("late", second.RecordedAt-10, ""))
	for _, test := range []struct {
		at   driver.Instant
		n    int64
		want string
	}{
		{first.RecordedAt - 11, 1, "[]"},
		{first.RecordedAt - 10, 1, "[late]"},
		{first.RecordedAt - 1, 1, "[late]"},
		{first.RecordedAt, 1, "[a late]"},
		{first.RecordedAt + 10, 1, "[a]"},
		{first.RecordedAt + 10, 2, "[late]"},
		{second.RecordedAt - 11, 2, "[late]"},
		{second.RecordedAt - 10, 2, "[]"},
		{second.RecordedAt, 2, "[a]"},
	} {
		q := &driver.Query{At: test.at, Filter: eq(intField("n"), test.n)}
		if got := fmt.Sprint(f.keys(q)); got != test.want {
			t.Errorf("n = %d at first%+d µs: %s, want %s", test.n, test.at-first.RecordedAt, got, test.want)
		}
	}
	want := []string{"t/late@1", "t/a@1", "t/late@2", "t/late@3", "t/a@2"}
	if got := names(f.log(&driver.LogQuery{})); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Log: %q, want %q", got, want)
	}
}

// A load is later than every instant that was read at before it began, and Now comes
// to it afterwards; so does what is committed.
func (s *suite) testLoaded(t *testing.T) {
	f := s.fixture(t)
	loadedAt := func() driver.Instant {
		t.Helper()
		at, err := f.engine.Loaded(f.ctx)
		if err != nil {
			t.Fatalf("Loaded: %v", err)
		}
		return at
	}
	if at := loadedAt(); at != 0 {
		t.Errorf("Loaded is %d before there was one", at)
	}
	f.put("a", `{"n":1}`)
	if at := loadedAt(); at != 0 {
		t.Errorf("Loaded is %d after a commit", at)
	}
	for i := range driver.Instant(4) {
		if i == 2 {
			f.reopen()
		}
		before, last := f.now(), loadedAt()
		f.load(loaded("old", 10+i, `{"n":1}`))
		at := loadedAt()
		if at <= before || at <= last {
			t.Errorf("load %d is at %d, after Now was %d and the load before at %d", i, at, before, last)
		}
		f.clock.move(time.Second) // where clocks have an error bound, Now is behind theirs
		if now := f.now(); now < at {
			t.Errorf("Now is %d after a load at %d", now, at)
		}
		if f.load(loaded("old", 10+i, `{"n":1}`)); loadedAt() != at {
			t.Errorf("a load that added nothing is at %d, the one before at %d", loadedAt(), at)
		}
	}
	at := loadedAt()
	f.reopen()
	if again := loadedAt(); again != at {
		t.Errorf("Loaded is %d after reopening, was %d", again, at)
	}
	if v := f.put("a", `{"n":2}`); v.RecordedAt <= at {
		t.Errorf("a commit at %d after a load at %d", v.RecordedAt, at)
	}
}
