package hostile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/asof/asof/internal/load/process"
)

// expensive is a request that may cost much. In its document, A is a number of
// root fields that the document is repeated for, and N the size of each page.
type expensive struct {
	name      string
	field     string         // of the root; {N} is the size of a page
	variables map[string]any // of the operation
	declare   string         // what declares them: "($w: ProjectWhere)"
	fragments string
	writes    bool   // it is a mutation
	whole     string // instead: the document
}

// document repeats the field for so many aliases, with pages of so many.
func (e expensive) document(aliases, page int) string {
	if e.whole != "" {
		return e.whole
	}
	var text strings.Builder
	kind := "query"
	if e.writes {
		kind = "mutation"
	}
	text.WriteString(kind + " " + e.declare + "{")
	field := strings.ReplaceAll(e.field, "{N}", fmt.Sprint(page))
	for i := range aliases {
		fmt.Fprintf(&text, "a%d:%s ", i, field)
	}
	text.WriteString("}" + strings.ReplaceAll(e.fragments, "{N}", fmt.Sprint(page)))
	return text.String()
}

// cost is what one request cost the server.
type cost struct {
	name          string
	aliases, page int
	body          []byte
	cpu, took     time.Duration
	growth        int64 // of the resident memory, at its peak, in bytes
	status        int
	answer        int64  // bytes
	said          string // the first message in the answer
}

// score is how often a cost exceeds a second of CPU time or 64 MiB.
func (c cost) score() float64 { return max(c.cpu.Seconds(), float64(c.growth)/(64<<20)) }

func (c cost) String() string {
	return fmt.Sprintf("%6.2f CPU s %6.2f s %5d MiB; %d B → %d, %d B; %s × %d, first %d %.120s",
		c.cpu.Seconds(), c.took.Seconds(), c.growth>>20, len(c.body), c.status, c.answer, c.name, c.aliases, c.page, c.said)
}

// mostSent is how long a request is that must not cost much.
const mostSent = 64 << 10

// rank sends each request by itself, with as many root fields and as large pages
// as the server accepts, and returns what they cost, the worst first.
func rank(s *process.Server, list []expensive, out io.Writer) ([]cost, error) {
	var costs []cost
	client := &http.Client{Timeout: 2 * time.Minute}
	for _, e := range list {
		for _, aliases := range []int{50, 10, 1} {
			tried := ""
			for _, page := range []int{500, 100, 25, 5, 1} {
				document := e.document(aliases, page)
				if document == tried || e.whole != "" && aliases > 1 {
					break // it has no pages
				}
				tried = document
				body, err := json.Marshal(map[string]any{"query": document, "variables": e.variables})
				if err != nil {
					return nil, err
				}
				if len(body) > mostSent {
					continue
				}
				c, err := measure(s, client, body)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", e.name, err)
				}
				c.name, c.aliases, c.page = e.name, aliases, page
				if strings.Contains(c.said, "may return") || strings.Contains(c.said, "larger than") || strings.Contains(c.said, "more than") && c.cpu < 100*time.Millisecond {
					continue // it was refused for its size: ask for less
				}
				costs = append(costs, c)
				_, _ = fmt.Fprintln(out, c)
				break
			}
		}
	}
	return costs, nil
}

// measure sends one request to a server that has nothing else to do.
func measure(s *process.Server, client *http.Client, body []byte) (cost, error) {
	c := cost{body: body}
	if err := s.ResetPeak(); err != nil {
		return c, err
	}
	before, began := s.Usage(), time.Now()
	resp, err := client.Post(s.URL, "application/json", bytes.NewReader(body))
	if err != nil {
		return c, err
	}
	var start bytes.Buffer
	_, _ = io.CopyN(&start, resp.Body, 4<<10)
	rest, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return c, err
	}
	c.took = time.Since(began)
	if c.took > 100*time.Millisecond {
		settle(s, time.Minute) // the collector may be at work
	}
	after := s.Usage()
	c.cpu, c.growth = after.CPU-before.CPU, after.Peak-before.RSS
	c.status, c.answer = resp.StatusCode, int64(start.Len())+rest
	if _, said, ok := strings.Cut(start.String(), `"message":"`); ok {
		c.said, _, _ = strings.Cut(said, `"`)
	}
	return c, nil
}

// settle waits until the server does nothing, which is told by its CPU time over a
// while, or until the time is over, and returns how long that took.
func settle(s *process.Server, most time.Duration) time.Duration {
	const while, little = 300 * time.Millisecond, 20 * time.Millisecond
	began := time.Now()
	for time.Since(began) < most && s.Alive() {
		before := s.Usage().CPU
		time.Sleep(while)
		if s.Usage().CPU-before <= little {
			break
		}
	}
	return time.Since(began)
}

// search ranks requests on every store that there is, and prints the worst with
// their bodies.
func (b *bench) search(ctx context.Context, out io.Writer) error {
	stores := []string{demoData, editedData}
	if b.Import != "" {
		stores = append(stores, catalogueData)
	}
	for _, data := range stores {
		s, err := b.serve(ctx, data, io.Discard)
		if err != nil {
			return err
		}
		err = b.searchIn(s, data, out)
		s.Stop()
		if err != nil {
			return fmt.Errorf("%s: %w", data, err)
		}
	}
	return nil
}

// worst is how many requests of a store are shown.
const worst = 10

func (b *bench) searchIn(s *process.Server, data string, out io.Writer) error {
	project, err := longest(s.URL, "projects")
	if err != nil {
		return err
	}
	tag, err := longest(s.URL, "tags")
	if err != nil {
		return err
	}
	keys := []keysOf{{project: project, tag: tag}}
	if data == editedData {
		keys = []keysOf{{project: jsonProject, tag: linksTag}, {project: editsProject, tag: selfTag}}
	}
	var costs []cost
	for _, k := range keys {
		if k.middle, err = midway(s.URL, k.project); err != nil {
			return err
		}
		list := slices.DeleteFunc(requests(k), func(e expensive) bool { return !b.Only(e.name) })
		more, err := rank(s, list, out)
		if err != nil {
			return err
		}
		costs = append(costs, more...)
	}
	slices.SortFunc(costs, func(a, b cost) int { return cmp.Compare(b.score(), a.score()) })
	_, _ = fmt.Fprintf(out, "\nThe worst on %s:\n", data)
	for _, c := range costs[:min(worst, len(costs))] {
		_, _ = fmt.Fprintf(out, "%v\n    %s\n", c, c.body)
	}
	return nil
}
