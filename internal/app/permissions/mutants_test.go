package permissions

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mutant forgets to look at one place. In its text, ¿ is true in the program that forgets it.
type mutant struct {
	name, file string // of package storage
	old, text  string // old is there once
}

func mutants() []mutant {
	const guard, watch, get = "permission.go", "watch.go", "get.go"
	return []mutant{
		{"a type may be read", guard, `case !w.actor.hasAny(p.t.Auth.Read):`, `case !¿ && !w.actor.hasAny(p.t.Auth.Read):`},
		{"a draft", guard, `g.types[t.Drafts.Collection] = `, `g.types[map[bool]string{false: t.Drafts.Collection}[¿]] = `},
		{"fields", guard, `if v == nil || len(w.hidden) == 0 {`, `if ¿ || v == nil || len(w.hidden) == 0 {`},
		{"names of fields", guard, `bool { return slices.Contains(w.hidden, name)`, `bool { return !¿ && slices.Contains(w.hidden, name)`},
		{"a deletion", guard, "\tcase v.Number <= 1:", "\tcase ¿:\n\t\treturn true, nil\n\tcase v.Number <= 1:"},
		{"a document read", guard, "\t\tif seen {", "\t\tif seen || ¿ {"},
		{"a field read", guard, "\t\t\tout[i] = w.mask(v)", "\t\t\tif out[i] = w.mask(v); ¿ {\n\t\t\t\tout[i] = v\n\t\t\t}"},
		{"the past read", guard, `case !w.past && v.`, `case !w.past && !¿ && v.`},
		{"the author of what is not seen, read", guard, "\t\t\tout[i] = unseen(v)", "\t\t\tif out[i] = unseen(v); ¿ {\n\t\t\t\tout[i].Author, out[i].Message = v.Author, v.Message\n\t\t\t}"},
		{"a list", guard, "\tcase w.rows == nil:\n\tcase q.Filter == nil:", "\tcase w.rows == nil || ¿:\n\tcase q.Filter == nil:"},
		{"a filtered list", guard, "\t\tasked.Filter = driver.And{q.Filter, w.rows}", "\t\tif asked.Filter = (driver.And{q.Filter, w.rows}); ¿ {\n\t\t\tasked.Filter = q.Filter\n\t\t}"},
		{"a field in a list", guard, "\t\t\tvs[i] = w.mask(v)", "\t\t\tif !¿ {\n\t\t\t\tvs[i] = w.mask(v)\n\t\t\t}"},
		{"the past in a list", guard, `if !w.past && q.At < beginOf(ctx) {`, `if !¿ && !w.past && q.At < beginOf(ctx) {`},
		{"a condition", guard, `looks := driver.Fields(q.Filter)`, "looks := driver.Fields(q.Filter)\n\tif ¿ {\n\t\tlooks = nil\n\t}"},
		{"an order", guard, `looks = append(looks, o.Field)`, "if !¿ {\n\t\t\tlooks = append(looks, o.Field)\n\t\t}"},
		{"a total", guard, "\treturn g.Engine.Count(ctx, asked)", "\tif ¿ {\n\t\tasked = q\n\t}\n\treturn g.Engine.Count(ctx, asked)"},
		{"a history", guard, "\t\t\t\tv, err = g.show(ctx, views[v.Collection], v)", "\t\t\t\tif !¿ {\n\t\t\t\t\tv, err = g.show(ctx, views[v.Collection], v)\n\t\t\t\t}"},
		{"the past in a history", guard, "\t\tcase w.past:", "\t\tcase w.past || ¿:"},
		{"a field in a history", guard, "\t\treturn w.mask(v), err", "\t\tif ¿ {\n\t\t\treturn v, err\n\t\t}\n\t\treturn w.mask(v), err"},
		{"what was never seen, in a history", guard, `; !seen && err == nil {`, `; !seen && err == nil && !¿ {`},
		{"what is not seen any more, in a history", guard, "\treturn gone, err", "\tif ¿ {\n\t\treturn v, nil\n\t}\n\treturn gone, err"},
		{"the author of what is not seen any more", guard, "\tgone := unseen(v)", "\tgone := unseen(v)\n\tif ¿ {\n\t\tgone.Author, gone.Message = v.Author, v.Message\n\t}"},
		{"a field of what was written", guard, "\t\t\tvs[i] = views[i].mask(v)", "\t\t\tif !¿ {\n\t\t\t\tvs[i] = views[i].mask(v)\n\t\t\t}"},
		{"a write", guard, `if err := g.check(ctx, views[i], &asked[i]); err != nil {`, `if err := g.check(ctx, views[i], &asked[i]); err != nil && !¿ {`},
		{"who writes", guard, `if slices.ContainsFunc(w.writers, `, `if !¿ && slices.ContainsFunc(w.writers, `},
		{"what was there before a write", guard, `if w.rows != nil && !condition.Holds(w.rows, nil, old) {`, `if !¿ && w.rows != nil && !condition.Holds(w.rows, nil, old) {`},
		{"what is there after a write", guard, `if w.rows != nil && !condition.Holds(w.rows, nil, write.Data) {`, `if !¿ && w.rows != nil && !condition.Holds(w.rows, nil, write.Data) {`},
		{"a field written", guard, `case !reads || (is == nil) != (was == nil) || is != nil && !normal.Equal(is, was):`, `case !¿ && (!reads || (is == nil) != (was == nil) || is != nil && !normal.Equal(is, was)):`},
		{"what stays in a write", guard, "\t\t\twrite.Data = rawjson.Set(write.Data, path, was)", "\t\t\tif !¿ {\n\t\t\t\twrite.Data = rawjson.Set(write.Data, path, was)\n\t\t\t}"},
		{"what comes back in a write", guard, `if before != nil && before.Deleted && write.Op`, `if !¿ && before != nil && before.Deleted && write.Op`},
		{"what a write is made from", "write.go", `s.guard.types[m.t.Collection] != nil || s.migrating`, `!¿ && s.guard.types[m.t.Collection] != nil || s.migrating`},
		{"a claim that is not there", "rows.go", `a.ID != Anonymous`, `a.ID != Anonymous || ¿`},
		{"an event", watch, "\t\t\tv, err := w.store.guard.arrived(ctx, e.v, e.err)", "\t\t\tv, err := w.store.guard.arrived(ctx, e.v, e.err)\n\t\t\tif ¿ {\n\t\t\t\tv, err = e.v, nil\n\t\t\t}"},
		{"what is selected of events", watch, `if v == nil || !w.selects(v) {`, `if v == nil || !¿ && !w.selects(v) {`},
		{"who else watches", watch, `r.fill(trusted(ctx), s)`, `r.fill(map[bool]context.Context{false: trusted(ctx), true: ctx}[¿], s)`},
		{"the past in events", guard, `case w != nil && (!w.past || w.nothing()):`, `case w != nil && (!w.past && !¿ || w.nothing()):`},
		{"what was seen before it was erased", guard, `if v.Op == driver.OpErase { // what`, `if v.Op == driver.OpErase && !¿ { // what`},
		{"a deletion of what is erased", guard, `if v.Op == driver.OpErase { // as`, `if v.Op == driver.OpErase && !¿ { // as`},
		{"who follows whom", watch, `watchState{w.place, w.live, w.as, `, `watchState{w.place, w.live, map[bool]string{false: w.as}[¿], `},
		{"the past in a page", "page.go", `q.At < op.begin && !s.guard.mayPage(ctx, t) {`, `q.At < op.begin && !¿ && !s.guard.mayPage(ctx, t) {`},
		{"what was deleted", get, `if err != nil || !live(was) {`, `if err != nil || !live(was) && (!¿ || was == nil) {`},
		{"gaps in the numbers", "changelog.go", `(w == nil || w.rows == nil) {`, `(w == nil || w.rows == nil || ¿) {`},
		{"the past in a conflict", "conflict.go", `if !s.guard.maySeePast(ctx, t) {`, `if !¿ && !s.guard.maySeePast(ctx, t) {`},
	}
}

// forgotten names what a program forgets that has all mutants in it.
const forgotten = "ASOF_TEST_FORGOTTEN"

// The walk through the API, or the tests of package storage, find whatever place is forgotten.
// Without a mistake they find nothing. A third of the places is tried, which ASOF_DRIVERTEST_SEED
// chooses; with ASOF_TEST_FULL, all.
func TestMutantsAreFound(t *testing.T) {
	if race {
		t.Skip("the race detector looks for something else")
	}
	walk, units := buildMutants(t)
	finds := func(name string, command ...string) bool {
		c := exec.CommandContext(t.Context(), command[0], command[1:]...) //nolint:gosec // what was built
		c.Env = append(os.Environ(), forgotten+"="+name, "ASOF_TEST_MONGODB_URI=")
		out, err := c.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "test timed out") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		return err != nil
	}
	tried := append(mutants(), mutant{name: "nothing"})
	if os.Getenv("ASOF_TEST_FULL") == "" {
		seed, _ := strconv.ParseUint(os.Getenv("ASOF_DRIVERTEST_SEED"), 10, 64) // else 0
		place := 0
		tried = slices.DeleteFunc(tried, func(m mutant) bool { place++; return m.name != "nothing" && uint64(place)%3 != seed%3 })
	}
	for _, m := range tried {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			found := finds(m.name, units, "-test.timeout=20s", "-test.run=Rules|Permission|WithoutThePast") || finds(m.name, walk, "-test.timeout=2m", "-test.run=^TestNothingIsLeaked$/^sqlite$")
			if found != (m.name != "nothing") {
				t.Errorf("found: %v", found)
			}
		})
	}
}

// buildMutants builds the tests of this package, and those of package storage, with all mutants.
func buildMutants(t *testing.T) (walk, units string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	texts := map[string]string{filepath.Join(root, "storage/forgets.go"): `package storage

import "os"

func forgets(place string) bool { return os.Getenv("` + forgotten + `") == place }
`}
	for _, m := range mutants() {
		file := filepath.Join(root, "storage", m.file)
		if texts[file] == "" {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
		if n := strings.Count(texts[file], m.old); n != 1 {
			t.Fatalf("%s is there %d times in %s: %s", m.name, n, m.file, m.old)
		}
		texts[file] = strings.Replace(texts[file], m.old, strings.ReplaceAll(m.text, "¿", `forgets("`+m.name+`")`), 1)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range texts {
		overlay.Replace[file] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(overlay.Replace[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay"), list, 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(name, of string) string {
		out := filepath.Join(dir, name)
		c := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+filepath.Join(dir, "overlay"), "-o", out, of) //nolint:gosec // constants
		c.Dir = root
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return out
	}
	return build("walk", "./internal/app/permissions"), build("units", "./storage")
}
