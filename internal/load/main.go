// Command load measures the server against yardsticks, in one run, over HTTP,
// and prints JSON: throughput, p50, p99, peak memory and ratios.
//
//	go run ./internal/load                 # an invented catalogue of 60,000 versions
//	go run ./internal/load -import FILE    # also import FILE, against the bare loop
//	go run ./internal/load -mongodb URI    # instead: the engines, and a bare loop on that server
//	go run ./internal/load layouts         # instead: ways to store versions, side by side
//	go run ./internal/load copies          # instead: ways to sort and filter by fields of other documents
//	go run ./internal/load hostile         # instead: attacks (package hostile)
//
// The yardsticks: a gqlgen server with constant documents (package constant),
// and bare loops on the same driver and file system (bare.go). Servers are
// driven in turn, several rounds, and a ratio is the median of the rounds'
// ratios, so that a machine whose speed drifts does not spoil it. Nothing but
// loopback is used, and every loop is bounded in time.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/asof/asof/internal/load/constant"
	"github.com/asof/asof/internal/load/hostile"
	"github.com/asof/asof/internal/load/process"
)

const (
	readers    = 8    // connections of the read scenarios
	writers    = 32   // of the update scenario, each on a document of its own
	projects   = 2000 // random documents in the invented catalogue
	perProject = 30   // versions of each
)

type config struct {
	rounds     int
	length     time.Duration
	importFile string
	mongodb    string
}

// result is one line of the report.
type result struct {
	Name        string       `json:"name"`
	Against     string       `json:"against,omitempty"`
	Ratio       float64      `json:"ratio,omitempty"` // the median of the rounds
	Least       float64      `json:"leastRatio,omitempty"`
	Most        float64      `json:"mostRatio,omitempty"`
	Target      string       `json:"target,omitempty"`
	Median      *measurement `json:"median,omitempty"`
	Seconds     float64      `json:"seconds,omitempty"`
	PeakMiB     int64        `json:"peakMiB,omitempty"`
	Explanation string       `json:"explanation,omitempty"`
}

func main() {
	// The yardsticks run as children of the same program.
	if len(os.Args) > 1 && os.Args[1] == "constant" {
		exit(serveConstant(os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == "hostile" {
		self, err := os.Executable()
		if err == nil {
			err = hostile.Main([]string{self, "hostile"}, os.Args[2:], os.Stdout)
		}
		exit(err)
	}
	if len(os.Args) == 4 && os.Args[1] == "bare-import" {
		_, err := bareImport(os.Args[2], os.Args[3])
		exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "layouts" {
		exit(compareLayouts(ctx, os.Args[2:], os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == "copies" {
		exit(compareCopies(ctx, os.Args[2:], os.Stdout))
	}
	var c config
	flag.IntVar(&c.rounds, "rounds", 5, "rounds; the median counts")
	flag.DurationVar(&c.length, "length", 2*time.Second, "of one scenario in one round")
	flag.StringVar(&c.importFile, "import", "", "an export file to import against the bare loop (default: the invented catalogue)")
	flag.StringVar(&c.mongodb, "mongodb", "", "compare the engine with a bare loop on the MongoDB server at this URI, and measure nothing else")
	flag.Parse()
	if c.rounds < 1 || c.length <= 0 {
		exit(errors.New("-rounds and -length have to be more than 0"))
	}
	if c.mongodb != "" {
		exit(compareMongo(ctx, c, c.mongodb, os.Stdout))
	}
	exit(measure(ctx, c, os.Stdout))
}

func exit(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveConstant(out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "http://%s/\n", l.Addr())
	mux := http.NewServeMux()
	mux.Handle("/graphql", constant.Handler())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}

func measure(ctx context.Context, c config, out io.Writer) error {
	dir, err := os.MkdirTemp("", "asof-load-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	asof := filepath.Join(dir, "asof")
	if built, err := exec.CommandContext(ctx, "go", "build", "-o", asof, "github.com/asof/asof/internal/fixture").CombinedOutput(); err != nil {
		return fmt.Errorf("building the server: %w\n%s", err, built)
	}
	events := filepath.Join(dir, "catalogue.ndjson")
	when, err := writeDatasetFile(events, projects, perProject, fixedLengths, 1)
	if err != nil {
		return err
	}
	results, err := imports(ctx, c, dir, self, asof, events)
	if err != nil {
		return err
	}
	wide, err := importWide(ctx, dir, asof)
	if err != nil {
		return err
	}
	servers := map[string]*process.Server{}
	defer func() {
		for _, s := range servers {
			s.Stop()
		}
	}()
	for name, args := range map[string][]string{
		"constant": {self, "constant"},
		"asof":     serving(asof, filepath.Join(dir, "asof.db")),
		"wide":     serving(asof, wide),
	} {
		s, err := process.Start(ctx, os.Stderr, args[0], args[1:]...)
		if err != nil {
			return err
		}
		servers[name] = s
	}
	reads, err := readRounds(c, servers, when)
	if err != nil {
		return err
	}
	results = append(results, reads...)
	scans, err := scan(c, servers["asof"], events, dir, rare)
	if err != nil {
		return err
	}
	results = append(results, scans)
	writes, err := writeRounds(c, servers, dir)
	if err != nil {
		return err
	}
	results = append(results, writes...)
	results = append(results, result{Name: "server's peak memory", PeakMiB: servers["asof"].Usage().Peak >> 20})
	return report(out, map[string]any{
		"clients": readers, "writers": writers, "rounds": c.rounds, "seconds": c.length.Seconds(), "projects": projects, "versionsEach": perProject, "results": results,
	})
}

// report prints what was measured, and on what.
func report(out io.Writer, measured map[string]any) error {
	measured["go"], measured["cpus"] = runtime.Version(), runtime.NumCPU()
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(measured)
}

// serving is the command that serves an embedded store.
func serving(asof, db string) []string {
	return []string{asof, "serve", "--addr", "127.0.0.1:0", "--store", "sqlite:" + db, "--log-level", "warn"}
}

// importWide makes a store that has as many documents, of one version each, as
// the longest history of the other has versions: what a read of another one
// each time costs where most are not in memory.
func importWide(ctx context.Context, dir, asof string) (db string, err error) {
	events, db := filepath.Join(dir, "wide.ndjson"), filepath.Join(dir, "wide.db")
	if _, err := writeDatasetFile(events, wideDocuments, 1, nil, 2); err != nil {
		return "", err
	}
	_, _, err = run(ctx, asof, "import", "--store", "sqlite:"+db, events)
	return db, err
}

// imports loads the invented catalogue (which the read scenarios need) and, if
// one is named, another file, each against the bare loop.
func imports(ctx context.Context, c config, dir, self, asof, events string) ([]result, error) {
	var results []result
	files := []struct{ name, events, db string }{{"import", events, "asof.db"}}
	if c.importFile != "" {
		files = append(files, struct{ name, events, db string }{"import of " + filepath.Base(c.importFile), c.importFile, "import.db"})
	}
	for _, f := range files {
		bare, _, err := run(ctx, self, "bare-import", f.events, filepath.Join(dir, "bare-"+f.db))
		if err != nil {
			return nil, err
		}
		took, peak, err := run(ctx, asof, "import", "--store", "sqlite:"+filepath.Join(dir, f.db), f.events)
		if err != nil {
			return nil, err
		}
		results = append(results,
			result{Name: "bare loop, " + f.name, Seconds: bare.Seconds()},
			result{Name: f.name, Against: "bare loop, " + f.name, Seconds: took.Seconds(), Ratio: took.Seconds() / bare.Seconds(), Target: "time at most 2", PeakMiB: peak >> 20})
	}
	return results, nil
}

func readRounds(c config, servers map[string]*process.Server, when moments) ([]result, error) {
	list := append(scenarios(readers, when), anyScenarios(readers, when)...)
	rounds := make([]map[string]measurement, c.rounds)
	for i := range rounds {
		rounds[i] = map[string]measurement{}
		for _, s := range list {
			m, err := drive(servers[s.Server].URL, s.Clients, c.length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			rounds[i][s.Name] = m
		}
	}
	var results []result
	for _, s := range list {
		results = append(results, summarize(s.Name, s.Against, s.Target, rounds))
	}
	for _, s := range comparisons {
		r := summarize(s.Name, s.Against, s.Target, rounds)
		r.Name, r.Median = s.Name+", against "+s.Against, nil
		results = append(results, r)
	}
	return results, nil
}

func summarize(name, against string, target float64, rounds []map[string]measurement) result {
	var all []measurement
	var ratios []float64
	for _, round := range rounds {
		all = append(all, round[name])
		if against != "" {
			ratios = append(ratios, round[name].PerSecond/round[against].PerSecond)
		}
	}
	slices.SortFunc(all, func(a, b measurement) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
	r := result{Name: name, Against: against, Median: &all[len(all)/2]}
	if against != "" {
		r.Least, r.Most, r.Ratio = spread(ratios)
	}
	if target > 0 {
		r.Target = fmt.Sprintf("at least %g", target)
	}
	return r
}

func spread(values []float64) (least, most, middle float64) {
	return slices.Min(values), slices.Max(values), median(values)
}

func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}
