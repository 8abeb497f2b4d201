package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// bulk gathers writes of different documents and sends them together, in
// commands of at most maxLoadBytes. A server takes 48 MB at once; less keeps
// the time that one command takes, and the memory, small.
//
// Every write must find what it is for, unless the bulk is repeatable: then it
// may find that it was done before.
type bulk struct {
	bind       bindFunc
	target     *mongo.Collection
	repeatable bool
	models     []mongo.WriteModel
	bytes      int64
	found      bool // that something was there before
}

func (b *bulk) add(ctx context.Context, model mongo.WriteModel, bytes int64) error {
	if len(b.models) > 0 && b.bytes+bytes > maxLoadBytes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.models, b.bytes = append(b.models, model), b.bytes+bytes
	return nil
}

func (b *bulk) addAll(ctx context.Context, runs []runModel) error {
	for _, run := range runs {
		if err := b.add(ctx, run.model, run.size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulk) flush(ctx context.Context) error {
	if len(b.models) == 0 {
		return nil
	}
	ctx, cancel, err := b.bind(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	result, err := b.target.BulkWrite(ctx, b.models, options.BulkWrite().SetOrdered(false))
	sent := int64(len(b.models))
	b.models, b.bytes = nil, 0
	there, err := onlyDuplicates(err)
	b.found = b.found || there
	switch {
	case err != nil:
		return err
	case !b.repeatable && (there || result.InsertedCount+result.MatchedCount < sent):
		return driver.Errorf(driver.CodeUnavailable, "a document of %s was changed while it was loaded; load it again", b.target.Name())
	}
	return nil
}

// onlyDuplicates takes errors of writes that found their document made by
// another out of the error of a bulk, and tells whether there were any.
func onlyDuplicates(err error) (some bool, rest error) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || bulk.WriteConcernError != nil {
		return false, err
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != duplicateKey || ofForeignIndex(e.WriteError) {
			return false, err
		}
	}
	return len(bulk.WriteErrors) > 0, nil
}
