package transfer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/transfer"
)

// now is what the clock of the stores says.
var now = time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)

// types are those of the stores: each has metadata of its own.
func types() []*record.Type {
	maker := &record.ObjectType{Name: "Maker", Fields: []record.Field{{Name: "name", Kind: record.KindString}}}
	lid := &record.ObjectType{Name: "Lid", Fields: []record.Field{{Name: "color", Kind: record.KindString, NonNull: true}}}
	return []*record.Type{
		{
			Name: "Thing", Singular: "thing", Plural: "things", Collection: "things",
			Fields: []record.Field{
				{Name: "name", Kind: record.KindString},
				{Name: "size", Kind: record.KindInt},
				{Name: "labels", Kind: record.KindString, List: true},
				{Name: "maker", Kind: record.KindObject, Object: maker},
				{Name: "extra", Kind: record.KindJSON},
				{Name: "made", Kind: record.KindDateTime},
			},
		},
		{
			Name: "Box", Singular: "box", Plural: "boxes", Collection: "boxes",
			Fields: []record.Field{{Name: "name", Kind: record.KindString}, {Name: "lid", Kind: record.KindObject, Object: lid}},
		},
	}
}

func newStore(t *testing.T) *storage.Store {
	t.Helper()
	ts := types()
	engine := drivertest.NewModel(func() time.Time { return now }, storage.CollectionsOf(ts))
	t.Cleanup(func() {
		if err := engine.Check(context.Background(), func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
	})
	return storeOf(t, engine)
}

func storeOf(t *testing.T, engine driver.Engine) *storage.Store {
	t.Helper()
	store, err := storage.New(engine, types())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// put is a line of things; what begins with a brace replaces the document.
func put(id, at, data string) string {
	return fmt.Sprintf(`{"collection":"things","id":%q,"at":%q,"by":"ann","op":"put","data":%s}`+"\n", id, at, data)
}

func versions(t *testing.T, store *storage.Store) int64 {
	t.Helper()
	stats, err := store.Engine().Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Versions
}

func export(t *testing.T, store *storage.Store) string {
	t.Helper()
	var out bytes.Buffer
	n, err := transfer.Export(t.Context(), store, &out, transfer.ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(out.Bytes(), []byte{'\n'}); int64(lines) != n {
		t.Errorf("%d lines, %d reported", lines, n)
	}
	return out.String()
}

// unsealed leaves seals out of lines, as they differ from store to store where a file has none.
func unsealed(lines string) string {
	return regexp.MustCompile(`,"seal":"[^"]*"`).ReplaceAllString(lines, "")
}

const (
	first  = "2024-01-01T00:00:00Z"
	second = "2024-01-02T00:00:00Z"
	third  = "2024-01-03T00:00:00Z"
)

// What is imported is checked as it will be read, by the type's migration, too, and kept as it is.
func TestImportMigrates(t *testing.T) {
	migrated := func(old json.RawMessage, from uint32) (json.RawMessage, error) {
		var doc struct{ Name, Weight string }
		if err := json.Unmarshal(old, &doc); err != nil || from != 0 {
			return nil, fmt.Errorf("is told the schema %d: %w", from, err)
		}
		size, err := strconv.Atoi(strings.TrimSuffix(doc.Weight, " kg"))
		return json.RawMessage(fmt.Sprintf(`{"name":%q,"size":%d}`, doc.Name, size)), err
	}
	ts := types()
	ts[0].Fields[1].NonNull = true
	open := func() *storage.Store {
		store, err := storage.New(drivertest.NewModel(func() time.Time { return now }, storage.CollectionsOf(ts)), ts, storage.WithMigrations(map[string]storage.Migration{"Thing": migrated}))
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	good, bad := put("a", first, `{"name":"a","weight":"3 kg"}`), put("b", first, `{"name":"b","weight":"heavy"}`)
	store := open()
	_, err := transfer.Import(t.Context(), store, strings.NewReader(good+bad), transfer.ImportOptions{})
	if err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "its migration failed") || !strings.Contains(err.Error(), "--lenient") {
		t.Errorf("a migration that fails: %v", err)
	}
	report, err := transfer.Import(t.Context(), store, strings.NewReader(good+bad), transfer.ImportOptions{Lenient: true})
	if err != nil || report.Added != 1 || report.Skipped != 1 {
		t.Errorf("as it is: %+v, %v", report, err)
	}
	if got := unsealed(export(t, store)); got != good+bad {
		t.Errorf("it holds\n%s", got)
	}
}

// Every reason to stop, behind two good lines: these are kept, the line is
// named, and running again without it skips them.
func TestImportErrors(t *testing.T) {
	good := put("a", first, `{"name":"one"}`) + put("a", second, `{"name":"two"}`)
	tests := []struct{ name, bad, want string }{
		{"not JSON", "oops\n", "line 3: is not one JSON object, at byte 1"},
		{"blank lines count", "\n\r\n \t\n[]\n", "line 6: is not one JSON object"},
		{"a name twice", `{"collection":"things","id":"a","at":"2024-01-03T00:00:00Z","by":"ann","op":"put","data":{},"changed":["name","name"]}` + "\n", `line 3: "changed" must be a sorted list of names, each once`},
		{"unknown collection", `{"collection":"thing","id":"a","at":"2024-01-03T00:00:00Z","by":"ann","op":"delete"}` + "\n", `line 3: unknown collection "thing"; the schema has boxes, boxes.drafts, boxes.tags, things, things.drafts, things.tags; declare it there, or import with --skip-unknown`},
		{"not later", put("a", second, `{"name":"other"}`), `line 3: `},
		{"earlier", put("a", "2024-01-01T12:00:00Z", `{"name":"other"}`), `line 3: `},
		{"in the future", put("a", "2025-06-01T00:00:00.000001Z", `{"name":"other"}`), "future"},
		{"before 1970", put("b", "1969-12-31T23:59:59Z", `{}`), "line 3: "},
		{"wrong type", put("a", third, `{"size":"big"}`), `line 3: things "a": size: expected Int, found the string "big"; declare it so in the schema, or use --lenient`},
		{"wrong type in a list", put("a", third, `{"labels":["x",{}]}`), `line 3: things "a": labels[1]: expected`},
		{"wrong type in an object", put("a", third, `{"maker":{"name":1}}`), `line 3: things "a": maker.name: expected`},
		{"not a whole number", put("a", third, `{"size":1.5}`), `line 3: things "a": size: expected Int`},
		{"over 32 bits", put("a", third, `{"size":2147483648}`), `line 3: things "a": size: expected Int`},
		{"required but missing", `{"collection":"boxes","id":"b","at":"2024-01-03T00:00:00Z","by":"ann","op":"put","data":{"lid":{}}}` + "\n", `line 3: boxes "b": lid.color: expected String!, found nothing; the schema requires it: declare it nullable or give it a @default, or use --lenient`},
		{"required but null", `{"collection":"boxes","id":"b","at":"2024-01-03T00:00:00Z","by":"ann","op":"put","data":{"lid":{"color":null}}}` + "\n", `line 3: boxes "b": lid.color: expected String!, found null; the schema requires it`},
		{"deletes what never was", `{"collection":"things","id":"nobody","at":"2024-01-03T00:00:00Z","by":"ann","op":"delete"}` + "\n", `line 3: things "nobody" cannot be deleted: it has no version before 2024-01-03T00:00:00Z`},
		{"deletes what is not yet", `{"collection":"things","id":"a","at":"2023-12-31T00:00:00Z","by":"ann","op":"delete"}` + "\n", `line 3: `},
		{"erased by nobody", put("a", third, `{"name":{"asof:erased":[1,2]}}`), `line 3: things "a": it has a member "asof:erased"`},
		{"too long", put("a", third, `{"name":"`+strings.Repeat("x", 2000)+`"}`), "line 3: is longer than the 1000 bytes"},
		{"a brace less", strings.TrimSuffix(put("a", third, `{}`), "}\n"), "line 3: the file is cut off"},
		{"half a line", put("a", third, `{}`)[:20], "line 3: the file is cut off"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store := newStore(t)
			options := transfer.ImportOptions{MaxLine: 1000}
			after := ""
			if strings.HasSuffix(test.bad, "\n") {
				after = put("z", third, `{}`)
			}
			report, err := transfer.Import(t.Context(), store, strings.NewReader(good+test.bad+after), options)
			var line *transfer.LineError
			if !errors.As(err, &line) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got  %v\nwant %s", err, test.want)
			}
			if report.Added != 2 || report.Skipped != 0 || versions(t, store) != 2 {
				t.Errorf("%d added, %d skipped, %d there; want the two before the line", report.Added, report.Skipped, versions(t, store))
			}
			report, err = transfer.Import(t.Context(), store, strings.NewReader(good+put("z", third, `{}`)), options)
			if err != nil || report.Added != 1 || report.Skipped != 2 {
				t.Errorf("again: %d added, %d skipped, %v", report.Added, report.Skipped, err)
			}
		})
	}
}

// The first bad line of a file is the one that is named, in whatever order the
// store looks at them; what precedes it is kept, and nothing else.
func TestImportNamesTheFirstBadLine(t *testing.T) {
	const future = "2025-06-01T00:00:01Z"
	lines := []string{
		put("c", second, `{}`), put("z", first, `{}`),
		put("y", future, `{}`), // line 3
		put("b", first, `{}`),
		put("a", future, `{}`), put("c", first, `{}`), put("x", first, `{}`),
	}
	store := newStore(t)
	report, err := transfer.Import(t.Context(), store, strings.NewReader(strings.Join(lines, "")), transfer.ImportOptions{})
	var line *transfer.LineError
	if !errors.As(err, &line) || line.Line != 3 || !strings.Contains(err.Error(), "future") {
		t.Errorf("got %v, want line 3", err)
	}
	if diff := cmp.Diff(lines[1]+lines[0], unsealed(export(t, store))); diff != "" {
		t.Error(diff)
	}
	if report.Added != 2 || !report.Stopped {
		t.Errorf("%+v", report)
	}
}

func TestImportRemarks(t *testing.T) {
	store := newStore(t)
	text := put("a", first, `{"name":"one","colour":"red","maker":{"name":"m","town":"x"}}`) +
		put("a", second, `{"name":"two","colour":"red"}`) +
		`{"collection":"cupboards","id":"c","at":"2024-01-01T00:00:00Z","by":"ann","op":"put","data":{}}` + "\n" +
		put("a", third, `{"size":"big","colour":"red","labels":["x",1,{}],"maker":{"name":2,"town":"x"}}`) +
		put("a", "2024-01-04T00:00:00Z", `{"size":"big","colour":"red","\u001b":1,"made":"2024-01-01T1:00:00Z"}`)
	if _, err := transfer.Import(t.Context(), newStore(t), strings.NewReader(text), transfer.ImportOptions{Lenient: true}); err == nil {
		t.Error("an unknown collection is imported")
	}
	report, err := transfer.Import(t.Context(), store, strings.NewReader(text), transfer.ImportOptions{Lenient: true, SkipUnknown: true})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := report.Print(&said); err != nil {
		t.Fatal(err)
	}
	want := `4 versions added, 0 already there
1 version of collections that the schema does not declare left out
things."\x1b" is not declared in the schema: kept in 1 version, not visible to GraphQL
things.colour is not declared in the schema: kept in 4 versions, not visible to GraphQL
things.maker.town is not declared in the schema: kept in 2 versions, not visible to GraphQL
things labels[1]: expected String, found the number 1: kept in 1 version, reading it is an error
things labels[2]: expected String, found an object: kept in 1 version, reading it is an error
things made: expected DateTime (like "2006-01-02T15:04:05Z"), found the string "2024-01-01T1:00:00Z": kept in 1 version, can be read, not written
things maker.name: expected String, found the number 2: kept in 1 version, reading it is an error
things size: expected Int, found the string "big": kept in 2 versions, reading it is an error
`
	if diff := cmp.Diff(want, said.String()); diff != "" {
		t.Error(diff)
	}
	if got := export(t, store); !strings.Contains(got, `"size":"big"`) || !strings.Contains(got, `"town":"x"`) {
		t.Errorf("not kept: %s", got)
	}
}

// An import that adds to what a store holds says from when on the past is
// another.
func TestImportSaysThatThePastHasChanged(t *testing.T) {
	store := newStore(t)
	for _, test := range []struct{ text, past string }{
		{put("a", second, `{}`), ""}, // nobody can have read anything
		{put("a", second, `{}`), ""}, // nothing is added
		{put("b", first, `{}`) + put("c", third, `{}`), first},
		{put("d", third, `{}`), third},
	} {
		report, err := transfer.Import(t.Context(), store, strings.NewReader(test.text), transfer.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		past := ""
		if report.Past != 0 {
			past = report.Past.String()
		}
		var said strings.Builder
		if err := report.Print(&said); err != nil {
			t.Fatal(err)
		}
		told := strings.Contains(said.String(), "what was read as of "+test.past+" or later may read differently now")
		if past != test.past || told != (test.past != "") {
			t.Errorf("%s: %q, %s", test.text, past, said.String())
		}
	}
}

// pack compresses.
func pack(t *testing.T, format, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch format {
	case "gz":
		w = gzip.NewWriter(&out)
	case "zst":
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	default:
		return []byte(text)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A file that is cut anywhere is noticed, whatever its compression.
func TestImportCutAnywhere(t *testing.T) {
	var text strings.Builder
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 40 {
		text.WriteString(put("a", start.Add(time.Duration(i)*time.Hour).Format(time.RFC3339), fmt.Sprintf(`{"size":%d}`, i*i*7919%1000)))
	}
	for _, format := range []string{"gz", "zst", "plain"} {
		t.Run(format, func(t *testing.T) {
			whole := pack(t, format, text.String())
			store := newStore(t)
			for cut := 1; cut < len(whole); cut++ {
				if format == "plain" && (whole[cut-1] == '\n' || whole[cut] == '\n') {
					continue // indeed a complete file
				}
				name := "x." + format
				if cut%2 == 0 {
					name = ""
				}
				_, err := transfer.Import(t.Context(), store, bytes.NewReader(whole[:cut]), transfer.ImportOptions{Name: name})
				if cut < 4 && name == "" && format != "plain" {
					if err == nil {
						t.Fatalf("cut at byte %d of %d: no error", cut, len(whole))
					}
					continue // nothing tells what it was
				}
				if !errors.Is(err, transfer.ErrTruncated) {
					t.Fatalf("cut at byte %d of %d: %v", cut, len(whole), err)
				}
			}
			if _, err := transfer.Import(t.Context(), store, bytes.NewReader(whole), transfer.ImportOptions{Name: "x." + format}); err != nil {
				t.Error(err)
			}
			if n := versions(t, store); n != 40 {
				t.Errorf("%d versions in the end, want 40", n)
			}
		})
	}
}

func TestImportDamaged(t *testing.T) {
	line := put("a", first, `{"name":"one"}`)
	gz, zst := pack(t, "gz", line), pack(t, "zst", line)
	wrong := pack(t, "gz", line+"{\n")
	flip := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)-2] ^= 0x40 // in the checksum
		return b
	}
	tests := []struct {
		name, file string
		data       []byte
		want       error
		suspect    bool // what was added
	}{
		{"gzip checksum", "x.gz", flip(gz), transfer.ErrCorrupt, true},
		{"zstd checksum", "x.zst", flip(zst), transfer.ErrCorrupt, false},
		{"something behind gzip", "x.gz", append(bytes.Clone(gz), "garbage......"...), transfer.ErrCorrupt, false},
		{"something behind zstd", "x.zst", append(bytes.Clone(zst), "garbage......"...), transfer.ErrCorrupt, false},
		{"a line before the checksum", "x.gz", wrong, nil, false},
		{"empty gzip", "x.gz", nil, transfer.ErrTruncated, false},
		{"not gzip", "x.gz", []byte(line), nil, false},
		{"not zstd", "x.zst", gz, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			report, err := transfer.Import(t.Context(), newStore(t), bytes.NewReader(test.data), transfer.ImportOptions{Name: test.file})
			if err == nil || test.want != nil && !errors.Is(err, test.want) || test.want == nil && errors.Is(err, transfer.ErrCorrupt) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			var summary strings.Builder
			if err := report.Print(&summary); err != nil {
				t.Error(err)
			}
			if suspect := strings.Contains(summary.String(), "may be wrong"); suspect != test.suspect {
				t.Errorf("%d added, %v, and the summary is %q", report.Added, err, &summary)
			}
			if unchecked := strings.Contains(summary.String(), "before the checksum"); unchecked != (report.Added > 0 && !test.suspect) {
				t.Errorf("%d added, %v, and the summary is %q", report.Added, err, &summary)
			}
		})
	}
	// One compressed file behind another is one file, as for gzip and zstd.
	for _, data := range [][]byte{append(bytes.Clone(gz), pack(t, "gz", put("b", first, `{}`))...), append(bytes.Clone(zst), pack(t, "zst", put("b", first, `{}`))...)} {
		report, err := transfer.Import(t.Context(), newStore(t), bytes.NewReader(data), transfer.ImportOptions{})
		if err != nil || report.Added != 2 {
			t.Errorf("two in one: %d added, %v", report.Added, err)
		}
	}
}

// What is larger than the API writes is refused with its line, or kept if that is asked for.
func TestImportHasTheLimitsOfTheAPI(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	line := func(by, message, source, data string) string {
		return fmt.Sprintf(`{"collection":"things","id":"a","at":"2024-01-02T00:00:00Z","by":%q,"message":%q,"source":%q,"op":"put","data":%s}`+"\n", by, message, source, data)
	}
	digits := func(n int) []string { // in order
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%05d", i)
		}
		return names
	}
	members := func(n int) string { return `{"` + strings.Join(digits(n), `":{},"`) + `":{}}` }
	for name, c := range map[string]struct{ line, want string }{
		"a list":             {line("ann", "", "", `{"labels":["a"`+strings.Repeat(`,"a"`, 30_000)+`]}`), "the lists would have 30001 elements together; at most 30000"},
		"JSON":               {line("ann", "", "", `{"extra":{"a":[0`+strings.Repeat(`,0`, 30_000)+`]}}`), "the lists would have 30001 elements together; at most 30000"},
		"a document":         {line("ann", "", "", `{"name":"`+long(8<<20)+`"}`), "the document would have 8388619 bytes; at most 8388608"},
		"an author":          {line(long(201), "", "", `{}`), "the author has 201 bytes; at most 200"},
		"a message":          {line("ann", long(16<<10+1), "", `{}`), "the message has 16385 bytes; at most 16384"},
		"a group":            {line("ann", "", long(1025), `{}`), "the change group has 1025 bytes; at most 1024"},
		"a name":             {line("ann", "", "", `{"`+long(201)+`":1}`), "the name of a member that is not declared has 201 bytes as JSON; at most 200"},
		"members":            {line("ann", "", "", members(1_001)), "there are 1001 members that are not declared; at most 1000"},
		"changed":            {strings.Replace(line("ann", "", "", `{}`), `"data"`, `"changed":["`+long(201)+`"],"data"`, 1), "the name of a member that is not declared has 201 bytes as JSON; at most 200"},
		"control characters": {strings.Replace(line("ann", "", "", `{}`), `"data"`, `"changed":["`+strings.Repeat(`\u0001`, 34)+`"],"data"`, 1), "the name of a member that is not declared has 204 bytes as JSON; at most 200"},
		"many changed":       {strings.Replace(line("ann", "", "", `{}`), `"data"`, `"changed":["`+strings.Join(digits(2_001), `","`)+`"],"data"`, 1), "there are 2001 members that are not declared; at most 1000"},
		"no more":            {line("ann", "", "", members(1_000)), ""},
		"nothing":            {line(long(200), long(16<<10), long(1024), `{"labels":["a"`+strings.Repeat(`,"a"`, 29_999)+`]}`), ""},
	} {
		store := newStore(t)
		in := put("a", "2024-01-01T00:00:00Z", `{}`) + c.line
		report, err := transfer.Import(t.Context(), store, strings.NewReader(in), transfer.ImportOptions{})
		if wrong, ok := errors.AsType[*transfer.LineError](err); c.want == "" && err != nil || c.want != "" && (!ok || wrong.Line != 2 || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--lenient")) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && report.Added != 1 {
			t.Errorf("%s: %d versions were added", name, report.Added)
		}
		if _, err := transfer.Import(t.Context(), store, strings.NewReader(in), transfer.ImportOptions{Lenient: true}); err != nil || versions(t, store) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A tag whose id is not made of its name and document would be listed, and not be found.
func TestImportOfTags(t *testing.T) {
	for name, c := range map[string]struct{ id, data, want string }{
		"right":            {"", `{"documentKey":"a","name":"v1","number":1}`, ""},
		"another id":       {"x", `{"documentKey":"a","name":"v1","number":1}`, `"id" of a tag must be the SHA-256`},
		"without a number": {"x", `{"documentKey":"a","name":"v1"}`, `"data" of a tag must have`},
		"an odd name":      {"x", `{"documentKey":"a","name":"v 1","number":1}`, `"data" of a tag must have`},
		"nothing":          {"x", `{}`, `"data" of a tag must have`},
	} {
		if c.want == "" {
			c.id = fmt.Sprintf("%x", sha256.Sum256([]byte("v1\x00a")))
		}
		in := put("a", "2024-01-01T00:00:00Z", `{}`) +
			fmt.Sprintf(`{"collection":"things.tags","id":%q,"at":"2024-01-02T00:00:00Z","by":"ann","op":"put","data":%s}`+"\n", c.id, c.data)
		for _, lenient := range []bool{false, true} {
			_, err := transfer.Import(t.Context(), newStore(t), strings.NewReader(in), transfer.ImportOptions{Lenient: lenient})
			if kept := c.want == "" || lenient; kept != (err == nil) || !kept && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Numbers in JSON that are larger than readers of JSON can hold are refused, as in the API.
func TestImportOfLargeNumbers(t *testing.T) {
	in := put("a", "2024-01-01T00:00:00Z", `{"extra":{"a":["1e400",1e308,-1e-400,12345678901234567890]}}`) + put("a", "2024-01-02T00:00:00Z", `{"extra":[{"a":-1e400}]}`)
	store := newStore(t)
	_, err := transfer.Import(t.Context(), store, strings.NewReader(in), transfer.ImportOptions{})
	if wrong, ok := errors.AsType[*transfer.LineError](err); !ok || wrong.Line != 2 || !strings.Contains(err.Error(), "extra: expected JSON (with numbers up to 1.8e308)") {
		t.Error(err)
	}
	if _, err := transfer.Import(t.Context(), store, strings.NewReader(in), transfer.ImportOptions{Lenient: true}); err != nil || versions(t, store) != 2 {
		t.Error(err)
	}
}
