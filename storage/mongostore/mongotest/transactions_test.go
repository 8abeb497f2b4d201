package mongotest

import (
	"context"
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// What Transactions says holds, also on a server that has transactions.
func TestTransactions(t *testing.T) {
	_, uri := NewTransactions(t, NewServer(t)).Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	things := client.Database(path.Base(strings.SplitN(uri, "?", 2)[0])).Collection("things")
	if _, err := things.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: "a"}, {Key: "n", Value: 0}}, bson.D{{Key: "_id", Value: "b"}, {Key: "n", Value: 0}}}); err != nil {
		t.Fatal(err)
	}
	begin := func() (*mongo.Session, context.Context) {
		session, err := client.StartSession()
		if err == nil {
			err = session.StartTransaction()
		}
		if err != nil {
			t.Fatal(err)
		}
		return session, mongo.NewSessionContext(t.Context(), session)
	}
	set := func(ctx context.Context, key string, from, to int) error {
		result, err := things.UpdateOne(ctx, bson.D{{Key: "_id", Value: key}, {Key: "n", Value: from}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: to}}}})
		if err == nil && result.MatchedCount == 0 {
			err = errors.New("not found")
		}
		return err
	}
	want := func(what string, a, b int) {
		t.Helper()
		for key, n := range map[string]int{"a": a, "b": b} {
			if count, err := things.CountDocuments(t.Context(), bson.D{{Key: "_id", Value: key}, {Key: "n", Value: n}}); err != nil || count != 1 {
				t.Errorf("%s: %s is not %d (%v)", what, key, n, err)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	label := func(what string, err error, label string) {
		t.Helper()
		var refused mongo.ServerError
		if !errors.As(err, &refused) || !refused.HasErrorLabel(label) {
			t.Errorf("%s: %v", what, err)
		}
	}

	session, in := begin()
	must(set(in, "a", 0, 1))
	must(set(in, "b", 0, 1))
	want("before the commit", 0, 0)
	other, inOther := begin()
	label("of two transactions the second", set(inOther, "a", 0, 2), "TransientTransactionError")
	must(other.AbortTransaction(t.Context()))
	late, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	if err := set(late, "b", 0, 2); !mongo.IsTimeout(err) {
		t.Errorf("a change beside an open transaction: %v", err)
	}
	cancel()
	waited := make(chan error, 1)
	go func() { waited <- set(t.Context(), "a", 1, 3) }()
	must(session.CommitTransaction(t.Context()))
	must(session.CommitTransaction(t.Context())) // again
	if err := <-waited; err != nil && err.Error() != "not found" {
		t.Errorf("a change that waited: %v", err) // or it came first, when a was 0
	}
	must(set(t.Context(), "b", 1, 3))

	session, in = begin()
	must(set(in, "b", 3, 4))
	must(session.AbortTransaction(t.Context()))
	must(set(t.Context(), "b", 3, 5))

	// A document that was changed since the transaction began.
	session, in = begin()
	_ = set(in, "b", -1, 0) // it begins
	must(set(t.Context(), "b", 5, 6))
	label("a change of what was changed since", set(in, "b", 6, 7), "TransientTransactionError")
	label("the end of what was aborted", session.CommitTransaction(t.Context()), "TransientTransactionError")
	if count, err := things.CountDocuments(t.Context(), bson.D{{Key: "n", Value: 6}}); err != nil || count != 1 {
		t.Errorf("b is not 6 (%v)", err)
	}
}
