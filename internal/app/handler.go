package app

import (
	"fmt"
	"net/http"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// Handler returns everything that `asof serve` with these flags serves, over an
// engine that is open already and stays the caller's: --store, --addr and --demo
// have no meaning here. It is for programs that bring an engine of their own, or
// ask several servers about one. It is called once.
func (m *Main) Handler(engine driver.Engine, flags ...string) (http.Handler, error) {
	done, err := m.ParseFlags(append([]string{"serve"}, flags...))
	if err != nil {
		return nil, err
	}
	if done {
		return nil, usageError{fmt.Errorf("the flags %q leave nothing to serve", flags)}
	}
	if err := m.flags.Serve.check(); err != nil {
		return nil, err
	}
	logger := m.logger()
	store, err := storage.New(counted(engine), m.Types, storage.WithLogger(logger), storage.WithLimits(m.flags.Serve.Limits.storage()))
	if err != nil {
		return nil, err
	}
	site, err := m.newSite(store, logger)
	if err != nil {
		return nil, err
	}
	return site.handler, nil
}
