package httpapi

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
)

// An answer that becomes too long takes little more memory than it may have.
func TestLongAnswersAreNotCopiedAgainAndAgain(t *testing.T) {
	const most = 8 << 20
	part := strings.Repeat("x", 100)
	value := boundedValue{t.Context(), graphql.WriterFunc(func(w io.Writer) {
		for range most/len(part) + 1 {
			_, _ = io.WriteString(w, part)
		}
	}), most}
	var long, bounded bytes.Buffer
	allocated := func(m graphql.Marshaler, into *bytes.Buffer) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m.MarshalGQL(into)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	doubling, once := allocated(value.Marshaler, &long), allocated(value, &bounded)
	if bounded.Len() != most+1 || 2*once > doubling {
		t.Errorf("%d bytes, for which %d are allocated; %d where it is not bounded", bounded.Len(), once, doubling)
	}
}
