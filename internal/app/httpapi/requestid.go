package httpapi

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"sync/atomic"
)

// requestIDs names requests, so that an answer and the log can be matched.
type requestIDs struct {
	prefix string // differs between processes
	last   *atomic.Uint64
}

func newRequestIDs() requestIDs {
	return requestIDs{prefix: rand.Text()[:8] + "-", last: new(atomic.Uint64)}
}

// of takes the sender's X-Request-Id where it is short and harmless in a log,
// and makes one up otherwise.
func (i requestIDs) of(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && harmless(given[0]) {
		return given[0]
	}
	return i.prefix + strconv.FormatUint(i.last.Add(1), 10)
}

func harmless(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
