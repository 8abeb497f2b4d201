package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/asof/asof/internal/load/process"
)

// The stores that are attacked.
const (
	demoData      = "demo"      // the catalogue that the server comes with
	largeData     = "large"     // that one, and texts of a megabyte
	catalogueData = "catalogue" // an import
)

// store returns the path of a store with this data, which is made where it is not there yet.
func (b *bench) store(ctx context.Context, data string) (string, error) {
	path := filepath.Join(b.dir, data+".db")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if data == catalogueData {
		imported := exec.CommandContext(ctx, b.Binary, "import", "--sync", "off", "--store", "sqlite:"+path, b.Import)
		if said, err := imported.CombinedOutput(); err != nil {
			return "", fmt.Errorf("importing %s: %w\n%s", b.Import, err, said)
		}
		return path, nil
	}
	s, err := process.Start(ctx, io.Discard, b.Binary, "serve", "--addr", "127.0.0.1:0", "--sync", "off", "--store", "sqlite:"+path, "--demo")
	if err != nil {
		return "", err
	}
	defer s.Stop() // the log is in the store then
	if data == largeData {
		err = enlarge(s.URL)
	}
	return path, err
}

// enlarge creates tags whose descriptions have a megabyte each.
func enlarge(url string) error {
	text := strings.Repeat("All that can be said of it, and then some more. ", 1_000_000/48)
	for i := range answerTags {
		input := map[string]any{"key": fmt.Sprintf("text-%02d", i), "data": map[string]any{"name": "Text", "description": text}}
		answer, err := ask(url, "mutation($i:CreateTagInput!){createTag(input:$i){__typename}}", map[string]any{"i": input})
		if err == nil && !bytes.Contains(answer, []byte(`Success"`)) {
			err = fmt.Errorf("createTag: %.300s", answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask executes an operation, and returns the answer, which must have no errors.
func ask(url, query string, variables map[string]any) ([]byte, error) {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return nil, err
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"errors"`))) {
		err = fmt.Errorf("status %d: %.300s", resp.StatusCode, answer)
	}
	return answer, err
}
