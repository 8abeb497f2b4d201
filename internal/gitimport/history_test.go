package gitimport_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/gitimport"
)

// history writes a stream for git fast-import.
type history struct {
	strings.Builder
	marks int
}

func (h *history) printf(format string, args ...any) { _, _ = fmt.Fprintf(h, format, args...) }

// commit adds a commit of ada's to a branch, at so many seconds after the beginning of 2024.
// Changes are as git fast-import has them; "put PATH" is followed by its content.
func (h *history) commit(branch string, second int, from string, changes ...string) {
	h.marks++
	h.printf("commit refs/heads/%s\nmark :%d\nauthor Ada <ada@example.org> 1 +0000\ncommitter Git <git@example.org> %d +0200\n", branch, h.marks, 1704067200+second)
	message := fmt.Sprintf("Commit %d", h.marks)
	h.printf("data %d\n%s\n%s", len(message), message, from)
	for i := 0; i < len(changes); i++ {
		if path, ok := strings.CutPrefix(changes[i], "put "); ok {
			i++
			h.printf("M 100644 inline %s\ndata %d\n%s\n", path, len(changes[i]), changes[i])
			continue
		}
		h.WriteString(changes[i] + "\n")
	}
}

// main adds a commit to the main branch.
func (h *history) main(second int, changes ...string) { h.commit("main", second, "", changes...) }

// git runs git in a directory and returns what it prints.
func git(t *testing.T, dir, input string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: ", err)
	}
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository makes a bare repository.
func (h *history) repository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "", "init", "--quiet", "--bare", "--initial-branch=main")
	git(t, dir, h.String(), "fast-import", "--quiet")
	return dir
}

// short is what a line says, without the hash: "second key by operation data".
func short(t *testing.T, text string) string {
	t.Helper()
	var line struct {
		Collection, ID, At, By, Message, Source, Op string
		Data                                        json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		t.Fatal(err)
	}
	if len(line.Source) != 40 {
		t.Errorf("the source is %q", line.Source)
	}
	at := strings.TrimSuffix(strings.TrimPrefix(line.At, "2024-01-01T00:"), "Z")
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", at, line.ID, strings.TrimPrefix(line.Message, "Commit "), line.Data))
}

// read returns the lines of a repository's history, in short, and its reader, closed.
func read(t *testing.T, dir, rules string, lenient bool) (lines []string, reader *gitimport.Lines, err error) {
	t.Helper()
	m, err := gitimport.ReadMap("map.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	repository, err := gitimport.Open(t.Context(), dir, m)
	if err != nil {
		return nil, nil, err
	}
	reader = repository.Lines(t.Context(), lenient)
	in := bufio.NewScanner(reader)
	in.Buffer(nil, 32<<20)
	for in.Scan() {
		lines = append(lines, short(t, in.Text()))
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	return lines, reader, in.Err()
}

// want compares the lines of a history.
func (h *history) want(t *testing.T, rules string, want ...string) {
	t.Helper()
	got, _, err := read(t, h.repository(t), rules, false)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

const tags = "sources: [{collection: tags, path: 'tags/{key}.*'}]"

func TestHistory(t *testing.T) {
	var h history
	h.main(1, "put tags/a.yml", "name: A\nn: 1.0", "put README", "no document", "put tags/deep/x.yml", "n: 1")
	h.main(2, "put tags/a.yml", "# the same\nn: 1\nname: \"A\"")
	h.main(2, "put tags/b.json", `{"name": "B"}`, "put tags/a.yml", "name: AA") // at the same second
	h.main(1, "D tags/a.yml")                                                   // by a clock that was behind
	h.main(9, "put tags/a.toml", "name = \"TOML\"")
	h.want(t, tags,
		`00:01 a 1 {"n":1,"name":"A"}`,
		`00:02.000001 a 3 {"name":"AA"}`, `00:02.000001 b 3 {"name":"B"}`,
		`00:02.000002 a 4`,
		`00:09 a 5 {"name":"TOML"}`)
}

// What a branch did is one change, of the commit that merged it.
func TestMerges(t *testing.T) {
	var h history
	h.main(1, "put tags/a.yml", "n: 1")
	h.commit("side", 2, "from :1\n", "put tags/a.yml", "n: 2")
	h.commit("side", 3, "", "put tags/a.yml", "n: 3", "put tags/b.yml", "n: 1")
	h.main(4, "put tags/c.yml", "n: 1")
	h.commit("main", 5, "merge :3\n", "put tags/a.yml", "n: 3", "put tags/b.yml", "n: 1")
	h.main(6, "D tags/b.yml")
	h.want(t, tags, `00:01 a 1 {"n":1}`, `00:04 c 4 {"n":1}`, `00:05 a 5 {"n":3}`, `00:05 b 5 {"n":1}`, `00:06 b 6`)
}

func TestRenames(t *testing.T) {
	var h history
	const long = "name: Something long enough that git sees what it is\ndescription: more of it\nn: "
	h.main(1, "put tags/a.yml", long+"1")
	h.main(2, "R tags/a.yml tags/b.yml")
	h.main(3, "D tags/b.yml", "put tags/c.yml", long+"2")
	h.main(4, "R tags/c.yml elsewhere/c.yml")
	name := `"description":"more of it","n":%d,"name":"Something long enough that git sees what it is"}`
	one, two := "{"+fmt.Sprintf(name, 1), "{"+fmt.Sprintf(name, 2)
	h.want(t, tags, "00:01 a 1 "+one, "00:02 b 2 "+one, "00:02 a 2", "00:03 c 3 "+two, "00:03 b 3", "00:04 c 4")
	h.want(t, strings.Replace(tags, "}]", ", followRenames: true}]", 1), "00:01 a 1 "+one, "00:03 a 3 "+two, "00:04 a 4")
	// Where the key stays, nothing happens to the document.
	h.want(t, "sources: [{collection: tags, path: '**/{key}.yml'}]", "00:01 a 1 "+one, "00:02 b 2 "+one, "00:02 a 2", "00:03 c 3 "+two, "00:03 b 3")
	h.want(t, "sources: [{collection: tags, path: 'tags/*.yml', key: name}]",
		"00:01 Something long enough that git sees what it is 1 "+one, "00:03 Something long enough that git sees what it is 3 "+two, "00:04 Something long enough that git sees what it is 4")
}

// Documents move from one file to another in one commit, and files hold them in any way.
func TestManyInOneFile(t *testing.T) {
	var h history
	h.main(1, "put a.yml", "all: [{id: x, n: 1}, {id: 7, n: 1}]", "put b.yml", "all: [{id: y, n: 1}]")
	h.main(2, "put a.yml", "all: [{id: y, n: 1}, {id: 7, n: 2}]", "put b.yml", "all: [{id: x, n: 1}]")
	h.main(3, "put a.yml", "all: []", "put b.yml", "all: [{id: x, n: 1}, {id: y, n: 3}]")
	h.main(4, "D b.yml")
	h.want(t, "sources: [{collection: tags, path: '?.yml', root: /all, many: true, key: id, drop: [id], rename: {n: number}}]",
		`00:01 x 1 {"number":1}`, `00:01 7 1 {"number":1}`, `00:01 y 1 {"number":1}`,
		`00:02 7 2 {"number":2}`, `00:03 y 3 {"number":3}`, `00:03 7 3`, `00:04 x 4`, `00:04 y 4`)

	var object history
	object.main(1, "put a.json", `{"b": {"n": 1}, "a": {"n": 12345678901234567890.10}}`)
	object.main(2, "put a.json", `{"b": {"n": 2}}`)
	object.want(t, "sources: [{collection: tags, path: a.json, many: true}]",
		`00:01 a 1 {"n":12345678901234567890.10}`, `00:01 b 1 {"n":1}`, `00:02 b 2 {"n":2}`, `00:02 a 2`)
}

func TestNames(t *testing.T) {
	var h history
	h.main(1, `put "tags/a\nb \"c\" --x.yml"`, "n: 1", "put tags/--help.yml", "n: 2")
	h.want(t, tags, `00:01 --help 1 {"n":2}`, "00:01 a\nb \"c\" --x 1 {\"n\":1}")
}

func TestAuthorsAndMessages(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	stream := "commit refs/heads/main\nauthor Ada <ada@example.org> 1 +0000\ncommitter C <c@d> 1704067200 +0000\ndata 20001\n" + "x" + long + "\nM 100644 inline tags/a.yml\ndata 4\nn: 1\n" +
		"commit refs/heads/main\nauthor B\xff <> 1 +0000\ncommitter C <c@d> 1704067200 +0000\ndata 0\nM 100644 inline tags/a.yml\ndata 4\nn: 2\n"
	dir := t.TempDir()
	git(t, dir, "", "init", "--quiet", "--bare", "--initial-branch=main")
	git(t, dir, stream, "fast-import", "--quiet")
	for rules, want := range map[string][]string{
		tags:                     {"Ada", "B\uFFFD"},
		"author: email\n" + tags: {"ada@example.org", "B\uFFFD"},
		"authors: {ada@example.org: ada}\n" + tags:  {"ada", "B\uFFFD"},
		"authors: {Ada: ada, \"\": none}\n" + tags:  {"ada", "none"},
		"authors: {ada@example.org: ''}\n" + tags:   {"Ada", "B\uFFFD"},
		"author: email\nauthors: {Ada: a}\n" + tags: {"a", "B\uFFFD"},
	} {
		m, err := gitimport.ReadMap("map.yaml", []byte(rules))
		if err != nil {
			t.Fatal(err)
		}
		repository, err := gitimport.Open(t.Context(), dir, m)
		if err != nil {
			t.Fatal(err)
		}
		lines := repository.Lines(t.Context(), false)
		in := json.NewDecoder(lines)
		for i := range want {
			var line struct{ By, Message string }
			if err := in.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if line.By != want[i] {
				t.Errorf("%s: by %q, want %q", rules, line.By, want[i])
			}
			if i == 0 && line.Message != "x"+strings.Repeat("é", (16<<10-1)/2) {
				t.Errorf("the message has %d bytes", len(line.Message))
			}
		}
		if err := lines.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What is no document stops the import, which names it; a lenient one leaves it out.
func TestRefused(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 8), c-1)
	}
	put := func(name, content string) []string { return []string{"put tags/" + name, content} }
	for name, test := range map[string]struct {
		changes []string
		want    string
	}{
		"JSON":              {put("a.json", "{\n\n\"a\": 1,\n}"), `"tags/a.json": line 4: `},
		"name twice":        {put("a.json", `{"a": 1, "a": 2}`), `the member "a" is there twice`},
		"binary":            {put("a.json", "\x00\x01\xff"), "line 1: "},
		"invalid UTF-8":     {put("a.yml", "a: \xff"), "UTF-8"},
		"YAML":              {put("a.yml", "a: 1\nb: 'x"), "yaml: line 2"},
		"YAML, name twice":  {put("a.yml", "a: 1\nb: {}\na: 2"), `line 3: the member "a" is there twice`},
		"YAML, two":         {put("a.yml", "a: 1\n---\na: 2"), "more than one YAML document"},
		"YAML, then bad":    {put("a.yml", "a: 1\n---\n'"), "yaml: line"},
		"YAML, empty":       {put("a.yml", "# nothing\n"), "is empty"},
		"YAML, null":        {put("a.yml", "---\n"), "is null or absent; a document is an object"},
		"YAML, list":        {put("a.yml", "[]"), "is a list; a document is an object"},
		"YAML, infinite":    {put("a.yml", "a: 1\nb: .inf"), `line 2: ".inf" is no !!float that JSON can hold`},
		"YAML, tag":         {put("a.yml", "a: !run x"), "!run"},
		"YAML, name":        {put("a.yml", "? [a]\n: 1"), "a member's name is no plain text"},
		"YAML, cycle":       {put("a.yml", "a: &x\n  b: *x"), "line 1: nested more than 500 deep, or an anchor contains its own alias"},
		"YAML, wide cycle":  {put("a.yml", "a: &x [*x, *x, *x]"), "an anchor contains its own alias"},
		"YAML, bomb":        {put("a.yml", bomb), "its aliases repeat more than 8388608 bytes"},
		"YAML, merge":       {put("a.yml", "<<: [1]"), "<< names a number"},
		"YAML, alias":       {put("a.yml", "a: *none"), "unknown anchor"},
		"YAML, deep":        {put("a.yml", strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), "nested more than 500 deep"},
		"TOML":              {put("a.toml", "a = 1\nb = \n"), "line 2, column"},
		"TOML, name twice":  {put("a.toml", "a = 1\na = 2\n"), "line 2, column"},
		"TOML, infinite":    {put("a.toml", "a = inf\n"), "+Inf"},
		"extension":         {put("a.png", "x"), "does not end in .json"},
		"large":             {put("a.json", `{"a":"`+strings.Repeat("x", 8<<20)+`"}`), "is larger than 8388608 bytes"},
		"grows":             {put("a.yml", "a: &a '"+strings.Repeat("x", 5<<20)+"'\nb: *a"), "is larger than 8388608 bytes"},
		"symbolic link":     {[]string{"M 120000 inline tags/a.yml\ndata 6\nlinked"}, "is a symbolic link"},
		"submodule":         {[]string{"M 160000 0123456789012345678901234567890123456789 tags/a.yml"}, "is a submodule"},
		"name not in UTF-8": {put("a\xff.yml", "a: 1"), `"tags/a\xff.yml": the key "a\xff" is not valid UTF-8`},
		"long name":         {put(strings.Repeat("a", 600)+".yml", "a: 1"), "longer than 512 bytes"},
		"two files":         {append(put("x.json", "{}"), put("x.yml", "a: 1")...), `"tags/x.yml": tags "x" is in "tags/x.json", too`},
	} {
		t.Run(name, func(t *testing.T) {
			var h history
			h.main(1, "put tags/a.json", `{"before": 1}`)
			h.main(2, append(test.changes, "put tags/z.json", "{}")...)
			h.main(3, "D tags/a.json")
			dir := h.repository(t)
			_, _, err := read(t, dir, tags, false)
			wrong, ok := errors.AsType[*gitimport.Error](err)
			if !ok || wrong.Commit != git(t, dir, "", "rev-parse", "main~1") {
				t.Fatalf("the error is %v", err)
			}
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "--lenient") {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			got, reader, err := read(t, dir, tags, true)
			if err != nil {
				t.Fatal(err)
			}
			if name == "two files" {
				got = append(got[:1], got[2:]...) // x
			}
			if diff := cmp.Diff([]string{`00:01 a 1 {"before":1}`, `00:02 z 2 {}`, "00:03 a 3"}, got); diff != "" {
				t.Error(diff)
			}
			if times, first := reader.LeftOut(); times != 1 || len(first) != 1 || !strings.Contains(first[0].Error(), test.want) {
				t.Errorf("%d left out: %v", times, first)
			}
		})
	}
}

// A file that was left out has lost a document to another one, which is deleted before it is mended.
func TestRefusedAndLost(t *testing.T) {
	var h history
	h.main(1, "put b.yml", "[{id: x, n: 1}]")
	h.main(2, "put a.yml", "[{id: x, n: 2}]", "put b.yml", "[")
	h.main(3, "D a.yml")
	h.main(4, "put b.yml", "[{id: y, n: 4}]")
	got, _, err := read(t, h.repository(t), "sources: [{collection: tags, path: '?.yml', many: true, key: id, drop: [id]}]", true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`00:01 x 1 {"n":1}`, `00:02 x 2 {"n":2}`, "00:03 x 3", `00:04 y 4 {"n":4}`}, got); diff != "" {
		t.Error(diff)
	}
}

// Where a file of many documents holds some that are none, the others are kept.
func TestRefusedOfMany(t *testing.T) {
	var h history
	h.main(1, "put a.yml", "[{id: x, n: 1}, {id: y, n: 1}]")
	h.main(2, "put a.yml", "[{id: x, n: 2}, {id: y, n: 2}, {id: y, n: 3}]")
	h.main(3, "put a.yml", "[{id: x, n: 3}, {n: 3}]")
	h.main(4, "put a.yml", "[{id: x, n: 4}]")
	rules := "sources: [{collection: tags, path: a.yml, many: true, key: id, drop: [id]}]"
	got, reader, err := read(t, h.repository(t), rules, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`00:01 x 1 {"n":1}`, `00:01 y 1 {"n":1}`, `00:02 x 2 {"n":2}`, `00:02 y 2 {"n":2}`, `00:04 x 4 {"n":4}`, `00:04 y 4`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if times, first := reader.LeftOut(); times != 2 || !strings.Contains(fmt.Sprint(first), `tags "y" is there twice`) ||
		!strings.Contains(fmt.Sprint(first), `element 1: its key, the member "id", is null or absent`) {
		t.Errorf("%d left out: %v", times, first)
	}
}

func TestRepositoriesThatCannotBeRead(t *testing.T) {
	var h history
	h.main(1, "put tags/a.yml", "n: 1")
	h.main(2, "put tags/a.yml", "n: 2")
	whole := h.repository(t)
	shallow, empty := filepath.Join(t.TempDir(), "shallow"), t.TempDir()
	git(t, empty, "", "clone", "--quiet", "--bare", "--depth=1", "file://"+whole, shallow)
	git(t, empty, "", "init", "--quiet")
	none := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(none))
	t.Setenv("GIT_DIR", whole) // as in a hook
	for dir, want := range map[string]string{
		shallow:                     "git fetch --unshallow",
		empty:                       "there is no commit at HEAD",
		none:                        "not a git repository",
		filepath.Join(none, "none"): "no such file or directory",
	} {
		if _, _, err := read(t, dir, tags, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
	}
	t.Setenv("PATH", none)
	if _, _, err := read(t, whole, tags, false); err == nil || !strings.Contains(err.Error(), "install it") {
		t.Errorf("without git: %v", err)
	}
}

// A repository that lost a part of itself ends the import, with what git says.
func TestDamaged(t *testing.T) {
	var h history
	h.main(1, "put tags/a.yml", "n: 1")
	dir := h.repository(t)
	for _, lost := range [...]struct{ object, want string }{{"HEAD:tags/a.yml", "git has no content"}, {"HEAD^{tree}", "git: exit status"}} {
		object, want := lost.object, lost.want
		name := git(t, dir, "", "rev-parse", object)
		if err := os.Remove(filepath.Join(dir, "objects", name[:2], name[2:])); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(t, dir, tags, false); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "git: exit status") {
			t.Errorf("without %s: %v, want %s", object, err, want)
		}
	}
}

// Nothing that a repository's configuration names is run, also where content is missing
// that a remote promises.
func TestNothingIsExecuted(t *testing.T) {
	var h history
	h.main(1, "put tags/a.yml", "n: 1", "put .gitattributes", "* diff=evil filter=evil\n")
	h.main(2, "put tags/a.yml", "n: 2")
	whole := h.repository(t)
	signed := strings.Replace(git(t, whole, "", "cat-file", "commit", "main"), "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----\n\n", 1)
	git(t, whole, "", "update-ref", "refs/heads/main", git(t, whole, signed, "hash-object", "-t", "commit", "-w", "--stdin"))
	dir := t.TempDir()
	clone := filepath.Join(dir, "clone")
	git(t, dir, "", "clone", "--quiet", "file://"+whole, clone)
	ran := filepath.Join(dir, "ran")
	evil := filepath.Join(dir, "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\necho \"$0 $*\" >>'"+ran+"'\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"core.fsmonitor", "core.pager", "core.sshCommand", "core.askPass", "core.editor", "core.gitProxy", "credential.helper", "diff.external",
		"diff.evil.textconv", "diff.evil.command", "filter.evil.smudge", "filter.evil.clean", "gpg.program", "gpg.ssh.program", "remote.origin.uploadpack",
	} {
		git(t, clone, "", "config", name, evil)
	}
	for name, value := range map[string]string{
		"core.hooksPath": dir, "log.showSignature": "true", "extensions.partialClone": "origin", "remote.origin.promisor": "true", "color.ui": "always",
		"diff.relative": "true", "diff.noprefix": "true", "diff.renames": "copies", "log.showRoot": "false", "log.follow": "true", "format.pretty": "raw",
		"log.diffMerges": "off", "core.quotePath": "false", "i18n.logOutputEncoding": "UTF-16", "protocol.ext.allow": "always",
	} {
		git(t, clone, "", "config", name, value)
	}
	want := []string{`00:01 a 1 {"n":1}`, `00:02 a 2 {"n":2}`}
	if got, _, err := read(t, clone, tags, false); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(clone, ".git", "objects")); err != nil {
		t.Fatal(err)
	}
	git(t, whole, "", "config", "uploadpack.allowFilter", "true")
	git(t, dir, "", "clone", "--quiet", "--bare", "--filter=blob:none", "file://"+whole, "partial")
	if err := os.Rename(filepath.Join(dir, "partial", "objects"), filepath.Join(clone, ".git", "objects")); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"ext::" + evil, "ssh://example.invalid/x", "file://" + whole} {
		git(t, clone, "", "config", "remote.origin.url", url)
		if got, _, err := read(t, clone, tags, false); err == nil {
			t.Errorf("%s: read %q", url, got)
		}
	}
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("executed: %s", text)
	}
}
