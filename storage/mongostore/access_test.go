package mongostore_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// With access control, the role readWrite on the database is all that is
// needed, and less is told.
func TestAccessControl(t *testing.T) {
	set := mongotest.NewLocked(t, 1)
	const database, password = "asof", "s3cret"
	for user, role := range map[string]string{"writer": "readWrite", "reader": "read"} {
		if err := set.AddUser(t.Context(), user, password, role, database); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name           string
		user, password string
		database       string
		text           string // "": it may
	}{
		{"one who may", "writer", password, database, ""},
		{"a wrong password", "writer", "wrong", database, "the user or the password of --store is wrong"},
		{"a user that there is not", "nobody", password, database, "the user or the password of --store is wrong"},
		{"nobody", "", "", database, "add a user and a password"},
		{"one who may only read", "reader", password, database, "readWrite"},
		{"another database", "writer", password, "other", "readWrite"},
	} {
		uri, err := url.Parse(set.URI(c.database))
		if err != nil {
			t.Fatal(err)
		}
		if c.user != "" {
			uri.User = url.UserPassword(c.user, c.password)
			uri.RawQuery += "&authSource=admin"
		}
		s, err := mongostore.Open(t.Context(), uri.String(), mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
		if c.text != "" {
			if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v (%q), want %q", c.name, err, driver.CodeOf(err), c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, call := range calls {
			if err := call.call(t.Context(), s, "of "+call.name); err != nil {
				t.Errorf("%s: %s: %v", c.name, call.name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: Close: %v", c.name, err)
		}
	}
}
