// Package auth finds out who sent a request, by the credentials in its Authorization header
// (RFC 6750): a JSON Web Token that an issuer has signed, or an API token of a file.
//
// Invariants:
//
//   - What is not verified is refused; there is no default identity.
//   - A token is bounded before it is parsed, and nothing of it is in an error.
//   - A verified JWT is believed for recheck at most without verifying it again, so that a key
//     that its issuer has withdrawn is soon refused.
package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/text/secure/precis"
)

// Config says whose credentials are believed. Now and Logger are required.
type Config struct {
	JWT    *JWT   // nil: no JSON Web Tokens
	Tokens string // the file of API tokens; "": none
	Now    func() time.Time
	Logger *slog.Logger
}

// Identity is who has sent a request, verified.
type Identity struct {
	ID    string   // the token's subject, or the name of an API token
	Name  string   // to be shown to people; "": not known
	Roles []string // sorted
	// Claims are all claims of a JSON Web Token, as JSON decodes them.
	Claims map[string]any
}

// errNone is the error for a request without credentials.
var errNone = errors.New("credentials are needed: send the header Authorization: Bearer TOKEN")

// Error is why credentials are refused.
type Error struct {
	Text string
	// Unavailable means that they could not be verified now.
	Unavailable bool
}

func (e *Error) Error() string { return e.Text }

func invalid(format string, args ...any) error { return &Error{Text: fmt.Sprintf(format, args...)} }

func unavailable(format string, args ...any) error {
	return &Error{Text: fmt.Sprintf(format, args...), Unavailable: true}
}

// Verifier verifies credentials. Its methods may be called from any number of goroutines.
type Verifier struct {
	jwt    *jwtVerifier // nil: no JSON Web Tokens
	tokens *tokenFile   // nil: no API tokens
}

// New makes a Verifier. Files that cannot be read, and contradictions, are errors; a server
// that does not give its keys is not.
func New(c Config) (*Verifier, error) {
	v := &Verifier{}
	if c.JWT != nil {
		var err error
		if v.jwt, err = newJWTVerifier(*c.JWT, c.Now, c.Logger); err != nil {
			return nil, err
		}
	}
	if c.Tokens != "" {
		v.tokens = &tokenFile{name: c.Tokens}
		if _, err := v.tokens.read(); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// longestToken bounds a token, in bytes.
const longestToken = 8 << 10

// Verify returns who has sent the request. Errors: errNone, *Error.
func (v *Verifier) Verify(r *http.Request) (*Identity, error) {
	given := r.Header["Authorization"]
	switch {
	case len(given) == 0:
		return nil, errNone
	case len(given) > 1:
		return nil, invalid("the header Authorization was given more than once")
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return nil, invalid("the header Authorization must be: Bearer TOKEN")
	case len(token) > longestToken:
		return nil, invalid("the token has more than %d bytes", longestToken)
	case strings.HasPrefix(token, tokenPrefix) && v.tokens != nil:
		return v.tokens.verify(token)
	case v.jwt == nil:
		return nil, invalid("the token is not one of this server's API tokens: they begin with %s", tokenPrefix)
	}
	who, err := v.jwt.verify(r.Context(), token)
	if err != nil || v.tokens == nil {
		return who, err
	}
	list, err := v.tokens.known()
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(list, func(t Token) bool { return t.Name == who.ID }): // or who chooses his subject takes its place
		return nil, invalid("the token's subject (the claim sub) is the name of an API token of this server (asof token list)")
	}
	return who, nil
}

// Ready returns an error while JSON Web Tokens cannot be verified, as the keys of their issuer
// are not known yet; it tries to get them.
func (v *Verifier) Ready(ctx context.Context) error {
	if v.jwt == nil {
		return nil
	}
	return v.jwt.keys.ready(ctx)
}

// longestName is the greatest length of who somebody is, in bytes.
const longestName = 200

// anonymous is the author of what is written without an identity, the others are those of what the
// program writes itself, and captures.
const anonymous, itself, captured = "anonymous", "asof", "capture"

// CheckName refuses a name that is empty, long, begins or ends with a blank, or has characters
// that are not seen (it must be of the FreeformClass of RFC 8264), so that no name looks like
// another, and that of nobody. The error completes a sentence that begins with the name's place.
func CheckName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("is empty")
	case len(name) > longestName:
		return fmt.Errorf("is longer than %d bytes of UTF-8", longestName)
	case strings.TrimSpace(name) != name:
		return errors.New("begins or ends with a blank; leave it out")
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	case name == anonymous:
		return errors.New("is " + anonymous + ", as is who has no credentials; choose another name")
	case name == itself, name == captured:
		return errors.New("is " + name + ", as the author is of what the program writes itself; choose another name")
	}
	if _, err := precis.NewFreeform().String(name); err != nil {
		return errors.New("must be text without control characters, marks that change the direction of writing, or other characters that are not seen")
	}
	return nil
}

// tokenPrefix is how API tokens begin, so that programs that look for secrets find them.
const tokenPrefix = "asof_"

// Token is an API token, as a file has it: a line of JSON for each. The token itself, which
// has 256 random bits, is nowhere.
type Token struct {
	Name    string    `json:"name"` // who it stands for; several may have it
	Roles   []string  `json:"roles,omitempty"`
	Created time.Time `json:"created"`
	SHA256  string    `json:"sha256"` // of the token, in hexadecimal digits
}

// ID distinguishes the tokens of a name.
func (t *Token) ID() string { return t.SHA256[:12] }

// tokenFile is a file of API tokens, which is read again when it has changed.
type tokenFile struct {
	name string

	mu   sync.Mutex
	info fs.FileInfo // of the file that was read; nil: none was
	list []Token
}

// verify returns who a token stands for.
func (f *tokenFile) verify(token string) (*Identity, error) {
	list, err := f.known()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(token))
	hash := []byte(hex.EncodeToString(sum[:]))
	var found *Token
	for i := range list {
		if subtle.ConstantTimeCompare([]byte(list[i].SHA256), hash) == 1 {
			found = &list[i]
		}
	}
	if found == nil {
		return nil, invalid("the API token is not known; it may have been revoked")
	}
	return &Identity{ID: found.Name, Roles: found.Roles}, nil
}

// known is read for a request.
func (f *tokenFile) known() ([]Token, error) {
	list, err := f.read()
	if err != nil {
		return nil, unavailable("the file of API tokens cannot be read; see --tokens")
	}
	return list, nil
}

// read returns the tokens in the file.
func (f *tokenFile) read() ([]Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.name)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w; make the file with asof token add", err)
	}
	if f.info != nil && os.SameFile(f.info, info) && f.info.ModTime().Equal(info.ModTime()) && f.info.Size() == info.Size() {
		return f.list, nil
	}
	list, err := Tokens(f.name)
	if err != nil {
		return nil, err
	}
	f.info, f.list = info, list
	return list, nil
}

// Tokens returns the tokens in a file.
func Tokens(file string) ([]Token, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w", err)
	}
	var list []Token
	for n, line := range bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var t Token
		err := json.Unmarshal(line, &t)
		if err == nil {
			err = t.check()
		}
		if err != nil {
			return nil, fmt.Errorf("--tokens %s, line %d: %w", file, n+1, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func (t *Token) check() error {
	if err := CheckName(t.Name); err != nil {
		return fmt.Errorf("the name %w", err)
	}
	sum, err := hex.DecodeString(t.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return errors.New(`"sha256" must be 64 hexadecimal digits`)
	}
	t.SHA256 = hex.EncodeToString(sum) // in small letters
	slices.Sort(t.Roles)
	return nil
}

// AddToken adds a new token to a file, which it makes where there is none, and returns the
// token. It is shown nowhere else.
func AddToken(file, name string, roles []string, now time.Time) (string, error) {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(token))
	t := Token{Name: name, Roles: roles, Created: now.UTC().Truncate(time.Second), SHA256: hex.EncodeToString(sum[:])}
	if err := t.check(); err != nil {
		return "", err
	}
	err := changeTokens(file, func(list []Token) []Token { return append(list, t) })
	return token, err
}

// RevokeTokens removes the tokens of a name, or the one with an ID, from a file, and returns
// how many those were.
func RevokeTokens(file, which string) (int, error) {
	revoked := 0
	err := changeTokens(file, func(list []Token) []Token {
		return slices.DeleteFunc(list, func(t Token) bool {
			gone := t.Name == which || t.ID() == which
			if gone {
				revoked++
			}
			return gone
		})
	})
	return revoked, err
}

// changeTokens replaces a file by one with other tokens, at once, so that a server reads all
// or none of them. Only one process does that at a time.
func changeTokens(file string, change func([]Token) []Token) (err error) {
	next := file + ".new"
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is being changed by another asof token; if none runs, one was killed: delete %s", file, next)
	}
	if err != nil {
		return fmt.Errorf("--tokens: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(next)
		}
	}()
	list, err := Tokens(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := json.NewEncoder(out)
	for _, t := range change(list) {
		if err := lines.Encode(t); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(next, file)
}
