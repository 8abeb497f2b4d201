package mongostore

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// checkSays are the problems that a check reports.
func checkSays(ctx context.Context, t *testing.T, s *Store) (problems []string) {
	t.Helper()
	if err := s.Check(ctx, func(problem string) { problems = append(problems, problem) }); err != nil {
		t.Fatal(err)
	}
	return problems
}

// change changes the clock document, or another one of asof.meta.
func change(id string, members bson.D) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		_, err := s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: members}})
		return err
	}
}

// What other programs write beside the documents is found by a check, and what they
// write into the document that servers find each other by keeps a store from opening:
// at once, and with its name.
func TestMetaIsChecked(t *testing.T) {
	entry := bson.D{{Key: "from", Value: int64(driver.InstantOf(time.Now().Add(time.Minute)))}, {Key: "since", Value: bson.NewDateTimeFromTime(time.Now())}, {Key: "ms", Value: int64(time.Minute.Milliseconds())}}
	for _, c := range []struct {
		name  string
		spoil func(context.Context, *Store) error
		open  string // what opening says; "": it opens
		check string // what a check says, beginning and end; "": that all is sound
	}{
		{"nothing", func(context.Context, *Store) error { return nil }, "", ""},
		{"a foreign document", func(ctx context.Context, s *Store) error {
			_, err := s.meta.InsertOne(ctx, bson.D{{Key: "_id", Value: "theirs"}})
			return err
		}, "", `asof.meta "theirs": this is no document of asof's; remove it`},
		{"one with a number", func(ctx context.Context, s *Store) error {
			_, err := s.meta.InsertOne(ctx, bson.D{{Key: "_id", Value: int32(7)}})
			return err
		}, "", `: this is no document of asof's; remove it`},
		{"a last of another type", change(clockID, bson.D{{Key: "last", Value: "soon"}}), "last", ""},
		{"a last that no time can be", change(clockID, bson.D{{Key: "last", Value: int64(driver.Forever)}}), "which no time can be", ""},
		{"an entry from what no time can be", change(clockID, bson.D{{Key: "flights.x", Value: bson.D{{Key: "from", Value: int64(driver.LastInstant + 1)}, {Key: "since", Value: bson.DateTime(0)}, {Key: "ms", Value: int64(1)}}}}), "which no time can be", ""},
		{"a last below nothing", change(clockID, bson.D{{Key: "last", Value: int64(-5)}}), "", ""}, // it is raised when a store opens
		{"a last that is far away", change(clockID, bson.D{{Key: "last", Value: int64(driver.InstantOf(time.Now().AddDate(2, 0, 0)))}}), "", "gets times after that"},
		{"no clock", func(ctx context.Context, s *Store) error {
			_, err := s.meta.DeleteOne(ctx, bson.D{{Key: "_id", Value: clockID}})
			return err
		}, "", ""},
		{"flights that are a text", change(clockID, bson.D{{Key: "flights", Value: "x"}}), "flights", ""},
		{"a flight of a server that is gone", change(clockID, bson.D{{Key: "flights.x", Value: entry}}), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			uri, _ := mongotest.NewServer(t).Database(t)
			before := newServerOf(t, uri, Options{})
			if _, err := commitAgain(ctx, before, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			before.clock.leave(ctx)
			if err := c.spoil(ctx, before); err != nil {
				t.Fatal(err)
			}
			if c.open != "" {
				s, err := openURI(ctx, uri, Options{Timeout: hangs})
				if err == nil {
					_ = s.Close()
				}
				if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), c.open) || !strings.Contains(err.Error(), `the document "clock" of asof.meta`) || ctx.Err() != nil {
					t.Errorf("Open: %v (%q), want %q", err, driver.CodeOf(err), c.open)
				}
				return
			}
			s := newServerOf(t, uri, Options{})
			problems := checkSays(ctx, t, s)
			if c.check == "" && len(problems) > 0 || c.check != "" && !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.check) }) {
				t.Errorf("Check: %q, want %q", problems, c.check)
			}
		})
	}
}

// What another program writes into the clock document while a server runs is told as
// soon as it keeps the server from going on, which it does again when that is mended.
func TestSpoiledClockIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{Timeout: hangs})
	if err := change(clockID, bson.D{{Key: "last", Value: "soon"}})(ctx, s); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, s, func(c *clock) bool { return c.failed != nil && !c.leased() })
	if _, err := s.Now(ctx); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), `the document "clock" of asof.meta`) || ctx.Err() != nil {
		t.Errorf("Now: %v (%q)", err, driver.CodeOf(err))
	}
	if err := change(clockID, bson.D{{Key: "last", Value: int64(0)}})(ctx, s); err != nil {
		t.Fatal(err)
	}
	if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
		t.Error(err)
	}
}
