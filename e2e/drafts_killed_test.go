package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A server that is killed among approvals leaves no draft half approved: either there is the
// version, or the draft, which can be approved then.
func TestApprovalsKilled(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "drafts.db") },
		"mongodb": func(t *testing.T) string {
			transactions := mongotest.NewTransactions(t, mongotest.NewServer(t))
			transactions.Lifetime = 3 * time.Second // those of a server that was killed
			_, uri := transactions.Behind(t)
			return uri
		},
	} {
		t.Run(name, func(t *testing.T) { approvalsKilled(t, store(t)) })
	}
}

func approvalsKilled(t *testing.T, store string) {
	const each, rounds = 12, 4
	made, cut := 0, 0
	for round := range rounds {
		cmd := exec.Command(program, "serve", "--addr", "127.0.0.1:0", "--store", store)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s := &server{}
		for lines := bufio.NewScanner(out); s.url == "" && lines.Scan(); {
			s.url = address.FindString(lines.Text())
		}
		drafts := make([]string, each)
		for i := range drafts {
			drafts[i] = draftOf(t, s, fmt.Sprintf("p%d-%d", round, i))
		}
		answered := make(chan bool, each)
		for _, draft := range drafts {
			go func() {
				body, _ := json.Marshal(map[string]any{"query": approval(draft)})
				resp, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body))
				if err == nil {
					err = resp.Body.Close()
				}
				answered <- err == nil
			}()
		}
		for range 2 * round { // ever later
			<-answered
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); !wasKilled(err) {
			t.Fatalf("the server ended with %v", err)
		}
		t.Run("", func(t *testing.T) {
			s := startServer(t, program, store)
			for i, draft := range drafts {
				key := fmt.Sprintf("p%d-%d", round, i)
				version, _, there := approvalState(t, s, key, draft)
				approved := version == 2
				if approved {
					made++
				} else {
					cut++
				}
				if approved == there {
					t.Errorf("%s: version %d, its draft is there: %t", key, version, there)
				}
				if there {
					if text := s.text(t, approval(draft), nil); !strings.Contains(text, `"version":2`) {
						t.Errorf("%s: approving its draft: %s", key, text)
					}
				}
				if version, by, there := approvalState(t, s, key, draft); version != 2 || there || by != "anonymous" {
					t.Errorf("%s: version %d, approved by %q, its draft is there: %t", key, version, by, there)
				}
			}
		})
	}
	t.Logf("%d approvals were made before the kill, %d not", made, cut)
	if made == 0 {
		t.Error("no approval was made, though some were answered")
	}
}

// draftOf makes a document and a draft of it.
func draftOf(t *testing.T, s *server, key string) string {
	t.Helper()
	s.text(t, `mutation { createPlatform(input: { key: "`+key+`", data: { name: "A", description: "B" } }) { __typename } }`, nil)
	draft := read[struct{ Draft struct{ ID string } }](t, s, `mutation { startPlatformDraft(input: { key: "`+key+`" }) { draft { id } } }`, nil).Draft.ID
	s.text(t, `mutation { savePlatformDraft(input: { draft: "`+draft+`", expectedRevision: 1, patch: { name: "C" } }) { __typename } }`, nil)
	return draft
}

func approval(draft string) string {
	return `mutation { approvePlatformDraft(input: { draft: "` + draft + `" }) { ... on ApprovePlatformDraftSuccess { version } ... on PlatformConflict { message } } }`
}

// approvalState is the version of a document, who approved it, and whether its draft is there.
func approvalState(t *testing.T, s *server, key, draft string) (version int, by string, there bool) {
	t.Helper()
	document := read[struct {
		Version     int
		VersionInfo struct{ ApprovedBy struct{ ID string } }
	}](t, s, `{ platform(key: "`+key+`") { version versionInfo { approvedBy { id } } } }`, nil)
	found := read[*struct{ Revision int }](t, s, `{ platformDraft(id: "`+draft+`") { revision } }`, nil)
	return document.Version, document.VersionInfo.ApprovedBy.ID, found != nil
}
