package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

const (
	fetchTimeout = 5 * time.Second
	// fetchEvery is how often keys are fetched at most, whatever the tokens are that name others.
	fetchEvery = 5 * time.Second
	keysBytes  = 1 << 20
)

// keys are an issuer's keys, as it gives them. They are fetched when a token names one that is
// not among them, and when they are older than recheck.
type keys struct {
	from   string
	fetch  func() ([]byte, error) // nil: they never change
	now    func() time.Time
	logger *slog.Logger
	known  atomic.Pointer[keySet] // nil: none were fetched yet
	failed atomic.Bool            // when they were last fetched
	flight singleflight.Group
	rates  *rate.Limiter
}

type keySet struct {
	jose.JSONWebKeySet
	at time.Time // when they were fetched
}

// newKeys makes the keys of a URL, or of a file, which must be there.
func newKeys(from string, now func() time.Time, logger *slog.Logger) (*keys, error) {
	k := &keys{from: from, now: now, logger: logger, rates: rate.NewLimiter(rate.Every(fetchEvery), 1)}
	if strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://") {
		client := &http.Client{Timeout: fetchTimeout}
		k.fetch = func() ([]byte, error) { return download(client, from) }
		return k, nil
	}
	k.fetch = func() ([]byte, error) { return os.ReadFile(from) }
	if err := k.renew(); err != nil {
		return nil, fmt.Errorf("--jwt-jwks: %w", err)
	}
	return k, nil
}

// find returns the keys that a token may be signed with: those that it names, or all where it
// names none; and when they were fetched, the zero time where they never change.
func (k *keys) find(ctx context.Context, id string) ([]jose.JSONWebKey, time.Time, error) {
	known := k.known.Load()
	found := known.named(id)
	switch {
	case k.fetch == nil:
	case len(found) == 0:
		err := k.refresh(ctx)
		known = k.known.Load()
		if found = known.named(id); len(found) == 0 && err != nil && (known == nil || k.failed.Load()) {
			return nil, time.Time{}, err // it may be a new key
		}
	case k.now().Sub(known.at) > 2*recheck && !k.failed.Load(): // nobody has asked for long
		_ = k.refresh(ctx) // where that fails, those that are known stay good
		known = k.known.Load()
		found = known.named(id)
	case k.now().Sub(known.at) > recheck:
		k.flight.DoChan("", k.renewNow) // who has a known key need not wait
	}
	if len(found) == 0 {
		return nil, time.Time{}, invalid("the token is signed with a key that its issuer does not have")
	}
	return found, known.at, nil
}

// named returns the keys with an id, or all where it is empty.
func (s *keySet) named(id string) []jose.JSONWebKey {
	switch {
	case s == nil:
		return nil
	case id == "" || len(s.Keys) == 1 && s.Keys[0].KeyID == "":
		return s.Keys
	}
	return s.Key(id)
}

// ready returns an error where no keys are known and none can be fetched.
func (k *keys) ready(ctx context.Context) error {
	if k.known.Load() != nil {
		return nil
	}
	return k.refresh(ctx)
}

// refresh fetches the keys, or waits for those that are being fetched.
func (k *keys) refresh(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return unavailable("the keys of the tokens' issuer were not fetched in time")
	case done := <-k.flight.DoChan("", k.renewNow):
		if done.Err != nil {
			return unavailable("the keys of the tokens' issuer cannot be fetched at the moment (the log says why); try again")
		}
		return nil
	}
}

// renewNow fetches the keys, unless that was tried less than fetchEvery ago.
func (k *keys) renewNow() (any, error) {
	if !k.rates.AllowN(k.now(), 1) {
		return nil, errors.New("tried a moment ago")
	}
	err := k.renew()
	k.failed.Store(err != nil)
	if err != nil {
		k.logger.Warn("the keys of the tokens' issuer cannot be fetched (--jwt-jwks)", "error", err)
	}
	return nil, err
}

// renew fetches the keys.
func (k *keys) renew() error {
	text, err := k.fetch()
	if err != nil {
		return err
	}
	set := &keySet{at: k.now()}
	var given struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &given); err != nil {
		return fmt.Errorf("%s has no set of keys (RFC 7517): %w", k.from, err)
	}
	for _, text := range given.Keys {
		// Keys of kinds that are not known are passed over (RFC 7517, 5), and so are those
		// that are not public.
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && key.Valid() && key.IsPublic() && key.Use != "enc" {
			set.Keys = append(set.Keys, key)
		}
	}
	if len(set.Keys) == 0 {
		return fmt.Errorf("%s has no public keys for signatures", k.from)
	}
	k.known.Store(set)
	return nil
}

// download gets what is at a URL.
func download(client *http.Client, url string) ([]byte, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, keysBytes))
}
