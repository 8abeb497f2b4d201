package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// contentType is of the kinds of files that the Playground is made of. The
// table is our own because mime.TypeByExtension depends on the machine.
func contentType(name string) (string, error) {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8", nil
	case ".js":
		return "text/javascript; charset=utf-8", nil
	case ".css":
		return "text/css; charset=utf-8", nil
	case ".svg":
		return "image/svg+xml", nil
	case ".ttf":
		return "font/ttf", nil
	case ".txt":
		return "text/plain; charset=utf-8", nil
	default:
		return "", fmt.Errorf("%s: no content type is known for %q", name, ext)
	}
}

// A file is kept compressed; most browsers take it as it is.
type file struct {
	contentType  string
	cacheControl string
	etag         string // of the plain form, quotes excluded
	zipped       []byte // gzip
	plain        func() ([]byte, error)
}

func newFile(name string, plain []byte) (file, error) {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(plain)
	if err = errors.Join(err, z.Close()); err != nil {
		return file{}, fmt.Errorf("%s: %w", name, err)
	}
	return newZipped(name, buf.Bytes())
}

func newZipped(name string, zipped []byte) (file, error) {
	kind, err := contentType(name)
	if err != nil {
		return file{}, err
	}
	sum := sha256.Sum256(zipped)
	f := file{contentType: kind, cacheControl: "no-cache", etag: hex.EncodeToString(sum[:12]), zipped: zipped}
	f.plain = sync.OnceValues(func() ([]byte, error) { // for the few clients that cannot take gzip
		z, err := gzip.NewReader(bytes.NewReader(zipped))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(z)
	})
	if strings.HasPrefix(name, "assets/") {
		f.cacheControl = "public, max-age=31536000, immutable"
	}
	return f, nil
}

// page is the one page, which is also served as "".
const page = "index.html"

// A fileSet serves files by path.
type fileSet struct {
	byPath map[string]file
	demo   file                       // the page with the ready queries, where isDemo
	isDemo func(context.Context) bool // nil: never
}

// load reads a directory in which every file is compressed and named NAME.gz.
func load(dir fs.FS) (*fileSet, error) {
	set := &fileSet{byPath: map[string]file{}}
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plainName, ok := strings.CutSuffix(name, ".gz")
		if !ok {
			return fmt.Errorf("%s is not compressed", name)
		}
		zipped, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		set.byPath[plainName], err = newZipped(plainName, zipped)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, ok := set.byPath[page]; !ok {
		return nil, errors.New(page + " is missing")
	}
	return set, nil
}

// ServeHTTP answers GET and HEAD.
func (s *fileSet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !allowed(w, r) {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = page
	}
	f, ok := s.byPath[name]
	if name == page && s.isDemo != nil && s.isDemo(r.Context()) {
		f = s.demo
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	body, etag := f.zipped, `"`+f.etag+`-gzip"`
	zipped := acceptsGzip(r.Header.Values("Accept-Encoding"))
	if !zipped {
		etag = `"` + f.etag + `"`
	}
	h := w.Header()
	h.Set("Cache-Control", f.cacheControl)
	h.Set("Etag", etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Security-Policy", ContentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if zipped {
		h.Set("Content-Encoding", "gzip")
	} else {
		var err error
		if body, err = f.plain(); err != nil {
			h.Set("Cache-Control", "no-store")
			h.Del("Etag")
			http.Error(w, "the embedded file is broken", http.StatusInternalServerError)
			return
		}
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Length", strconv.Itoa(len(body))) // else it is not there beside Content-Encoding
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsGzip reads Accept-Encoding (RFC 9110, 12.5.3): gzip by name counts
// before "*", and a weight of zero refuses.
func acceptsGzip(headers []string) bool {
	star := false
	for item := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "gzip" && name != "x-gzip" && name != "*" {
			continue
		}
		ok := true
		if key, value, found := strings.Cut(params, "="); found && strings.EqualFold(strings.TrimSpace(key), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			ok = err == nil && q > 0
		}
		if name != "*" {
			return ok
		}
		star = ok
	}
	return star
}

//go:embed playground/dist
var dist embed.FS

// distFS is the built Playground.
func distFS() fs.FS {
	sub, err := fs.Sub(dist, "playground/dist")
	if err != nil {
		panic("web: " + err.Error()) // the directory is named above: it exists
	}
	return sub
}
