//go:build noplayground

package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/asof/asof/internal/web"
)

func TestHandlerWithoutPlayground(t *testing.T) {
	if web.Enabled() {
		t.Error("the Playground is enabled under the tag noplayground")
	}
	tests := []struct {
		method, target string
		status         int
		want           string
	}{
		{"GET", "/", http.StatusOK, "noplayground"},
		{"GET", "/assets/index.js", http.StatusNotFound, ""},
		{"POST", "/", http.StatusMethodNotAllowed, ""},
	}
	for _, test := range tests {
		w := httptest.NewRecorder()
		web.Handler(web.Options{}).ServeHTTP(w, httptest.NewRequest(test.method, test.target, nil))
		text, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		if w.Code != test.status || !strings.Contains(string(text), test.want) || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s %s: %d %q", test.method, test.target, w.Code, text)
		}
	}
}
