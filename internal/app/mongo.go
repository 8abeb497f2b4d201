package app

import (
	"context"
	"net/url"
	"time"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// maxSkew is how far the clocks of this machine and of the MongoDB server may
// be apart.
const maxSkew = 500 * time.Millisecond

// openMongo opens the store in a database of MongoDB.
func (m *Main) openMongo(ctx context.Context, uri string) (driver.Engine, error) {
	store, err := mongostore.Open(ctx, uri, mongostore.Options{
		Collections: storage.CollectionsOf(model.Types),
		Clock:       m.Now,
		Logger:      m.logger(),
		MaxSkew:     maxSkew,
	})
	if driver.CodeOf(err) == driver.CodeInvalid {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	return store, nil
}

// storeName is --store without a password, to be shown.
func (m *Main) storeName() string {
	if uri, err := url.Parse(m.flags.Store); err == nil && uri.User != nil {
		return uri.Redacted()
	}
	return m.flags.Store
}
