package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/asof/asof/internal/lru"
)

// JWT says which JSON Web Tokens are believed: those of one issuer, by its public keys or by a
// secret that it shares with this server.
type JWT struct {
	JWKS       string   // URL or file of the issuer's keys (RFC 7517)
	SecretFile string   // file of the secret, instead
	Issuer     string   // the claim iss; required with JWKS, else "" is any
	Audience   string   // in the claim aud; the same
	Algorithms []string // of signatures; none: all that fit the keys
	RolesClaim string   // names the claim with the roles; "": there are none
}

const (
	// leeway is how far the issuer's clock may differ.
	leeway = 30 * time.Second
	// recheck is how long a token that was verified is not verified again.
	recheck = 5 * time.Minute
	// leastSecret is the length of a secret that cannot be guessed (RFC 7518, 3.2).
	leastSecret = 32
	cacheBytes  = 8 << 20
	// claimsFactor is how many times as much memory decoded claims take as their token, about.
	claimsFactor = 4
)

// asymmetric and symmetric are the algorithms of signatures by key pair and by secret. Which
// are taken is decided by how the keys are given, never by a token.
func asymmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

func symmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512}
}

type jwtVerifier struct {
	config     JWT
	algorithms []jose.SignatureAlgorithm
	keys       *keys
	now        func() time.Time

	mu       sync.Mutex
	verified *lru.Cache[[sha256.Size]byte, verified] // by the token's hash
}

// verified is the identity of a token, and until when it is believed.
type verified struct {
	*Identity
	until time.Time
}

func newJWTVerifier(c JWT, now func() time.Time, logger *slog.Logger) (*jwtVerifier, error) {
	v := &jwtVerifier{config: c, algorithms: asymmetric(), now: now, verified: lru.New[[sha256.Size]byte, verified](cacheBytes)}
	var err error
	switch {
	case (c.JWKS == "") == (c.SecretFile == ""):
		return nil, errors.New("--auth jwt needs either --jwt-jwks or --jwt-secret-file")
	case c.SecretFile != "":
		v.algorithms = symmetric()
		v.keys, err = secretKeys(c.SecretFile)
	case c.Issuer == "" || c.Audience == "":
		return nil, errors.New("--jwt-jwks needs --jwt-issuer and --jwt-audience: an issuer signs tokens for other programs with the same keys")
	default:
		v.keys, err = newKeys(c.JWKS, now, logger)
	}
	if err != nil {
		return nil, err
	}
	if len(c.Algorithms) > 0 {
		known := v.algorithms
		v.algorithms = nil
		for _, name := range c.Algorithms {
			if !slices.Contains(known, jose.SignatureAlgorithm(name)) {
				return nil, fmt.Errorf("--jwt-algorithms %q: with these keys, want some of %v", name, known)
			}
			v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
		}
	}
	return v, nil
}

// secretKeys reads a secret. A line feed at its end is the editor's.
func secretKeys(file string) (*keys, error) {
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--jwt-secret-file: %w", err)
	}
	secret = bytes.TrimRight(secret, "\r\n")
	if len(secret) < leastSecret {
		return nil, fmt.Errorf("--jwt-secret-file %s: the secret has %d bytes, and needs at least %d, as openssl rand -base64 32 makes them", file, len(secret), leastSecret)
	}
	k := &keys{}
	k.known.Store(&keySet{JSONWebKeySet: jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: secret}}}})
	return k, nil
}

// verify returns who a token was made for.
func (v *jwtVerifier) verify(ctx context.Context, token string) (*Identity, error) {
	hash, now := sha256.Sum256([]byte(token)), v.now()
	v.mu.Lock()
	known, ok := v.verified.Get(hash)
	v.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.Identity, nil
	}
	identity, until, err := v.check(ctx, token, now)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.verified.Add(hash, verified{identity, until}, claimsFactor*len(token))
	return identity, nil
}

// believed returns until when a token is that was verified now, by keys of a time: less long by
// keys that may have been withdrawn since, and never less than it takes to fetch them.
func believed(now, fetched, expires time.Time) time.Time {
	until := now.Add(recheck)
	if stale := fetched.Add(2 * recheck); !fetched.IsZero() && stale.Before(until) {
		until = stale
	}
	if least := now.Add(fetchEvery); until.Before(least) {
		until = least
	}
	if expires.Before(until) {
		until = expires
	}
	return until
}

// check verifies a token, and returns who it was made for and until when that is believed.
func (v *jwtVerifier) check(ctx context.Context, token string, now time.Time) (*Identity, time.Time, error) {
	none := time.Time{}
	parsed, err := jwt.ParseSigned(token, v.algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, none, invalid("the token is not a JSON Web Token that is signed by one of %v", v.algorithms)
	}
	candidates, fetched, err := v.keys.find(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return nil, none, err
	}
	var payload json.RawMessage
	for i := range candidates {
		if named := candidates[i].Algorithm; named != "" && named != parsed.Headers[0].Algorithm {
			err = errors.New("the key is for another algorithm")
			continue
		}
		if err = parsed.Claims(candidates[i].Key, &payload); err == nil {
			break
		}
	}
	if err != nil {
		return nil, none, invalid("the token's signature is not that of its issuer")
	}
	var claims jwt.Claims
	var all map[string]any
	if json.Unmarshal(payload, &claims) != nil || json.Unmarshal(payload, &all) != nil {
		return nil, none, invalid("the token has a claim of a wrong type: exp, nbf and iat are numbers, iss and sub texts, aud is a text or a list of texts")
	}
	expected := jwt.Expected{Issuer: v.config.Issuer, Time: now}
	if v.config.Audience != "" {
		expected.AnyAudience = jwt.Audience{v.config.Audience}
	}
	switch err := claims.ValidateWithLeeway(expected, leeway); {
	case errors.Is(err, jwt.ErrExpired):
		return nil, none, invalid("the token has expired; get a new one")
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return nil, none, invalid("the token is of another issuer")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, none, invalid("the token is for another audience")
	case err != nil:
		return nil, none, invalid("the token is not valid yet; is the clock of its issuer right?")
	case claims.Expiry == nil:
		return nil, none, invalid("the token has no time when it expires (the claim exp)")
	}
	if err := CheckName(claims.Subject); err != nil {
		return nil, none, invalid("the token's subject (the claim sub) %v", err)
	}
	name, _ := all["name"].(string)
	if CheckName(name) != nil {
		name = "" // it is only shown
	}
	return &Identity{ID: claims.Subject, Name: name, Roles: rolesIn(all[v.config.RolesClaim]), Claims: all}, believed(now, fetched, claims.Expiry.Time().Add(leeway)), nil
}

// rolesIn returns the strings of a claim: one, or a list.
func rolesIn(claim any) []string {
	var roles []string
	switch claim := claim.(type) {
	case string:
		roles = append(roles, claim)
	case []any:
		for _, role := range claim {
			if role, ok := role.(string); ok {
				roles = append(roles, role)
			}
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

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
	var given struct {
		Keys []json.RawMessage `json:"keys"`
	}
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
