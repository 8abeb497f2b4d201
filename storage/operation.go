package storage

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// operation is what the parts of one GraphQL operation share.
type operation struct {
	store *Store
	begin driver.Instant
	last  atomic.Int64 // the latest instant that it committed at or showed; 0: none
	// id is the group of what it writes, made for the first write.
	id     string
	idOnce sync.Once
	// details are the explained values and listed changes, which take many times
	// the memory of the documents that they are about.
	details atomic.Int64
	// authors are those of what was listed, as far as their names were not read.
	authors []string
	// tags are those of documents; nil where only those of one version were read.
	tags map[documentAt]func() (map[int64][]*VersionTag, error)
	mu   sync.Mutex // guards authors and tags
}

type operationKey struct{}

// Begin chooses the instant that everything in the operation reads at which
// does not name one, that of the event in the context of one, and the group of what the operation writes.
func (s *Store) Begin(ctx context.Context) (context.Context, error) {
	begun := &operationContext{Context: ctx}
	if err := s.begin(begun, &begun.operation); err != nil {
		return ctx, err
	}
	return begun, nil
}

// operationContext is a context and its operation, in one allocation.
type operationContext struct {
	context.Context
	operation operation
}

// Value returns the operation, or what the context has.
func (c *operationContext) Value(key any) any {
	if key == (operationKey{}) {
		return &c.operation
	}
	return c.Context.Value(key)
}

// Actor is who did something.
type Actor struct {
	ID   string
	Name string // as the verified identity of who acts has it; "": not known
	// Roles and Claims decide what who acts may do. Claims are as JSON decodes them; sub and
	// roles are the ID and the roles, whatever they say.
	Roles  []string
	Claims map[string]any
}

type actorKey struct{}

// WithActor says who acts in the context: the verified identity.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// Anonymous is the author of what was written without an identity.
const Anonymous = "anonymous"

// actorOf returns the actor of the context.
func actorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok && a.ID != "" {
		return a
	}
	return Actor{ID: Anonymous}
}

func (s *Store) begin(ctx context.Context, op *operation) error {
	op.store = s
	if e, ok := ctx.Value(eventKey{}).(*Event); ok {
		op.begin = e.v.RecordedAt
		return nil
	}
	now, err := s.engine.Now(ctx)
	if err != nil {
		return fromDriver(ctx, err)
	}
	op.begin = now
	return nil
}

// group is shared by all that the operation writes.
func (o *operation) group() string {
	o.idOnce.Do(func() { o.id = newGroup(o.begin) })
	return o.id
}

// operation returns the context's operation, or a new one where there is none.
func (s *Store) operation(ctx context.Context) (*operation, error) {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		return op, nil
	}
	op := new(operation)
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	return op, nil
}

// detailBytes is what an explained value or a listed change takes, about, with what is needed to
// find the version that made it.
const detailBytes = 640

// detail counts explained values and listed changes, and refuses what is too
// much for one operation.
func (s *Store) detail(ctx context.Context, n int) error {
	op, ok := ctx.Value(operationKey{}).(*operation)
	switch {
	case !ok:
		return nil
	case op.details.Add(int64(n)) > int64(s.limits.Details):
		return fault.Errorf(fault.CodeQueryTooComplex, "blames, diffs and changes of this operation tell of more than %d values, the limit of this server: "+
			"ask for fewer documents or fewer fields", s.limits.Details)
	}
	return s.keep(ctx, n*detailBytes)
}

// reached records an instant that the operation committed at, or shows.
func (o *operation) reached(at driver.Instant) {
	for {
		old := o.last.Load()
		if int64(at) <= old || o.last.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// InstantOf returns the latest instant of the operation: that of its last
// commit, or of a newer version that it showed in a conflict; the one that Begin
// chose where there is neither. It returns false where Begin was not called.
func InstantOf(ctx context.Context) (driver.Instant, bool) {
	op, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return 0, false
	}
	return max(op.begin, driver.Instant(op.last.Load())), true
}

// newID returns a UUID of version 7 (RFC 9562): unique, and in order of time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// settled checks an instant that a user named and waits until reads at it are
// repeatable.
func (s *Store) settled(ctx context.Context, op *operation, at driver.Instant) error {
	if at <= op.begin {
		return nil
	}
	err := s.engine.Settle(ctx, at)
	if driver.CodeOf(err) == driver.CodeInvalid {
		now, nowErr := s.engine.Now(ctx)
		if nowErr != nil {
			return fromDriver(ctx, nowErr)
		}
		return fault.Errorf(fault.CodeAsOfInFuture, "asOf %s is in the future: the server's time is %s", at, now)
	}
	return fromDriver(ctx, err)
}

// newGroup returns the id of a group that is written after an instant: a UUID of version 7
// (RFC 9562) of that, by which its versions are found without an index.
func newGroup(begin driver.Instant) string {
	id := uuid.New()
	binary.BigEndian.PutUint64(id[:8], uint64(begin/1000)<<16|uint64(binary.BigEndian.Uint16(id[6:8])))
	id[6] = id[6]&0x0f | 0x70
	return id.String()
}

// groupTime is how long after its operation began a group may still be written: clocks of
// servers differ.
const groupTime = driver.Instant((LongestOperation + time.Minute) / time.Microsecond)

// groupSpan returns the instants [from, to) between which a group was written; 0 and 0 where
// its id does not tell.
func groupSpan(group string) (from, to driver.Instant) {
	group, _, _ = strings.Cut(group, "/") // see approvalOf
	id, err := uuid.Parse(group)
	if err != nil || id.Version() != 7 || id.String() != group {
		return 0, 0
	}
	from = driver.Instant(binary.BigEndian.Uint64(id[:8])>>16) * 1000
	return from, from + groupTime
}
