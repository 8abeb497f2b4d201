package mongostore

import (
	"bytes"
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// progress is how far the servers had got that answered last. A primary that was just
// elected may show less than the one before it had acknowledged; so every read waits
// until the server has got that far (afterClusterTime), where servers keep sessions.
type progress struct {
	kept bool

	mu      sync.Mutex
	time    *bson.Timestamp // of the last operation
	cluster bson.Raw        // what servers tell each other of it
}

func (p *progress) operation() *bson.Timestamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.time
}

// causal returns a context whose reads see all that was answered before, and what is to
// be called when they have ended. Its commands are made one after the other.
func (s *Store) causal(ctx context.Context) (context.Context, func()) {
	p := &s.progress
	if !p.kept || mongo.SessionFromContext(ctx) != nil {
		return ctx, func() {}
	}
	session, err := s.client.StartSession()
	if err != nil { // the client is closed, which the command says as well
		return ctx, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.time != nil {
		_, _ = session.AdvanceClusterTime(p.cluster), session.AdvanceOperationTime(p.time) // only of a session that has ended
	}
	return mongo.NewSessionContext(ctx, session), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if at := session.OperationTime(); at != nil && (p.time == nil || at.After(*p.time)) {
			p.time, p.cluster = at, bytes.Clone(session.ClusterTime())
		}
		session.EndSession(context.WithoutCancel(ctx))
	}
}
