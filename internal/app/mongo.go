package app

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// maxSkew is how far the clocks of this machine and of the MongoDB server may
// be apart.
const maxSkew = 500 * time.Millisecond

// checkMongo refuses a --store and a --mongodb-embed that are written wrongly.
func (m *Main) checkMongo() error {
	if err := mongostore.CheckURI(m.flags.Store); driver.CodeOf(err) == driver.CodeInvalid {
		return usageError{err}
	}
	_, err := embedBounds(m.flags.MongoDBEmbed, m.Types)
	return err
}

// openMongo opens the store in a database of MongoDB. Commands that only read do
// not make one.
func (m *Main) openMongo(ctx context.Context, uri string) (driver.Engine, error) {
	if err := m.checkMongo(); err != nil {
		return nil, err
	}
	bounds, err := embedBounds(m.flags.MongoDBEmbed, m.Types)
	if err != nil {
		return nil, err
	}
	if m.flags.Check.Repair {
		return nil, usageError{errors.New("--repair: only a store in a file can be repaired")}
	}
	store, err := mongostore.Open(ctx, uri, mongostore.Options{
		Collections: storage.CollectionsOf(m.Types),
		Clock:       m.Now,
		Logger:      m.logger(),
		MaxSkew:     maxSkew,
		Bounds:      bounds,
		Existing:    !m.makesStore(),
	})
	switch {
	case driver.CodeOf(err) == driver.CodeNotFound:
		return nil, usageError{err}
	case err != nil:
		return nil, err
	}
	return store, nil
}

// storeName is the --store that was opened as it may be shown: without what can have a
// password.
func (m *Main) storeName() string {
	if strings.HasPrefix(m.flags.Store, "sqlite:") {
		return m.flags.Store
	}
	return mongostore.Name(m.flags.Store)
}

// unknownStore is what may be shown of a --store that is of no kind: a password can
// follow on a colon, or be where an @ or options are.
func unknownStore(store string) string {
	if !strings.ContainsAny(store, ":@?") {
		return store
	}
	return store[:strings.IndexAny(store, ":/@?")] + "…"
}

// secretURI is a URI of MongoDB, or what was to be one, with what may be a password: in
// what is before an @, or in options. Before it is the scheme, and behind it the text
// goes on.
var secretURI = regexp.MustCompile(`(?i)(mongo\S*?(?::/*|//))\S*[@?]\S*?(:?(?:\s|$))`)

// withoutSecrets says what is wrong without repeating them of a URI that was written
// where none belongs.
func withoutSecrets(err error) string { return secretURI.ReplaceAllString(err.Error(), "$1…$2") }
