package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
)

const (
	issuer   = "https://issuer.example"
	audience = "asof"
	secret   = "a secret of no less than 32 bytes"
)

// claims are those of a token that is valid from the time for a quarter of an hour.
func claims(at time.Time, more map[string]any) map[string]any {
	all := map[string]any{"iss": issuer, "aud": audience, "sub": "ada", "iat": at.Unix(), "exp": at.Add(15 * time.Minute).Unix()}
	for name, value := range more {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// clock is set by tests.
type clock struct{ atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(c.Load(), 0) }

func newClock() *clock {
	c := new(clock)
	c.Store(1_900_000_000)
	return c
}

func (v *Verifier) ask(t *testing.T, authorization ...string) (*Identity, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if len(authorization) > 0 {
		r.Header["Authorization"] = authorization
	}
	return v.Verify(r)
}

func (v *Verifier) refuses(t *testing.T, why string, authorization ...string) {
	t.Helper()
	who, err := v.ask(t, authorization...)
	if who != nil || err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, %v, want the error %q", who, err, why)
	}
}

func (v *Verifier) takes(t *testing.T, token string, want Identity) {
	t.Helper()
	who, err := v.ask(t, "Bearer "+token)
	if err != nil {
		t.Errorf("got the error %v, want %v", err, want)
		return
	}
	who = &Identity{ID: who.ID, Name: who.Name, Roles: who.Roles} // its claims are the token's
	if diff := cmp.Diff(&want, who); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newVerifier(t *testing.T, c Config) *Verifier {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSecret(t *testing.T) {
	c := newClock()
	v := newVerifier(t, Config{Now: c.now, JWT: &JWT{SecretFile: write(t, secret+"\n"), Issuer: issuer, Audience: audience, RolesClaim: "groups"}})
	token := func(more map[string]any) string {
		return sign(t, jose.HS256, []byte(secret), claims(c.now(), more))
	}
	v.takes(t, token(nil), Identity{ID: "ada"})
	v.takes(t, token(map[string]any{"name": "Ada L.", "groups": []any{"writer", "admin", 7, "admin"}, "aud": []string{"x", audience}}),
		Identity{ID: "ada", Name: "Ada L.", Roles: []string{"admin", "writer"}})
	v.takes(t, token(map[string]any{"name": "a\u202eb", "groups": "admin"}), Identity{ID: "ada", Roles: []string{"admin"}})
	if _, err := v.ask(t); !errors.Is(err, errNone) {
		t.Errorf("without credentials: %v", err)
	}
	good := token(nil)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(decoded(t, parts[1]), "ada", "bob", 1))) + "." + parts[2]
	for name, bad := range map[string]struct{ token, why string }{
		"none":              {none, "not a JSON Web Token that is signed by one of"},
		"forged":            {forged, "the token's signature is not that of its issuer"},
		"another secret":    {sign(t, jose.HS256, []byte(strings.Repeat("x", 32)), claims(c.now(), nil)), "the token's signature"},
		"another issuer":    {token(map[string]any{"iss": "https://other.example"}), "of another issuer"},
		"no issuer":         {token(map[string]any{"iss": nil}), "of another issuer"},
		"another audience":  {token(map[string]any{"aud": "others"}), "for another audience"},
		"no audience":       {token(map[string]any{"aud": nil}), "for another audience"},
		"expired":           {token(map[string]any{"exp": c.now().Add(-time.Minute).Unix()}), "expired"},
		"no expiry":         {token(map[string]any{"exp": nil}), "no time when it expires"},
		"later":             {token(map[string]any{"nbf": c.now().Add(time.Minute).Unix()}), "not valid yet"},
		"a text as expiry":  {token(map[string]any{"exp": "tomorrow"}), "a claim of a wrong type: exp"},
		"a list as subject": {token(map[string]any{"sub": []string{"ada"}}), "a claim of a wrong type"},
		"anonymous":         {token(map[string]any{"sub": "anonymous"}), "the claim sub) is anonymous, as is who has no credentials; choose another name"},
		"the program":       {token(map[string]any{"sub": "capture"}), "the claim sub) is capture, as the author is of what the program writes itself; choose another name"},
		"nobody":            {token(map[string]any{"sub": nil}), "the claim sub) is empty"},
		"unseen":            {token(map[string]any{"sub": "a\u202eb"}), "not seen"},
		"huge":              {strings.Repeat("a", 64<<10), "more than 8192 bytes"},
		"nonsense":          {"x.y.z", "not a JSON Web Token"},
		"an API token":      {tokenPrefix + "x", "not a JSON Web Token"},
	} {
		t.Run(name, func(t *testing.T) { v.refuses(t, bad.why, "Bearer "+bad.token) })
	}
	v.refuses(t, "must be: Bearer TOKEN", "Basic "+good)
	v.refuses(t, "must be: Bearer TOKEN", "Bearer ")
	v.refuses(t, "more than once", "Bearer "+good, "Bearer "+good)
	v.takes(t, good, Identity{ID: "ada"})
	c.Add(15*60 + 31)
	v.refuses(t, "expired", "Bearer "+good) // although it was verified before
}

func decoded(t *testing.T, part string) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// keyServer gives keys, or is down.
type keyServer struct {
	*httptest.Server
	asked atomic.Int64
	keys  atomic.Pointer[[]byte] // nil: it is down
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		if text := s.keys.Load(); text != nil {
			_, _ = w.Write(*text)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) set(t *testing.T, keys ...jose.JSONWebKey) {
	t.Helper()
	text, err := json.Marshal(struct {
		Keys []any `json:"keys"`
	}{append([]any{map[string]string{"kty": "of another time"}}, anys(keys)...)})
	if err != nil {
		t.Fatal(err)
	}
	s.keys.Store(&text)
}

func anys(keys []jose.JSONWebKey) (all []any) {
	for _, k := range keys {
		all = append(all, k)
	}
	return all
}

func newKey(t *testing.T, id string) (private, public jose.JSONWebKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private = jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
	return private, private.Public()
}

// Keys may be down at the start, are replaced, and withdrawn; and no token makes the server
// ask for them again and again.
func TestKeysRotate(t *testing.T) {
	c, s := newClock(), newKeyServer(t)
	v := newVerifier(t, Config{Now: c.now, JWT: &JWT{JWKS: s.URL, Issuer: issuer, Audience: audience}})
	private1, public1 := newKey(t, "1")
	private2, public2 := newKey(t, "2")
	token := func(key jose.JSONWebKey) string { return sign(t, jose.ES256, key, claims(c.now(), nil)) }
	ada := Identity{ID: "ada"}

	_, err := v.ask(t, "Bearer "+token(private1))
	if refused, ok := errors.AsType[*Error](err); !ok || !refused.Unavailable {
		t.Errorf("while the keys are down: %v", err)
	}
	if v.Ready(t.Context()) == nil {
		t.Error("ready while the keys are down")
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times in a moment", n)
	}
	s.set(t, public1)
	c.Add(10)
	if err := v.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	v.takes(t, token(private1), ada)

	c.Add(10)
	s.set(t, public1, public2)
	v.takes(t, token(private2), ada)
	asked := s.asked.Load()
	private3, _ := newKey(t, "3")
	for range 5 {
		v.refuses(t, "a key that its issuer does not have", "Bearer "+token(private3))
	}
	if n := s.asked.Load() - asked; n > 1 {
		t.Errorf("unknown keys were asked for %d times in a moment", n)
	}
	other := private1
	other.KeyID = "2"
	v.refuses(t, "the token's signature", "Bearer "+token(other))

	s.set(t, public2)
	old := token(private1)
	v.takes(t, old, ada)
	c.Add(int64(recheck/time.Second) + 1)
	v.takes(t, old, ada) // and the keys are fetched beside that
	for v.jwt.keys.known.Load().at != c.now() {
		runtime.Gosched()
	}
	c.Add(int64(recheck/time.Second) + 1)
	v.refuses(t, "a key that its issuer does not have", "Bearer "+old)
	v.takes(t, token(private2), ada)
	s.keys.Store(nil)
	c.Add(int64(recheck/time.Second) + 1)
	v.takes(t, token(private2), ada) // those that are known stay good while the issuer is down
	c.Add(int64(2*recheck/time.Second) + 1)
	_, err = v.ask(t, "Bearer "+token(private3)) // which may be new
	if refused, ok := errors.AsType[*Error](err); !ok || !refused.Unavailable {
		t.Errorf("an unknown key while the issuer is down: %v", err)
	}
	v.takes(t, token(private2), ada)
}

// A key that was withdrawn while nobody asked is refused, by the first token that is signed with it.
func TestKeysWithdrawnWhileIdle(t *testing.T) {
	c, s := newClock(), newKeyServer(t)
	v := newVerifier(t, Config{Now: c.now, JWT: &JWT{JWKS: s.URL, Issuer: issuer, Audience: audience}})
	private1, public1 := newKey(t, "1")
	_, public2 := newKey(t, "2")
	s.set(t, public1)
	v.takes(t, sign(t, jose.ES256, private1, claims(c.now(), nil)), Identity{ID: "ada"})
	s.set(t, public2)
	c.Add(int64(2*recheck/time.Second) + 1)
	v.refuses(t, "a key that its issuer does not have", "Bearer "+sign(t, jose.ES256, private1, claims(c.now(), nil)))
}

// However old the keys are that verified a token, it is not believed beyond twice recheck after
// they were fetched, unless the issuer is down.
func TestTokensBelieved(t *testing.T) {
	now := newClock().now()
	for _, test := range []struct{ age, expires, want time.Duration }{
		{0, time.Hour, recheck},
		{recheck, time.Hour, recheck},
		{2*recheck - time.Minute, time.Hour, time.Minute},
		{time.Hour, time.Hour, fetchEvery},
		{time.Hour, time.Second, time.Second},
	} {
		if got := believed(now, now.Add(-test.age), now.Add(test.expires)).Sub(now); got != test.want {
			t.Errorf("%+v: believed for %v", test, got)
		}
	}
	if got := believed(now, time.Time{}, now.Add(time.Hour)).Sub(now); got != recheck {
		t.Errorf("by a secret: for %v", got)
	}
}

// A public key is no secret: a token that is signed with it as if it were one is refused.
func TestPublicKeyAsSecret(t *testing.T) {
	c, s := newClock(), newKeyServer(t)
	_, public := newKey(t, "1")
	s.set(t, public)
	v := newVerifier(t, Config{Now: c.now, JWT: &JWT{JWKS: s.URL, Issuer: issuer, Audience: audience}})
	thumb, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range [][]byte{thumb, *s.keys.Load()} {
		v.refuses(t, "not a JSON Web Token that is signed by one of", "Bearer "+sign(t, jose.HS256, key, claims(c.now(), nil)))
	}
}

func TestContradictions(t *testing.T) {
	short, file := write(t, "short"), write(t, secret)
	for name, test := range map[string]struct {
		config JWT
		why    string
	}{
		"no keys":             {JWT{}, "either --jwt-jwks or --jwt-secret-file"},
		"both":                {JWT{JWKS: "https://issuer.example/keys", SecretFile: file}, "either --jwt-jwks or --jwt-secret-file"},
		"a short secret":      {JWT{SecretFile: short}, "the secret has 5 bytes, and needs at least 32"},
		"no secret":           {JWT{SecretFile: short + "x"}, "no such file"},
		"no audience":         {JWT{JWKS: "https://issuer.example/keys", Issuer: issuer}, "needs --jwt-issuer and --jwt-audience"},
		"no file":             {JWT{JWKS: short + "x", Issuer: issuer, Audience: audience}, "no such file"},
		"no keys in the file": {JWT{JWKS: short, Issuer: issuer, Audience: audience}, "has no set of keys"},
		"none":                {JWT{SecretFile: file, Algorithms: []string{"none"}}, `--jwt-algorithms "none"`},
		"RS by secret":        {JWT{SecretFile: file, Algorithms: []string{"HS256", "RS256"}}, `--jwt-algorithms "RS256"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Config{JWT: &test.config, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), test.why) {
				t.Errorf("got %v, want %q", err, test.why)
			}
		})
	}
}

func TestAlgorithms(t *testing.T) {
	c := newClock()
	v := newVerifier(t, Config{Now: c.now, JWT: &JWT{SecretFile: write(t, secret+secret), Algorithms: []string{"HS512"}}})
	v.takes(t, sign(t, jose.HS512, []byte(secret+secret), claims(c.now(), nil)), Identity{ID: "ada"})
	v.refuses(t, "signed by one of [HS512]", "Bearer "+sign(t, jose.HS256, []byte(secret+secret), claims(c.now(), nil)))
}

func TestTokens(t *testing.T) {
	c, file := newClock(), filepath.Join(t.TempDir(), "tokens")
	if _, err := New(Config{Tokens: file, Now: c.now}); err == nil || !strings.Contains(err.Error(), "make the file with asof token add") {
		t.Errorf("without a file: %v", err)
	}
	add := func(name string, roles ...string) string {
		t.Helper()
		token, err := AddToken(file, name, roles, c.now())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := add("ci", "writer", "admin")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), first) || strings.Contains(string(text), strings.TrimPrefix(first, tokenPrefix)) {
		t.Errorf("the token is in the file: %s, %v", text, err)
	}
	v := newVerifier(t, Config{Tokens: file, Now: c.now, JWT: &JWT{SecretFile: write(t, secret)}})
	v.takes(t, first, Identity{ID: "ci", Roles: []string{"admin", "writer"}})
	v.takes(t, sign(t, jose.HS256, []byte(secret), claims(c.now(), nil)), Identity{ID: "ada"})
	v.refuses(t, "the claim sub) is the name of an API token", "Bearer "+sign(t, jose.HS256, []byte(secret), claims(c.now(), map[string]any{"sub": "ci"})))
	second, third := add("ci"), add("dashboard")
	v.takes(t, second, Identity{ID: "ci"})
	list, err := Tokens(file)
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	if n, err := RevokeTokens(file, list[0].ID()); n != 1 || err != nil {
		t.Error(n, err)
	}
	v.refuses(t, "not known; it may have been revoked", "Bearer "+first)
	v.takes(t, second, Identity{ID: "ci"})
	if n, err := RevokeTokens(file, "ci"); n != 1 || err != nil {
		t.Error(n, err)
	}
	v.refuses(t, "not known", "Bearer "+second)
	v.takes(t, third, Identity{ID: "dashboard"})
	v.refuses(t, "not known", "Bearer "+third[:len(third)-1])
	if n, err := RevokeTokens(file, "nobody"); n != 0 || err != nil {
		t.Error(n, err)
	}
	if _, err := AddToken(file, "a\nb", nil, c.now()); err == nil {
		t.Error("a name with a line feed was taken")
	}

	// Digits may be large.
	if text, err := os.ReadFile(file); err != nil || os.WriteFile(file, []byte(strings.Replace(string(text), list[2].SHA256, strings.ToUpper(list[2].SHA256), 1)), 0o600) != nil {
		t.Fatal(err)
	}
	v.takes(t, third, Identity{ID: "dashboard"})

	// What cannot be read lets nobody in.
	if err := os.WriteFile(file, []byte(`{"name":"ci","sha256":"00"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = v.ask(t, "Bearer "+third)
	if refused, ok := errors.AsType[*Error](err); !ok || !refused.Unavailable {
		t.Errorf("with a damaged file: %v", err)
	}
	if _, err := AddToken(file, "ci", nil, c.now()); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a damaged file was replaced: %v", err)
	}
	if left, err := filepath.Glob(file + "*"); !slices.Equal(left, []string{file}) {
		t.Error(left, err)
	}
	if err := os.WriteFile(file+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := AddToken(file, "ci", nil, c.now()); err == nil || !strings.Contains(err.Error(), "delete") {
		t.Errorf("beside another change: %v", err)
	}
}

func BenchmarkVerify(b *testing.B) {
	c := newClock()
	name := filepath.Join(b.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(secret), 0o600); err != nil {
		b.Fatal(err)
	}
	v, err := New(Config{Now: c.now, JWT: &JWT{SecretFile: name}})
	if err != nil {
		b.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(secret)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims(c.now(), nil)).Serialize()
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(r); err != nil {
			b.Fatal(err)
		}
	}
}
