package mongotest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Capability is what some servers can do and others cannot. Several are joined with |.
type Capability uint

// The capabilities. Each is found out by doing it, or by what the server says
// of itself where it cannot be tried.
const (
	CapExplain       Capability = 1 << iota // the command explain, with a plan of its winning stages
	CapReplicaSet                           // it is a member of a replica set
	CapTransactions                         // reads and writes in a transaction
	CapSnapshots                            // reads of several commands in one snapshot
	CapChangeStreams                        // watching a collection
	CapPipelines                            // updates by an aggregation pipeline
	CapAuth                                 // it refuses who does not say who he is
)

// probes are in the order of the constants.
var probes = [...]struct {
	name string
	ask  func(context.Context, *mongo.Client) error
}{
	{"explain", askExplain},
	{"a replica set", askReplicaSet},
	{"transactions", askTransactions},
	{"snapshot reads", askSnapshots},
	{"change streams", askChangeStreams},
	{"update pipelines", askPipelines},
	{"access control", askAuth},
}

// String names the capabilities.
func (c Capability) String() string {
	var names []string
	for i, p := range probes {
		if c&(1<<i) != 0 {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}

// probeTimeout bounds one question.
const probeTimeout = time.Minute

// probed is the database that questions are asked in. Nothing stays in it.
const probed = "asof_test_probe"

// Requires skips a test that needs what a server cannot do, and says what and why.
func Requires(t testing.TB, client *mongo.Client, c Capability) {
	t.Helper()
	if missing := Missing(t.Context(), client, c); missing != nil {
		t.Skipf("%v (%s): set %s to a mongod binary, or %s to another server",
			missing, describe(t.Context(), client), EnvMongod, EnvURI)
	}
}

// Missing says which of the capabilities a server does not have, the first one
// with the reason; nil: it has all of them.
func Missing(ctx context.Context, client *mongo.Client, c Capability) error {
	for i, p := range probes {
		if c&(1<<i) == 0 {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		err := p.ask(asking, client)
		cancel()
		if err != nil {
			return fmt.Errorf("needs %s, which the server does not have: %w", p.name, err)
		}
	}
	return nil
}

// describe is what a server says that it is.
func describe(ctx context.Context, client *mongo.Client) string {
	var info struct {
		Version string `bson:"version"`
	}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		return "it does not tell its version: " + err.Error()
	}
	return "it says that it is version " + info.Version
}

// greet asks a server what it is, under the name of the question that it knows.
func greet(ctx context.Context, client *mongo.Client) (*hello, error) {
	var h hello
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&h)
	}
	return &h, err
}

// probe gives a question a collection of its own.
func probe(ctx context.Context, client *mongo.Client, use func(*mongo.Collection) error) error {
	c := client.Database(probed).Collection("probe_" + bson.NewObjectID().Hex())
	if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		return err
	}
	return errors.Join(use(c), c.Drop(ctx))
}

func askExplain(ctx context.Context, client *mongo.Client) error {
	return probe(ctx, client, func(c *mongo.Collection) error {
		var reply bson.Raw
		err := c.Database().RunCommand(ctx, bson.D{
			{Key: "explain", Value: bson.D{{Key: "find", Value: c.Name()}, {Key: "filter", Value: bson.D{{Key: "_id", Value: 1}}}}},
			{Key: "verbosity", Value: "queryPlanner"},
		}).Decode(&reply)
		if err != nil {
			return err
		}
		_, err = Accesses(reply)
		return err
	})
}

func askReplicaSet(ctx context.Context, client *mongo.Client) error {
	h, err := greet(ctx, client)
	if err == nil && h.SetName == "" {
		return errors.New("it names none")
	}
	return err
}

func askTransactions(ctx context.Context, client *mongo.Client) error {
	return probe(ctx, client, func(c *mongo.Collection) error {
		return client.UseSession(ctx, func(ctx context.Context) error {
			session := mongo.SessionFromContext(ctx)
			if err := session.StartTransaction(); err != nil {
				return err
			}
			if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 2}}); err != nil {
				return err
			}
			if err := session.AbortTransaction(ctx); err != nil {
				return err
			}
			n, err := c.CountDocuments(context.WithoutCancel(ctx), bson.D{})
			if err == nil && n != 1 {
				return errors.New("what was aborted is there")
			}
			return err
		})
	})
}

func askSnapshots(ctx context.Context, client *mongo.Client) error {
	return probe(ctx, client, func(c *mongo.Collection) error {
		session, err := client.StartSession(options.Session().SetSnapshot(true))
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		in := mongo.NewSessionContext(ctx, session)
		count := func() (int, error) {
			cursor, err := c.Find(in, bson.D{})
			if err != nil {
				return 0, err
			}
			var all []bson.Raw
			err = cursor.All(in, &all)
			return len(all), err
		}
		before, err := count()
		if err != nil {
			return err
		}
		if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 2}}); err != nil {
			return err
		}
		after, err := count()
		if err == nil && before != after {
			return errors.New("a later read of the session sees a later write")
		}
		return err
	})
}

func askChangeStreams(ctx context.Context, client *mongo.Client) error {
	return probe(ctx, client, func(c *mongo.Collection) error {
		stream, err := c.Watch(ctx, mongo.Pipeline{})
		if err != nil {
			return err
		}
		return stream.Close(ctx)
	})
}

func askPipelines(ctx context.Context, client *mongo.Client) error {
	return probe(ctx, client, func(c *mongo.Collection) error {
		_, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: 1}}, mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$add", Value: bson.A{"$_id", 1}}}}}}}})
		if err != nil {
			return err
		}
		var updated struct {
			N int `bson:"n"`
		}
		if err := c.FindOne(ctx, bson.D{{Key: "_id", Value: 1}}).Decode(&updated); err != nil {
			return err
		}
		if updated.N != 2 {
			return fmt.Errorf("1 + 1 is %d there", updated.N)
		}
		return nil
	})
}

// askAuth looks who the server takes this client for: one that nobody has to
// log in to knows no users.
func askAuth(ctx context.Context, client *mongo.Client) error {
	var status struct {
		Info struct {
			Users []bson.Raw `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "connectionStatus", Value: 1}}).Decode(&status); err != nil {
		return err
	}
	if len(status.Info.Users) == 0 {
		return errors.New("nobody logged in to it")
	}
	return nil
}
