package container

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the module.
const root = "../.."

// instruction is one of a Dockerfile: COPY with its flags and arguments.
type instruction struct {
	name  string
	flags map[string]string // --from=build
	rest  string            // behind the flags
}

// words are the arguments of an instruction in the form with spaces.
func (i instruction) words() []string { return strings.Fields(i.rest) }

// list is the argument of an instruction in the form of a JSON list, the one
// that needs no shell.
func (i instruction) list(t *testing.T) []string {
	t.Helper()
	var words []string
	if err := json.Unmarshal([]byte(strings.TrimPrefix(i.rest, "CMD ")), &words); err != nil {
		t.Fatalf("%s %s: want a list in JSON, as there is no shell: %v", i.name, i.rest, err)
	}
	return words
}

// stage is what begins with one FROM.
type stage struct {
	image        string
	instructions []instruction
}

// all returns the instructions of a name.
func (s stage) all(name string) []instruction {
	return slices.DeleteFunc(slices.Clone(s.instructions), func(i instruction) bool { return i.name != name })
}

// one returns the only instruction of a name.
func (s stage) one(t *testing.T, name string) instruction {
	t.Helper()
	found := s.all(name)
	if len(found) != 1 {
		t.Fatalf("%d instructions %s, want one", len(found), name)
	}
	return found[0]
}

// otherImage is how a Dockerfile names an image elsewhere than in FROM: as the
// one that reads the file, or to copy from or mount.
var otherImage = regexp.MustCompile(`^#\s*syntax\s*=.*|\bfrom=[^\s,]+`)

// readDockerfile reads the stages of the Dockerfile.
func readDockerfile(t *testing.T) []stage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if image := otherImage.FindString(line); image != "" && image != "from=build" {
			t.Errorf("%q is an image that is not of a FROM", image)
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	var stages []stage
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " "), "\n") {
		name, rest, _ := strings.Cut(line, " ")
		i := instruction{name: name, flags: make(map[string]string), rest: strings.TrimSpace(rest)}
		for strings.HasPrefix(i.rest, "--") {
			flag, behind, _ := strings.Cut(i.rest, " ")
			key, value, _ := strings.Cut(flag[len("--"):], "=")
			i.flags[key], i.rest = value, strings.TrimSpace(behind)
		}
		if name == "FROM" {
			stages = append(stages, stage{image: i.words()[0]})
			continue
		}
		if len(stages) == 0 {
			t.Fatalf("%s stands before FROM", line)
		}
		last := &stages[len(stages)-1]
		last.instructions = append(last.instructions, i)
	}
	if len(stages) != 2 {
		t.Fatalf("%d stages, want one that builds and one that runs", len(stages))
	}
	return stages
}

// variables are those that ENV sets.
func (s stage) variables(t *testing.T) map[string]string {
	t.Helper()
	set := make(map[string]string)
	for _, i := range s.all("ENV") {
		for _, word := range i.words() {
			name, value, ok := strings.Cut(word, "=")
			if !ok {
				t.Fatalf("ENV %s: want NAME=VALUE", word)
			}
			set[name] = value
		}
	}
	return set
}

// ignored are the patterns of .dockerignore.
type ignored []string

func readIgnored(t *testing.T) ignored {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	var patterns ignored
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	return patterns
}

// leaves reports whether a path is left out: the last pattern that matches it,
// or a directory above it, decides.
func (p ignored) leaves(t *testing.T, name string) bool {
	t.Helper()
	out := false
	for _, pattern := range p {
		kept := strings.HasPrefix(pattern, "!")
		pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "!"), "/")
		inner, anywhere := strings.CutPrefix(pattern, "**/")
		elements := strings.Split(name, "/")
		for i := range elements {
			candidate := strings.Join(elements[:i+1], "/")
			if anywhere {
				candidate = elements[i]
			}
			match, err := path.Match(inner, candidate)
			if err != nil {
				t.Fatalf(".dockerignore: %s: %v", pattern, err)
			}
			if match {
				out = !kept
				break
			}
		}
	}
	return out
}

// pinned is the name of an image that stays the same: a tag is moved to another
// one by whoever publishes it, a digest cannot be.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}$`)

// An image that nobody named changes under its users; a container that runs as
// root, or needs a shell, is more than a server needs.
func TestDockerfile(t *testing.T) {
	stages := readDockerfile(t)
	for _, s := range stages {
		if s.image != "scratch" && !pinned.MatchString(s.image) {
			t.Errorf("FROM %s: want NAME:TAG@sha256:DIGEST", s.image)
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, goVersion, _ := strings.Cut(string(mod), "\ngo ")
	goVersion = strings.Join(strings.Split(strings.Fields(goVersion)[0], ".")[:2], ".")
	if want := "golang:" + goVersion + "."; !strings.HasPrefix(stages[0].image, want) {
		t.Errorf("FROM %s: go.mod wants Go %s", stages[0].image, goVersion)
	}
	final := stages[1]
	user := final.one(t, "USER").rest
	if uid, gid, _ := strings.Cut(user, ":"); uid == "0" || gid == "0" || strings.Trim(uid+gid, "0123456789") != "" || uid == "" {
		t.Errorf("USER %s: want the numbers of a user and a group that are not root's", user)
	}
	for _, i := range final.all("COPY") {
		if owner, ok := i.flags["chown"]; ok && owner != user {
			t.Errorf("COPY --chown=%s, but USER is %s", owner, user)
		}
	}
	if entry := final.one(t, "ENTRYPOINT").list(t); !slices.Equal(entry, []string{"/asof"}) {
		t.Errorf("ENTRYPOINT %v", entry)
	}
	volume := final.one(t, "VOLUME").rest
	if store := final.variables(t)["ASOF_STORE"]; path.Dir(strings.TrimPrefix(store, "sqlite:")) != volume {
		t.Errorf("ASOF_STORE=%s is not in the volume %s", store, volume)
	}
	if _, port, _ := strings.Cut(final.variables(t)["ASOF_ADDR"], ":"); port != final.one(t, "EXPOSE").rest {
		t.Errorf("ASOF_ADDR has port %s, EXPOSE says %s", port, final.one(t, "EXPOSE").rest)
	}
	var copied []string
	for _, i := range final.all("COPY") {
		copied = append(copied, i.words()...)
	}
	for _, want := range []string{"/asof", "/src/LICENSE", "/src/THIRD_PARTY_NOTICES"} {
		if !slices.Contains(copied, want) {
			t.Errorf("the image lacks %s", want)
		}
	}
}

// What the builder gets is what the program is made of: nothing that is copied
// is missing, and nothing that is in it is ignored.
func TestCopied(t *testing.T) {
	ignored := readIgnored(t)
	for _, i := range readDockerfile(t)[0].all("COPY") {
		words := i.words()
		for _, source := range words[:len(words)-1] {
			source = strings.TrimSuffix(source, "/")
			if _, err := os.Stat(filepath.Join(root, source)); err != nil {
				t.Errorf("COPY %s: %v", source, err)
			}
			if ignored.leaves(t, source) {
				t.Errorf("COPY %s: .dockerignore leaves it out", source)
			}
		}
	}
	for _, name := range []string{".git/config", "asof.db", "internal/x/asof.db-wal", "docs/design.md", "internal/audit/node_modules/x/y.js", ".env", "internal/app/testdata/x"} {
		if !ignored.leaves(t, name) {
			t.Errorf(".dockerignore lets %s through", name)
		}
	}
}
