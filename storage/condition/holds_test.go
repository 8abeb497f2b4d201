package condition

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A long text is decoded, and put into small letters, once for all conditions on it.
func TestLongTextsAreDecodedOnce(t *testing.T) {
	const size = 100_000
	field := driver.Field{Path: []string{"text"}, Kind: driver.KindString}
	for name, letter := range map[string]string{"plain": "A", "with escapes": `\"`} {
		data := fmt.Appendf(nil, `{"text":"%s"}`, bytes.Repeat([]byte(letter), size))
		end := strings.Trim(letter, `\`)
		for _, fold := range []bool{false, true} {
			var or driver.Or
			for i := range 100 {
				or = append(or, driver.Text{Field: field, Op: driver.HasSuffix, Value: fmt.Sprint("z", i), Fold: fold})
			}
			holds := driver.Text{Field: field, Op: driver.HasSuffix, Value: end + end, Fold: fold}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if Holds(or, nil, data) || !Holds(driver.And{driver.Not{Filter: or}, holds}, nil, data) {
				t.Errorf("%s, fold %v: a wrong answer", name, fold)
			}
			runtime.ReadMemStats(&after)
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 10*size {
				t.Errorf("%s, fold %v: %d bytes were allocated", name, fold, bytes)
			}
		}
	}
}
