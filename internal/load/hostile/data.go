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
	"slices"
	"strings"

	"github.com/asof/asof/internal/load/process"
)

// The stores that are attacked.
const (
	demoData      = "demo"      // the catalogue that the server comes with
	largeData     = "large"     // that one, and texts of a megabyte
	editedData    = "edited"    // that one, and other documents of a megabyte with many versions
	catalogueData = "catalogue" // an import
)

// store makes a store in a directory, unless it is there, and returns its path.
func store(ctx context.Context, asof, dir, data, catalogue string) (string, error) {
	path := filepath.Join(dir, data+".db")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	making := path + ".making"
	if data == catalogueData {
		imported := exec.CommandContext(ctx, asof, "import", "--sync", "off", "--store", "sqlite:"+making, catalogue)
		if said, err := imported.CombinedOutput(); err != nil {
			return "", fmt.Errorf("importing %s: %w\n%s", catalogue, err, said)
		}
		return path, os.Rename(making, path)
	}
	s, err := process.Start(ctx, io.Discard, asof, "serve", "--addr", "127.0.0.1:0", "--sync", "off", "--store", "sqlite:"+making, "--demo")
	if err != nil {
		return "", err
	}
	if data != demoData {
		err = enlarge(s.URL)
	}
	if data == editedData && err == nil {
		err = edit(s.URL)
	}
	s.Stop() // the log is in the store then
	if err != nil {
		return "", err
	}
	return path, os.Rename(making, path)
}

// What enlarge and edit make.
const (
	largeTags    = 62 // of a megabyte each: an operation may read 64 MB of them
	largeText    = 1_000_000
	selfTag      = "r" // refers to itself all over
	selfCount    = 30_000
	linksTag     = "links" // has many links, in another order in each version
	jsonProject  = "json"  // has an object of many members, others in each version
	editsProject = "edits" // has a long text, edited in each version
	largeEdits   = 40
)

// filler is a text of a megabyte.
func filler() string {
	return strings.Repeat("All that can be said of it, and then some more. ", largeText/48+1)[:largeText]
}

// enlarge creates documents that are as large as the API takes.
func enlarge(url string) error {
	for i := range largeTags {
		if err := write(url, "createTag", "CreateTagInput", map[string]any{
			"key": fmt.Sprintf("text-%02d", i), "data": map[string]any{"name": fmt.Sprintf("Text %d", i), "description": filler()},
		}); err != nil {
			return err
		}
	}
	return nil
}

// edit creates documents that are as large as the API takes, and changes most of
// them again and again.
func edit(url string) error {
	if err := write(url, "createTag", "CreateTagInput", map[string]any{
		"key": selfTag, "data": map[string]any{"name": "R", "description": "itself", "relatedTags": slices.Repeat([]string{selfTag}, selfCount)},
	}); err != nil {
		return err
	}
	links := make([]map[string]any, 25_000)
	for i := range links {
		links[i] = map[string]any{"title": fmt.Sprint("Link ", i), "url": ""}
	}
	members := func(version int) map[string]any {
		object := map[string]any{}
		for i := range 40_000 {
			object[fmt.Sprintf("%d-%d", version, i)] = version
		}
		return object
	}
	text := func(version int) string {
		return strings.ReplaceAll(filler(), "more", fmt.Sprintf("m%03d", version))
	}
	for version := range largeEdits {
		slices.Reverse(links[version:])
		for _, c := range []struct {
			kind, key string
			data      map[string]any
		}{
			{"Tag", linksTag, map[string]any{"name": "Links", "description": "", "externalLinks": links}},
			{"Project", jsonProject, map[string]any{"name": "JSON", "description": "", "commitHistory": members(version)}},
			{"Project", editsProject, map[string]any{"name": "Edits", "description": text(version)}},
		} {
			field, input := "update"+c.kind, map[string]any{"key": c.key, "expectedVersion": version, "patch": c.data}
			if version == 0 {
				field, input = "create"+c.kind, map[string]any{"key": c.key, "data": c.data}
			}
			if err := write(url, field, strings.ToUpper(field[:1])+field[1:]+"Input", input); err != nil {
				return err
			}
		}
	}
	return nil
}

// write executes one change, which has to succeed.
func write(url, field, typ string, input map[string]any) error {
	answer, err := ask(url, fmt.Sprintf("mutation W($input: %s!) { %s(input: $input) { __typename } }", typ, field), map[string]any{"input": input})
	if err == nil && !bytes.Contains(answer, []byte(`Success"`)) {
		err = fmt.Errorf("%s: %.300s", field, answer)
	}
	return err
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

// longest returns the document of a type that has most versions, as the API knows.
func longest(url, plural string) (string, error) {
	answer, err := ask(url, "{l:"+plural+"(orderBy:[{field:version,direction:DESC}],first:1){nodes{key}}}", nil)
	if err != nil {
		return "", err
	}
	var found struct {
		Data struct {
			L struct{ Nodes []struct{ Key string } }
		}
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return "", err
	}
	if len(found.Data.L.Nodes) == 0 {
		return "", fmt.Errorf("there are no %s", plural)
	}
	return found.Data.L.Nodes[0].Key, nil
}

// midway returns an instant in the middle of the last versions of a project.
func midway(url, key string) (string, error) {
	answer, err := ask(url, "query($k:ID!){projectHistory(key:$k){versions(first:20){nodes{versionInfo{recordedAt}}}}}", map[string]any{"k": key})
	if err != nil {
		return "", err
	}
	var found struct {
		Data struct {
			ProjectHistory struct {
				Versions struct {
					Nodes []struct{ VersionInfo struct{ RecordedAt string } }
				}
			}
		}
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return "", err
	}
	nodes := found.Data.ProjectHistory.Versions.Nodes
	if len(nodes) == 0 {
		return "", fmt.Errorf("project %s has no versions", key)
	}
	return nodes[len(nodes)/2].VersionInfo.RecordedAt, nil
}
