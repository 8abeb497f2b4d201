package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/internal/load/process"
)

// The bare loops: the least that a program on the same driver and file system
// has to do for the same bytes.

// line is what the bare import loop looks at in an event.
type line struct {
	Collection string          `json:"collection"`
	ID         string          `json:"id"`
	At         string          `json:"at"`
	Op         string          `json:"op"`
	Data       json.RawMessage `json:"data"`
}

// eachLine reads an import file, which is compressed where its name says so.
func eachLine(path string, do func(line) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	in := io.Reader(f)
	if strings.HasSuffix(path, ".zst") {
		r, err := zstd.NewReader(f)
		if err != nil {
			return err
		}
		defer r.Close()
		in = r
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return err
		}
		if err := do(l); err != nil {
			return err
		}
	}
	return lines.Err()
}

// openBare opens a SQLite file, and makes what is missing of its tables. Commits are
// synced, as the engine's are.
func openBare(path, schema string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return nil, err
	}
	if err := sqlitex.ExecuteTransient(conn, `PRAGMA synchronous=FULL`, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, sqlitex.ExecuteScript(conn, schema, nil)
}

const bareTables = `
	CREATE TABLE IF NOT EXISTS lines(id INTEGER PRIMARY KEY, collection TEXT, key TEXT, at TEXT, data BLOB);
	CREATE TABLE IF NOT EXISTS current(key TEXT PRIMARY KEY, data BLOB);`

// bareImport decompresses, parses and inserts every line in one table, a
// thousand a transaction.
func bareImport(events, db string) (n int, err error) {
	conn, err := openBare(db, bareTables)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	insert, err := conn.Prepare(`INSERT INTO lines(collection, key, at, data) VALUES(?, ?, ?, ?)`)
	if err != nil {
		return 0, err
	}
	script := func(text string) error { return sqlitex.ExecuteTransient(conn, text, nil) }
	if err := script("BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	err = eachLine(events, func(l line) error {
		if n++; n%1000 == 0 {
			if err := errors.Join(script("COMMIT"), script("BEGIN IMMEDIATE")); err != nil {
				return err
			}
		}
		insert.BindText(1, l.Collection)
		insert.BindText(2, l.ID)
		insert.BindText(3, l.At)
		insert.BindBytes(4, l.Data)
		if _, err := insert.Step(); err != nil {
			return err
		}
		return insert.Reset()
	})
	if err != nil {
		return n, err
	}
	return n, script("COMMIT")
}

// bareCommits commits batches of size document updates (one row replaced, one
// history row inserted each) durably, for the given time, and returns updates
// per second.
func bareCommits(dir string, size int, data []byte, length time.Duration) (float64, error) {
	conn, err := openBare(filepath.Join(dir, "bare-commits.db"), bareTables)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	insert, err := conn.Prepare(`INSERT INTO lines(collection, key, at, data) VALUES('software', ?, '2026-01-01T00:00:00Z', ?)`)
	if err != nil {
		return 0, err
	}
	update, err := conn.Prepare(`INSERT OR REPLACE INTO current(key, data) VALUES(?, ?)`)
	if err != nil {
		return 0, err
	}
	began, n := time.Now(), 0
	for time.Since(began) < length {
		if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
			return 0, err
		}
		for i := range size {
			for _, stmt := range []*sqlite.Stmt{insert, update} {
				stmt.BindText(1, fmt.Sprintf("project-%04d", i))
				stmt.BindBytes(2, data)
				if _, err := stmt.Step(); err != nil {
					return 0, err
				}
				if err := stmt.Reset(); err != nil {
					return 0, err
				}
			}
		}
		if err := sqlitex.ExecuteTransient(conn, "COMMIT", nil); err != nil {
			return 0, err
		}
		n += size
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// bareScan fills a table with the last state of every software document of an
// event file and returns the time of one scan for a text in the descriptions,
// the median of 21, and how many documents it finds.
func bareScan(events, dir, text string) (took time.Duration, found int, err error) {
	last := map[string][]byte{}
	err = eachLine(events, func(l line) error {
		if l.Collection == "software" && l.Op == "delete" {
			delete(last, l.ID)
		} else if l.Collection == "software" {
			last[l.ID] = l.Data
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	conn, err := openBare(filepath.Join(dir, "bare-scan-"+filepath.Base(events)+".db"), bareTables)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close() }()
	if err := sqlitex.ExecuteTransient(conn, "BEGIN", nil); err != nil {
		return 0, 0, err
	}
	for key, data := range last {
		if err := sqlitex.Execute(conn, `INSERT INTO current(key, data) VALUES(?, ?)`, &sqlitex.ExecOptions{Args: []any{key, string(data)}}); err != nil {
			return 0, 0, err
		}
	}
	if err := sqlitex.ExecuteTransient(conn, "COMMIT", nil); err != nil {
		return 0, 0, err
	}
	var scans []time.Duration
	for range 21 {
		found = 0
		began := time.Now()
		err := sqlitex.Execute(conn, `SELECT key, data FROM current WHERE instr(json_extract(data, '$.description'), ?) > 0 ORDER BY key`,
			&sqlitex.ExecOptions{Args: []any{text}, ResultFunc: func(*sqlite.Stmt) error { found++; return nil }})
		if err != nil {
			return 0, 0, err
		}
		scans = append(scans, time.Since(began))
	}
	return median(scans), found, nil
}

// scan compares an unindexed filter, over HTTP with one client, with the bare
// SQL scan of the same documents with the same predicate.
func scan(c config, s *process.Server, events, dir, text string) (result, error) {
	bare, found, err := bareScan(events, dir, text)
	if err != nil {
		return result{}, err
	}
	if found == 0 {
		return result{}, fmt.Errorf("no description in %s holds %q: a scan for nothing compares nothing", events, text)
	}
	most := max(found, pageSize)
	scanned := fmt.Sprintf(`query Scan($text: String!) { projects(where: {description: {contains: $text}}, first: %d) { nodes { key name } } }`, most)
	m, err := drive(s.URL, []request{fixed{query(scanned, map[string]any{"text": text}), []byte(`"key":`), found}}, c.length)
	if err != nil {
		return result{}, err
	}
	return result{
		Name: "unindexed filter", Against: "bare SQL scan", Ratio: float64(m.P50Micros) / float64(bare.Microseconds()), Target: "time at most 1.5",
		Median: &m, Explanation: fmt.Sprintf("bare scan %v; both find %d documents", bare, found),
	}, nil
}

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
