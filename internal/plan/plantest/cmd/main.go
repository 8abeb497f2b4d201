// Command cmd compares the answers of plans with those of gqlgen's executor, on
// random operations and histories, for the schema that the program is built
// with:
//
//	go run ./internal/plan/plantest/cmd -operations 1000000
//
// It prints what it compared, and each difference with the smallest operation
// that shows it, and ends with status 1 where there is one, or where what it
// compared says little.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/graph"
	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/internal/plan/plantest"
	"github.com/asof/asof/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
	"github.com/asof/asof/storage/sqlitestore"
)

func main() {
	same, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !same || err != nil {
		os.Exit(1)
	}
}

func run() (same bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	operations := flag.Int("operations", 100_000, "how many operations are compared")
	seed := flag.Uint64("seed", 1, "what they are made from: the same seed, the same operations")
	world := flag.Uint64("world", 1, "the first history, as the difference to look at again names it")
	differences := flag.Int("differences", 5, "how many differences are looked for")
	uri := flag.String("mongodb", "", "a MongoDB server, such as mongodb://127.0.0.1:27017, instead of SQLite; databases named asof_plantest_… are made and dropped")
	flag.Parse()
	dir, err := os.MkdirTemp("", "asof-plantest-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans up what is left
	cfg := plantest.Config{
		Types: model.Types, Schema: graph.NewExecutableSchema(graph.Config{}).Schema(), Serve: plantest.Servers(model.Types, resolvers.NewSchema),
		Seed: *seed, World: *world, Operations: *operations, Differences: *differences,
		Open: func() (driver.Engine, error) { return inFile(ctx, dir) },
	}
	if *uri != "" {
		cfg.Open = func() (driver.Engine, error) { return onServer(ctx, *uri) }
	}
	report, err := plantest.Run(ctx, cfg)
	fmt.Print(report)
	for i, d := range report.Differences {
		fmt.Printf("\n%s: %s\n", report.Where[i], d)
	}
	same = len(report.Differences) == 0
	if err == nil && same {
		err = report.Worth()
	}
	return same, err
}

// inFile opens an empty store that goes with the directory.
func inFile(ctx context.Context, dir string) (driver.Engine, error) {
	name, err := os.MkdirTemp(dir, "world-")
	if err != nil {
		return nil, err
	}
	engine, err := sqlitestore.Open(ctx, filepath.Join(name, "asof.db"), sqlitestore.Options{
		Collections: storage.CollectionsOf(model.Types), Sync: sqlitestore.SyncOff,
	})
	if err != nil {
		return nil, err
	}
	return temporary{engine, func() error { return os.RemoveAll(name) }}, nil
}

// onServer opens an empty database that is dropped when it is closed.
func onServer(ctx context.Context, name string) (driver.Engine, error) {
	database := "asof_plantest_" + rand.Text()
	uri, err := mongotest.WithDatabase(name, database)
	if err != nil {
		return nil, err
	}
	engine, err := mongostore.Open(ctx, uri, mongostore.Options{Collections: storage.CollectionsOf(model.Types)})
	if err != nil {
		return nil, err
	}
	return temporary{engine, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
		defer cancel()
		client, err := mongo.Connect(options.Client().ApplyURI(name))
		if err != nil {
			return fmt.Errorf("the database %s is left behind: %w", database, err)
		}
		err = client.Database(database).Drop(ctx)
		if err != nil {
			err = fmt.Errorf("the database %s is left behind: %w", database, err)
		}
		return errors.Join(err, client.Disconnect(ctx))
	}}, nil
}

// dropTimeout bounds how long a database is dropped.
const dropTimeout = 5 * time.Minute

// temporary is an engine whose data goes when it is closed.
type temporary struct {
	driver.Engine
	remove func() error
}

func (t temporary) Close() error {
	return errors.Join(t.Engine.Close(), t.remove())
}
