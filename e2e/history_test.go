package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// The real histories come with answers that were taken independently of them.
// These are checked over HTTP, through GraphQL alone.

// dataset is a real history and what GraphQL calls its parts.
type dataset struct {
	program string // the server built for its types
	events  string // in the data directory
	root    string // the root field of one document
	history string // the root field of its history
	fields  []fieldOf
}

// fieldOf is a field and where it is stored.
type fieldOf struct {
	name, stored string
	selection    string // empty: the name
	answer       string // what the answer calls it; empty: the name
	absent       any    // what it reads as in a version that lacks it: a missing list is empty
	objects      []fieldOf
}

func (f fieldOf) answerName() string {
	if f.answer != "" {
		return f.answer
	}
	return f.name
}

func (d dataset) selection() string {
	var parts []string
	for _, f := range d.fields {
		if f.selection != "" {
			parts = append(parts, f.selection)
		} else {
			parts = append(parts, f.name)
		}
	}
	return strings.Join(parts, " ")
}

// dataDir is the directory of the real histories.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ASOF_TESTDATA")
	if dir == "" {
		t.Skip("ASOF_TESTDATA is not set: it names the directory that holds catalog-small.ndjson.gz and zones/")
	}
	return dir
}

// truth is an as-of read and what it must give.
type truth struct {
	ID      string
	AsOf    time.Time
	Exists  bool
	Version int
	Data    map[string]any
	Kind    string
}

// changelogTruth lists every change of one value in one document.
type changelogTruth struct {
	ID      string
	Path    []string
	Changes []change
}

// change is one change of a value; a missing From or To is a value that was
// absent, which is not the same as null.
type change struct {
	Version  int
	At       time.Time
	By       string
	From, To json.RawMessage
}

// readLines decodes a file of JSON lines.
func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var values []T
	for line := range bytes.Lines(text) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		values = append(values, v)
	}
	return values
}

// checkTruth asks for a document as of a time, and compares version and fields.
func checkTruth(t *testing.T, s *server, d dataset, want truth) {
	t.Helper()
	query := fmt.Sprintf(`query($key: ID!, $asOf: DateTime) { %s(key: $key, asOf: $asOf) { version %s } }`, d.root, d.selection())
	variables := map[string]any{"key": want.ID, "asOf": want.AsOf}
	if want.Kind == "future" {
		a := s.ask(t, query, variables)
		if len(a.Errors) != 1 || a.Errors[0].Extensions.Code != "AS_OF_IN_FUTURE" {
			t.Fatalf("as of the future: %+v", a)
		}
		delete(variables, "asOf") // the answer is the current state
	}
	got := read[map[string]any](t, s, query, variables)
	if !want.Exists {
		if got != nil {
			t.Fatalf("is there: %v", got)
		}
		checkGone(t, s, d, want)
		return
	}
	expected := map[string]any{"version": float64(want.Version)}
	for _, f := range d.fields {
		expected[f.answerName()] = asRead(f, want.Data)
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Error(diff)
	}
	checkState(t, s, d, want)
}

// asRead is what a field reads as.
func asRead(f fieldOf, data map[string]any) any {
	value, ok := data[f.stored]
	if !ok {
		return f.absent
	}
	if nested, ok := value.(map[string]any); ok && f.objects != nil {
		object := make(map[string]any)
		for _, member := range f.objects {
			object[member.answerName()] = asRead(member, nested)
		}
		return object
	}
	return value
}

// checkGone checks the number of the version that was current when the
// document did not exist: a tombstone's, or none.
func checkGone(t *testing.T, s *server, d dataset, want truth) {
	t.Helper()
	type node struct {
		VersionInfo struct {
			Number    int
			Operation string
		}
	}
	history := read[struct{ Versions struct{ Nodes []node } }](t, s,
		fmt.Sprintf(`query($key: ID!, $to: DateTime) { %s(key: $key) { versions(to: $to, first: 1) { nodes { versionInfo { number operation } } } } }`, d.history),
		map[string]any{"key": want.ID, "to": want.AsOf.Add(time.Microsecond)})
	var expected []node
	if want.Version > 0 {
		expected = make([]node, 1)
		expected[0].VersionInfo.Number, expected[0].VersionInfo.Operation = want.Version, "DELETE"
	} else {
		expected = []node{}
	}
	if diff := cmp.Diff(expected, history.Versions.Nodes); diff != "" {
		t.Error(diff)
	}
}

// checkState compares the whole state that a diff shows, where null and absent
// differ.
func checkState(t *testing.T, s *server, d dataset, want truth) {
	t.Helper()
	history := read[struct {
		Diff struct{ After map[string]any }
	}](t, s,
		fmt.Sprintf(`query($key: ID!, $v: Int!) { %s(key: $key) { diff(from: {version: 1}, to: {version: $v}) { after } } }`, d.history),
		map[string]any{"key": want.ID, "v": want.Version})
	expected := make(map[string]any)
	for _, f := range d.fields {
		value, ok := want.Data[f.stored]
		if !ok {
			continue
		}
		expected[f.name] = value
		if nested, ok := value.(map[string]any); ok && f.objects != nil {
			object := make(map[string]any)
			for _, member := range f.objects {
				if v, ok := nested[member.stored]; ok {
					object[member.name] = v
				}
			}
			expected[f.name] = object
		}
	}
	if diff := cmp.Diff(expected, history.Diff.After); diff != "" {
		t.Error(diff)
	}
}

// fieldChange is a change as GraphQL reports it.
type fieldChange struct {
	Path      string
	Op        string
	NewValue  json.RawMessage
	Version   int
	ChangedAt time.Time
	ChangedBy struct{ ID string }
}

// changesOf pages through the changelog of one field, newest first.
func changesOf(t *testing.T, s *server, d dataset, key, field string) []fieldChange {
	t.Helper()
	query := fmt.Sprintf(`query($key: ID!, $after: String) { %s(key: $key) { changelog(fields: [%s], first: 100, after: $after) {
		nodes { path op newValue version changedAt changedBy { id } } pageInfo { hasNextPage endCursor } totalCount } } }`, d.history, field)
	var all []fieldChange
	for after, total := any(nil), 0; ; {
		page := read[struct {
			Changelog struct {
				Nodes    []fieldChange
				PageInfo struct {
					HasNextPage bool
					EndCursor   *string
				}
				TotalCount int
			}
		}](t, s, query, map[string]any{"key": key, "after": after}).Changelog
		all = append(all, page.Nodes...)
		total = page.TotalCount
		if !page.PageInfo.HasNextPage {
			if len(all) != total {
				t.Errorf("%d changes on the pages, totalCount %d", len(all), total)
			}
			return all
		}
		after = page.PageInfo.EndCursor
	}
}

// checkChangelog applies the changes of a field one version after the other,
// and compares what becomes of one value with what the truth lists. Lists are
// reported by element and values of new objects as one; the truth has the value as
// a whole.
func checkChangelog(t *testing.T, s *server, d dataset, want changelogTruth) {
	t.Helper()
	field := d.field(t, want.Path[0])
	path := make([]string, len(want.Path))
	for i, name := range append([]string{field.name}, want.Path[1:]...) {
		path[i] = gjson.Escape(name)
	}
	changes := changesOf(t, s, d, want.ID, field.name)
	document := []byte(`{}`)
	var got []change
	for end := len(changes); end > 0; {
		start := end - 1
		for start > 0 && changes[start-1].Version == changes[end-1].Version {
			start--
		}
		after := apply(t, document, changes[start:end])
		from := gjson.GetBytes(document, strings.Join(path, "."))
		to := gjson.GetBytes(after, strings.Join(path, "."))
		if from.Raw != to.Raw {
			c := changes[start]
			got = append(got, change{c.Version, c.ChangedAt, c.ChangedBy.ID, raw(from), raw(to)})
		}
		document, end = after, start
	}
	if diff := cmp.Diff(want.Changes, got, cmp.Comparer(sameJSON)); diff != "" {
		t.Error(diff)
	}
}

func raw(r gjson.Result) json.RawMessage {
	if !r.Exists() {
		return nil
	}
	return json.RawMessage(r.Raw)
}

// sameJSON compares values; an absent one is only like an absent one.
func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && cmp.Equal(x, y)
}

func (d dataset) field(t *testing.T, stored string) fieldOf {
	t.Helper()
	for _, f := range d.fields {
		if f.stored == stored {
			return f
		}
	}
	t.Fatalf("no field is stored as %q", stored)
	return fieldOf{}
}

// apply applies the changes of one version, as RFC 6902 says.
func apply(t *testing.T, document []byte, changes []fieldChange) []byte {
	t.Helper()
	type operation struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	var ops []operation
	for _, c := range changes {
		op := operation{Op: strings.ToLower(c.Op), Path: c.Path}
		if c.Op != "REMOVE" {
			op.Value = c.NewValue
		}
		ops = append(ops, op)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(document)
	if err != nil {
		t.Fatalf("version %d: %v\n%s\n%s", changes[0].Version, err, text, document)
	}
	return after
}

// checkRoundTrip exports a store, imports that into another one, and exports
// it again: nothing may differ. It returns how many versions there were.
func checkRoundTrip(t *testing.T, program, store string) int {
	t.Helper()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.ndjson.gz"), filepath.Join(dir, "second.ndjson.gz")
	other := "sqlite:" + filepath.Join(dir, "other.db")
	run(t, program, "export", "--store", store, first)
	run(t, program, "import", "--store", other, first)
	run(t, program, "export", "--store", other, second)
	a, b := unzip(t, first), unzip(t, second)
	if !bytes.Equal(a, b) {
		t.Errorf("the second export differs: %d and %d bytes", len(a), len(b))
	}
	return bytes.Count(a, []byte{'\n'})
}

func unzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
