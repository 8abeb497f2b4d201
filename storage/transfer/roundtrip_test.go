package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/transfer"
)

// randomHistory makes lines of a few documents: objects of any shape, keys and
// texts with every kind of character, deletions and re-creations, in commit
// order or not.
func randomHistory(r *rand.Rand, n int) string {
	var out strings.Builder
	at := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)
	keys := []string{"a", "b c", "ü", `quote"back\slash`, "new\nline", "😀", "<&>", "\u2028"}
	there, existed := make(map[string]bool), make(map[string]bool)
	for range n {
		if r.IntN(3) > 0 {
			at = at.Add(time.Duration(1+r.IntN(1_000_000_000)) * time.Microsecond)
		}
		// Documents may share a time; one document has each time once.
		key := keys[r.IntN(len(keys))]
		if there[key+at.String()] {
			continue
		}
		there[key+at.String()] = true
		collection := []string{"things", "boxes"}[len(key)%2]
		line := map[string]any{"collection": collection, "id": key, "by": []string{"ann", "bøb", ""}[r.IntN(3)], "op": "put"}
		zone := time.FixedZone("", 60*(r.IntN(1440)-720))
		line["at"] = at.In(zone).Format("2006-01-02T15:04:05.000000Z07:00")
		if r.IntN(2) == 0 {
			line["message"] = []string{"", "a message", "tab\tand \u0001"}[r.IntN(3)]
		}
		if r.IntN(2) == 0 {
			line["source"] = fmt.Sprint("group ", r.IntN(5))
		}
		if r.IntN(5) == 0 && existed[collection+key] {
			line["op"] = "delete"
		} else {
			line["data"] = map[string]any{"name": keys[r.IntN(len(keys))], "extra": randomValue(r, 3), keys[r.IntN(len(keys))]: randomValue(r, 2)}
		}
		if line["op"] == "put" && r.IntN(2) == 0 {
			line["operation"] = []string{"CREATE", "UPDATE", "RESTORE"}[r.IntN(3)]
		}
		existed[collection+key] = true
		text, _ := jsonOf(line)
		out.Write(text)
		out.WriteByte('\n')
	}
	return out.String()
}

func randomValue(r *rand.Rand, depth int) any {
	switch kind := r.IntN(8); {
	case kind == 0 && depth > 0:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	case kind == 1 && depth > 0:
		object := make(map[string]any)
		for range r.IntN(4) {
			object[fmt.Sprint("member", r.IntN(9))] = randomValue(r, depth-1)
		}
		return object
	case kind == 2:
		return nil
	case kind == 3:
		return r.IntN(2) == 0
	case kind == 4:
		return r.NormFloat64() * 1e6
	case kind == 5:
		return r.Int64() - r.Int64()
	default:
		return fmt.Sprint("text ", r.IntN(100), "\u00e9\u0000")
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		history := randomHistory(r, 400)
		one, two := newStore(t), newStore(t)
		report, err := transfer.Import(t.Context(), one, strings.NewReader(history), transfer.ImportOptions{
			BatchVersions: 1 + r.IntN(100), BatchBytes: 100 + r.IntN(10_000),
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if lines := int64(strings.Count(history, "\n")); report.Added != lines {
			t.Fatalf("seed %d: %d of %d lines added", seed, report.Added, lines)
		}
		exported := export(t, one)
		if _, err := transfer.Import(t.Context(), two, strings.NewReader(exported), transfer.ImportOptions{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(exported, export(t, two)); diff != "" {
			t.Fatalf("seed %d: the second export differs: %s", seed, diff)
		}
		sameVersions(t, history, unsealed(exported))
		// What was exported is what is there: importing it again changes nothing.
		report, err = transfer.Import(t.Context(), one, strings.NewReader(exported), transfer.ImportOptions{})
		if err != nil || report.Added != 0 || report.Skipped != int64(strings.Count(exported, "\n")) {
			t.Fatalf("seed %d: into itself: %d added, %d skipped, %v", seed, report.Added, report.Skipped, err)
		}
	}
}

// sameVersions compares two files as sets of lines, by what the lines mean.
func sameVersions(t *testing.T, a, b string) {
	t.Helper()
	if diff := cmp.Diff(meanings(t, a), meanings(t, b)); diff != "" {
		t.Errorf("the export says something else: %s", diff)
	}
}

func TestExportOrder(t *testing.T) {
	store := newStore(t)
	text := put("b", second, `{"name":"2b"}`) + put("a", first, `{"size":1.0}`) + put("a", second, `{ "name" : "\u0032a" }`) +
		`{"op":"delete","collection":"boxes","id":"a","at":"2024-01-02T01:00:00+01:00","by":"ann","source":"s","message":"gone"}` + "\n"
	text = strings.Replace(text, `{"op"`, strings.Replace(put("a", first, `{}`), "things", "boxes", 1)+`{"op"`, 1)
	if _, err := transfer.Import(t.Context(), store, strings.NewReader(text), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	lines := []string{
		`{"collection":"boxes","id":"a","at":"2024-01-01T00:00:00Z","by":"ann","op":"put","data":{}}`,
		`{"collection":"things","id":"a","at":"2024-01-01T00:00:00Z","by":"ann","op":"put","data":{"size":1}}`,
		`{"collection":"boxes","id":"a","at":"2024-01-02T00:00:00Z","by":"ann","message":"gone","source":"s","op":"delete"}`,
		`{"collection":"things","id":"a","at":"2024-01-02T00:00:00Z","by":"ann","op":"put","data":{"name":"2a"}}`,
		`{"collection":"things","id":"b","at":"2024-01-02T00:00:00Z","by":"ann","op":"put","data":{"name":"2b"}}`,
	}
	day := driver.InstantOf(time.Date(2024, 1, 2, 0, 0, 0, 0, time.UTC))
	tests := []struct {
		name    string
		options transfer.ExportOptions
		want    []string
	}{
		{"all", transfer.ExportOptions{}, lines},
		{"one collection", transfer.ExportOptions{Collections: []string{"things"}}, []string{lines[1], lines[3], lines[4]}},
		{"from, inclusive", transfer.ExportOptions{From: day}, lines[2:]},
		{"to, exclusive", transfer.ExportOptions{To: day}, lines[:2]},
		{"to a microsecond later", transfer.ExportOptions{To: day + 1}, lines},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			n, err := transfer.Export(t.Context(), store, &out, test.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Join(test.want, "\n")+"\n", unsealed(out.String())); diff != "" {
				t.Error(diff)
			}
			if sealed := strings.Contains(out.String(), `"seal"`); sealed != (test.options.From == 0) {
				t.Errorf("with seals: %t", sealed) // of a part that has no beginning they could not be verified
			}
			if n != int64(len(test.want)) {
				t.Errorf("%d reported", n)
			}
		})
	}
	for _, options := range []transfer.ExportOptions{{Collections: []string{"thing"}}, {From: day, To: day}} {
		if _, err := transfer.Export(t.Context(), store, &bytes.Buffer{}, options); driver.CodeOf(err) != driver.CodeInvalid {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

func TestExportReportsWriteErrors(t *testing.T) {
	store := newStore(t)
	if _, err := transfer.Import(t.Context(), store, strings.NewReader(put("a", first, `{}`)), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	if _, err := transfer.Export(t.Context(), store, brokenWriter{full}, transfer.ExportOptions{}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// fragile is an engine that is lost after some loads, as when the process is
// killed: every load is whole or not there.
type fragile struct {
	driver.Engine
	left int
}

var errLost = errors.New("killed")

func (f *fragile) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if f.left == 0 {
		return driver.LoadResult{}, errLost
	}
	f.left--
	return f.Engine.Load(ctx, vs)
}

// An import that is interrupted any number of times ends where one that is not
// interrupted does.
func TestImportResumes(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 11))
		history := randomHistory(r, 300)
		whole := newStore(t)
		if _, err := transfer.Import(t.Context(), whole, strings.NewReader(history), transfer.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		broken := newStore(t)
		engine := &fragile{Engine: broken.Engine()}
		var added int64
		for runs := 0; ; runs++ {
			if runs > 1000 {
				t.Fatalf("seed %d: no end", seed)
			}
			engine.left = runs + r.IntN(3)
			report, err := transfer.Import(t.Context(), storeOf(t, engine), strings.NewReader(history), transfer.ImportOptions{BatchVersions: 1 + r.IntN(20)})
			added += report.Added
			if n := versions(t, broken); n != added {
				t.Fatalf("seed %d: %d versions are there, %d were reported", seed, n, added)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, errLost) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if diff := cmp.Diff(unsealed(export(t, whole)), unsealed(export(t, broken))); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// endless never ends, and tells when it is read the second time.
type endless struct {
	line   []byte
	reads  int
	second context.CancelFunc
}

func (e *endless) Read(p []byte) (int, error) {
	if e.reads++; e.reads == 2 {
		e.second()
	}
	return copy(p, e.line), nil
}

func TestImportStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := transfer.Import(ctx, newStore(t), &endless{line: []byte(put("a", first, `{}`)), second: cancel}, transfer.ImportOptions{})
	if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("got %v", err)
	}
}

// What was pruned once is exported so that it can be imported, also where all is kept by now.
func TestRoundTripOfThePruned(t *testing.T) {
	one, pruned := newStore(t), types()
	two := storeOf(t, drivertest.NewModel(func() time.Time { return now.Add(time.Second) }, storage.CollectionsOf(pruned)))
	history := put("a", "2020-01-01T00:00:00Z", `{"name":"1","n":1}`) + put("a", "2020-01-02T00:00:00Z", `{"name":"2","n":1}`) + put("a", "2020-01-03T00:00:00Z", `{"name":"3","n":1}`)
	if _, err := transfer.Import(t.Context(), one, strings.NewReader(history), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range pruned {
		kind.Keep = &record.Keep{Versions: 1}
	}
	pruning, err := storage.New(one.Engine(), pruned)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range pruned {
		if _, err := pruning.NewPruner(kind, false).Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	exported := export(t, storeOf(t, one.Engine()))
	if strings.Count(exported, `"op":"prune"`) != 2 {
		t.Fatalf("the export has %s", exported)
	}
	if _, err := transfer.Import(t.Context(), two, strings.NewReader(exported), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exported, export(t, two)); diff != "" {
		t.Errorf("the second export differs: %s", diff)
	}
	for _, kind := range pruned {
		want, err := pruning.HorizonOf(t.Context(), kind)
		got, err2 := two.HorizonOf(t.Context(), kind)
		if got != want || err != nil || err2 != nil {
			t.Errorf("lists of %s are exact from %s on, in the first store from %s on (%v, %v)", kind.Name, got, want, err, err2)
		}
	}
}

// A copy that has some versions as they were before they were erased in the original, and the others as they
// are since, is exported so that it can be imported.
func TestRoundTripOfTheErased(t *testing.T) {
	original, behind, copied := newStore(t), newStore(t), newStore(t)
	history := put("a", first, `{"name":"secret","size":1}`) + put("a", second, `{"name":"secret","size":2}`) + put("a", third, `{"name":"b","size":2}`)
	if _, err := transfer.Import(t.Context(), original, strings.NewReader(history), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(export(t, original), "\n")
	var erased []driver.Version
	for v, err := range original.Engine().Log(t.Context(), &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if v := *v; v.Number < 3 {
			v.Data = fmt.Appendf(nil, `{"name":{"asof:erased":[1,4]},"size":%d}`, v.Number)
			erased = append(erased, v)
		}
	}
	if err := original.Engine().Rewrite(t.Context(), "things", "a", erased); err != nil {
		t.Fatal(err)
	}
	for _, lines := range []string{before + "\n", export(t, original)} {
		if _, err := transfer.Import(t.Context(), behind, strings.NewReader(lines), transfer.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	exported := export(t, behind)
	if !strings.Contains(exported, "secret") || !strings.Contains(exported, "erased") {
		t.Fatalf("the copy that is behind has %s", exported)
	}
	if _, err := transfer.Import(t.Context(), copied, strings.NewReader(exported), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exported, export(t, copied)); diff != "" {
		t.Errorf("the second export differs: %s", diff)
	}
}
