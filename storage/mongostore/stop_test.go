package mongostore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// StoppedVar makes the test binary a server that writes into the database that it names.
const StoppedVar = "ASOF_TEST_WRITE_FOR_STOP"

// WriteForStop is a server on a database that writes and loads without a break,
// until its input ends. It returns the exit status.
func WriteForStop(uri string, input io.Reader) int {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(false))
	if err != nil {
		return 1
	}
	s, err := open(ctx, client, databaseOf(uri), Options{Collections: []driver.Collection{{Name: "things"}, {Name: "thingsToo"}}, timing: quick})
	if err != nil {
		return 1
	}
	const writers = 8
	for n := range writers {
		go func() {
			expected := int64(0)
			for round := 0; ctx.Err() == nil; round++ {
				id := fmt.Sprintf("%d.%d", n, round)
				v, err := driver.CommitOne(ctx, s, write(fmt.Sprintf("w%d", n), id, expected))
				var conflict *driver.ConflictError
				switch {
				case err == nil:
					expected = v.Number
				case errors.As(err, &conflict):
					expected = conflict.Lost[0].Actual
				default:
					round-- // the same write tells what became of it
				}
			}
		}()
	}
	refused := make(chan error, 1)
	go func() {
		for round := 0; ctx.Err() == nil; round++ {
			_, err := s.Load(ctx, loadForStop(round))
			for err != nil && driver.CodeOf(err) == driver.CodeUnavailable && ctx.Err() == nil {
				_, err = s.Load(ctx, loadForStop(round)) // the same load tells what became of it
			}
			if err != nil && ctx.Err() == nil {
				refused <- err
				return
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, input)
	}()
	select {
	case <-ended:
		return 0
	case err := <-refused:
		fmt.Fprintln(os.Stderr, "a load was refused:", err)
		return 1
	}
}

// loadForStop is a load of two documents, apart from those that are written.
func loadForStop(round int) []driver.Version {
	vs := make([]driver.Version, 2)
	for i := range vs {
		vs[i] = driver.Version{Collection: "thingsToo", Key: fmt.Sprintf("%c%d", 'l'+i, round), RecordedAt: 10, Op: driver.OpImport, Author: "import", Data: []byte(`{}`)}
	}
	return vs
}
