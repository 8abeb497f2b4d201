package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// platforms are lines of an import.
func platforms(lines int) string {
	var history strings.Builder
	for i := range lines {
		fmt.Fprintf(&history, `{"collection":"platforms","id":"p%d","at":"2024-01-01T%02d:%02d:%02d.%06dZ","by":"ann","op":"put","data":{"name":"n%d","description":"%s"}}`+"\n",
			i%500, i/3600%24, i/60%60, i%60, i%1_000_000, i, strings.Repeat("x", i%200))
	}
	return history.String()
}

// Two programs that archive one store into another do the same work, and add nothing twice; neither ends.
func TestTwoArchives(t *testing.T) {
	t.Parallel()
	const lines = 2_000
	from, to := mongoDatabase(t, t.Cleanup), mongoDatabase(t, t.Cleanup)
	feed(t, from, platforms(lines))
	s := startServer(t, program, from, "--log-level", "warn")
	var both [2]*exec.Cmd
	var logs [2]bytes.Buffer
	for i := range both {
		both[i] = exec.Command(program, "archive", "--from", from, "--to", to)
		both[i].Stderr = &logs[i]
		if err := both[i].Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = both[i].Process.Kill() })
	}
	made := 0
	for range 2 {
		for range 50 {
			made++
			s.text(t, fmt.Sprintf(`mutation { createPlatform(input: { key: "w%d", data: { name: "W", description: "" } }) { __typename } }`, made), nil)
		}
		if said := run(t, program, "archive", "--from", from, "--to", to, "--verify"); !strings.Contains(said, "by the hashes of all histories") {
			t.Error(said)
		}
	}
	for i := range both {
		if err := both[i].Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := both[i].Wait(); err != nil {
			t.Errorf("it ended with %v:\n%s", err, &logs[i])
		}
		t.Logf("its log:\n%s", &logs[i])
	}
	if want, got := export(t, from), export(t, to); got != want || strings.Count(want, "\n") < lines+made {
		t.Errorf("the archive's export has %d bytes, its source's %d bytes", len(got), len(want))
	}
	run(t, program, "check", "--store", to)
}

// An archive has all that its source has, once and as it is, whenever the program that follows, or the
// server that is followed, was killed. With ASOF_TEST_FULL, of more versions and more often.
func TestArchiveKilled(t *testing.T) {
	t.Parallel()
	lines, kills := 8_000, 2
	if os.Getenv("ASOF_TEST_FULL") != "" {
		lines, kills = 30_000, 6
	}
	history := platforms(lines)
	file := func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "asof.db") }
	database := func(t *testing.T) string { return mongoDatabase(t, t.Cleanup) }
	for _, c := range []struct {
		name     string
		from, to func(*testing.T) string
	}{{"files", file, file}, {"from MongoDB", database, file}, {"into MongoDB", file, database}} {
		t.Run(c.name, func(t *testing.T) {
			from, to := c.from(t), c.to(t)
			feed(t, from, history)
			random := rand.New(rand.NewPCG(16, 5))
			cut := 0
			for kill := range kills { // while it reads what was there
				polls := 0
				if killWhen(t, exec.Command(program, "archive", "--from", from, "--to", to, "--once"), func() bool {
					polls++
					return polls > 60+80*kill
				}) {
					cut++
				}
			}
			t.Logf("of %d kills %d came before the archive had all", kills, cut)
			within := strings.HasPrefix(from, "sqlite:")
			made := 0
			for range kills { // while there are writers
				var flags []string
				if within {
					flags = []string{"--archive", to}
				}
				t.Run("", func(t *testing.T) {
					s := startServer(t, program, from, append(flags, "--log-level", "warn")...)
					write := func() {
						for range 20 + random.IntN(100) {
							made++
							s.text(t, fmt.Sprintf(`mutation { createPlatform(input: { key: "w%d", data: { name: "W", description: "" } }) { __typename } }`, made), nil)
							s.text(t, fmt.Sprintf(`mutation { updatePlatform(input: { key: "w%d", expectedVersion: 1, patch: { name: "X" } }) { __typename } }`, made), nil)
						}
					}
					if within {
						write()
						s.kill(t)
						return
					}
					killWhen(t, exec.Command(program, "archive", "--from", from, "--to", to), func() bool { write(); return true })
					write()
					s.kill(t)
				})
			}
			said := run(t, program, "archive", "--from", from, "--to", to, "--verify")
			if !strings.Contains(said, "by the hashes of all histories") {
				t.Error(said)
			}
			want, got := export(t, from), export(t, to)
			if n := strings.Count(want, "\n"); got != want || n < lines+2*made {
				t.Errorf("the archive's export has %d bytes, its source's %d bytes, of %d versions", len(got), len(want), n)
			}
			run(t, program, "check", "--store", to)
		})
	}
}
