package drivertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) growthTests() []test {
	return []test{
		{"ReadsDoNotSlowWithTheNumberOfVersions", s.testReadsDoNotSlow},
		{"ManyVersionsReadRight", s.testManyVersions},
	}
}

const manyVersions = 5000

// growthFixture has a document with many versions and one with ten, of equal size.
func (s *suite) growthFixture(t *testing.T) *fixture {
	f := s.fixture(t)
	var vs []driver.Version
	at := driver.Instant(1)
	for i := range manyVersions {
		at++
		vs = append(vs, loaded("many", at, fmt.Sprintf(`{"n":%06d,"s":"%0500d","tags":["t%d"]}`, 100000+i, i, i%10)))
		if i%(manyVersions/10) == 0 {
			at++
			vs = append(vs, loaded("few", at, fmt.Sprintf(`{"n":%06d,"s":"%0500d","tags":["f%d"]}`, 100000+i, i, i%10)))
		}
	}
	for part := range slices.Chunk(vs, 1000) {
		f.load(part...)
	}
	return f
}

// A document with 5,000 versions reads like one with ten. The two are read in
// turn, the fastest reading of each counts, and the bound is generous: what is
// linear in the number of versions is slower by hundreds. They are read more often as
// long as the machine may be why they differ.
func (s *suite) testReadsDoNotSlow(t *testing.T) {
	f := s.growthFixture(t)
	instants := func(key string) []driver.Instant {
		entries := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{key}, NoData: true})
		var at []driver.Instant
		for i := range 10 {
			at = append(at, entries[i*(len(entries)-1)/9].Version.RecordedAt)
		}
		return at
	}
	at := map[string][]driver.Instant{"many": instants("many"), "few": instants("few")}
	get := func(key string, ref func(i int) driver.Ref) {
		for i := range 10 {
			r := ref(i)
			r.Key = key
			if vs, err := f.raw.Get(f.ctx, collection, []driver.Ref{r}, nil); err != nil || vs[0] == nil {
				t.Fatalf("Get(%+v): %v, %v", r, vs, err)
			}
		}
	}
	last := map[string]int64{"many": manyVersions, "few": 10}
	for name, read := range map[string]func(key string){
		"current reads": func(key string) { get(key, func(int) driver.Ref { return driver.Ref{At: driver.Forever} }) },
		"reads as of":   func(key string) { get(key, func(i int) driver.Ref { return driver.Ref{At: at[key][i]} }) },
		"reads by number": func(key string) {
			get(key, func(i int) driver.Ref { return driver.Ref{Number: 1 + int64(i)*(last[key]-1)/9} })
		},
		"last ten of the log": func(key string) {
			q := &driver.LogQuery{Collections: []string{collection}, Keys: []string{key}, Backward: true, Limit: 10, Previous: true}
			for _, err := range f.raw.Log(f.ctx, q) {
				if err != nil {
					t.Fatal(err)
				}
			}
		},
		"writes": func(key string) {
			for range 5 {
				last[key]++
				w := &driver.Write{ID: f.id(), Collection: collection, Key: key, Expected: last[key] - 1, Op: driver.OpUpdate, Data: []byte(`{"n":1}`)}
				if _, err := f.raw.Commit(f.ctx, w); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		const enough, most = 12, 200
		best := map[string]time.Duration{}
		apart := func() bool { return best["many"] > 8*best["few"]+2*time.Millisecond }
		// The model scans; it is not an engine to be held to this.
		_, naive := f.raw.(*model)
		for n := 0; n < enough || n < most && !naive && apart(); n++ {
			for _, key := range []string{"few", "many"} {
				start := time.Now() //nolint:forbidigo // a duration is measured
				read(key)
				took := time.Since(start) //nolint:forbidigo // a duration is measured
				if best[key] == 0 || took < best[key] {
					best[key] = took
				}
			}
		}
		if !naive && apart() {
			t.Errorf("%s: %s with %d versions, %s with 10", name, best["many"], manyVersions, best["few"])
		}
	}
}

func (s *suite) testManyVersions(t *testing.T) {
	f := s.growthFixture(t)
	entries := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"many"}, NoData: true})
	if len(entries) != manyVersions {
		t.Fatalf("%d versions, want %d", len(entries), manyVersions)
	}
	for i := 0; i < manyVersions; i += 97 {
		v := entries[i].Version
		for offset, want := range map[driver.Instant]int64{0: v.Number, -1: v.Number - 1} {
			at := v.RecordedAt + offset
			if i > 0 && offset < 0 && at > entries[i-1].Version.SupersededAt {
				t.Fatalf("versions %d and %d are not next to each other", i, i+1)
			}
			if got := numberOf(f.get(driver.Ref{Key: "many", At: at})); got != want {
				t.Errorf("at version %d%+d µs: version %d, want %d", v.Number, offset, got, want)
			}
			if want == 0 {
				continue
			}
			q := &driver.Query{At: at, Filter: eq(intField("n"), 100000+want-1)}
			if got := f.query(q); !slices.ContainsFunc(got, func(v *driver.Version) bool { return v.Key == "many" && v.Number == want }) {
				t.Errorf("by its value at version %d%+d µs: %q", v.Number, offset, keysOf(got))
			}
		}
	}
}
