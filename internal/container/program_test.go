package container

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// copyContext makes what the builder has before it runs go build.
func copyContext(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	ignored := readIgnored(t)
	for _, i := range readDockerfile(t)[0].all("COPY") {
		words := i.words()
		for _, source := range words[:len(words)-1] {
			err := filepath.WalkDir(filepath.Join(root, source), func(path string, entry fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				name, err := filepath.Rel(root, path)
				if err != nil {
					return err
				}
				switch out := ignored.leaves(t, filepath.ToSlash(name)); {
				case out && entry.IsDir():
					return fs.SkipDir
				case out || !entry.Type().IsRegular():
					return nil
				}
				target := filepath.Join(to, name)
				if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
					return err
				}
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				return os.WriteFile(target, data, 0o600)
			})
			if err != nil {
				t.Fatalf("COPY %s: %v", source, err)
			}
		}
	}
	return to
}

// build runs the go build of the Dockerfile on what the Dockerfile copies.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "asof")
	var line string
	for _, i := range readDockerfile(t)[0].all("RUN") {
		if _, after, ok := strings.Cut(i.rest, "go build "); ok {
			line, _, _ = strings.Cut(after, "&&")
			if !strings.Contains(i.rest, "CGO_ENABLED=0 ") {
				t.Error("the program is not built with CGO_ENABLED=0")
			}
		}
	}
	if !strings.Contains(line, "-o /out/asof ") {
		t.Fatalf("the Dockerfile runs no go build -o /out/asof: %q", line)
	}
	var args []string
	for _, quoted := range regexp.MustCompile(`"[^"]*"|[^\s"]+(?:"[^"]*")?`).FindAllString(line, -1) {
		args = append(args, strings.ReplaceAll(strings.ReplaceAll(quoted, `"`, ""), "/out/asof", program))
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...)
	cmd.Dir = copyContext(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "PWD="+cmd.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %v: %v\n%s", args, err, out)
	}
	return program
}

// The program that the Dockerfile builds, from what it copies, needs nothing of
// the image that it runs in, and its healthcheck tells how it is.
func TestProgram(t *testing.T) {
	program := build(t)
	if runtime.GOOS == "linux" {
		f, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("the program is not static: it has a segment %v", p.Type)
			}
		}
	}

	final := readDockerfile(t)[1]
	dir := t.TempDir()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	// The variables of the image, with a place and a port of the test's own, and
	// nothing else.
	set := final.variables(t)
	env := func(change ...string) []string {
		var list []string
		for name, value := range set {
			list = append(list, name+"="+value)
		}
		return append(list, change...)
	}
	store := "ASOF_STORE=sqlite:" + filepath.Join(dir, "asof.db")

	refused := exec.CommandContext(t.Context(), program, "serve")
	refused.Env = env(store)
	if out, err := refused.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("--insecure-no-auth")) {
		t.Errorf("with the variables of the image alone, the server must ask for ASOF_INSECURE_NO_AUTH: %v\n%s", err, out)
	}

	command := exec.CommandContext(t.Context(), program, final.one(t, "CMD").list(t)...)
	command.Env, command.Dir = env(store, "ASOF_ADDR="+addr), dir
	var log bytes.Buffer
	command.Stderr = &log
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	started := slices.ContainsFunc(scan(lines), func(line string) bool { return strings.Contains(line, "http://"+addr) })
	health := func() error {
		check := final.one(t, "HEALTHCHECK").list(t)
		cmd := exec.CommandContext(t.Context(), program, check[1:]...)
		cmd.Env = env(store, "ASOF_ADDR="+addr)
		return cmd.Run()
	}
	if !started {
		t.Error("the server did not start")
	} else if err := health(); err != nil {
		t.Errorf("the healthcheck of a server that runs: %v", err)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, out)
	if err := command.Wait(); err != nil {
		t.Errorf("the server ended with %v:\n%s", err, log.String())
	}
	if err := health(); err == nil {
		t.Error("the healthcheck of a server that has ended succeeded")
	}
}

// scan reads lines up to the one that names the Playground's address.
func scan(lines *bufio.Scanner) []string {
	var read []string
	for lines.Scan() {
		read = append(read, lines.Text())
		if strings.Contains(lines.Text(), "Playground") {
			break
		}
	}
	return read
}
