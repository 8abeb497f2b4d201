package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// The collections of the layouts on MongoDB.
const (
	mongoNow     = "documents" // of current versions, or of all
	mongoEarlier = "earlier"
)

// doc makes a document of names and values in turn.
func doc(pairs ...any) bson.D {
	d := make(bson.D, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return d
}

// mongoRead is a find, or an aggregation where there is a pipeline.
type mongoRead struct {
	collection   string
	filter, sort bson.D
	limit        int64
	without      string // a member that is not read
	pipeline     []bson.D
}

// mongoWrite inserts a document where there is no filter. Otherwise it updates one: if it is
// missing, it is inserted, with upsert, or the write fails with errLost; or it updates many.
type mongoWrite struct {
	collection     string
	filter, change bson.D
	upsert, many   bool
}

// mongoPlan is a layout on MongoDB, without transactions, which not every server has.
// Documents of versions have k (key), n (number), at, data; patches undoes as well.
type mongoPlan struct {
	name    string
	indexed string // the collection that has the indexes
	indexes []bson.D
	// filled is the document that a history is filled in with for a version, and the
	// collection of it: the last one if there is no next. nil is none.
	filled  func(v, next version, earlier []version) (collection string, document bson.D)
	current func(key string) mongoRead
	page    func(after string) mongoRead
	then    func(key string, at int64) []mongoRead // in turn, until one finds it
	update  func(old, next version) []mongoWrite
}

func mongoVersion(v version, more ...any) bson.D {
	return append(doc("k", v.key, "n", v.number, "at", v.at, "data", v.data), doc(more...)...)
}

func mongoWhole(v, _ version) bson.D { return mongoVersion(v, "_id", doc("k", v.key, "n", v.number)) }

func mongoPatch(v, next version) bson.D {
	v.data = undo(next.data, v.data)
	// The time is part of the identity: what a lost update leaves is not taken for another's.
	return mongoVersion(v, "_id", doc("k", v.key, "n", v.number, "undoes", next.at), "undoes", next.at)
}

func mongoByKey(key string) mongoRead {
	return mongoRead{collection: mongoNow, filter: doc("_id", key), limit: 1, without: "prev"}
}

func mongoPageByKey(after string) mongoRead {
	return mongoRead{collection: mongoNow, filter: doc("_id", doc("$gt", after)), sort: doc("_id", 1), limit: pageSize, without: "prev"}
}

func mongoThen(collection, key string, at int64) mongoRead {
	return mongoRead{collection: collection, filter: doc("k", key, "at", doc("$lte", at)), sort: doc("at", -1), limit: 1}
}

func mongoSwap(old, next version, more ...any) mongoWrite {
	change := append(doc("$set", doc("n", next.number, "at", next.at, "data", next.data)), doc(more...)...)
	return mongoWrite{collection: mongoNow, filter: doc("_id", next.key, "n", old.number), change: change}
}

func mongoByNumberAndTime() []bson.D { return []bson.D{doc("k", 1, "n", -1), doc("k", 1, "at", -1)} }

// mongoTogether is a layout with a document for each version in one collection. Their _id
// is the number: of two writers one finds it there.
func mongoTogether(name string, flagged bool) mongoPlan {
	whole := func(v version, current bool) bson.D {
		d := mongoWhole(v, v)
		if flagged {
			d = append(d, doc("current", current)...)
		}
		return d
	}
	p := mongoPlan{
		name: name, indexed: mongoNow, indexes: mongoByNumberAndTime(),
		filled: func(v, next version, _ []version) (string, bson.D) { return mongoNow, whole(v, next.number == 0) },
		current: func(key string) mongoRead {
			return mongoRead{collection: mongoNow, filter: doc("k", key), sort: doc("n", -1), limit: 1}
		},
		then: func(key string, at int64) []mongoRead { return []mongoRead{mongoThen(mongoNow, key, at)} },
		update: func(_, next version) []mongoWrite {
			return []mongoWrite{{collection: mongoNow, change: whole(next, true)}}
		},
	}
	if flagged {
		p.indexes = append(p.indexes, doc("current", 1, "k", 1))
		p.current = func(key string) mongoRead {
			return mongoRead{collection: mongoNow, filter: doc("k", key, "current", true), sort: doc("n", -1), limit: 1}
		}
		p.page = func(after string) mongoRead {
			return mongoRead{collection: mongoNow, filter: doc("k", doc("$gt", after), "current", true), sort: doc("k", 1), limit: pageSize}
		}
		p.update = func(_, next version) []mongoWrite {
			// The second one mends as well what an update left that was killed before it.
			earlier := doc("k", next.key, "current", true, "n", doc("$lt", next.number))
			return []mongoWrite{{collection: mongoNow, change: whole(next, true)}, {collection: mongoNow, filter: earlier, change: doc("$set", doc("current", false)), many: true}}
		}
		return p
	}
	first := func(name string) bson.D { return doc("$first", "$"+name) }
	p.page = func(after string) mongoRead {
		return mongoRead{collection: mongoNow, pipeline: []bson.D{
			doc("$match", doc("k", doc("$gt", after))),
			doc("$sort", doc("k", 1, "n", -1)),
			doc("$group", doc("_id", "$k", "k", first("k"), "n", first("n"), "at", first("at"), "data", first("data"))),
			doc("$sort", doc("_id", 1)),
			doc("$limit", pageSize),
		}}
	}
	return p
}

// mongoApart is a layout with earlier versions in a collection of their own, which one is
// written to before the current one is replaced: a kill in between leaves a copy too many.
func mongoApart(name string, earlier func(v, next version) bson.D, then func(key string, at int64) mongoRead) mongoPlan {
	return mongoPlan{
		name: name, indexed: mongoEarlier, indexes: mongoByNumberAndTime(),
		filled: func(v, next version, _ []version) (string, bson.D) {
			if next.number == 0 {
				return mongoNow, mongoVersion(v, "_id", v.key)
			}
			return mongoEarlier, earlier(v, next)
		},
		current: mongoByKey, page: mongoPageByKey,
		then: func(key string, at int64) []mongoRead { return []mongoRead{mongoByKey(key), then(key, at)} },
		update: func(old, next version) []mongoWrite {
			d := earlier(old, next)
			i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == "_id" })
			return []mongoWrite{{collection: mongoEarlier, filter: d[i : i+1], change: doc("$set", d), upsert: true}, mongoSwap(old, next)}
		},
	}
}

func mongoEmbedded(name string) mongoPlan {
	return mongoPlan{
		name: name,
		filled: func(v, next version, earlier []version) (string, bson.D) {
			if next.number != 0 {
				return mongoNow, nil
			}
			prev := make([]bson.D, len(earlier))
			for i, v := range earlier {
				prev[i] = mongoVersion(v)
			}
			return mongoNow, mongoVersion(v, "_id", v.key, "prev", prev)
		},
		current: mongoByKey, page: mongoPageByKey,
		then: func(key string, at int64) []mongoRead {
			until := doc("$filter", doc("input", "$prev", "as", "p", "cond", doc("$lte", bson.A{"$$p.at", at})))
			return []mongoRead{{collection: mongoNow, pipeline: []bson.D{
				doc("$match", doc("_id", key)),
				doc("$project", doc("k", 1, "n", 1, "at", 1, "data", 1, "prev", doc("$slice", bson.A{until, -1}))),
			}}}
		},
		update: func(old, next version) []mongoWrite {
			return []mongoWrite{mongoSwap(old, next, "$push", doc("prev", mongoVersion(old)))}
		},
	}
}

func mongoPlans() []mongoPlan {
	return []mongoPlan{
		mongoTogether("a document for each version", false),
		mongoTogether("the same with a current flag", true),
		mongoEmbedded("embedded history"),
		mongoApart("a collection of earlier versions", mongoWhole, func(key string, at int64) mongoRead { return mongoThen(mongoEarlier, key, at) }),
		mongoApart("deltas, backwards", mongoPatch, func(key string, _ int64) mongoRead {
			return mongoRead{collection: mongoEarlier, filter: doc("k", key), sort: doc("n", -1)}
		}),
	}
}

// mongoLayout is a layout in a database.
type mongoLayout struct {
	mongoPlan
	client *mongo.Client
	db     *mongo.Database
}

// openDatabase connects to the database that a URI names, with the engine's guarantees.
func openDatabase(uri string) (*mongo.Client, *mongo.Database, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, nil, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetReadConcern(majorityReads).SetWriteConcern(durableWrites()).SetRetryWrites(false))
	if err != nil {
		return nil, nil, err
	}
	db := client.Database(strings.Trim(u.Path, "/"))
	return client, db, nil
}

// mongoSide has the layouts in databases of a server, which it makes and drops.
func mongoSide(server string) *side {
	s := new(side)
	for _, plan := range mongoPlans() {
		s.variants = append(s.variants, variant{plan.name, func(ctx context.Context, place string) (layout, error) {
			client, db, err := openDatabase(place)
			if err != nil {
				return nil, err
			}
			for _, keys := range plan.indexes {
				if _, err := db.Collection(plan.indexed).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys}); err != nil {
					return nil, err
				}
			}
			return &mongoLayout{plan, client, db}, nil
		}})
	}
	s.variants = append(s.variants, ofEngine(func(ctx context.Context, place string, c []driver.Collection) (driver.Engine, error) {
		return mongostore.Open(ctx, place, mongostore.Options{Collections: c})
	}))
	s.place = func() (string, func() error, error) {
		place, err := mongotest.WithDatabase(server, "asof_load_"+rand.Text())
		return place, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
			defer cancel()
			client, db, err := openDatabase(place)
			if err != nil {
				return err
			}
			return errors.Join(db.Drop(ctx), client.Disconnect(ctx))
		}, err
	}
	s.size = mongoSize
	return s
}

// mongoSize is how many bytes the documents of a database have, uncompressed and without
// indexes.
func mongoSize(ctx context.Context, place string) (int64, error) {
	client, db, err := openDatabase(place)
	if err != nil {
		return 0, err
	}
	var stats struct {
		DataSize float64 `bson:"dataSize"`
	}
	err = db.RunCommand(ctx, doc("dbStats", 1)).Decode(&stats)
	return int64(stats.DataSize), errors.Join(err, client.Disconnect(ctx))
}

func (l *mongoLayout) fill(ctx context.Context, history []version) error {
	documents := map[string][]any{}
	nexts := append(history[1:len(history):len(history)], version{})
	for i, v := range history {
		if name, d := l.filled(v, nexts[i], history[:i]); d != nil {
			documents[name] = append(documents[name], d)
		}
	}
	for name, list := range documents {
		if _, err := l.db.Collection(name).InsertMany(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// mongoStored is a version as it is decoded.
type mongoStored struct {
	Key    string        `bson:"k"`
	Number int64         `bson:"n"`
	At     int64         `bson:"at"`
	Data   string        `bson:"data"`
	Undoes int64         `bson:"undoes"`
	Prev   []mongoStored `bson:"prev"`
}

// read passes what a read finds until yield returns false, which it reports.
func (l *mongoLayout) read(ctx context.Context, r mongoRead, yield func(stored, error) bool) bool {
	var cursor *mongo.Cursor
	var err error
	if c := l.db.Collection(r.collection); r.pipeline != nil {
		cursor, err = c.Aggregate(ctx, r.pipeline)
	} else {
		o := options.Find().SetLimit(r.limit)
		if r.sort != nil {
			o.SetSort(r.sort)
		}
		if r.without != "" {
			o.SetProjection(doc(r.without, 0))
		}
		cursor, err = c.Find(ctx, r.filter, o)
	}
	if err != nil {
		return yield(stored{}, err)
	}
	defer func() { _ = cursor.Close(ctx) }()
	for cursor.Next(ctx) {
		var found mongoStored
		err := cursor.Decode(&found)
		for _, f := range append([]mongoStored{found}, found.Prev...) {
			if !yield(stored{version{f.Key, f.Number, f.At, f.Data}, f.Undoes}, err) {
				return false
			}
		}
	}
	return cursor.Err() == nil || yield(stored{}, cursor.Err())
}

func (l *mongoLayout) current(ctx context.Context, key string) (v version, err error) {
	l.read(ctx, l.mongoPlan.current(key), func(s stored, e error) bool { v, err = s.version, e; return false })
	return v, err
}

func (l *mongoLayout) page(ctx context.Context, after string) (page []version, err error) {
	l.read(ctx, l.mongoPlan.page(after), func(s stored, e error) bool { page, err = append(page, s.version), e; return e == nil })
	return page, err
}

func (l *mongoLayout) then(ctx context.Context, key string, at int64) (version, error) {
	return current(at, func(yield func(stored, error) bool) {
		for _, r := range l.mongoPlan.then(key, at) {
			if !l.read(ctx, r, yield) {
				return
			}
		}
	})
}

func (l *mongoLayout) update(ctx context.Context, old, next version) (version, error) {
	for _, w := range l.mongoPlan.update(old, next) {
		c, n, err := l.db.Collection(w.collection), int64(1), error(nil)
		var result *mongo.UpdateResult
		switch {
		case w.filter == nil:
			if _, err = c.InsertOne(ctx, w.change); mongo.IsDuplicateKeyError(err) {
				err = errLost
			}
		case w.many:
			_, err = c.UpdateMany(ctx, w.filter, w.change)
		default:
			if result, err = c.UpdateOne(ctx, w.filter, w.change, options.UpdateOne().SetUpsert(w.upsert)); err == nil {
				n = result.MatchedCount + result.UpsertedCount
			}
		}
		if err == nil && n == 0 {
			err = errLost
		}
		if err != nil {
			return version{}, err
		}
	}
	return next, nil
}

func (l *mongoLayout) close() error { return l.client.Disconnect(context.Background()) }
