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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
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

// ErrNone is the error for a request without credentials.
var ErrNone = errors.New("credentials are needed: send the header Authorization: Bearer TOKEN")

// Error is why credentials are refused.
type Error struct {
	Text string
	// Unavailable tells that they could not be verified now.
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

// Verify returns who has sent the request. Errors: ErrNone, *Error.
func (v *Verifier) Verify(r *http.Request) (*Identity, error) {
	given := r.Header["Authorization"]
	switch {
	case len(given) == 0:
		return nil, ErrNone
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

// LongestName is the greatest length of who somebody is, in bytes.
const LongestName = 200

// anonymous is the author of what is written without an identity.
const anonymous = "anonymous"

// CheckName refuses a name that is empty, long, begins or ends with a blank, or has characters
// that are not seen (it must be of the FreeformClass of RFC 8264), so that no name looks like
// another, and that of nobody. The error completes a sentence that begins with the name's place.
func CheckName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("is empty")
	case len(name) > LongestName:
		return fmt.Errorf("is longer than %d bytes of UTF-8", LongestName)
	case strings.TrimSpace(name) != name:
		return errors.New("begins or ends with a blank; leave it out")
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	case name == anonymous:
		return errors.New("is " + anonymous + ", as is who has no credentials; choose another name")
	}
	if _, err := precis.NewFreeform().String(name); err != nil {
		return errors.New("must be text without control characters, marks that change the direction of writing, or other characters that are not seen")
	}
	return nil
}
