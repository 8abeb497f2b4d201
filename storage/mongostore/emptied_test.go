package mongostore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// Soon after its database was dropped a store reads and writes nothing any more,
// until there is a store again.
func TestEmptiedDatabase(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	uri := server.database(t)
	things := []driver.Collection{{Name: "things"}}
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: things})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.client.Database(databaseName(t, uri)).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	emptied := func(err error) bool {
		return driver.CodeOf(err) == driver.CodeUnavailable && strings.Contains(err.Error(), "was emptied")
	}
	if err := s.Ping(t.Context()); !emptied(err) {
		t.Errorf("Ping: %v", err)
	}
	for n := 0; ; n++ { // it finds out when it renews its lease
		_, err := driver.CommitOne(t.Context(), s, thing(fmt.Sprint("lost ", n)))
		if emptied(err) && driver.RefusalOf(err) != "" {
			break // it is known that nothing was written
		}
		if err != nil && driver.CodeOf(err) != driver.CodeUnavailable { // it may be slow, too
			t.Fatal(err)
		}
	}
	for _, call := range []func() error{
		func() error { _, err := s.Now(t.Context()); return err },
		func() error { return s.Settle(t.Context(), 1) },
	} {
		if err := call(); !emptied(err) {
			t.Errorf("an instant: %v", err)
		}
	}
	// Another server makes a new store.
	other, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: things})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	for {
		_, err := driver.CommitOne(t.Context(), s, thing("new"))
		if err == nil {
			break
		}
		if driver.CodeOf(err) != driver.CodeUnavailable {
			t.Fatal(err)
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
