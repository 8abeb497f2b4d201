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

// What one document has, and each of so many others.
const (
	manyVersions = 5000
	fewVersions  = 10
	fewDocuments = 40
)

// growthFixture has a document with many versions, and others with ten, of equal size.
func (s *suite) growthFixture(t *testing.T, others int) *fixture {
	f := s.fixture(t)
	var vs []driver.Version
	at := driver.Instant(1)
	for i := range manyVersions {
		at++
		vs = append(vs, loaded("many", at, fmt.Sprintf(`{"n":%06d,"s":"%0500d","tags":["t%d"]}`, 100000+i, i, i%10)))
		if i%(manyVersions/fewVersions) == 0 {
			for n := range others {
				at++
				vs = append(vs, loaded(fewKey(n), at, fmt.Sprintf(`{"n":%06d,"s":"%0500d","tags":["f%d"]}`, 100000+i, i, i%10)))
			}
		}
	}
	for part := range slices.Chunk(vs, 1000) {
		f.load(part...)
	}
	return f
}

func fewKey(n int) string { return fmt.Sprintf("few%02d", n) }

// A document with 5,000 versions reads like those with ten. They are read in turn, the
// fastest reading of each counts, and the bound is generous: what is linear in the
// number of versions is slower by hundreds. They are read more often as long as the
// machine may be why they differ. No version is read twice, since an engine may remember
// those that it has read.
func (s *suite) testReadsDoNotSlow(t *testing.T) {
	f := s.growthFixture(t, fewDocuments)
	at, last := map[string][]driver.Instant{}, map[string]int64{}
	for _, v := range f.log(&driver.LogQuery{Collections: []string{collection}, Fields: []string{}}) {
		at[v.Key] = append(at[v.Key], v.RecordedAt)
		last[v.Key]++
	}
	get := func(refs ...driver.Ref) {
		for _, r := range refs {
			if vs, err := f.raw.Get(f.ctx, collection, []driver.Ref{r}, nil); err != nil || vs[0] == nil {
				t.Fatalf("Get(%+v): %v, %v", r, vs, err)
			}
		}
	}
	write := func(key string) {
		last[key]++
		w := &driver.Write{ID: f.id(), Collection: collection, Key: key, Expected: last[key] - 1, Op: driver.OpUpdate, Data: []byte(`{"n":1}`)}
		if _, err := driver.CommitOne(f.ctx, f.raw, w); err != nil {
			t.Fatal(err)
		}
	}
	kinds := []struct {
		name string
		read func(key string, places []int) // of versions that were loaded
	}{
		{"reads as of", func(key string, places []int) {
			for _, i := range places {
				get(driver.Ref{Key: key, At: at[key][i]})
			}
		}},
		{"reads by number", func(key string, places []int) {
			for _, i := range places {
				get(driver.Ref{Key: key, Number: int64(i) + 1})
			}
		}},
		{"current reads", func(key string, _ []int) { get(driver.Ref{Key: key, At: driver.Forever}) }},
		{"last ten of the log", func(key string, _ []int) {
			q := &driver.LogQuery{Collections: []string{collection}, Keys: []string{key}, Backward: true, Limit: 10}
			for _, err := range f.raw.Log(f.ctx, q) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"writes", func(key string, _ []int) {
			for range 5 {
				write(key)
			}
		}},
	}
	for kind, test := range kinds {
		const enough, most = 12, fewDocuments / 2 // two kinds read what was loaded
		best := map[string]time.Duration{}
		apart := func() bool { return best["many"] > 8*best["few"] }
		// The model scans; it is not an engine to be held to this.
		_, naive := driver.As[*model](f.raw)
		for round := 0; round < enough || round < most && !naive && apart(); round++ {
			n := kind*most + round
			for name, key := range map[string]string{"many": "many", "few": fewKey(n % fewDocuments)} {
				places := make([]int, fewVersions)
				for i := range places {
					const step = 13 // has no divisor in common with the numbers of versions
					places[i] = (n*fewVersions + i) * step % len(at[key])
				}
				write(key)          // so that it is another version that is current, too
				start := time.Now() //nolint:forbidigo // a duration is measured
				test.read(key, places)
				took := time.Since(start) //nolint:forbidigo // a duration is measured
				if best[name] == 0 || took < best[name] {
					best[name] = took
				}
			}
		}
		if !naive && apart() {
			t.Errorf("%s: %s with %d versions, %s with %d", test.name, best["many"], manyVersions, best["few"], fewVersions)
		}
	}
}

func (s *suite) testManyVersions(t *testing.T) {
	f := s.growthFixture(t, 1)
	entries := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"many"}, Fields: []string{}})
	if len(entries) != manyVersions {
		t.Fatalf("%d versions, want %d", len(entries), manyVersions)
	}
	for i := 0; i < manyVersions; i += 97 {
		v := entries[i]
		for offset, want := range map[driver.Instant]int64{0: v.Number, -1: v.Number - 1} {
			at := v.RecordedAt + offset
			if i > 0 && offset < 0 && at > entries[i-1].SupersededAt {
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
