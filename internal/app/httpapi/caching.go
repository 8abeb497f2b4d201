package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
)

// cacheable lets caches keep the answer to a query that came by GET (RFC 9111): one that stays as
// it is for Config.CachePast, any other to ask whether it is still the same. Only browsers keep
// what was answered to somebody who said who he is. It reports whether the client has the answer
// already.
func (x *exchange) cacheable(oc *graphql.OperationContext, response *graphql.Response) bool {
	header, policy := x.w.Header(), "no-cache"
	stays := x.h.cfg.CachePast > 0 && x.h.cfg.Pinned(oc, response.Data)
	if stays {
		policy = "max-age=" + strconv.Itoa(int(x.h.cfg.CachePast.Seconds())) + ", immutable"
	}
	switch {
	case x.r.Header["Authorization"] != nil:
		policy = "private, " + policy
	case stays:
		policy = "public, " + policy
	}
	tag, known := etag(response.Data, x.op.instant, x.r.Header["If-None-Match"])
	header.Set("Cache-Control", policy)
	header.Set("ETag", tag)
	header.Add("Vary", "Accept, Authorization")
	return known
}

// etag returns the tag of an answer: of its data, a dot, and its instant, which is another each
// time. It is that of an answer that the client has with the same data, if there is one in
// If-None-Match (RFC 9110, 13.1.2): that answer is still true, of its instant. Proxies compare
// only tags that name the bytes, and append to those of what they compress.
func etag(data []byte, instant string, has []string) (tag string, known bool) {
	sum := sha256.Sum256(data)
	begin := `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + "."
	fresh := begin + instant + `"`
	for _, line := range has {
		for part := range strings.SplitSeq(line, ",") { // no tag of ours has a comma
			part = strings.TrimSpace(part)
			switch {
			case part == "*":
				return fresh, true
			case strings.HasPrefix(strings.TrimPrefix(part, "W/"), begin):
				return part, true
			}
		}
	}
	return fresh, false
}
