package app

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/asof/asof/storage"
)

const jwtSecret = "a secret of no less than 32 bytes"

// signed returns the header of a token that is valid from a quarter of an hour before now.
func signed(t *testing.T, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(jwtSecret)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + token
}

func secretFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(jwtSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The author of a change is who the credentials name; the name of an actor is shown wherever
// that actor is, as it was last.
func TestIdentity(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	status, out, errs := run(t, "", "token", "add", "ci", "--tokens", tokens)
	if status != 0 {
		t.Fatal(errs)
	}
	ci := "Bearer " + strings.TrimSpace(out)
	p := serve(t, "--auth=jwt,token", "--jwt-secret-file="+secretFile(t), "--jwt-audience=asof", "--tokens="+tokens)
	ada := func(name string) string {
		return signed(t, map[string]any{"sub": "u-1", "name": name, "aud": "asof"})
	}
	const create, rename = `mutation {createTag(input: {key: "a", data: {name: "A", description: "D"}}) {__typename}}`,
		`mutation {updateTag(input: {key: "a", expectedVersion: %, patch: {name: "% times"}}) {__typename}}`
	write := func(document, authorization string) {
		t.Helper()
		if got := p.query(t, document, "Authorization", authorization, "X-Actor", "mallory"); got.status != 200 || !strings.Contains(got.body, "Success") {
			t.Fatalf("status %d, %s", got.status, got.body)
		}
	}
	write(create, ada("Ada"))
	write(strings.ReplaceAll(rename, "%", "1"), ci)
	const authors = `{tagHistory(key: "a") {versions(first: 9) {nodes {versionInfo {author {id name}}}}} tag(key: "a") {versionInfo {author {id name}}}}`
	read := func(want string) {
		t.Helper()
		if got := p.query(t, authors, "Authorization", ci); !strings.Contains(got.body, want) {
			t.Errorf("got %s, want %s", got.body, want)
		}
	}
	read(`{"versionInfo":{"author":{"id":"u-1","name":"Ada"}}}`)
	read(`{"versionInfo":{"author":{"id":"ci","name":null}}}`)
	write(strings.ReplaceAll(rename, "%", "2"), ada("Ada Lovelace"))
	read(`"tag":{"versionInfo":{"author":{"id":"u-1","name":"Ada Lovelace"}}}`)
	if got := p.query(t, authors, "Authorization", ci); strings.Contains(got.body, `"Ada"`) {
		t.Errorf("an old name: %s", got.body)
	}

	const one = `{tag(key: "a") {name}}`
	for name, bad := range map[string]struct{ authorization, challenge string }{
		"nobody":          {"", `Bearer realm="asof"`},
		"expired":         {signed(t, map[string]any{"sub": "u-1", "aud": "asof", "exp": 1}), `Bearer realm="asof", error="invalid_token", error_description="the token has expired; get a new one"`},
		"audience":        {signed(t, map[string]any{"sub": "u-1", "aud": "x"}), `Bearer realm="asof", error="invalid_token", error_description="the token is for another audience"`},
		"exp":             {signed(t, map[string]any{"sub": "u-1", "aud": "asof", "exp": "x"}), `Bearer realm="asof", error="invalid_token", error_description="the token has a claim of a wrong type: exp, nbf and iat are numbers, iss and sub texts, aud is a text or a list of texts"`},
		"none":            {"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1LTEiLCJhdWQiOiJhc29mIiwiZXhwIjo5OTk5OTk5OTk5fQ.", `Bearer realm="asof", error="invalid_token", error_description="the token is not a JSON Web Token that is signed by one of [HS256 HS384 HS512]"`},
		"forged":          {ada("Ada") + "x", `Bearer realm="asof", error="invalid_token", error_description="the token's signature is not that of its issuer"`},
		"huge":            {"Bearer " + strings.Repeat("a", 9<<10), `Bearer realm="asof", error="invalid_token", error_description="the token has more than 8192 bytes"`},
		"a token's name":  {signed(t, map[string]any{"sub": "ci", "aud": "asof"}), `Bearer realm="asof", error="invalid_token", error_description="the token's subject (the claim sub) is the name of an API token of this server (asof token list)"`},
		storage.Anonymous: {signed(t, map[string]any{"sub": storage.Anonymous, "aud": "asof"}), `Bearer realm="asof", error="invalid_token", error_description="the token's subject (the claim sub) is anonymous, as is who has no credentials; choose another name"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.query(t, one, "Authorization", bad.authorization, "X-Actor", "ada")
			if bad.authorization == "" {
				got = p.query(t, one, "X-Actor", "ada")
			}
			if got.status != http.StatusUnauthorized || !strings.Contains(got.body, `"UNAUTHENTICATED"`) || strings.Contains(got.body, `"data"`) || got.header.Get("WWW-Authenticate") != bad.challenge {
				t.Errorf("status %d, %q, %s", got.status, got.header.Get("WWW-Authenticate"), got.body)
			}
		})
	}
	if got := p.do(t, "GET", "/readyz", ""); got.status != 200 {
		t.Errorf("not ready: %s", got.body)
	}
	if status, _, errs = run(t, "", "token", "revoke", "ci", "--tokens", tokens); status != 0 {
		t.Fatal(errs)
	}
	if got := p.query(t, one, "Authorization", ci); got.status != http.StatusUnauthorized {
		t.Errorf("a revoked token: status %d", got.status)
	}
	if err := os.Remove(tokens); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/graphql?query={__typename}"} {
		if got := p.do(t, "GET", path, "", "Authorization", ci); got.status != http.StatusServiceUnavailable {
			t.Errorf("%s without the file of tokens: status %d", path, got.status)
		}
	}
}

func TestAnonymousRead(t *testing.T) {
	p := serve(t, "--auth=jwt", "--anonymous-read", "--jwt-secret-file="+secretFile(t))
	const create = `mutation {createTag(input: {key: "a", data: {name: "A", description: "D"}}) {__typename}}`
	if got := p.query(t, create, "X-Actor", "ada"); got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("written by nobody: %d, %s", got.status, got.body)
	}
	if got := p.query(t, `{tag(key: "a") {name}}`); got.status != 200 || !strings.Contains(got.body, `{"tag":null}`) {
		t.Errorf("status %d, %s", got.status, got.body)
	}
	if got := p.query(t, `{tag(key: "a") {name}}`, "Authorization", "Bearer nonsense"); got.status != 401 {
		t.Errorf("bad credentials are none: status %d", got.status)
	}
	if got := p.query(t, create, "Authorization", signed(t, map[string]any{"sub": "ada"})); !strings.Contains(got.body, "Success") {
		t.Errorf("status %d, %s", got.status, got.body)
	}
}

func TestAuthFlags(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		why  string
		args []string
	}{
		{"--auth basic: want jwt, token, or jwt,token", []string{"--auth=basic"}},
		{"needs either --jwt-jwks or --jwt-secret-file", []string{"--auth=jwt"}},
		{"needs --tokens FILE", []string{"--auth=token"}},
		{"make the file with asof token add", []string{"--auth=token", "--tokens=" + none}},
		{"--anonymous-read needs --auth", []string{"--anonymous-read"}},
		{"need --auth jwt", []string{"--auth=token", "--tokens=" + none, "--jwt-secret-file=" + none}},
		{"contradict each other", []string{"--auth=token", "--tokens=" + none, "--insecure-no-auth"}},
	} {
		status, _, errs := run(t, "", append([]string{"serve", "--addr=127.0.0.1:0", "--store=sqlite:" + none}, test.args...)...)
		if status != exitUsage || !strings.Contains(errs, test.why) {
			t.Errorf("%q: status %d, %s", test.args, status, errs)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a store was made")
	}
}
