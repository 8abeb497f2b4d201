package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// What the engine promises, the bare loop pays for as well.
var majorityReads = readconcern.Majority()

func durableWrites() *writeconcern.WriteConcern {
	journal := true
	return &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}
}

// bareMongo is the least that a program on the same driver and server has to do
// for the same reads and writes: it reads the fields of the current version
// that the engine reads, and replaces the current version on condition that it
// still is, with the old one pushed to prev. It looks at nothing that it reads,
// prepares what it writes beforehand, and forgets old versions instead of
// moving them.
type bareMongo struct {
	documents *mongo.Collection
	templates map[string]bson.D // current versions, by key
	at        int64
}

const (
	barePrefix = "bare-"
	// barePrev is how many versions prev holds: as many as with the engine near
	// version 10.
	barePrev = mongoVersions
)

// fill copies the engine's documents, for the bare loop to work on.
func (b *bareMongo) fill(ctx context.Context) error {
	b.templates = make(map[string]bson.D)
	for n := range mongoDocuments {
		var document bson.D
		if err := b.documents.FindOne(ctx, bson.D{{Key: "_id", Value: short(n)}}).Decode(&document); err != nil {
			return err
		}
		for i, field := range document {
			switch field.Key {
			case "_id":
				document[i].Value = barePrefix + short(n)
			case "current":
				current, ok := field.Value.(bson.D)
				if !ok {
					return fmt.Errorf("current of %s is no document", short(n))
				}
				// Loaded versions have no ID of a write; committed ones do.
				current = append(current, bson.E{Key: "id", Value: "01234567890123456789012345"})
				b.templates[short(n)], document[i].Value = current, current
			}
		}
		if _, err := b.documents.InsertOne(ctx, document); err != nil {
			return err
		}
	}
	return nil
}

// read is the engine's point read: by key, the current version, without what
// only the database looks at.
func (b *bareMongo) read(ctx context.Context, n int) error {
	projection := bson.D{}
	for _, name := range []string{"v", "at", "to", "op", "del", "by", "msg", "grp", "ch", "id", "data"} {
		projection = append(projection, bson.E{Key: "current." + name, Value: 1})
	}
	projection = append(projection, bson.E{Key: "n", Value: 1}, bson.E{Key: "size", Value: 1})
	_, err := b.documents.FindOne(ctx, bson.D{{Key: "_id", Value: short(n)}}, options.FindOne().SetProjection(projection)).Raw()
	return err
}

// update is the engine's commit, where the version that it is based on is known.
func (b *bareMongo) update(ctx context.Context, n int) error {
	key := short(n)
	old := b.templates[key]
	next := make(bson.D, len(old))
	copy(next, old)
	var guard bson.D
	guard = append(guard, bson.E{Key: "_id", Value: barePrefix + key})
	b.at++
	for i, field := range next {
		if field.Key != "v" && field.Key != "at" {
			continue
		}
		number, ok := field.Value.(int64)
		if !ok {
			return fmt.Errorf("%s of %s is no number", field.Key, key)
		}
		guard = append(guard, bson.E{Key: "current." + field.Key, Value: number})
		next[i].Value = number + b.at
	}
	superseded := append(slices.Clip(old), bson.E{Key: "to", Value: b.at})
	result, err := b.documents.UpdateOne(ctx, guard, bson.D{
		{Key: "$set", Value: bson.D{{Key: "current", Value: next}, {Key: "n", Value: int64(barePrev)}, {Key: "size", Value: b.at}}},
		{Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{{Key: "$each", Value: bson.A{superseded}}, {Key: "$slice", Value: -barePrev}}}}},
	})
	if err != nil {
		return err
	}
	if result.MatchedCount != 1 {
		return errors.New("the bare loop's document was changed by another")
	}
	b.templates[key] = next
	return nil
}
