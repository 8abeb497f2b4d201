package storage

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asof/asof/storage/driver"
)

// ChangeGroup is what was written together: by a commit, by the mutations of one
// request, or elsewhere, before it was imported.
type ChangeGroup struct {
	store *Store
	last  *driver.Version // its newest version
	seen  driver.Instant
	// Its versions were recorded in [from, to); 0 and 0: at any time.
	from, to driver.Instant
}

// LongestOperation is how long an operation may take. Change groups are found by it.
const LongestOperation = 15 * time.Minute

// groupTime is how long after its operation began a group may still be written: clocks of
// servers differ.
const groupTime = driver.Instant((LongestOperation + time.Minute) / time.Microsecond)

// newGroup returns the id of a group that is written after an instant: a UUID of version 7
// (RFC 9562) of that, by which its versions are found without an index.
func newGroup(begin driver.Instant) string {
	id := uuid.New()
	binary.BigEndian.PutUint64(id[:8], uint64(begin/1000)<<16|uint64(binary.BigEndian.Uint16(id[6:8])))
	id[6] = id[6]&0x0f | 0x70
	return id.String()
}

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

// ChangeGroup returns the change group with an id; nil where there is none.
func (s *Store) ChangeGroup(ctx context.Context, id string) (*ChangeGroup, error) {
	op, err := s.operation(ctx)
	if err != nil || id == "" {
		return nil, err
	}
	from, to := groupSpan(id)
	g := &ChangeGroup{store: s, last: &driver.Version{Group: id}, seen: op.begin, from: from, to: to}
	found, err := g.find(ctx)
	if !found && err == nil && to != 0 { // imported, with an id of another kind
		g.from, g.to = 0, 0
		found, err = g.find(ctx)
	}
	if !found {
		return nil, err
	}
	return g, nil
}

// find looks for its newest version.
func (g *ChangeGroup) find(ctx context.Context) (bool, error) {
	q := g.list().log
	q.Backward, q.Limit, q.Fields = true, 1, []string{}
	if q.To == 0 || q.To > g.seen+1 {
		q.To = g.seen + 1
	}
	if q.From >= q.To {
		return false, nil
	}
	for v, err := range g.store.readLog(ctx, &q) {
		if err != nil {
			return false, err
		}
		g.last = v
		return true, nil
	}
	return false, nil
}

// ID is the group of its versions.
func (g *ChangeGroup) ID() string { return g.last.Group }

// RecordedAt is when its newest version was recorded: all versions of a commit are
// recorded at one instant.
func (g *ChangeGroup) RecordedAt() driver.Instant { return g.last.RecordedAt }

// Author is who wrote its newest version.
func (g *ChangeGroup) Author() *Actor { return &Actor{ID: g.last.Author} }

// Message is that of its newest version; nil for none.
func (g *ChangeGroup) Message() *string { return optional(g.last.Message) }

// Changes returns a page of its changes, newest version first.
func (g *ChangeGroup) Changes(ctx context.Context, first *int, after *string, last *int, before *string) (*FieldChangeConnection, error) {
	op, p, err := g.paging(ctx, first, after, last, before)
	if err != nil {
		return nil, err
	}
	return g.list().page(ctx, op, argsHash("changeGroup.changes", g.last.Group), p)
}

// DocumentVersionConnection is a page of versions of documents of any type.
type DocumentVersionConnection = VersionConnection[AnyDocument]

// DocumentVersionEdge is one of them.
type DocumentVersionEdge = VersionEdge[AnyDocument]

// Versions returns a page of its versions, newest first.
func (g *ChangeGroup) Versions(ctx context.Context, first *int, after *string, last *int, before *string) (*DocumentVersionConnection, error) {
	op, p, err := g.paging(ctx, first, after, last, before)
	if err != nil {
		return nil, err
	}
	s, l := g.store, g.list()
	l.whole = true
	items, info, count, err := l.items(ctx, op, argsHash("changeGroup.versions", g.last.Group), p)
	if err != nil {
		return nil, err
	}
	conn := &DocumentVersionConnection{Edges: make([]*DocumentVersionEdge, len(items)), Nodes: make([]AnyDocument, len(items)), PageInfo: info, count: count}
	for i, it := range items {
		d := s.newDocument(it.t, it.version, it.version.RecordedAt, l.seen, true)
		if it.version.Deleted && it.before != nil {
			d.raw = it.before.Data
		}
		conn.Nodes[i] = s.wrapAny(d)
		conn.Edges[i] = &DocumentVersionEdge{Node: conn.Nodes[i], cursor: it.cursor, changes: func() ([]*FieldChange, error) {
			return s.listChanges(ctx, it.t, it.before, it.version, it.version, l.seen)
		}}
	}
	return conn, nil
}

func (g *ChangeGroup) paging(ctx context.Context, first *int, after *string, last *int, before *string) (*operation, paging, error) {
	op, err := g.store.operation(ctx)
	if err != nil {
		return nil, paging{}, err
	}
	p, err := g.store.paging(first, after, last, before)
	return op, p, err
}

// list is the changes of the group's versions.
func (g *ChangeGroup) list() *changelog {
	l := &changelog{store: g.store, seen: g.seen, log: driver.LogQuery{From: g.from, To: g.to, Hints: driver.Hints{Groups: []string{g.last.Group}}}}
	for _, t := range g.store.types {
		l.log.Collections = append(l.log.Collections, t.Collection)
	}
	return l
}
