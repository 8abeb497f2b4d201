package mongostore_test

import (
	"strings"
	"testing"

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
