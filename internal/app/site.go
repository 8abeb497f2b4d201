package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/cors"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/app/auth"
	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// site is everything that the server has at its address.
type site struct {
	handler  http.Handler // everything
	api      *httpapi.Handler
	schema   *ast.Schema // that the API has
	noSchema bool        // clients may not ask for it
	store    *storage.Store
	engine   driver.Engine
	metrics  *prometheus.Registry
	origins  []string
	anyHost  bool           // the Host header may name any host
	verifier *auth.Verifier // nil: nobody is verified
	logger   *slog.Logger
	shutting atomic.Bool
	unready  atomic.Bool // the store could not be reached, as the log says

	signs      bool // it makes checkpoints
	checkpoint atomic.Pointer[[]byte]
}

// assemble puts the parts at their paths.
func (s *site) assemble(types []*record.Type) error {
	api, err := compressed(s.api)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/graphql", crossOrigin(s.origins, api))
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.verified(s.api.Placed(promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))))
	if s.signs {
		mux.Handle("GET /checkpoint", s.verified(http.HandlerFunc(s.lastCheckpoint)))
	}
	options, err := s.playground(types)
	if err != nil {
		return err
	}
	mux.Handle("/", web.Handler(options))
	s.handler = withHeaders(s.origins, s.guard(mux))
	return nil
}

// verified lets in who is known, where the server verifies that.
func (s *site) verified(next http.Handler) http.Handler {
	if s.verifier == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.verifier.Verify(r); err != nil {
			if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Unavailable {
				plain(w, http.StatusServiceUnavailable, err.Error())
				return
			}
			w.Header().Set("WWW-Authenticate", challenge)
			plain(w, http.StatusUnauthorized, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// crossOrigin lets pages of these origins use the API.
func crossOrigin(origins []string, api http.Handler) http.Handler {
	if len(origins) == 0 {
		return api
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost},
		// Any: who may send them is decided by the origin. Clients add names of their
		// own (Apollo-Require-Preflight, Authorization, those of tracing …).
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"X-Request-Id", "Retry-After"},
		MaxAge:         600,
	}).Handler(api)
}

// withHeaders sets the headers that every answer has.
func withHeaders(origins []string, next http.Handler) http.Handler {
	nosniff, referrer := []string{"nosniff"}, []string{"no-referrer"}
	policy := []string{"default-src 'none'; frame-ancestors 'none'"}
	resource := []string{"same-origin"}
	if len(origins) > 0 {
		resource = []string{"cross-origin"}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Referrer-Policy"] = referrer
		header["Content-Security-Policy"] = policy // the Playground's pages set their own
		header["Cross-Origin-Resource-Policy"] = resource
		next.ServeHTTP(w, r)
	})
}

// guard refuses names that are not this server's: a page of another site whose
// name was made to point here (DNS rebinding) would otherwise be of the same
// origin.
func (s *site) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.anyHost && !isLoopback(hostname(r.Host)) {
			s.api.Refuse(w, r, httpapi.RefusedHost, http.StatusMisdirectedRequest, httpapi.CodeForbidden,
				"this server answers to the names of this machine only (localhost, 127.0.0.1, [::1]), not to the one in the request's Host header; "+
					"let a proxy in front send Host: localhost, or start with --insecure-no-auth where the network is trusted")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

// compressed compresses answers for clients that can read them so: by gzip or by
// zstd, whichever they prefer, and gzip where they take both alike, as some say so
// and cannot read zstd. Small answers are not worth it.
func compressed(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(2<<10),
		gzhttp.CompressionLevel(1),
		gzhttp.ZstdCompressionLevel(int(zstd.SpeedFastest)),
		gzhttp.PreferZstd(false),
		gzhttp.SuffixETag("-gzip"),
		gzhttp.ContentTypes([]string{"application/json", "application/graphql-response+json"}),
	)
	if err != nil {
		return nil, err
	}
	zipped := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Upgrade"] == nil && acceptsCompressed(r) {
			zipped.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// acceptsCompressed reports whether a client may read what is compressed; the
// details are the wrapper's.
func acceptsCompressed(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		if strings.Contains(line, "gzip") || strings.Contains(line, "zstd") {
			return true
		}
	}
	return false
}

// healthz answers that the process runs.
func healthz(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }

// readyz answers whether requests can be answered: the store can be reached, and
// the server is not shutting down. Why it cannot be reached is in the log, once
// until it can.
func (s *site) readyz(w http.ResponseWriter, r *http.Request) {
	if s.shutting.Load() {
		plain(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.engine.Ping(ctx); err != nil {
		// A client that has left says nothing about the store.
		if r.Context().Err() == nil && !s.unready.Swap(true) {
			s.logger.Warn("not ready: the store cannot be reached", "error", err)
		}
		plain(w, http.StatusServiceUnavailable, "the store cannot be reached")
		return
	}
	if s.verifier != nil && s.verifier.Ready(ctx) != nil { // the log says why
		plain(w, http.StatusServiceUnavailable, "the keys of the tokens' issuer cannot be fetched")
		return
	}
	if s.unready.Swap(false) {
		s.logger.Info("ready again: the store can be reached")
	}
	plain(w, http.StatusOK, "ready")
}

const readyTimeout = 2 * time.Second

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// startup is the server's handler from the start: it answers that the store is opening, which
// may take long, until ready is called.
type startup struct {
	opening http.Handler
	site    atomic.Pointer[site]
}

func newStartup(origins []string) *startup {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { opening(w) })
	mux.Handle("/graphql", crossOrigin(origins, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		httpapi.WriteError(w, http.StatusServiceUnavailable, httpapi.CodeUnavailable,
			"the store is opening; try again in a moment; nothing was written")
	})))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { opening(w) })
	return &startup{opening: withHeaders(origins, mux)}
}

func opening(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	plain(w, http.StatusServiceUnavailable, "the store is opening")
}

// ready passes requests to the site from now on.
func (s *startup) ready(to *site) { s.site.Store(to) }

func (s *startup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if site := s.site.Load(); site != nil {
		site.handler.ServeHTTP(w, r)
		return
	}
	s.opening.ServeHTTP(w, r)
}

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

// clientAddress names clients by their address: that which the connection comes from, or
// with a number of proxies in front, the one that the first of these has added to
// X-Forwarded-For. Whatever is before that, anybody may have written. Of an address of
// IPv6, it is the network of 64 bits that one client has.
func clientAddress(proxies int) func(*http.Request) string {
	return func(r *http.Request) string {
		address := r.RemoteAddr
		if proxies > 0 {
			hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
			address = strings.TrimSpace(hops[max(len(hops)-proxies, 0)])
		}
		return clientAt(address)
	}
}

// clientAt names the client of an address, with or without a port.
func clientAt(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return "" // all without an address are one
	}
	ip = ip.Unmap()
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64) // an address of IPv6 has it
	return network.String()
}

// believe returns the actor that the X-Actor header names: there is no authentication.
func believe(r *http.Request) (httpapi.Identity, error) {
	actor := storage.Anonymous
	if given := r.Header["X-Actor"]; len(given) > 0 {
		var err error
		if actor, err = readActor(given); err != nil {
			return httpapi.Identity{}, err
		}
	}
	return httpapi.Identity{Context: storage.WithActor(r.Context(), storage.Actor{ID: actor}), Actor: actor}, nil
}

// readActor reads a name in UTF-8. Bytes that are not UTF-8 are the first 256
// characters of Unicode (Latin-1): that is what browsers send, whose fetch takes
// no others, and RFC 9110, 5.5 leaves open what they are.
func readActor(given []string) (string, error) {
	if len(given) > 1 {
		return "", errors.New("the header X-Actor was given more than once")
	}
	name := given[0]
	if !utf8.ValidString(name) {
		characters := make([]rune, len(name))
		for i := range len(name) {
			characters[i] = rune(name[i])
		}
		name = string(characters)
	}
	if name == "" {
		return "", errors.New("the header X-Actor is empty; leave it out to act as " + storage.Anonymous)
	}
	if err := auth.CheckName(name); err != nil {
		return "", fmt.Errorf("the header X-Actor %w", err)
	}
	return name, nil
}

// checkAddress refuses to serve others than this machine, except with authentication or
// --insecure-no-auth.
func checkAddress(addr string, open bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usageError{fmt.Errorf("--addr %s: want HOST:PORT, such as 127.0.0.1:8080", addr)}
	}
	if open || isLoopback(host) {
		return nil
	}
	if host == "" {
		host = "every address of this machine"
	}
	return usageError{fmt.Errorf("--addr %s: without --auth this server does not know who its users are: whoever reaches it can read everything, and write under any name "+
		"(the X-Actor header). It therefore listens on this machine's own addresses only (127.0.0.1, ::1, localhost), not on %s. "+
		"Add --auth, or, if the network is trusted, --insecure-no-auth", addr, host)}
}

// isLoopback reports whether a host name or address can only be this machine.
func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}
