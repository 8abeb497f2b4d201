package transfer

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

// A batch is put in order as a stable sort would put it, and cut by lines.
func TestBatchOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	b := &batch{}
	for n := range 200 {
		b.reuse()
		var want []driver.Version
		for line := range n {
			v := driver.Version{
				Collection: fmt.Sprint("c", r.IntN(3)), Key: fmt.Sprint("k", r.IntN(1+n/4)),
				RecordedAt: driver.Instant(line), Message: fmt.Sprint(line),
			}
			b.versions, b.origins = append(b.versions, v), append(b.origins, origin{line: int64(line)})
			want = append(want, v)
		}
		check := func(step string) {
			t.Helper()
			slices.SortStableFunc(want, func(x, y driver.Version) int {
				return cmp.Or(cmp.Compare(x.Collection, y.Collection), cmp.Compare(x.Key, y.Key))
			})
			if diff := gocmp.Diff(want, slices.Clone(b.versions)); diff != "" {
				t.Fatalf("%d versions, %s (-want +got):\n%s", n, step, diff)
			}
			for i, o := range b.origins {
				if o.line != int64(b.versions[i].RecordedAt) {
					t.Fatalf("%d versions, %s: the version of line %d is told to be of line %d", n, step, b.versions[i].RecordedAt, o.line)
				}
			}
		}
		sort.Sort(b)
		check("sorted")
		sort.Sort(b)
		check("sorted again")
		last := int64(r.IntN(n + 1))
		b.cut(last)
		want = slices.DeleteFunc(want, func(v driver.Version) bool { return int64(v.RecordedAt) >= last })
		check("cut")
	}
}
