package app

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// A document that does not fit the schema is refused, unless it is wanted; then
// a check says so.
func TestCheckListsWhatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	store := func(name string) string { return "--store=sqlite:" + filepath.Join(dir, name) }
	const odd = `{"collection":"tags","id":"b","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"B","descriptions":""}}` + "\n"
	if status, _, errs := run(t, odd, "import", "-", store("odd.db")); status != 1 || !strings.Contains(errs, `line 1: tags "b": description: expected String!, found nothing`) {
		t.Errorf("import of a line without a required field: status %d: %s", status, errs)
	}
	if status, out, errs := run(t, odd, "import", "-", "--lenient", store("odd.db")); status != 0 || !strings.Contains(out+errs, "tags.descriptions is not declared") {
		t.Errorf("lenient import: status %d: %s%s", status, out, errs)
	}
	// Versions of the past are read, too: each field is reported once.
	var past strings.Builder
	for day := range 9 {
		fmt.Fprintf(&past, `{"collection":"tags","id":"c","at":"2025-02-0%dT00:00:00Z","by":"ada","op":"put","data":{"name":%d,"description":"","related_tags":[1,2,%d]}}`+"\n", day+1, day, day)
	}
	past.WriteString(`{"collection":"tags","id":"c","at":"2025-03-01T00:00:00Z","by":"ada","op":"put","data":{"name":"C","description":""}}` + "\n")
	if status, out, errs := run(t, past.String(), "import", "-", "--lenient", store("odd.db")); status != 0 {
		t.Errorf("lenient import: status %d: %s%s", status, out, errs)
	}
	const want = `1 version of 1 document lack the required field Tag.description, 1 of them current; first "b" version 1 has nothing
Tag.name does not fit the schema, which expects String, in 9 versions of 1 document, 0 of them current; first "c" version 1 has the number 0, "c" version 2 has the number 1, "c" version 3 has the number 2
Tag.related_tags[] does not fit the schema, which expects a string (the key of a Tag), in 9 versions of 1 document, 0 of them current; first "c" version 1 has the number 1, "c" version 2 has the number 1, "c" version 3 has the number 1
`
	if status, out, errs := run(t, "", "check", store("odd.db")); status != 0 || !strings.Contains(out, want) || !strings.Contains(out, "is undamaged, but does not fit the schema in 3 fields: 2 documents now") {
		t.Errorf("check: status %d: %s%s", status, out, errs)
	}
}

// What is wrong with a file is counted as people count.
func TestCheckCountsProblems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	if status, _, errs := run(t, line, "import", "-", "--store=sqlite:"+path); status != 0 {
		t.Fatal(errs)
	}
	for _, c := range []struct{ spoil, want string }{
		{`UPDATE collections SET live = 7 WHERE name = 'tags'`, path + " has 1 problem\n"},
		{`UPDATE collections SET live = 3 WHERE name = 'licenses'`, path + " has 2 problems\n"},
	} {
		db, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlitex.ExecuteTransient(db, c.spoil, nil); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if status, out, errs := run(t, "", "check", "--store=sqlite:"+path); status != 1 || !strings.HasSuffix(errs, c.want) {
			t.Errorf("check: status %d: %s%s, want …%s", status, out, errs, c.want)
		}
	}
}

// What an export refuses, a check finds, and both name the document.
func TestCheckFindsWhatExportRefuses(t *testing.T) {
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","message":"m","op":"put","data":{"name":"A","description":""}}` + "\n"
	for _, spoil := range []string{
		`author = CAST(x'61ff' AS TEXT)`, `message = CAST(x'ff' AS TEXT)`, `grp = CAST(x'ff' AS TEXT)`, `changed = '["na'`,
		`data = CAST(replace(CAST(data AS TEXT), '"A"', '"\ud800"') AS BLOB)`, `data = CAST(replace(CAST(data AS TEXT), 'description', 'name') AS BLOB)`,
		`data = CAST(replace(CAST(data AS TEXT), '"A"', CAST(x'22ff22' AS TEXT)) AS BLOB)`,
	} {
		path := filepath.Join(t.TempDir(), "asof.db")
		if status, _, errs := run(t, line, "import", "-", "--store=sqlite:"+path); status != 0 {
			t.Fatal(errs)
		}
		db, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"versions", "documents"} {
			if err := sqlitex.ExecuteTransient(db, "UPDATE "+table+" SET "+spoil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"check", "export"} {
			status, out, errs := run(t, "", command, "--store=sqlite:"+path)
			if status != 1 || !strings.Contains(out+errs, `tags "a"`) || !strings.Contains(out+errs, "version 1") {
				t.Errorf("%s, %s: status %d: %s%s", spoil, command, status, out, errs)
			}
		}
	}
}

// A store whose clock says what no time can be is opened by nothing but its repair: what would be read
// at such an instant is nothing, and replaces no backup.
func TestAClockThatNoTimeCanBe(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "asof.db"), filepath.Join(dir, "backup.ndjson")
	store := "sqlite:" + path
	line := `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	for _, args := range [][]string{{"import", "-", "--store", store}, {"export", backup, "--store", store}} {
		if status, out, errs := run(t, line, args...); status != 0 {
			t.Fatal(out, errs)
		}
	}
	kept, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(db, "UPDATE clock SET last = 9223372036854775807", nil), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "--store", store},
		{"export", backup, "--store", store},
		{"checkpoint", "--store", store},
		{"archive", "--from", store, "--to", "sqlite:" + filepath.Join(dir, "to.db"), "--verify"},
	} {
		if status, out, errs := run(t, "", args...); status != 1 || !strings.Contains(errs, "which no time can be; asof check --repair") {
			t.Errorf("%q: status %d: %s%s", args, status, out, errs)
		}
	}
	if now, err := os.ReadFile(backup); err != nil || !bytes.Equal(now, kept) {
		t.Errorf("the backup was replaced by %q, %v", now, err)
	}
	if status, out, errs := run(t, "", "check", "--repair", "--store", store); status != 0 || !strings.Contains(out, "is sound: 1 document now") {
		t.Errorf("check --repair: status %d: %s%s", status, out, errs)
	}
}

// Versions that lie in the future are reported, and repaired when asked for.
func TestCheckReportsAndRepairsTheFuture(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")
	line := `{"collection":"tags","id":"a","at":"` + time.Now().AddDate(0, 6, 0).UTC().Format(time.RFC3339) + `","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	var out bytes.Buffer
	wrong := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(line), Stdout: &out, Stderr: &out, Now: func() time.Time { return time.Now().AddDate(1, 0, 0) }}
	if status := wrong.Run(t.Context(), []string{"import", "-", store}); status != 0 {
		t.Fatal(out.String())
	}
	if status, out, _ := run(t, "", "check", store); status != 1 || !strings.Contains(out, "tags: versions in the future: 1, from ") || !strings.Contains(out, "asof check --repair") {
		t.Errorf("check: status %d: %s", status, out)
	}
	if status, out, errs := run(t, "", "check", "--repair", store); status != 0 || !strings.Contains(out, "is sound: 1 document now") || !strings.Contains(errs, "gave versions that lay in the future other times") {
		t.Errorf("check --repair: status %d: %s%s", status, out, errs)
	}
	if status, out, errs := run(t, "", "check", store); status != 0 {
		t.Errorf("check: status %d: %s%s", status, out, errs)
	}
	if status, _, errs := run(t, "", "check", "--repair", "--store=mongodb://127.0.0.1:1/asof"); status != 2 || !strings.Contains(errs, "only a store in a file can be repaired") {
		t.Errorf("check --repair of MongoDB: status %d: %s", status, errs)
	}
}
