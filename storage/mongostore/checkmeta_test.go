package mongostore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

// beingLoaded inserts a document into asof.loads.
func beingLoaded(d bson.D) func(context.Context, *Store) error {
	return func(ctx context.Context, s *Store) error {
		_, err := s.journal().InsertOne(ctx, d)
		return err
	}
}

// part is one of a load as it is written down, with other members instead.
func part(load string, members ...bson.E) bson.D {
	d := bson.D{
		{Key: "_id", Value: journalPart(load, 1)}, {Key: "owner", Value: "gone"}, {Key: "parts", Value: int64(2)}, {Key: "data", Value: []byte("…")},
	}
	for _, m := range members {
		d[slices.IndexFunc(d, func(e bson.E) bool { return e.Key == m.Key })].Value = m.Value
	}
	return d
}

// What other programs write beside the documents is found by a check, and what they
// write into the document that servers find each other by keeps a store from opening:
// at once, and with its name.
func TestMetaIsChecked(t *testing.T) {
	server := func(beat, floor any) bson.D {
		return bson.D{{Key: "beat", Value: beat}, {Key: "alone", Value: false}, {Key: "low", Value: int64(0)}, {Key: "floor", Value: floor}}
	}
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
		{"a foreign member of the store", change(storeID, bson.D{{Key: "theirs", Value: 1}}), "", `asof.meta "store": theirs is not asof's`},
		{"an identity of another type", change(storeID, bson.D{{Key: "identity", Value: "x"}}), "", `asof.meta "store": identity is no binary, but a string`},
		{"a foreign member of the clock", change(clockID, bson.D{{Key: "theirs", Value: 1}}), "", `asof.meta "clock": theirs is not asof's`},
		{"a mark of zero", change(clockID, bson.D{{Key: "mark", Value: int64(0)}}), "", `asof.meta "clock": mark was `},
		{"a mark that is far away", change(clockID, bson.D{{Key: "mark", Value: int64(driver.InstantOf(time.Now().AddDate(2, 0, 0)))}}), "", "which is in the future"},
		{"no clock", func(ctx context.Context, s *Store) error {
			_, err := s.meta.DeleteOne(ctx, bson.D{{Key: "_id", Value: clockID}})
			return err
		}, "", `asof.meta "clock": it was not there, and was made anew`},
		{"a loader that is no name", change(clockID, bson.D{{Key: "loader", Value: 5.5}}), "loader", ""},
		{"a mark that is a text", change(clockID, bson.D{{Key: "mark", Value: "soon"}}), "mark", ""},
		{"a number of servers that is wrong", change(clockID, bson.D{{Key: "n", Value: int64(7)}}), "n is 7, and there are 0 servers", ""},
		{"a server that is a text", change(clockID, bson.D{{Key: "servers.x", Value: "x"}, {Key: "n", Value: int64(1)}}), "servers", ""},
		{"a server without a beat", change(clockID, bson.D{{Key: "servers.x.alone", Value: true}, {Key: "n", Value: int64(1)}}), "servers.x has no beat", ""},
		{
			"a server that cannot be one", change(clockID, bson.D{{Key: "servers.x", Value: server(int64(1), int64(-5))}, {Key: "n", Value: int64(1)}}),
			"", `asof.meta "clock": servers.x.floor is -5`,
		},
		{
			"a server with a foreign member",
			change(clockID, bson.D{{Key: "servers.x", Value: append(server(int64(1), int64(0)), bson.E{Key: "theirs", Value: 1})}, {Key: "n", Value: int64(1)}}),
			"", `asof.meta "clock": servers.x.theirs is not asof's`,
		},
		{"a server that was killed", change(clockID, bson.D{{Key: "servers.x", Value: server(int64(5), int64(0))}, {Key: "n", Value: int64(1)}}), "", ""},
		{"a foreign document among loads", beingLoaded(bson.D{{Key: "_id", Value: "theirs"}, {Key: "n", Value: 1}}), "", `asof.loads "theirs": `},
		{"a load of two servers", beingLoaded(part("a", bson.E{Key: "owner", Value: bson.A{}})), "", "owner is no string, but a array"},
		{"a load without a name", beingLoaded(part("a", bson.E{Key: "_id", Value: bson.D{{Key: "part", Value: int64(0)}}})), "", "_id.load is missing"},
		{"a part that there is not", beingLoaded(part("a", bson.E{Key: "parts", Value: int64(1)})), "", "this is part 1 of 1"},
		{"what a server left that is gone", beingLoaded(part("a")), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			uri, _ := mongotest.NewServer(t).Database(t)
			before := newFleetServer(t, uri, Options{})
			if _, err := commitAgain(ctx, before, write("a", "1", 0)); err != nil {
				t.Fatal(err)
			}
			if _, err := before.identity(ctx); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(before.fleet.leave(ctx), c.spoil(ctx, before)); err != nil {
				t.Fatal(err)
			}
			if c.open != "" {
				s, err := Open(ctx, uri, Options{Timeout: hangs})
				if err == nil {
					_ = s.Close()
				}
				if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), c.open) || !strings.Contains(err.Error(), `the document "clock" of asof.meta`) || ctx.Err() != nil {
					t.Errorf("Open: %v (%q), want %q", err, driver.CodeOf(err), c.open)
				}
				return
			}
			var log bytes.Buffer
			s := newFleetServer(t, uri, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			problems := checkSays(ctx, t, s)
			if c.check == "" && len(problems) > 0 || c.check != "" && !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, c.check) }) {
				t.Errorf("Check: %q, want %q", problems, c.check)
			}
			if left := strings.Contains(log.String(), "it is no damage"); left != (c.name == "what a server left that is gone") {
				t.Errorf("log: %s", log.String())
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
	s := newFleetServer(t, uri, Options{Timeout: hangs})
	if err := change(clockID, bson.D{{Key: "mark", Value: "soon"}})(ctx, s); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, s, func(c *clock) bool { return c.left() <= 0 && c.failed != nil })
	if _, err := s.Now(ctx); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), `the document "clock" of asof.meta`) || ctx.Err() != nil {
		t.Errorf("Now: %v (%q)", err, driver.CodeOf(err))
	}
	if err := change(clockID, bson.D{{Key: "mark", Value: int64(0)}})(ctx, s); err != nil {
		t.Fatal(err)
	}
	if _, err := commitAgain(ctx, s, write("a", "1", 0)); err != nil {
		t.Error(err)
	}
}

// What another program writes where loads are written down holds up nobody.
func TestForeignLoadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	dying := newFleetServer(t, uri, Options{})
	vs := two(0, "things")
	foreign := bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "owner", Value: int32(1)}, {Key: "parts", Value: "many"}}
	dieLoading(ctx, t, dying, vs, 1, func() {
		if err := beingLoaded(foreign)(ctx, dying); err != nil {
			t.Fatal(err)
		}
	})
	heir := newFleetServer(t, uri, Options{})
	if _, err := commitAgain(ctx, heir, write("b", "b", 0)); err != nil {
		t.Fatal(err)
	}
	if problems := checkSays(ctx, t, heir); len(problems) == 0 || !strings.Contains(problems[0], journalName) {
		t.Errorf("Check: %q", problems)
	}
	if _, err := heir.journal().DeleteOne(ctx, foreign[:1]); err != nil {
		t.Fatal(err)
	}
	checkLoaded(ctx, t, heir, vs)
}
