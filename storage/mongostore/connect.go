package mongostore

import (
	"context"
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/asof/asof/storage/driver"
)

// CheckURI says what is wrong with a URI that Open is to be given, without
// connecting to the server; for mongodb+srv:// its hosts are looked up. Errors:
// CodeInvalid; CodeUnavailable when the hosts cannot be looked up. They do not
// show a password.
func CheckURI(uri string) error {
	client, _, err := connect(uri, nowhere{})
	if err != nil {
		return err
	}
	return client.Disconnect(context.Background())
}

// Name is what may be shown of a URI: where the servers are, and the database. The
// user may have a password, and so may options.
func Name(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	if _, after, user := strings.Cut(rest, "@"); user {
		rest = after
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
}

// connect makes a client of the servers that a URI names, and says which database it
// names. Whatever is wrong with the URI, it finds before any server is asked. The driver
// does not repeat writes: where it cannot, it tells that instead of what became of the
// first attempt. This package repeats them itself.
func connect(uri string, d options.ContextDialer) (client *mongo.Client, database string, err error) {
	parsed, err := parseURI(uri)
	if err != nil {
		return nil, "", err
	}
	client, err = mongo.Connect(options.Client().SetAppName("asof").SetServerSelectionTimeout(openTimeout).SetDialer(d).ApplyURI(uri).
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()).SetWriteConcern(durable()).SetRetryWrites(false))
	if err != nil {
		return nil, "", uriError(err)
	}
	return client, parsed.Database, nil
}

func parseURI(uri string) (*connstring.ConnString, error) {
	_, rest, _ := strings.Cut(uri, "://")
	_, rest, _ = strings.Cut(rest, "@")
	if rest, _, _ = strings.Cut(rest, "?"); strings.Contains(rest, "@") {
		// What follows on the first one would be taken for the host, and be shown.
		return nil, invalidf("the MongoDB URI is not valid: in a user and a password, write %%40 for @")
	}
	parsed, err := connstring.ParseAndValidate(uri)
	switch {
	case err != nil:
		return nil, uriError(err)
	case parsed.Database == "":
		return nil, invalidf("the MongoDB URI names no database; add one, such as mongodb://localhost:27017/asof")
	case strings.ContainsAny(parsed.Database, "/\\. \"$\x00") || len(parsed.Database) > maxDatabaseName:
		return nil, invalidf("the MongoDB URI names the database %q; a name has at most %d bytes, and none of / \\ . \" $ and spaces", parsed.Database, maxDatabaseName)
	case len(parsed.UnknownOptions) > 0:
		// The driver takes no notice of them, whatever they were to do: tlss=true.
		return nil, invalidf("the MongoDB URI has the option %s, which the driver does not know; correct or remove it", slices.Min(slices.Collect(maps.Keys(parsed.UnknownOptions))))
	}
	// Nor of these values.
	if level := parsed.ReadConcernLevel; level != "" && !slices.Contains(readConcerns[:], level) {
		return nil, invalidf("the MongoDB URI has an unknown readConcernLevel; there are %s, and asof reads with majority, whatever it says", strings.Join(readConcerns[:], ", "))
	}
	for _, name := range parsed.Compressors {
		if !slices.Contains(compressors[:], name) {
			return nil, invalidf("the MongoDB URI has an unknown one of compressors; there are %s", strings.Join(compressors[:], ", "))
		}
	}
	return parsed, nil
}

// maxDatabaseName is how long the name of a database may be, in bytes.
const maxDatabaseName = 63

// What the options readConcernLevel and compressors can say.
var (
	readConcerns = [...]string{"available", "linearizable", "local", "majority", "snapshot"}
	compressors  = [...]string{"snappy", "zlib", "zstd"}
)

// repeated finds what the driver's errors repeat of a URI, which may be of a password;
// behind "for" they name an option.
var repeated = regexp.MustCompile(`(for )?"(?:[^"\\]|\\.)*"`)

// uriError says what the driver finds wrong with a URI.
func uriError(err error) error {
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return driver.Errorf(driver.CodeUnavailable, "the MongoDB server cannot be found: %w", err)
	}
	return invalidf("the MongoDB URI is not valid: %s", repeated.ReplaceAllStringFunc(err.Error(), func(text string) string {
		if strings.HasPrefix(text, "for ") || text == `"mongodb"` || text == `"mongodb+srv"` {
			return text
		}
		return "…"
	}))
}

// nowhere is the way to servers that are not to be asked.
type nowhere struct{}

// DialContext implements options.ContextDialer.
func (nowhere) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("only the URI is looked at")
}

// dialer makes connections, and counts what comes on them.
type dialer struct{ heard atomic.Int64 }

// DialContext implements options.ContextDialer.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return heardConn{conn, &d.heard}, nil
}

type heardConn struct {
	net.Conn
	heard *atomic.Int64
}

// Read reads, and counts.
func (c heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard.Add(int64(n))
	return n, err
}

// Heard implements driver.Distant.
func (s *Store) Heard() int64 { return s.dialer.heard.Load() }

// hello is what a server says that it is.
type hello struct {
	SetName   string        `bson:"setName"`
	Message   string        `bson:"msg"`
	Me        string        `bson:"me"`
	Primary   bool          `bson:"isWritablePrimary"`
	Master    bool          `bson:"ismaster"` // what it was called before
	LocalTime bson.DateTime `bson:"localTime"`

	MaxWireVersion int32 `bson:"maxWireVersion"`
	SessionTimeout int64 `bson:"logicalSessionTimeoutMinutes"`
}

// replicated reports whether what a majority acknowledged survives the loss of
// the server.
func (h *hello) replicated() bool { return h.SetName != "" || h.Message == "isdbgrid" }

// sessions reports whether the server takes reads that wait until it has got as far as
// another one had.
func (h *hello) sessions() bool { return h.replicated() && h.SessionTimeout > 0 }

// hello asks the server what it is. It is an error when it takes no writes: a
// client that knows the whole replica set asks the primary only, so that this
// is a server that was named alone.
func (s *Store) hello(ctx context.Context) (*hello, error) {
	var h hello
	err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		err = s.db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&h)
	}
	if err != nil {
		return nil, err
	}
	if h.SetName != "" && !h.Primary && !h.Master {
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the MongoDB server %s is not the primary of the replica set %s now, and takes no writes; name all members of the set in --store, without directConnection", h.Me, h.SetName)
	}
	return &h, nil
}

// ping finds out whether documents can be read and written: whether the server
// can be reached and takes writes, and still has what asof keeps about the
// store and lets this user read it.
func (s *Store) ping(ctx context.Context) error {
	if _, err := s.hello(ctx); err != nil {
		return err
	}
	err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran (%s.%s is gone); restore it, or start asof again for an empty store", s.db.Name(), metaName)
	}
	return err
}
