package app

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// operations ties GraphQL operations to the store.
type operations struct {
	store *storage.Store
	clock *clockWarning
}

func (o operations) Begin(ctx context.Context) (context.Context, error) {
	begun, err := o.store.Begin(ctx)
	if at, ok := storage.InstantOf(begun); ok {
		o.clock.observe(ctx, at)
	}
	if err != nil && isMutation(ctx) {
		return ctx, storage.Unwritten(err)
	}
	if ctx = begun; err != nil {
		return ctx, err
	}
	return dataloader.Begin(ctx, o.store), nil
}

// subscribe is httpapi.Config.Subscribe.
func (o operations) subscribe(ctx context.Context) (context.Context, func(context.Context) (httpapi.Watch, error)) {
	begin, sub := o.store.Subscribe(ctx)
	return begin, func(ctx context.Context) (httpapi.Watch, error) {
		w, err := sub.Watch(ctx)
		return watch{w}, err
	}
}

// watch is a httpapi.Watch.
type watch struct{ *storage.Watch }

func (w watch) Next(ctx context.Context, take func(httpapi.Event) bool) (more bool, err error) {
	return w.Watch.Next(ctx, func(e *storage.Event) bool { return take(e) })
}

// isMutation reports whether a context is of an operation that writes.
func isMutation(ctx context.Context) bool {
	if !graphql.HasOperationContext(ctx) {
		return false
	}
	op := graphql.GetOperationContext(ctx).Operation
	return op != nil && op.Operation == ast.Mutation
}

func (o operations) Instant(ctx context.Context) string {
	at, ok := storage.InstantOf(ctx)
	if !ok {
		return ""
	}
	return at.String()
}

// maxAhead is how far the store's clock may be ahead of this machine's without a warning.
const maxAhead = time.Second

// clockWarning warns when the store's clock is ahead of this machine's: the database's clock
// is, or a clock was wrong when the store was last written, since commits get times after those
// that it has. It warns once, until the clocks agree again.
type clockWarning struct {
	now    func() time.Time
	logger *slog.Logger
	warned atomic.Bool
	// fine is an instant that was not too far ahead, in microseconds: until the store's clock
	// is beyond it, this machine's clock need not be read.
	fine atomic.Int64
}

// observe compares the store's present instant with this machine's clock.
func (c *clockWarning) observe(ctx context.Context, present driver.Instant) {
	if int64(present) <= c.fine.Load() && !c.warned.Load() {
		return
	}
	now := c.now()
	c.fine.Store(int64(driver.InstantOf(now.Add(maxAhead))))
	by := present.Time().Sub(now)
	if is := by > maxAhead; is != c.warned.Load() && c.warned.CompareAndSwap(!is, is) && is {
		c.logger.WarnContext(ctx, "the store's clock is ahead of this machine's, and versions get its times; look which of the two is wrong, and what asof check says",
			"store", present, "machine", driver.InstantOf(now), "ahead", by)
	}
}

// weight is what a field costs beside what it returns, in fields: it reads
// versions and compares them with each other. parent and result are the names of
// the types that the field belongs to and leads to.
func weight(parent, field, result string) int {
	const (
		history  = 20  // a page of what happened
		compared = 20  // two versions
		edge     = 10  // a version and the one before, or a draft
		blame    = 50  // back to the version that explains the last value
		versions = 100 // all of one document, counted
		changes  = 500 // all of them, compared and counted
	)
	switch {
	case result == "FieldChangeConnection":
		return history
	case result == "DocumentDiff":
		return compared
	case result == "FieldBlame":
		return blame
	case (result == "FieldChange" || result == "DraftProblem") &&
		(strings.HasSuffix(parent, "VersionEdge") || strings.HasSuffix(parent, "Draft") || parent == "DraftSave"):
		return edge
	case field == "totalCount" && parent == "FieldChangeConnection":
		return changes
	case field == "totalCount" && (strings.HasSuffix(parent, "VersionConnection") || parent == "DraftSaveConnection"):
		return versions
	default:
		return 0
	}
}
