package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// hello is what a server says that it is.
type hello struct {
	SetName   string        `bson:"setName"`
	Message   string        `bson:"msg"`
	Me        string        `bson:"me"`
	Primary   bool          `bson:"isWritablePrimary"`
	Master    bool          `bson:"ismaster"` // what it was called before
	LocalTime bson.DateTime `bson:"localTime"`

	MaxWireVersion int32 `bson:"maxWireVersion"`
	SessionTimeout int64 `bson:"logicalSessionTimeoutMinutes"`
}

// replicated reports whether what a majority acknowledged survives the loss of
// the server.
func (h *hello) replicated() bool { return h.SetName != "" || h.Message == "isdbgrid" }

// sessions reports whether the server takes reads that wait until it has got as far as
// another one had.
func (h *hello) sessions() bool { return h.replicated() && h.SessionTimeout > 0 }

// hello asks the server what it is. It is an error when it takes no writes: a
// client that knows the whole replica set asks the primary only, so that this
// is a server that was named alone.
func (s *Store) hello(ctx context.Context) (*hello, error) {
	var h hello
	err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		err = s.db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&h)
	}
	if err != nil {
		return nil, err
	}
	if h.SetName != "" && !h.Primary && !h.Master {
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the MongoDB server %s is not the primary of the replica set %s now, and takes no writes; name all members of the set in --store, without directConnection", h.Me, h.SetName)
	}
	return &h, nil
}

// ping finds out whether documents can be read and written: whether the server
// can be reached and takes writes, and still has what asof keeps about the
// store and lets this user read it.
func (s *Store) ping(ctx context.Context) error {
	if _, err := s.hello(ctx); err != nil {
		return err
	}
	err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran (%s.%s is gone); restore it, or start asof again for an empty store", s.db.Name(), metaName)
	}
	return err
}
