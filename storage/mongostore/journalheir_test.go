package mongostore

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What a server writes down that comes in while others complete loads is not taken
// for that of one that is gone.
func TestHeirSparesNewcomer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{beat: beatEvery})
	come := sync.OnceFunc(func() {
		if _, err := beside.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: clockID}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "servers.newcomer.beat", Value: int64(1)}}}}); err != nil {
			t.Error(err)
		}
		if _, err := beside.journal().InsertOne(ctx, bson.D{{Key: "_id", Value: journalPart("load", 1)}, {Key: "owner", Value: "newcomer"}}); err != nil {
			t.Error(err)
		}
	})
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "find" && c.Collection() == journalName {
			come()
		}
		return mongotest.Pass()
	})
	if _, err := again(ctx, func(ctx context.Context) (bool, error) { return true, behind.completeLoads(ctx, lifeOf(behind)) }); err != nil {
		t.Fatal(err)
	}
	if n, err := beside.journal().CountDocuments(ctx, bson.D{}); err != nil || n != 1 {
		t.Errorf("%d parts are left, %v", n, err)
	}
}

// A load that can never be completed is kept, is reported, and holds up nobody.
func TestHopelessLoadIsKept(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(ctx context.Context, s *Store, j *journal) error
		says  string
	}{
		{"another version is there", func(ctx context.Context, s *Store, _ *journal) error {
			_, err := commitAgain(ctx, s, write("l0", "other", 0))
			return err
		}, "is not after the last version"},
		{"a part is missing", func(_ context.Context, _ *Store, j *journal) error {
			j.parts[0] = bson.D{j.parts[0][0], j.parts[0][1], {Key: "parts", Value: int64(2)}, j.parts[0][3]}
			return nil
		}, "part 2 of 2 is missing"},
		{"it is broken", func(_ context.Context, _ *Store, j *journal) error {
			j.parts[0] = bson.D{j.parts[0][0], j.parts[0][1], j.parts[0][2], {Key: "data", Value: []byte("no frame")}}
			return nil
		}, "broken"},
	} {
		t.Run(test.name, func(t *testing.T) {
			uri, _ := mongotest.NewServer(t).Database(t)
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			s := newFleetServer(t, uri, Options{beat: slowBeat})
			l := s.newLoading(driver.Forever)
			l.life = "gone"
			if _, _, err := l.plan(ctx, two(0, "things")); err != nil {
				t.Fatal(err)
			}
			j, err := s.newJournal(l)
			if err == nil {
				err = test.spoil(ctx, s, j)
			}
			if err == nil {
				err = j.insert(ctx, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				life, err := s.fleet.exclude(ctx)
				if err != nil {
					t.Fatal(err)
				}
				err = s.completeLoads(ctx, life)
				s.fleet.include()
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := commitAgain(ctx, s, write("b", "b", 0)); err != nil {
				t.Error(err)
			}
			var problems []string
			if err := s.Check(ctx, func(problem string) { problems = append(problems, problem) }); err != nil {
				t.Fatal(err)
			}
			if len(problems) != 1 || !strings.Contains(problems[0], test.says) || !strings.Contains(problems[0], j.id) {
				t.Errorf("check reports %q; want that the load %s was given up: %s", problems, j.id, test.says)
			}
		})
	}
}

// What a server that is gone was loading may take longer to complete than opening
// may otherwise.
func TestHeirHasPatience(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, name := mongotest.NewServer(t).Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	vs := two(0, "things")
	dieLoading(ctx, t, newFleetServer(t, direct, Options{}), vs, 1, func() {})
	const timeout = 2 * time.Second
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "find" && c.Collection() == journalName {
			late, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			<-late.Done()
		}
		return mongotest.Pass()
	})
	checkLoaded(ctx, t, newFleetServer(t, uri, Options{Timeout: timeout}), vs)
}
