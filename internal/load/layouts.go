package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/storage/driver"
)

// Six ways to store documents that keep their versions, side by side: five written
// plainly against the drivers (layoutsql.go, layoutmongo.go), and the engines.

// version is one version of a document. Number 0 means that there is none.
type version struct {
	key        string
	number, at int64
	data       string
}

// layout is a store of documents with their versions, in one way.
type layout interface {
	// fill adds a document with its versions.
	fill(ctx context.Context, history []version) error
	current(ctx context.Context, key string) (version, error)
	// page returns the current versions of the 50 documents that follow a key.
	page(ctx context.Context, after string) ([]version, error)
	// then returns the version that was current at an instant.
	then(ctx context.Context, key string, at int64) (version, error)
	// update makes next the current version if old, which the caller has read, still is, and
	// returns it, with the time that it got. It fails with errLost, and changes nothing, if
	// another one is current.
	update(ctx context.Context, old, next version) (version, error)
	close() error
}

var errLost = errors.New("another version is current")

// variant is a layout on one database; open opens the store at a place, which may be new.
type variant struct {
	name string
	open func(ctx context.Context, place string) (layout, error)
}

// prepare fills a new store at a place.
func (v variant) prepare(ctx context.Context, place string, fill func(context.Context, layout) error) error {
	l, err := v.open(ctx, place)
	if err != nil {
		return err
	}
	return errors.Join(fill(ctx, l), l.close())
}

// side is a database with the layouts on it.
type side struct {
	variants []variant
	// place returns where a new store may be, and what removes it.
	place func() (place string, remove func() error, err error)
	// size returns how many bytes the store at a place takes; it is closed.
	size func(ctx context.Context, place string) (int64, error)
}

// stored is a version as it is stored: whole, or as a patch of the version that was
// recorded at the instant undoes.
type stored struct {
	version
	undoes int64
}

// current finds in versions, from the last one on, the one that was current at an
// instant, and undoes what was changed since.
func current(at int64, versions iter.Seq2[stored, error]) (version, error) {
	var v version
	var members map[string]json.RawMessage // of v, where it is not stored whole
	for s, err := range versions {
		switch {
		case err != nil:
			return version{}, err
		case s.undoes == 0:
			v, members = s.version, nil
		case s.undoes != v.at:
			continue // left by an update that was lost
		default:
			if members == nil {
				if err := json.Unmarshal([]byte(v.data), &members); err != nil {
					return version{}, err
				}
			}
			var patch map[string]json.RawMessage
			if err := json.Unmarshal([]byte(s.data), &patch); err != nil {
				return version{}, err
			}
			for name, value := range patch {
				if string(value) == "null" {
					delete(members, name)
				} else {
					members[name] = value
				}
			}
			v = s.version
		}
		if v.at <= at {
			if members != nil {
				v.data = asJSON(members)
			}
			return v, nil
		}
	}
	return version{}, nil
}

// undo returns what turns one object into an earlier one: a JSON merge patch of the
// members of the root. The objects are valid, and have no nulls.
func undo(from, to string) string {
	var is, was map[string]json.RawMessage
	_, _ = json.Unmarshal([]byte(from), &is), json.Unmarshal([]byte(to), &was)
	for name := range is {
		if _, stays := was[name]; !stays {
			was[name] = json.RawMessage("null")
		} else if string(was[name]) == string(is[name]) {
			delete(was, name)
		}
	}
	return asJSON(was)
}

// asJSON is what can always be written as JSON.
func asJSON(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// asofLayout is an engine, with what package storage asks of it for each operation.
type asofLayout struct{ engine driver.Engine }

// ofEngine opens an engine with the documents' collection as a layout.
func ofEngine(open func(ctx context.Context, place string, c []driver.Collection) (driver.Engine, error)) variant {
	return variant{"asof", func(ctx context.Context, place string) (layout, error) {
		engine, err := open(ctx, place, []driver.Collection{{Name: docsName}})
		return asofLayout{engine}, err
	}}
}

func (l asofLayout) fill(ctx context.Context, history []version) error {
	load := make([]driver.Version, len(history))
	for i, v := range history {
		load[i] = driver.Version{Collection: docsName, Key: v.key, RecordedAt: driver.Instant(v.at), Op: driver.OpImport, Author: "ada", Message: "update", Data: []byte(v.data)}
	}
	_, err := l.engine.Load(ctx, load)
	return err
}

func versionOf(v *driver.Version) version {
	if v == nil {
		return version{}
	}
	return version{v.Key, v.Number, int64(v.RecordedAt), string(v.Data)}
}

func (l asofLayout) get(ctx context.Context, key string, at driver.Instant) (version, error) {
	found, err := l.engine.Get(ctx, docsName, []driver.Ref{{Key: key, At: at}}, nil)
	if err != nil {
		return version{}, err
	}
	return versionOf(found[0]), nil
}

func (l asofLayout) current(ctx context.Context, key string) (version, error) {
	now, err := l.engine.Now(ctx)
	if err != nil {
		return version{}, err
	}
	return l.get(ctx, key, now)
}

func (l asofLayout) then(ctx context.Context, key string, at int64) (version, error) {
	if err := l.engine.Settle(ctx, driver.Instant(at)); err != nil {
		return version{}, err
	}
	return l.get(ctx, key, driver.Instant(at))
}

func (l asofLayout) page(ctx context.Context, after string) ([]version, error) {
	now, err := l.engine.Now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := l.engine.Query(ctx, &driver.Query{Collection: docsName, At: now, After: &driver.Position{Key: after}, Limit: pageSize})
	page := make([]version, len(found))
	for i, v := range found {
		page[i] = versionOf(v)
	}
	return page, err
}

func (l asofLayout) update(ctx context.Context, old, next version) (version, error) {
	made, err := updateOf(ctx, l.engine, old.key, old.number, []byte(next.data))
	if driver.CodeOf(err) == driver.CodeConflict {
		err = errLost
	}
	return versionOf(made), err
}

func (l asofLayout) close() error { return l.engine.Close() }

// layoutStep is the time from one version of a filled document to the next, in microseconds.
const layoutStep = 1_000_000

// history invents n versions of a document of about 600 bytes.
func history(key string, n int, random *rand.Rand) []version {
	data := project(key, random)
	first := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	versions := make([]version, n)
	for i := range versions {
		step(data, random)
		versions[i] = version{key, int64(i + 1), first + int64(i)*layoutStep, asJSON(data)}
	}
	return versions
}

// fillLayout adds documents of n versions each to a store, and returns the last two
// versions of each.
func fillLayout(ctx context.Context, l layout, documents, n int) ([][]version, error) {
	random := rand.New(rand.NewPCG(1, 0))
	known := make([][]version, documents)
	for i := range known {
		versions := history(fmt.Sprintf("document-%04d", i), n, random)
		if err := l.fill(ctx, versions); err != nil {
			return nil, err
		}
		known[i] = versions[n-2:]
	}
	return known, nil
}

// layoutOperations are what is measured; the texts are columns of the table.
var layoutOperations = []string{"one now", "page of 50", "one as of", "update"}

// layoutUpdates is how many updates a round has at most, so that histories keep about the
// length that they are measured at.
const layoutUpdates = 40

// layoutScenarios are the operations on one store, against asof's.
func layoutScenarios(name string, l layout, known [][]version) []mongoScenario {
	first, last, number := known[0][1].at-(known[0][1].number-1)*layoutStep, known[0][1].at, len(known)
	key := func() string { return known[rand.IntN(number)][1].key }
	found := func(v version, err error) error {
		if err == nil && v.number == 0 {
			err = errors.New("a document was not found")
		}
		return err
	}
	operations := []operation{
		func(ctx context.Context, _ int) error { return found(l.current(ctx, key())) },
		func(ctx context.Context, _ int) error {
			page, err := l.page(ctx, known[rand.IntN(number-pageSize)][1].key)
			if err == nil && len(page) != pageSize {
				err = fmt.Errorf("a page of %d", len(page))
			}
			return err
		},
		func(ctx context.Context, _ int) error {
			return found(l.then(ctx, key(), first+rand.Int64N(last-first)))
		},
		func(ctx context.Context, _ int) error {
			of := known[rand.IntN(number)]
			// The texts of the two last versions take turns: nothing has to be made.
			made, err := l.update(ctx, of[1], version{of[1].key, of[1].number + 1, of[1].at + layoutStep, of[0].data})
			of[0], of[1] = of[1], made
			return err
		},
	}
	var list []mongoScenario
	for i, run := range operations {
		list = append(list, mongoScenario{name: name + layoutOperations[i], against: "asof" + layoutOperations[i], least: 3, run: run})
	}
	list[len(list)-1].most = layoutUpdates
	return list
}

// compareLayouts measures all layouts and prints tables of them.
func compareLayouts(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("layouts", flag.ContinueOnError)
	var c config
	flags.IntVar(&c.rounds, "rounds", 9, "rounds; the median counts")
	flags.DurationVar(&c.length, "length", 30*time.Millisecond, "of one operation in one round")
	flags.StringVar(&c.mongodb, "mongodb", "", "compare on the MongoDB server at this URI instead of on SQLite")
	documents := flags.Int("documents", 2*pageSize, "documents in each store")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "layouts [flags] [versions of a document ...]   (10 100 1000)")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *documents <= pageSize || c.rounds < 1 {
		return fmt.Errorf("-documents has to be more than %d, and -rounds more than 0", pageSize)
	}
	counts := []int{10, 100, 1000}
	for i, text := range flags.Args() {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			return fmt.Errorf("%q is not a number of versions from 2 on", text)
		}
		counts = append(counts[:min(i, len(counts))], n)
	}
	var s *side
	if c.mongodb != "" {
		s = mongoSide(c.mongodb)
	} else {
		dir, err := os.MkdirTemp("", "asof-layouts-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		s = sqlSide(dir)
	}
	_, _ = fmt.Fprintln(out, "| versions | layout | "+strings.Join(layoutOperations, " | ")+" | bytes a version |\n|---|---|---|---|---|---|---|")
	for _, n := range counts {
		if err := measureLayouts(ctx, c, s, *documents, n, out); err != nil {
			return err
		}
	}
	return nil
}

// measureLayouts prints the rows of one number of versions: microseconds, and the median ratio
// of the times to those of asof in the same rounds.
func measureLayouts(ctx context.Context, c config, s *side, documents, n int, out io.Writer) (err error) {
	var list []mongoScenario
	var ends []func() error
	defer func() {
		for _, end := range slices.Backward(ends) {
			err = errors.Join(err, end())
		}
	}()
	sizes := make([]int64, len(s.variants))
	for i, v := range s.variants {
		place, remove, err := s.place()
		if err != nil {
			return err
		}
		ends = append(ends, remove)
		var known [][]version
		if err := v.prepare(ctx, place, func(ctx context.Context, l layout) (err error) {
			known, err = fillLayout(ctx, l, documents, n)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if sizes[i], err = s.size(ctx, place); err != nil {
			return err
		}
		l, err := v.open(ctx, place)
		if err != nil {
			return err
		}
		ends = append(ends, l.close)
		list = append(list, layoutScenarios(v.name, l, known)...)
	}
	results, err := mongoRounds(ctx, c, list)
	if err != nil {
		return err
	}
	for i, v := range s.variants {
		_, _ = fmt.Fprintf(out, "| %d | %s ", n, v.name)
		for range layoutOperations {
			_, _ = fmt.Fprintf(out, "| %.3g (%.2g) ", 1e6/results[0].Median.PerSecond, results[0].Ratio)
			results = results[1:]
		}
		_, _ = fmt.Fprintf(out, "| %d |\n", sizes[i]/int64(documents*n))
	}
	return nil
}
