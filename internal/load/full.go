package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/asof/asof/internal/load/process"
)

// scan compares an unindexed filter, over HTTP with one client, with the bare
// SQL scan of the same documents with the same predicate. It also returns the
// time of the event in the middle of the file.
func scan(c config, s *process.Server, events, dir, text string) (result, string, error) {
	bare, found, middle, err := bareScan(events, dir, text)
	if err != nil {
		return result{}, "", err
	}
	if found == 0 {
		return result{}, "", fmt.Errorf("no description in %s holds %q: a scan for nothing compares nothing", events, text)
	}
	most := max(found, pageSize)
	scanned := fmt.Sprintf(`query Scan($text: String!) { projects(where: {description: {contains: $text}}, first: %d) { nodes { key name } } }`, most)
	m, err := drive(s.URL, []request{fixed{query(scanned, map[string]any{"text": text}), []byte(`"key":`), found}}, c.length)
	if err != nil {
		return result{}, "", err
	}
	return result{
		Name: "unindexed filter", Against: "bare SQL scan", Ratio: float64(m.P50Micros) / float64(bare.Microseconds()), Target: "time at most 1.5",
		Median: &m, Explanation: fmt.Sprintf("bare scan %v; both find %d documents", bare, found),
	}, middle, nil
}

// settleTime is how long the server may take to cut the indexes of the past after an
// import.
const settleTime = 15 * time.Second

// full measures reads of the catalogue that was imported with -import: pages
// by an index now and as of the event in the middle of the file, and an
// unindexed filter.
func full(ctx context.Context, c config, dir, asof string) ([]result, error) {
	command := serving(asof, filepath.Join(dir, "import.db"))
	s, err := process.Start(ctx, os.Stderr, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	scanned, middle, err := scan(c, s, c.importFile, dir, "music")
	if err != nil {
		return nil, err
	}
	page := func(at string) []request {
		text := fmt.Sprintf(`query Page { projects(where: {stars: {gte: 100}}, orderBy: [{field: stars, direction: DESC}], first: %d%s) { nodes { %s } } }`, pageSize, at, pageFields)
		return repeat(c.clients, fixed{query(text, nil), []byte(documentIn), pageSize})
	}
	list := []scenario{
		{Name: "page of 50", Clients: page("")},
		{Name: "indexed page as of / now", Against: "page of 50", Target: 0.5, Clients: page(fmt.Sprintf(", asOf: %q", middle))},
	}
	// After a bulk load the server cuts its indexes of the past for some seconds,
	// beside what it serves; that is not what is measured.
	if _, err := drive(s.URL, list[1].Clients, settleTime); err != nil {
		return nil, fmt.Errorf("warming up: %w", err)
	}
	rounds := make([]map[string]measurement, c.rounds)
	for i := range rounds {
		rounds[i] = map[string]measurement{}
		for _, p := range list {
			m, err := drive(s.URL, p.Clients, c.length)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", p.Name, c.importFile, err)
			}
			rounds[i][p.Name] = m
		}
	}
	results := []result{scanned}
	for _, p := range list {
		results = append(results, summarize(p.Name, p.Against, p.Target, rounds))
	}
	results = append(results, result{Name: "server's peak memory", PeakMiB: s.Usage().Peak >> 20})
	for i := range results {
		results[i].Name += ", " + filepath.Base(c.importFile)
	}
	return results, nil
}
