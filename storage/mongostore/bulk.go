package mongostore

import (
	"context"
	"errors"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// Bounds of what one command of a load sends, in bytes. It must be carried out within
// what is left of a lease, so that nothing of a load happens after others took its
// server for dead. A large write is sent alone, and may outlast the lease as long
// as that is renewed, as in a commit.
const (
	maxBulkBytes = 512 << 10
	minBulkBytes = 16 << 10
)

// lenience is how many bulks may outlast a lease after one did not get that done.
const lenience = 64

// bulkSize is how much is sent at once, and how, which the store learns: a database
// for which a lease is too short gets half as much the next time, and a bit more
// each time that went well; and, as it is slow but to be used, for some time the
// commands may outlast the lease.
type bulkSize struct {
	bytes   atomic.Int64 // 0: most
	lenient atomic.Int64 // so many bulks may outlast a lease
	carried atomic.Int64 // so many bulks made what is loaded part of documents
}

func (s *bulkSize) get() int64 {
	if bytes := s.bytes.Load(); bytes != 0 {
		return bytes
	}
	return maxBulkBytes
}

// learn takes into account how it went.
func (s *bulkSize) learn(late bool) {
	bytes := s.get()
	switch {
	case late:
		s.bytes.Store(max(minBulkBytes, bytes/2))
		s.lenient.Store(lenience)
		return
	case bytes < maxBulkBytes:
		s.bytes.Store(min(maxBulkBytes, bytes+minBulkBytes))
	}
	if n := s.lenient.Load(); n > 0 {
		s.lenient.Store(n - 1)
	}
}

// bulk gathers writes of different documents and sends them together, in
// commands of a bounded size.
//
// Every write must find what it is for, unless the bulk is repeatable: then it
// may find that it was done before.
type bulk struct {
	bind       bindFunc
	size       *bulkSize
	target     *mongo.Collection
	repeatable bool
	models     []mongo.WriteModel
	bytes      int64
	sent       int   // before models
	there      []int // which of all that was added found something that was there before
}

func (b *bulk) add(ctx context.Context, model mongo.WriteModel, bytes int64) error {
	if len(b.models) > 0 && b.bytes+bytes > b.size.get() {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.models, b.bytes = append(b.models, model), b.bytes+bytes
	return nil
}

func (b *bulk) flush(ctx context.Context) error {
	if len(b.models) == 0 {
		return nil
	}
	ctx, cancel, err := b.bind(ctx, b.size.lenient.Load() > 0 || len(b.models) == 1 && b.bytes > largeWrite)
	if err != nil {
		return err
	}
	defer cancel()
	result, err := b.target.BulkWrite(ctx, b.models, options.BulkWrite().SetOrdered(false))
	sent := len(b.models)
	if late := unanswered(err); err == nil || late {
		b.size.learn(late)
	}
	b.models, b.bytes = nil, 0
	there, err := onlyDuplicates(err)
	for _, i := range there {
		b.there = append(b.there, b.sent+i)
	}
	b.sent += sent
	switch {
	case err != nil:
		return err
	case !b.repeatable && (len(there) > 0 || result.InsertedCount+result.MatchedCount < int64(sent)):
		return driver.Errorf(driver.CodeUnavailable, "a document of %s was changed while it was loaded; load it again", b.target.Name())
	case !b.repeatable:
		b.size.carried.Add(1)
	}
	return nil
}

// onlyDuplicates takes errors of writes that found their document made by
// another out of the error of a bulk, and tells which those are.
func onlyDuplicates(err error) (which []int, rest error) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || bulk.WriteConcernError != nil {
		return nil, err
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != duplicateKey || ofForeignIndex(e.WriteError) {
			return nil, err
		}
		which = append(which, e.Index)
	}
	return which, nil
}
