// Package webtest drives the Playground in a headless Chromium, for tests.
//
// All traffic of the browser, its own background requests included, passes
// through a proxy of the test, which records who was asked for what, and how
// many bytes came back. So a request that the page, a worker or a style sheet
// makes cannot be missed.
package webtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	envChromium = "ASOF_CHROMIUM"
	envRequire  = "ASOF_REQUIRE_BROWSER"
	// stepTimeout bounds one step in the browser; the slowest takes about 5 s, on a
	// machine that is not slow.
	stepTimeout = 5 * time.Minute
)

// quietFeatures are those parts of Chromium that ask its maker's servers by
// themselves.
const quietFeatures = "Translate,BlinkGenPropertyTrees,NetworkTimeServiceQuerying,AutofillServerCommunication," +
	"OptimizationHints,MediaRouter,DialMediaRouteProvider,CertificateTransparencyComponentUpdater,InterestFeedContentSuggestions"

// A Request is one answer that the browser got.
type Request struct {
	Method, Host, Path string
	Status             int
	Encoding           string // Content-Encoding
	Bytes              int64  // of the body, as sent
}

// A Browser is one tab of a browser with an empty profile.
type Browser struct {
	ctx      context.Context
	mu       sync.Mutex
	requests []Request
	problems []string
}

// executable finds Chromium: ASOF_CHROMIUM, or one in PATH.
func executable() (string, error) {
	if path := os.Getenv(envChromium); path != "" {
		return exec.LookPath(path)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no chromium or google-chrome in PATH")
}

// New starts a browser that ends with the test. Without a Chromium the test is
// skipped, or fails if ASOF_REQUIRE_BROWSER is set.
func New(t *testing.T) *Browser {
	t.Helper()
	path, err := executable()
	if err != nil {
		message := "this test needs Chromium: " + err.Error() + " (" + envChromium + " names one)"
		if os.Getenv(envRequire) != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	b := &Browser{}
	proxy := httptest.NewServer(http.HandlerFunc(b.forward))
	t.Cleanup(proxy.Close)

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// The profile is in a directory that chromedp makes, and removes when the
		// last process of the browser has stopped writing to it.
		chromedp.WSURLReadTimeout(stepTimeout),
		chromedp.NoSandbox, // containers have no user namespaces
		chromedp.DisableGPU,
		chromedp.ProxyServer(proxy.URL),
		// Loopback goes by the proxy too. Two hosts of Chromium's maker do not:
		// no flag keeps it from asking them. They cannot be resolved, so nothing
		// leaves the machine, and a page that asked them would complain.
		chromedp.Flag("proxy-bypass-list", "<-loopback>;update.googleapis.com;accounts.google.com"),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("no-pings", true),
		chromedp.Flag("disable-features", quietFeatures),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	b.ctx = ctx
	run(t, b, "setting the size of the page", chromedp.EmulateViewport(1280, 800))
	return b
}

// note keeps what the page complains of: console errors and warnings, uncaught
// exceptions, failed or refused requests.
func (b *Browser) note(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeWarning {
			return
		}
		parts := []string{"console." + e.Type.String()}
		for _, arg := range e.Args {
			parts = append(parts, string(arg.Value)+arg.Description)
		}
		problem = strings.Join(parts, " ")
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			problem += " " + thrown.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelError {
			return
		}
		problem = "log: " + e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

// forward is the proxy. It passes requests of loopback hosts on, byte by byte,
// and refuses others; both are recorded.
func (b *Browser) forward(w http.ResponseWriter, r *http.Request) {
	record := Request{Method: r.Method, Host: r.Host, Path: r.URL.Path}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests = append(b.requests, record)
	}()
	if !strings.HasPrefix(r.Host, "127.0.0.1:") {
		record.Status = http.StatusForbidden
		http.Error(w, "the test's proxy passes on to loopback only", record.Status)
		return
	}
	if r.Method == http.MethodConnect { // a WebSocket
		record.Status = tunnel(w, r)
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.Header.Del("Proxy-Connection")
	// A Transport of its own: it neither asks for nor undoes compression.
	answer, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(out)
	if err != nil {
		record.Status = http.StatusBadGateway
		http.Error(w, err.Error(), record.Status)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	record.Status, record.Encoding = answer.StatusCode, answer.Header.Get("Content-Encoding")
	record.Bytes, _ = io.Copy(w, answer.Body) // a browser that hangs up takes less
}

// tunnel passes on what a connection carries, until one side ends it. It returns the status that it
// answered.
func tunnel(w http.ResponseWriter, r *http.Request) (status int) {
	server, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return http.StatusBadGateway
	}
	defer func() { _ = server.Close() }()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return http.StatusInternalServerError
	}
	defer func() { _ = client.Close() }()
	go func() {
		_, _ = io.Copy(server, buffered)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	return http.StatusOK
}

// Requests are those that were answered so far, in the order of their ends.
func (b *Browser) Requests() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Request(nil), b.requests...)
}

// Problems are the page's complaints so far.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.problems...)
}

// Open loads a page and waits until it is there.
func (b *Browser) Open(t *testing.T, url string) {
	t.Helper()
	run(t, b, "opening "+url, chromedp.Navigate(url))
}

// Click clicks on the middle of the first element that the CSS selector finds.
func (b *Browser) Click(t *testing.T, selector string) {
	t.Helper()
	run(t, b, "clicking "+selector, chromedp.Click(selector, chromedp.NodeVisible))
}

// Type types keys where the focus is.
func (b *Browser) Type(t *testing.T, keys string) {
	t.Helper()
	run(t, b, "typing", chromedp.KeyEvent(keys))
}

// WaitFor waits until the JavaScript expression holds. The page itself looks
// again and again, which needs no eval, so the policy does not forbid it.
func (b *Browser) WaitFor(t *testing.T, what, expression string) {
	t.Helper()
	script := fmt.Sprintf(`new Promise((done) => {
		const look = () => ((%s) ? done(true) : setTimeout(look, 50));
		look();
	})`, expression)
	run(t, b, "waiting for "+what, chromedp.Evaluate[chromedp.Void](script, chromedp.EvalAwaitPromise))
}

// Scheme sets the colour scheme that the system asks for: "light" or "dark".
func (b *Browser) Scheme(t *testing.T, scheme string) {
	t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.Fatal(err)
	}
}

// Screenshot writes what the tab shows as PNG.
func (b *Browser) Screenshot(t *testing.T, path string) {
	t.Helper()
	png := run(t, b, "screenshot", chromedp.CaptureScreenshot())
	if err := os.WriteFile(path, png, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Run evaluates JavaScript for what it does.
func (b *Browser) Run(t *testing.T, script string) {
	t.Helper()
	run(t, b, script, chromedp.Evaluate[chromedp.Void](script, chromedp.EvalAwaitPromise))
}

// Eval evaluates a JavaScript expression, and awaits it if it is a promise.
func Eval[T any](t *testing.T, b *Browser, expression string) T {
	t.Helper()
	return run(t, b, expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// run performs an action, and fails the test if it takes longer than stepTimeout.
func run[T any](t *testing.T, b *Browser, what string, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatalf("%s: %v\nthe page's problems: %q", what, err, b.Problems())
	}
	return value
}
