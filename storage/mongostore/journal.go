package mongostore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/asof/asof/storage/driver"
)

// A load that takes several updates is written down before the first of them:
//
//	{_id: {load, part}, owner: server, parts, data: part of the versions, compressed}
//
// The first part is written last. From then on the load will happen: its server
// completes it, or the server that finds that one to be dead. Whoever completes
// it adds what is not there yet, so that it may be tried any number of times.
// What cannot be completed is kept, see journalkept.go.
type journal struct {
	store *Store
	id    string
	life  string // of this server, in which commits wait for the load
	load  *loading
	parts []bson.D

	written bool // the first part is there
	// doubted: it may be, by an attempt without an answer; the last one ended at
	// lastDoubt, a time of elapsed.
	doubted   bool
	lastDoubt time.Duration
}

// maxJournalPart bounds the data in one document of a journal, in bytes.
const maxJournalPart = 12 << 20

func journalPart(load string, part int) bson.D {
	return bson.D{{Key: "load", Value: load}, {Key: "part", Value: int64(part)}}
}

// newJournal writes down, in memory, what a load adds. From then on the load
// shares nothing with its caller.
func (s *Store) newJournal(l *loading) (*journal, error) {
	j := &journal{store: s, id: rand.Text(), life: l.life, load: l}
	var packed bytes.Buffer
	encoder, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(journalWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, internalf("writing a load down: %w", err)
	}
	var text []byte
	for _, d := range l.order {
		for _, r := range d.added {
			var at int32
			at, text = bsoncore.AppendDocumentStart(text[:0])
			text = bsoncore.AppendStringElement(text, "c", r.Collection)
			text = bsoncore.AppendStringElement(text, "k", encodeString(r.Key))
			text = end(appendVersion(text, r), at)
			if _, err := encoder.Write(text); err != nil {
				return nil, internalf("writing a load down: %w", err)
			}
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, internalf("writing a load down: %w", err)
	}
	n := (packed.Len() + maxJournalPart - 1) / maxJournalPart
	for part := range n {
		j.parts = append(j.parts, bson.D{
			{Key: "_id", Value: journalPart(j.id, part)},
			{Key: "owner", Value: l.life},
			{Key: "parts", Value: int64(n)},
			{Key: "data", Value: packed.Next(maxJournalPart)},
		})
	}
	l.own()
	return j, nil
}

// journalWindow is how far back what is written down is compared with, in bytes: that
// much memory does it take.
const journalWindow = 1 << 20

// own copies what the caller of a load may change when it is told that the load
// goes on without it, all at once.
func (l *loading) own() {
	size, names := 0, 0
	for _, d := range l.order {
		for _, r := range d.added {
			size, names = size+len(r.Data), names+len(r.Changed)
		}
	}
	data, changed := make([]byte, 0, size), make([]string, 0, names)
	for _, d := range l.order {
		for _, r := range d.added {
			if r.Data != nil {
				from := len(data)
				data = append(data, r.Data...)
				r.Data = data[from:len(data):len(data)]
			}
			from := len(changed)
			changed = append(changed, r.Changed...)
			r.Changed = changed[from:len(changed):len(changed)]
		}
	}
}

// versions are what a load adds, in an order in which it may be added.
func (l *loading) versions() []driver.Version {
	var vs []driver.Version
	for _, d := range l.order {
		for _, r := range d.added {
			vs = append(vs, r.Version)
		}
	}
	return vs
}

// decodeJournal reads the versions that were written down.
func (s *Store) decodeJournal(text []byte) ([]driver.Version, error) {
	var versions []driver.Version
	for len(text) > 0 {
		doc, rest, ok := bsoncore.ReadDocument(text)
		if !ok {
			return nil, brokenError{internalf("a load that was written down is broken: it ends in the middle of a version")}
		}
		text = rest
		raw := bson.Raw(doc)
		name, hasName := raw.Lookup("c").StringValueOK()
		key, hasKey := raw.Lookup("k").StringValueOK()
		if !hasName || !hasKey {
			return nil, brokenError{internalf("a load that was written down is broken: a version has no name")}
		}
		r, err := decodeVersion(name, decodeString(key), raw)
		if err != nil {
			return nil, brokenError{err}
		}
		versions = append(versions, r.Version)
	}
	return versions, nil
}

// prepare writes all parts but the first. Without that they mean nothing.
func (j *journal) prepare(ctx context.Context) error {
	for part := len(j.parts) - 1; part > 0; part-- {
		if err := j.insert(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) insert(ctx context.Context, part int) error {
	ctx, cancel := j.store.step(ctx)
	defer cancel()
	_, err := j.store.journal().InsertOne(ctx, j.parts[part])
	if mongo.IsDuplicateKeyError(err) {
		return nil // an attempt without an answer did it
	}
	return err
}

// complete writes the first part, and then adds the versions. What fails is
// tried again until it is done, as long as the store lives; when nothing was added
// for the store's timeout, those who wait are told so.
func (j *journal) complete(life context.Context, l *loading, stuck chan<- error) error {
	wait := firstPause
	elapsed := j.store.clock.elapsed
	began, carried := elapsed(), j.store.bulkSize.carried.Load()
	failing := began // for how long the database says that it cannot be
	add := l.write
	for {
		done, err := j.begin(life)
		if j.written {
			done, err = j.add(life, add, elapsed()-failing)
			if driver.CodeOf(wrap(err, "")) != driver.CodeInternal {
				failing = elapsed()
			}
			add = func(ctx context.Context) error { return j.store.addLoaded(ctx, j.load.versions(), j.life) }
		}
		if done {
			return err
		}
		if n := j.store.bulkSize.carried.Load(); n != carried {
			began, carried = elapsed(), n
		}
		if elapsed()-began > j.store.timeout {
			select {
			case stuck <- j.stuck(err):
			default: // they were told
			}
		}
		pause(life, wait)
		if life.Err() != nil {
			return err
		}
		wait = min(2*wait, longestPause)
	}
}

// begin writes the first part: from then on the load will happen, at the latest
// when another server completes it. It is done where it is certain that it will
// not, or where this server has lost the right to it.
func (j *journal) begin(life context.Context) (done bool, err error) {
	if j.written {
		return false, nil
	}
	clock := j.store.clock
	ctx, cancel, err := keep(life, func() (time.Duration, error) { return clock.exclusionLeft(j.life) })
	switch {
	case errors.Is(err, errDead) && j.doubted:
		return true, j.left()
	case errors.Is(err, errDead):
		_ = j.store.removeJournal(life, j.id, 0)
		return true, driver.Errorf(driver.CodeUnavailable, "nothing was loaded, load it again: %w", err)
	case err != nil:
		return false, err
	}
	defer cancel()
	err = j.insert(ctx, 0)
	switch {
	case err == nil:
		j.written = true
	case uncertain(err):
		j.doubted, j.lastDoubt = true, clock.elapsed()
	case j.doubted:
		// It was refused, and an attempt before may have done it, or still do it.
		if clock.elapsed()-j.lastDoubt < deadBeats*j.store.fleet.every {
			return false, err
		}
		if left := j.store.removeJournal(ctx, j.id, 0); left != nil {
			return false, left
		}
		return true, err
	default:
		_ = j.store.removeJournal(ctx, j.id, 0)
		return true, err
	}
	return false, err
}

// add adds the versions, which was tried for some time, and forgets the load. It is
// done where they are there, or cannot be, or where another server completes it.
func (j *journal) add(life context.Context, add func(context.Context) error, tried time.Duration) (done bool, err error) {
	err = add(life)
	if err != nil {
		_, lost := j.store.clock.exclusionLeft(j.life)
		switch {
		case errors.Is(err, errDead) || errors.Is(lost, errDead):
			return true, j.left()
		case lost != nil || !j.store.hopeless(err, tried): // without the others' consent nothing can be told from what is there
			return false, err
		}
	}
	// Where it could not be removed it is found later, and adds nothing.
	if err != nil {
		told, _ := j.store.keepJournal(life, j.id, err)
		return true, told
	}
	_ = j.store.removeJournal(life, j.id, int64(len(j.parts)))
	return true, nil
}

// stuck is what those are told who do not wait any longer.
func (j *journal) stuck(err error) error {
	if !j.written {
		return driver.Errorf(driver.CodeUnavailable, "what is loaded may not have been written down yet, which is tried on; loading the same again tells: %w", err)
	}
	return driver.Errorf(driver.CodeUnavailable, "what is loaded was written down, and will be completed when the server takes it; loading the same again tells: %w", err)
}

// left is what a load ends with that was written down, or may have been, when
// others took this server for dead.
func (j *journal) left() error {
	return driver.Errorf(driver.CodeUnavailable, "what is loaded was written down, and will be completed if that was done in time; loading the same again tells: %w", errDead)
}

// brokenError is what is wrong with what was written down.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

func (s *Store) journal() *mongo.Collection { return s.db.Collection(journalName) }

// addLoaded adds those of the versions that are not there yet, while commits wait,
// in a life of this server.
func (s *Store) addLoaded(ctx context.Context, vs []driver.Version, life string) error {
	l := s.newLoading(driver.Forever) // they were checked when they were new
	l.life, l.resumed, l.others = life, true, make(map[string]*collection)
	if _, _, err := l.plan(ctx, vs); err != nil {
		return err
	}
	return l.write(ctx)
}
