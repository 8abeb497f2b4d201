package sqlitestore

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// BenchmarkLog reads a log of 20,000 versions, of which a condition selects one
// in a hundred, or most, both as the engine does it and with the caller
// leaving out what it does not want.
func BenchmarkLog(b *testing.B) {
	for _, pad := range []int{0, 8 << 10} {
		s := benchStore(b, Options{Sync: SyncOff})
		vs := benchVersions(500, 20_000)
		for i := range vs {
			if i%100 == 0 {
				vs[i].Group = "rare"
			}
			vs[i].Data = fmt.Appendf(nil, `{"pad":"%0*d",%s`, pad, i, vs[i].Data[1:])
		}
		benchLoad(b, s, vs)
		for _, group := range []string{"rare", "g"} {
			for _, filtered := range []bool{true, false} {
				b.Run(fmt.Sprintf("bytes=%d/group=%s/engine=%t", len(vs[0].Data), group, filtered), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						q := driver.LogQuery{Collections: []string{benchCollection}, Backward: true, Previous: true}
						if filtered {
							q.Groups = []string{group}
						}
						n := 0
						for e, err := range s.Log(b.Context(), &q) {
							if err != nil {
								b.Fatal(err)
							}
							if e.Version.Group == group {
								n++
							}
						}
						if rare := len(vs) / 100; n != rare && n != len(vs)-rare {
							b.Fatal(n)
						}
					}
				})
			}
		}
	}
}

// BenchmarkHistories reads the last three versions of one document and of fifty,
// one document after another and together.
func BenchmarkHistories(b *testing.B) {
	s := benchStore(b, Options{Sync: SyncOff})
	vs := benchVersions(500, 20_000)
	benchLoad(b, s, vs)
	keys := map[string]bool{}
	var histories []driver.History
	for _, v := range vs {
		if !keys[v.Key] {
			keys[v.Key] = true
			histories = append(histories, driver.History{Key: v.Key, To: vs[len(vs)-1].RecordedAt})
		}
	}
	read := func(b *testing.B, q driver.LogQuery) (n int) {
		q.Collections, q.Backward, q.Limit, q.Previous = []string{benchCollection}, true, 3, true
		for _, err := range s.Log(b.Context(), &q) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		return n
	}
	for _, documents := range []int{1, 50} {
		for _, together := range []bool{false, true} {
			b.Run(fmt.Sprintf("documents=%d/together=%t", documents, together), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					n := 0
					if together {
						n = read(b, driver.LogQuery{Histories: histories[:documents]})
					} else {
						for _, h := range histories[:documents] {
							n += read(b, driver.LogQuery{Keys: []string{h.Key}, To: h.To})
						}
					}
					if n != 3*documents {
						b.Fatal(n)
					}
				}
			})
		}
	}
}
