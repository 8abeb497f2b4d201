package mongostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/storage/driver"
)

// raw is a document in the form that errors of the driver carry.
func raw(t *testing.T, document any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cleared is the driver's error for a pool of connections that was cleared.
type cleared string

func (c cleared) Error() string {
	return "connection pool was cleared because another operation failed with: " + string(c)
}

func (cleared) Retryable() bool { return true }

// What an error means: its code, what is said of it, and whether a write that
// ended with it may have been applied.
func TestErrors(t *testing.T) {
	command := func(code int32, labels ...string) error {
		return mongo.CommandError{Code: code, Name: "Name", Message: "message", Labels: labels}
	}
	duplicate := func(message string, keys any) error {
		e := mongo.WriteError{Code: duplicateKey, Message: message}
		if keys != nil {
			e.Raw = raw(t, bson.D{{Key: "keyPattern", Value: keys}})
		}
		return mongo.WriteException{WriteErrors: mongo.WriteErrors{e}}
	}
	unacknowledged := func(code int) error {
		return mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: code, Name: "Name", Message: "waiting for replication timed out"}}
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		name      string
		err       error
		code      driver.Code
		text      string
		uncertain bool
	}{
		{"a pattern that the server cannot compile", command(51091), driver.CodeInvalid, "too long for MongoDB", false},
		{"a name in another case", command(13297), driver.CodeInvalid, "upper and lower case", false},
		{"a refusal", command(13), driver.CodeUnavailable, "readWrite", false},
		{"a wrong password", fmt.Errorf("handshake: %w", &auth.Error{}), driver.CodeUnavailable, "the password of --store is wrong", true},
		{"a pool that a wrong password cleared", cleared("connection() error occurred during connection handshake: auth error: sasl"), driver.CodeUnavailable, "the password of --store is wrong", false},
		{"a pool that a broken connection cleared", cleared("connection reset by peer"), driver.CodeUnavailable, "cannot be reached", false},
		{"no server", topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}, driver.CodeUnavailable, "cannot be reached", false},
		{"a connection that broke", command(0, "NetworkError"), driver.CodeUnavailable, "cannot be reached", true},
		{"no connection", topology.ConnectionError{Wrapped: broken}, driver.CodeUnavailable, "cannot be reached", true},
		{"not the primary", command(10107, "RetryableWriteError", "NoWritesPerformed"), driver.CodeUnavailable, "takes no writes", false},
		{"not the primary any more, perhaps after it was written", command(10107, "RetryableWriteError"), driver.CodeUnavailable, "takes no writes", true},
		{"shutting down", command(11600, "RetryableWriteError"), driver.CodeUnavailable, "shutting down", true},
		{"stepped down", command(189, "RetryableWriteError", "NoWritesPerformed"), driver.CodeUnavailable, "gives up being the primary", false},
		{"out of the server's time", command(50), driver.CodeUnavailable, "time was up", true},
		{"out of time", context.DeadlineExceeded, driver.CodeUnavailable, "time was up", true},
		{"given up", context.Canceled, driver.CodeUnavailable, "the request ended", true},
		{"no majority in time", unacknowledged(64), driver.CodeUnavailable, "no majority", true},
		{"never a majority", unacknowledged(100), driver.CodeUnavailable, "no majority", true},
		{"written, then shut down", unacknowledged(91), driver.CodeUnavailable, "shutting down", true},
		{"a full disk", command(14031), driver.CodeUnavailable, "make room", false},
		{"a lost cursor", command(43), driver.CodeUnavailable, "try again", false},
		{"a snapshot that is too old", command(239), driver.CodeUnavailable, "try again", false},
		{"a document that is too large", command(10334), driver.CodeInvalid, "too large", false},
		{"writes that are blocked", command(371), driver.CodeUnavailable, "are blocked", false},
		{"no replica set yet", command(94), driver.CodeUnavailable, "not initiated", false},
		{"a shard that moved", command(13388), driver.CodeUnavailable, "on which shard", false},
		{"a collection that is gone", command(26), driver.CodeUnavailable, "was dropped", false},
		{"a part that takes too long", command(202), driver.CodeUnavailable, "cannot be reached", false},
		{"a limit of time", command(262), driver.CodeUnavailable, "try again", false},
		{"a short cache", command(365), driver.CodeUnavailable, "try again", false},
		{"too much to do", command(99999, "SystemOverloadedError", "RetryableError"), driver.CodeUnavailable, "asks to try again", false},
		{"an unknown error that may pass", command(99999, "RetryableWriteError"), driver.CodeUnavailable, "asks to try again", true},
		{"a duplicate elsewhere", duplicate("E11000 duplicate key error collection: db.c index: name_1 dup key: { name: null }", nil), driver.CodeInternal, "unique index", false},
		{"an unknown error", command(99999), driver.CodeInternal, "doing it: ", false},
		{"an error of another kind", broken, driver.CodeInternal, "doing it: driver: broken", true},
		{"a conflict", &driver.ConflictError{Lost: []driver.Conflict{{Actual: 3}}}, driver.CodeConflict, "is at version 3", true},
		{"an error with a code", invalidf("wrong"), driver.CodeInvalid, "wrong", true},
	} {
		wrapped := wrap(fmt.Errorf("driver: %w", c.err), "doing it")
		if driver.CodeOf(wrapped) != c.code || !strings.Contains(wrapped.Error(), c.text) || !strings.HasSuffix(wrapped.Error(), c.err.Error()) {
			t.Errorf("%s: %v (%q), want %q with code %q", c.name, wrapped, driver.CodeOf(wrapped), c.text, c.code)
		}
		if got := uncertain(c.err); got != c.uncertain {
			t.Errorf("%s: a write may have been applied: %t, want %t", c.name, got, c.uncertain)
		}
		if uncertain(certain(c.err)) {
			t.Errorf("%s, of a step before the write: a write may have been applied", c.name)
		}
	}
	if err := wrap(nil, "doing it"); err != nil {
		t.Errorf("no error: %v", err)
	}
	seen := make(map[int]bool)
	for _, r := range refusals {
		for _, code := range r.codes {
			if seen[code] {
				t.Errorf("the code %d is there twice", code)
			}
			seen[code] = true
		}
	}
	for _, c := range []struct {
		name    string
		err     error
		foreign bool
	}{
		{"of _id, by its keys", duplicate("E11000", bson.D{{Key: "_id", Value: 1}}), false},
		{"of _id, by its name", duplicate("E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1 }", nil), false},
		{"of another, by its keys", duplicate("E11000", bson.D{{Key: "current.by", Value: 1}}), true},
		{"of another, by its name", duplicate("E11000 duplicate key error collection: db.c index: by_1 dup key: { by: 1 }", nil), true},
		{"of who knows what", duplicate("E11000", nil), false},
	} {
		var write mongo.WriteException
		if got := errors.As(c.err, &write) && ofForeignIndex(write.WriteErrors[0]); got != c.foreign {
			t.Errorf("a duplicate %s is one of a foreign index: %t, want %t", c.name, got, c.foreign)
		}
	}
}
