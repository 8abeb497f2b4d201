package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Ways to filter and sort documents by a field of a document that they refer to, written
// plainly against SQLite: a join when it is read, and a copy in each document that refers to
// it, with what keeps the copies right when the source changes. All sync each commit.

const copyTables = `
	CREATE TABLE sources(key INTEGER PRIMARY KEY, number INTEGER NOT NULL, value TEXT NOT NULL);
	CREATE INDEX sources_value ON sources(value);
	CREATE TABLE source_versions(key INTEGER, number INTEGER, value TEXT NOT NULL, PRIMARY KEY(key, number));
	CREATE TABLE docs(key INTEGER PRIMARY KEY, number INTEGER NOT NULL, data TEXT NOT NULL, source INTEGER NOT NULL);
	CREATE INDEX docs_source ON docs(source, key);
	CREATE TABLE doc_versions(key INTEGER, number INTEGER, data TEXT NOT NULL, PRIMARY KEY(key, number));`

// A copy, and the number of the version of the source that it was taken from. Entries are
// what a filter by the copy as of an earlier instant needs.
const copyColumns = `
	ALTER TABLE docs ADD COLUMN copy TEXT;
	ALTER TABLE docs ADD COLUMN taken INTEGER;
	CREATE INDEX docs_copy ON docs(copy, key);
	CREATE TABLE entries(copy TEXT, since INTEGER, key INTEGER, until INTEGER, PRIMARY KEY(copy, since, key)) WITHOUT ROWID;
	CREATE INDEX entries_key ON entries(key, since);`

// How copies are kept right.
const (
	none       = "none: a join on read" // there are none
	lazy       = "LAZY"                 // who reads an old one stores the new one
	background = "BACKGROUND"           // all are stored, so many in a transaction, after the source has changed
	past       = "BACKGROUND, and the past"
	immutable  = "FIXED" // the source does not change
)

const (
	otherSources = 99 // each has a thousandth of the dependants of the first
	copyBatch    = 500
	copyReads    = 200
)

// copyResult is one line: times in microseconds, but for Right, in seconds.
type copyResult struct {
	Strategy     string  `json:"strategy"`
	Dependants   int     `json:"dependants"`
	Write        float64 `json:"writeDependant"`
	Change       float64 `json:"changeSource,omitempty"`
	Right        float64 `json:"secondsUntilAllAreRight"`
	Filter       float64 `json:"pageFiltered"`
	Sorted       float64 `json:"pageSorted"`
	Shown        float64 `json:"pageShown"`
	Stall        float64 `json:"longestStallOfAnotherWriter,omitempty"`
	AnotherWrote float64 `json:"rateOfAnotherWriter,omitempty"` // of what it wrote alone
	MiB          int64   `json:"mib"`
}

// compareCopies prints what each way costs, for numbers of dependants.
func compareCopies(ctx context.Context, args []string, out io.Writer) error {
	set := flag.NewFlagSet("copies", flag.ContinueOnError)
	if err := set.Parse(args); err != nil {
		return err
	}
	counts := []int{10_000, 100_000}
	if set.NArg() > 0 {
		counts = nil
	}
	for _, text := range set.Args() {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1000 {
			return fmt.Errorf("%q is no number of dependants: name 1000 or more", text)
		}
		counts = append(counts, n)
	}
	var results []copyResult
	for _, n := range counts {
		for _, strategy := range []string{none, lazy, background, past, immutable} {
			r, err := measureCopies(ctx, strategy, n)
			if err != nil {
				return fmt.Errorf("%s, %d dependants: %w", strategy, n, err)
			}
			results = append(results, r)
		}
	}
	return report(out, map[string]any{"results": results})
}

// copies is a store of documents with, or without, copies of their sources' values.
type copies struct {
	*sqlite.Conn
	strategy string
	n        int
	writing  *sync.Mutex // shared by writers, who would else wait for SQLite by polling
}

func (c *copies) stored() bool { return c.strategy != none }

func (c *copies) do(query string, args ...any) error {
	return sqlitex.Execute(c.Conn, query, &sqlitex.ExecOptions{Args: args})
}

// each commits one transaction of do.
func (c *copies) each(do func() error) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.do("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return errors.Join(err, c.do("ROLLBACK"))
	}
	return c.do("COMMIT")
}

func sourceValue(source, number int) string { return fmt.Sprintf("source %02d, %d", source, number) }

func (c *copies) fill() error {
	return c.each(func() error {
		for s := range otherSources + 1 {
			if err := c.do(`INSERT INTO sources VALUES(?, 1, ?)`, s, sourceValue(s, 1)); err != nil {
				return err
			}
		}
		for i := range c.n + c.n/1000*otherSources {
			source := max(0, i-c.n+1) % (otherSources + 1)
			query, args := `INSERT INTO docs VALUES(?, 1, ?, ?)`, []any{i, c.data(i), source}
			if c.stored() {
				query, args = `INSERT INTO docs VALUES(?, 1, ?, ?, ?, 1)`, append(args, sourceValue(source, 1))
			}
			if err := c.do(query, args...); err != nil {
				return err
			}
			if c.strategy == past {
				if err := c.do(`INSERT INTO entries VALUES(?, 1, ?, NULL)`, sourceValue(source, 1), i); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (c *copies) data(i int) string {
	return fmt.Sprintf(`{"name":"document %d","text":"%0400d"}`, i, i)
}

// write makes a version of a dependant.
func (c *copies) write(i int) error {
	return c.each(func() error {
		if err := c.do(`INSERT INTO doc_versions SELECT key, number, data FROM docs WHERE key = ?`, i); err != nil {
			return err
		}
		if !c.stored() {
			return c.do(`UPDATE docs SET number = number + 1, data = ? WHERE key = ?`, c.data(i+1), i)
		}
		return c.do(`UPDATE docs SET number = number + 1, data = ?, (copy, taken) = (SELECT value, number FROM sources WHERE key = source) WHERE key = ?`, c.data(i+1), i)
	})
}

// change makes a version of the first source.
func (c *copies) change(number int) error {
	return c.each(func() error {
		if err := c.do(`INSERT INTO source_versions SELECT key, number, value FROM sources WHERE key = 0`); err != nil {
			return err
		}
		return c.do(`UPDATE sources SET number = ?, value = ? WHERE key = 0`, number, sourceValue(0, number))
	})
}

// spread makes copies right from a key on, and returns the next; 0 at the end.
func (c *copies) spread(from, number int) (int, error) {
	to := min(from+copyBatch, c.n)
	err := c.each(func() error {
		if c.strategy == past {
			if err := c.do(`UPDATE entries SET until = ?1 WHERE key >= ?2 AND key < ?3 AND until IS NULL`, number, from, to); err != nil {
				return err
			}
			if err := c.do(`INSERT INTO entries SELECT ?1, ?2, key, NULL FROM docs WHERE key >= ?3 AND key < ?4 AND source = 0`, sourceValue(0, number), number, from, to); err != nil {
				return err
			}
		}
		return c.do(`UPDATE docs SET copy = ?1, taken = ?2 WHERE key >= ?3 AND key < ?4 AND source = 0 AND taken < ?2`, sourceValue(0, number), number, from, to)
	})
	if to == c.n {
		to = 0
	}
	return to, err
}

// page reads the rows of a query whole.
func (c *copies) page(query string, args ...any) error {
	n := 0
	err := sqlitex.Execute(c.Conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(s *sqlite.Stmt) error {
		n += len(s.ColumnText(2)) + len(s.ColumnText(3))
		return nil
	}})
	if err == nil && n == 0 {
		err = errors.New("a page is empty")
	}
	return err
}

// filtered, sorted and shown read a page of 50.
func (c *copies) filtered(value string) error {
	if c.stored() {
		return c.page(`SELECT key, number, data, copy FROM docs WHERE copy = ? ORDER BY key LIMIT 50`, value)
	}
	return c.page(`SELECT key, number, data, ?1 FROM docs WHERE source = (SELECT key FROM sources WHERE value = ?1) ORDER BY key LIMIT 50`, value)
}

func (c *copies) sorted() error {
	if c.stored() {
		return c.page(`SELECT key, number, data, copy FROM docs ORDER BY copy, key LIMIT 50`)
	}
	// One statement would sort all dependants: the first source in order has enough of them.
	return c.page(`SELECT key, number, data, ?1 FROM docs WHERE source = (SELECT key FROM sources ORDER BY value LIMIT 1) ORDER BY key LIMIT 50`, sourceValue(0, 2))
}

func (c *copies) shown(after int) error {
	switch c.strategy {
	case none:
		return c.page(`SELECT d.key, d.number, d.data, s.value FROM docs d LEFT JOIN sources s ON s.key = d.source WHERE d.key >= ? ORDER BY d.key LIMIT 50`, after)
	case lazy: // the reader has to know whether a copy is old
		return c.page(`SELECT d.key, d.number, d.data, iif(s.number = d.taken, d.copy, s.value) FROM docs d LEFT JOIN sources s ON s.key = d.source WHERE d.key >= ? ORDER BY d.key LIMIT 50`, after)
	}
	return c.page(`SELECT key, number, data, copy FROM docs WHERE key >= ? ORDER BY key LIMIT 50`, after)
}

// middle is the median time of so many calls, in microseconds.
func middle(times int, do func(i int) error) (float64, error) {
	took := make([]float64, times)
	for i := range took {
		start := time.Now()
		if err := do(i); err != nil {
			return 0, err
		}
		took[i] = micros(time.Since(start))
	}
	return median(took), nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func measureCopies(ctx context.Context, strategy string, n int) (r copyResult, err error) {
	dir, err := os.MkdirTemp("", "asof-copies-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	place, schema := filepath.Join(dir, "store.db"), copyTables
	if strategy != none {
		schema += copyColumns
	}
	conn, err := openBare(place, schema)
	if err != nil {
		return r, err
	}
	conn.SetInterrupt(ctx.Done())
	c := &copies{conn, strategy, n, new(sync.Mutex)}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := c.fill(); err != nil {
		return r, err
	}
	r = copyResult{Strategy: strategy, Dependants: n}
	var failed []error
	timed := func(to *float64, times int, do func(i int) error) {
		var err error
		*to, err = middle(times, do)
		failed = append(failed, err)
	}
	if strategy != immutable {
		timed(&r.Change, 1, func(int) error { return c.change(2) })
		failed = append(failed, c.settle(ctx, place, &r))
	}
	timed(&r.Write, copyReads, func(i int) error { return c.write(i * (n / copyReads)) })
	timed(&r.Filter, copyReads, func(i int) error { return c.filtered(sourceValue(1+i%otherSources, 1)) })
	timed(&r.Sorted, copyReads, func(int) error { return c.sorted() })
	timed(&r.Shown, copyReads, func(i int) error { return c.shown(i * (n / copyReads)) })
	failed = append(failed, c.do(`PRAGMA wal_checkpoint(TRUNCATE)`))
	info, err := os.Stat(place)
	if err == nil {
		r.MiB = info.Size() >> 20
	}
	return r, errors.Join(append(failed, err)...)
}

// settle makes all copies right, beside another writer. A lazy one is right when
// everything was read.
func (c *copies) settle(ctx context.Context, place string, r *copyResult) error {
	if c.strategy == none {
		return nil
	}
	conn, err := sqlite.OpenConn(place, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	other := &copies{conn, c.strategy, c.n, c.writing}
	defer func() { _ = conn.Close() }()
	if err := other.do(`PRAGMA synchronous=FULL`); err != nil {
		return err
	}
	alone, err := writeUntil(other, after(200*time.Millisecond))
	if err != nil {
		return err
	}
	done, wrote, failed := make(chan struct{}), []float64(nil), make(chan error, 1)
	go func() {
		var err error
		wrote, err = writeUntil(other, done)
		failed <- err
	}()
	start := time.Now()
	for from := 0; err == nil; {
		if c.strategy == lazy {
			err = c.shown(from)
		}
		if err == nil {
			from, err = c.spread(from, 2)
		}
		if from == 0 || ctx.Err() != nil {
			break
		}
	}
	r.Right = time.Since(start).Seconds()
	close(done)
	if err := errors.Join(err, <-failed, ctx.Err()); err != nil {
		return err
	}
	r.Stall = slices.Max(wrote)
	r.AnotherWrote = float64(len(wrote)) / r.Right / (float64(len(alone)) / 0.2)
	return nil
}

func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// writeUntil writes dependants of other sources, and returns how long each took, in microseconds.
func writeUntil(c *copies, done <-chan struct{}) (took []float64, err error) {
	for i := 0; ; i++ {
		start := time.Now()
		if err := c.write(c.n + i%(c.n/1000*otherSources)); err != nil {
			return nil, err
		}
		took = append(took, micros(time.Since(start)))
		select {
		case <-done:
			return took, nil
		default:
		}
	}
}
