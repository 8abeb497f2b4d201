package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// The engine's documents in a comparison with MongoDB: many with ten versions,
// of which each is updated a few times, one with as many as stay in the document
// and some more, and one with ten thousand.
const (
	mongoDocuments = 600
	mongoVersions  = 10
	mongoSteady    = 100
	mongoLong      = 10_000
	steadyKey      = "steady"
	longKey        = "long"
	// mongoUpdates is how many updates a round has at most, so that the many stay
	// near version 10, and mongoCycle how many it has at least, so that each part of
	// a history moves out of its document several times in a round.
	mongoUpdates = 200
	mongoCycle   = 100
	docsName     = "software"
)

// compareMongo measures the engine over MongoDB against a bare loop on the same
// driver and server that does the same reads and writes. Nothing is served: what is
// compared is what an engine costs. It makes a database of its own on the server and drops it.
func compareMongo(ctx context.Context, c config, uri string, out io.Writer) (err error) {
	store, drop, err := mongoSide(uri).place()
	if err != nil {
		return fmt.Errorf("-mongodb: %w", err)
	}
	defer func() {
		if left := drop(); left != nil {
			err = errors.Join(err, fmt.Errorf("%s is left behind: %w", mongostore.Name(store), left))
		}
	}()
	client, db, err := openDatabase(store)
	if err != nil {
		return fmt.Errorf("-mongodb: %w", err)
	}
	defer func() { err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))) }()
	engine, err := mongostore.Open(ctx, store, mongostore.Options{Collections: []driver.Collection{{Name: docsName}}})
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	middle, err := fill(ctx, engine)
	if err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	bare := &bareMongo{documents: db.Collection(docsName)}
	if err := bare.fill(ctx); err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	scenarios, err := mongoScenarios(ctx, engine, bare, middle)
	if err != nil {
		return err
	}
	results, err := mongoRounds(ctx, c, scenarios)
	if err != nil {
		return err
	}
	return report(out, map[string]any{"rounds": c.rounds, "seconds": c.length.Seconds(), "results": results})
}

// dropTimeout bounds how long the database is dropped.
const dropTimeout = time.Minute

// fill loads the same documents into an engine, and returns an instant in the
// middle of the long history.
func fill(ctx context.Context, engine driver.Engine) (driver.Instant, error) {
	random := mathrand.New(mathrand.NewPCG(1, 0))
	at := driver.InstantOf(time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC))
	var versions []driver.Version
	var middle driver.Instant
	add := func(key string, n int) error {
		data := project(key, random)
		for i := range n {
			step(data, random)
			text, err := json.Marshal(data)
			if err != nil {
				return err
			}
			at++
			if i == n/2 {
				middle = at
			}
			versions = append(versions, driver.Version{Collection: docsName, Key: key, RecordedAt: at, Op: driver.OpImport, Author: "ada", Message: "update", Data: text})
		}
		return nil
	}
	for i := range mongoDocuments {
		if err := add(short(i), mongoVersions); err != nil {
			return 0, err
		}
	}
	if err := add(steadyKey, mongoSteady); err != nil {
		return 0, err
	}
	if err := add(longKey, mongoLong); err != nil {
		return 0, err
	}
	for part := range slices.Chunk(versions, 4096) {
		if _, err := engine.Load(ctx, part); err != nil {
			return 0, err
		}
	}
	return middle, nil
}

func short(i int) string { return fmt.Sprintf("short-%03d", i%mongoDocuments) }

// operation is what a scenario does once; n counts from 0.
type operation func(ctx context.Context, n int) error

// mongoScenario is one kind of call. Its ratio is the time that it takes over
// that of the one named in against, in the same rounds.
type mongoScenario struct {
	name, against, target string
	least, most           int // operations in a round; 0: no bound
	run                   operation
}

func mongoScenarios(ctx context.Context, engine driver.Engine, bare *bareMongo, middle driver.Instant) ([]mongoScenario, error) {
	known, err := readAll(ctx, engine)
	if err != nil {
		return nil, err
	}
	get := func(ref func(n int) driver.Ref) operation {
		return func(ctx context.Context, n int) error {
			found, err := engine.Get(ctx, docsName, []driver.Ref{ref(n)}, nil)
			if err == nil && found[0] == nil {
				err = errors.New("a document was not found")
			}
			return err
		}
	}
	current := func(n int) driver.Ref { return driver.Ref{Key: short(n), At: driver.Forever} }
	recent := func(n int) driver.Ref { return driver.Ref{Key: short(n), Number: mongoVersions / 2} }
	old := func(int) driver.Ref { return driver.Ref{Key: longKey, At: middle} }
	update := func(name, against, target string, run operation) mongoScenario {
		n := -1 // goes on from round to round, so that all documents have their turn
		next := func(ctx context.Context, _ int) error {
			n++
			return run(ctx, n)
		}
		return mongoScenario{name: name, against: against, target: target, least: mongoCycle, most: mongoUpdates, run: next}
	}
	const bareRead, bareWrite, low = "bare FindOne", "bare guarded update", "update of version 10"
	return []mongoScenario{
		{name: bareRead, run: bare.read},
		{name: "point read", against: bareRead, target: "time at most 1.25", run: get(current)},
		{name: "point read, long history", against: bareRead, target: "time at most 1.25", run: get(func(int) driver.Ref { return driver.Ref{Key: longKey, At: driver.Forever} })},
		{name: "read of a recent version", against: "point read", run: get(recent)},
		{name: "read as of, in the overflow", against: "point read", run: get(old)},
		update(bareWrite, "", "", bare.update),
		update(low, bareWrite, "time at most 1.3", updates(engine, known, short)),
		update("update of version 100", low, "", updates(engine, known, func(int) string { return steadyKey })),
		update("update of version 10,000", low, "time at most 1.2", updates(engine, known, func(int) string { return longKey })),
	}, nil
}

// updates commits one version after the other, each from the one that is
// known, which the commit makes the next.
func updates(engine driver.Engine, known map[string]*driver.Version, key func(n int) string) operation {
	return func(ctx context.Context, n int) error {
		v := known[key(n)]
		made, err := updateOf(ctx, engine, v.Key, v.Number, v.Data)
		if err == nil {
			known[v.Key] = made
		}
		return err
	}
}

// updateOf commits the version after one.
func updateOf(ctx context.Context, engine driver.Engine, key string, number int64, data []byte) (*driver.Version, error) {
	return driver.CommitOne(ctx, engine, &driver.Write{
		ID: rand.Text(), Collection: docsName, Key: key, Expected: number, Op: driver.OpUpdate, Author: "ada", Message: "update",
		Changed: []string{"stargazers_count"}, Data: data,
	})
}

// readAll reads the documents that are updated, by their keys, so that no update
// has to.
func readAll(ctx context.Context, engine driver.Engine) (map[string]*driver.Version, error) {
	refs := []driver.Ref{{Key: steadyKey, At: driver.Forever}, {Key: longKey, At: driver.Forever}}
	for i := range mongoDocuments {
		refs = append(refs, driver.Ref{Key: short(i), At: driver.Forever})
	}
	found, err := engine.Get(ctx, docsName, refs, nil)
	if err != nil {
		return nil, err
	}
	known := make(map[string]*driver.Version, len(found))
	for i, v := range found {
		if v == nil {
			return nil, fmt.Errorf("%s was not found", refs[i].Key)
		}
		known[v.Key] = v
	}
	return known, nil
}

// mongoRounds runs all scenarios in turn, several rounds. The first round warms
// up and does not count.
func mongoRounds(ctx context.Context, c config, list []mongoScenario) ([]result, error) {
	var rounds []map[string]measurement
	for i := range c.rounds + 1 {
		round := map[string]measurement{}
		for _, s := range list {
			m, err := repeatedly(ctx, s, c.length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			round[s.name] = m
		}
		if i > 0 {
			rounds = append(rounds, round)
		}
	}
	var results []result
	for _, s := range list {
		r := summarize(s.name, "", 0, rounds)
		r.Against, r.Target = s.against, s.target
		if s.against != "" {
			var ratios, middles, processor []float64
			for _, round := range rounds {
				mine, other := round[s.name], round[s.against]
				ratios = append(ratios, other.PerSecond/mine.PerSecond)
				middles = append(middles, float64(mine.P50Micros)/float64(other.P50Micros))
				processor = append(processor, mine.CPUMicros/other.CPUMicros)
			}
			r.Least, r.Most, r.Ratio = spread(ratios)
			r.Explanation = fmt.Sprintf("ratio of the mean times; of the median times: %.2f; of the client's processor time: %.2f", median(middles), median(processor))
		}
		results = append(results, r)
	}
	return results, nil
}

// repeatedly runs a scenario with one client for some time, within its bounds.
func repeatedly(ctx context.Context, s mongoScenario, length time.Duration) (measurement, error) {
	var times []time.Duration
	before, began := processorTime(), time.Now()
	for n := 0; n < s.least || time.Since(began) < length && (s.most == 0 || n < s.most); n++ {
		start := time.Now()
		if err := s.run(ctx, n); err != nil {
			return measurement{}, err
		}
		times = append(times, time.Since(start))
	}
	elapsed, processor := time.Since(began), processorTime()-before
	if len(times) == 0 {
		return measurement{}, errors.New("-length is too short")
	}
	count := float64(len(times))
	slices.Sort(times)
	return measurement{
		Requests:  len(times),
		PerSecond: count / elapsed.Seconds(),
		P50Micros: times[len(times)/2].Microseconds(),
		P99Micros: times[len(times)*99/100].Microseconds(),
		CPUMicros: math.Round(float64(processor.Nanoseconds())/count/100) / 10,
	}, nil
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
