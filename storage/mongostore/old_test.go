package mongostore_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A server that is too old for the driver is told by its version, and not as one
// that cannot be reached.
func TestOldServer(t *testing.T) {
	proxy, uri := newServer(t).behind(t)
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !c.Hello() {
			return mongotest.Pass()
		}
		return mongotest.Rewrite(func(reply bson.Raw) bson.D {
			d := member(reply, true)
			for i := range d {
				if d[i].Key == "maxWireVersion" {
					d[i].Value = int32(8) // MongoDB 4.2
				}
			}
			return d
		})
	})
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{})
	if err == nil {
		_ = s.Close()
	}
	if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "too old for asof") || !strings.Contains(err.Error(), "4.4") {
		t.Errorf("%v (%q)", err, driver.CodeOf(err))
	}
}

// A replica set that the server is not a member of is named as what is wrong, and not
// a server that cannot be reached.
func TestOtherReplicaSet(t *testing.T) {
	uri, err := url.Parse(newServer(t).database(t))
	if err != nil {
		t.Fatal(err)
	}
	wanted := says(driver.CodeUnavailable, "is a member of the replica set that it names")
	err = withinSome(t, 2*time.Second, "Open", wanted, func(ctx context.Context) error { // nothing is waited for that comes
		until, _ := ctx.Deadline()
		query := uri.Query()
		query.Set("replicaSet", "another")
		query.Set("serverSelectionTimeoutMS", fmt.Sprint(max(1, time.Until(until).Milliseconds())))
		uri.RawQuery = query.Encode()
		s, err := mongostore.Open(t.Context(), uri.String(), mongostore.Options{})
		if err == nil {
			_ = s.Close()
		}
		return err
	})
	if !wanted(err) {
		t.Errorf("%v (%q)", err, driver.CodeOf(err))
	}
}
