package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A capture has every state that the source's documents had, once and as it was, wherever the program was
// killed. With ASOF_TEST_FULL more often.
func TestCaptureKilled(t *testing.T) {
	kills := 2
	if os.Getenv("ASOF_TEST_FULL") != "" {
		kills = 12
	}
	for name, to := range map[string]string{
		"file":    "sqlite:" + filepath.Join(t.TempDir(), "asof.db"),
		"MongoDB": mongoDatabase(t, t.Cleanup),
	} {
		t.Run(name, func(t *testing.T) {
			s, random := mongotest.NewStreams(t), rand.New(rand.NewPCG(16, 6))
			args := []string{"capture", "--from", s.URI(), "--collection", "platforms", "--to", to}
			run(t, program, append(args, "--once")...)
			write := func(n int) {
				for range n {
					if id := fmt.Sprint("p", random.IntN(50)); random.IntN(6) == 0 {
						s.Delete(id)
					} else {
						s.Put(id, bson.D{{Key: "name", Value: fmt.Sprint("n", random.IntN(1000))}, {Key: "description", Value: strings.Repeat("x", random.IntN(200))}}, random.IntN(3) > 0)
					}
				}
			}
			if name == "MongoDB" {
				kills = (kills + 1) / 2 // the next program waits until what the killed one had begun cannot happen any more
			}
			for range kills {
				write(500)
				enough := s.Served() + 500 + random.IntN(400)
				killWhen(t, exec.Command(program, args...), func() bool { write(1); return s.Served() > enough })
			}
			run(t, program, append(args, "--once")...)

			var want, got []string
			for _, states := range s.States() {
				before := ""
				for _, state := range states {
					data := ""
					if state.Document != nil {
						raw, err := bson.MarshalExtJSON(bson.D{state.Document[2], state.Document[1]}, false, false)
						if err != nil {
							t.Fatal(err)
						}
						data = string(raw)
					}
					if at := time.Unix(int64(state.At.T), int64(state.At.I)*1000).UTC(); data != before {
						want = append(want, fmt.Sprint(state.ID, " ", at.Format(time.RFC3339Nano), " ", data))
					}
					before = data
				}
			}
			for text := range strings.Lines(export(t, to)) {
				var line struct {
					Collection, ID, At string
					Data               json.RawMessage
				}
				if err := json.Unmarshal([]byte(text), &line); err != nil {
					t.Fatal(err)
				}
				if line.Collection == "platforms" {
					got = append(got, fmt.Sprint(line.ID, " ", line.At, " ", string(line.Data)))
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("of %d states (-want +got):\n%s", len(want), diff)
			}
			t.Logf("%d states", len(want))
			run(t, program, "check", "--store", to)
		})
	}
}
