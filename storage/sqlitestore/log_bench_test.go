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
						q := driver.LogQuery{Collections: []string{benchCollection}, Backward: true}
						if filtered {
							q.Hints.Groups = []string{group}
						}
						n := 0
						for v, err := range s.Log(b.Context(), &q) {
							if err != nil {
								b.Fatal(err)
							}
							if v.Group == group {
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
