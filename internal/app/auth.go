package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/asof/asof/internal/app/auth"
	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
)

// authFlags say whose credentials the server believes.
type authFlags struct {
	Auth          []string `help:"Whom to let in: who has a JSON Web Token (jwt), an API token (token), or either (jwt,token). Without it, the server knows nobody." placeholder:"KIND"`
	AnonymousRead bool     `help:"Let queries in without credentials, too."`
	Tokens        string   `help:"The file of API tokens; asof token makes them." placeholder:"FILE"`
	JWT           jwtFlags `embed:"" prefix:"jwt-"`
}

type jwtFlags struct {
	JWKS       string   `name:"jwks" help:"The public keys of the issuer of JSON Web Tokens, as a set of RFC 7517." placeholder:"URL|FILE"`
	SecretFile string   `help:"The secret of at least 32 bytes that they are signed with, instead (HMAC)." placeholder:"FILE"`
	Issuer     string   `help:"Their issuer (the claim iss)." placeholder:"NAME"`
	Audience   string   `help:"Whom they are for (the claim aud)." placeholder:"NAME"`
	Algorithms []string `help:"Algorithms of signatures. Default: RS, PS and ES with 256, 384 and 512, and EdDSA; with a secret HS256, HS384 and HS512." placeholder:"NAME"`
	RolesClaim string   `help:"The claim with the roles: a list of strings, or one." default:"roles" placeholder:"NAME"`
}

// The kinds of credentials.
const (
	authJWT   = "jwt"
	authToken = "token"
)

// check refuses flags that contradict each other.
func (f *authFlags) check() error {
	for _, kind := range f.Auth {
		if kind != authJWT && kind != authToken {
			return usageError{fmt.Errorf("--auth %s: want jwt, token, or jwt,token", kind)}
		}
	}
	byJWT, byToken := slices.Contains(f.Auth, authJWT), slices.Contains(f.Auth, authToken)
	switch {
	case byToken && f.Tokens == "":
		return usageError{errors.New("--auth token needs --tokens FILE; asof token add makes it")}
	case f.AnonymousRead && len(f.Auth) == 0:
		return usageError{errors.New("--anonymous-read needs --auth: without it everybody may read and write")}
	case !byJWT && (f.JWT.JWKS != "" || f.JWT.SecretFile != ""), !byToken && f.Tokens != "":
		return usageError{errors.New("--jwt-jwks and --jwt-secret-file need --auth jwt, and --tokens needs --auth token")}
	}
	return nil
}

// verifier verifies what the flags say; nil: nobody is verified.
func (f *authFlags) verifier(now func() time.Time, logger *slog.Logger) (*auth.Verifier, error) {
	if len(f.Auth) == 0 {
		return nil, nil
	}
	c := auth.Config{Tokens: f.Tokens, Now: now, Logger: logger}
	if slices.Contains(f.Auth, authJWT) {
		c.JWT = &auth.JWT{
			JWKS: f.JWT.JWKS, SecretFile: f.JWT.SecretFile, Issuer: f.JWT.Issuer, Audience: f.JWT.Audience,
			Algorithms: f.JWT.Algorithms, RolesClaim: f.JWT.RolesClaim,
		}
	}
	v, err := auth.New(c)
	if err != nil {
		return nil, usageError{err}
	}
	return v, nil
}

// challenge asks for credentials (RFC 6750, 3).
const challenge = `Bearer realm="asof"`

// identify verifies who has sent a request.
func (f *authFlags) identify(v *auth.Verifier) func(*http.Request) (httpapi.Identity, error) {
	if v == nil {
		return believe
	}
	return func(r *http.Request) (httpapi.Identity, error) {
		who, err := v.Verify(r)
		if err == nil {
			actor := storage.Actor{ID: who.ID, Name: who.Name, Roles: who.Roles, Claims: who.Claims}
			return httpapi.Identity{Context: storage.WithActor(r.Context(), actor), Actor: who.ID, Client: "actor " + who.ID}, nil
		}
		denied := &httpapi.Denied{Status: http.StatusUnauthorized, Code: httpapi.CodeUnauthenticated, Message: err.Error(), Challenge: challenge}
		refused, given := errors.AsType[*auth.Error](err)
		switch {
		case !given && f.AnonymousRead:
			return httpapi.Identity{Context: r.Context(), Actor: storage.Anonymous, ReadOnly: denied}, nil
		case !given:
		case refused.Unavailable:
			denied = &httpapi.Denied{Status: http.StatusServiceUnavailable, Code: httpapi.CodeUnavailable, Message: err.Error()}
		default:
			denied.Challenge += fmt.Sprintf(`, error="invalid_token", error_description=%q`, err)
		}
		return httpapi.Identity{}, denied
	}
}

// identify is that of --auth; with --read-only for reading.
func (f *serveFlags) identify(v *auth.Verifier) func(*http.Request) (httpapi.Identity, error) {
	identify := f.Auth.identify(v)
	if !f.ReadOnly {
		return identify
	}
	denied := &httpapi.Denied{Status: http.StatusForbidden, Code: httpapi.CodeForbidden, Message: "this server takes no mutations (--read-only)"}
	return func(r *http.Request) (httpapi.Identity, error) {
		who, err := identify(r)
		who.ReadOnly = denied
		return who, err
	}
}

// tokenFlags are the command that makes API tokens.
type tokenFlags struct {
	Tokens string `help:"The file of API tokens." default:"asof.tokens" placeholder:"FILE"`

	Add struct {
		Name string   `arg:"" help:"Who it stands for: the author of what is written with it."`
		Role []string `help:"A role that it has; may be repeated." placeholder:"ROLE"`
	} `cmd:"" help:"Make a token, and print it. It is stored nowhere: only its hash is in the file."`
	List   struct{} `cmd:"" help:"List the tokens in the file."`
	Revoke struct {
		Name string `arg:"" help:"The name of tokens, or the id of one, as list shows it."`
	} `cmd:"" help:"Remove tokens from the file. A server that runs notices it at once."`
}

// token makes, lists or revokes API tokens.
func (m *Main) token() error {
	f := &m.flags.Token
	switch m.command {
	case "token add <name>":
		token, err := auth.AddToken(f.Tokens, f.Add.Name, f.Add.Role, m.Now())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(m.Stdout, token)
		return err
	case "token list":
		list, err := auth.Tokens(f.Tokens)
		if err != nil {
			return err
		}
		for _, t := range list {
			if _, err := fmt.Fprintf(m.Stdout, "%s  %s  %s  %s\n", t.ID(), t.Created.Format(time.RFC3339), t.Name, strings.Join(t.Roles, ",")); err != nil {
				return err
			}
		}
		return nil
	}
	n, err := auth.RevokeTokens(f.Tokens, f.Revoke.Name)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s has no token %q", f.Tokens, f.Revoke.Name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.Stdout, "revoked: %d\n", n)
	return err
}
