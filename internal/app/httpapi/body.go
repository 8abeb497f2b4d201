package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/asof/asof/internal/app/admission"
)

// shortBody is the length of a body, in bytes, that mostly comes with the header: only the
// server's ReadTimeout bounds how slowly it may come.
const shortBody = 2 << 10

// readBody reads the request's body, at most the limit, as fast as the client has to send
// it, with memory held for it.
func (x *exchange) readBody(ctx context.Context) *problem {
	limit := x.h.cfg.Limits.Body
	tooLarge := func() *problem {
		x.w.Header().Set("Connection", "close") // the rest is not read
		return &problem{
			http.StatusRequestEntityTooLarge, CodeBadInput,
			fmt.Sprintf("the request body is larger than %d bytes, the limit of this server (--max-body)", limit),
		}
	}
	if x.r.ContentLength > limit {
		return tooLarge()
	}
	if n := x.r.ContentLength; n < 0 || n > shortBody {
		_ = http.NewResponseController(x.w).SetReadDeadline(deadline(x.h.slowest(int(limit)))) // where it can; until the end of the body
	}
	x.rest.R, x.rest.N = x.r.Body, limit+1
	err := readHeld(ctx, x.h, &x.rest, &x.body, x.op.hold)
	switch {
	case int64(x.body.Len()) > limit:
		return tooLarge()
	case errors.Is(err, admission.ErrSpent):
		x.w.Header().Set("Connection", "close")
		return starved()
	case err != nil:
		return &problem{http.StatusBadRequest, CodeBadInput, "the request body could not be read to its end"}
	}
	return nil
}
