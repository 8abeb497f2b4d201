package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/asof/asof/internal/load/process"
)

// writeRounds measures durable updates, and whether they take longer with the
// number of versions. The bare loop commits documents of the same size, in
// batches of the size that the server's batches had on average.
func writeRounds(c config, servers map[string]*process.Server, dir string) ([]result, error) {
	newWriter := func(key string, version int) *writer { return &writer{key: key, version: version, stars: 1_000_000} }
	fleet := make([]request, c.writers)
	for i := range fleet {
		fleet[i] = newWriter(fmt.Sprintf("project-%04d", i), c.perProject)
	}
	short, long := newWriter("ten", fixedLengths["ten"]), newWriter("ten-thousand", fixedLengths["ten-thousand"])
	data, err := json.Marshal(project("project-0000", rand.New(rand.NewPCG(1, 0))))
	if err != nil {
		return nil, err
	}
	var rounds []map[string]measurement
	var bare, sizes, bareRates []float64
	for range c.rounds {
		round := map[string]measurement{}
		size := 1
		for _, s := range []struct {
			name    string
			server  string
			clients []request
		}{
			{"constant", "constant", scenarios(c.writers, moments{})[0].Clients},
			{"durable updates", "asof", fleet},
			{"update of version 10", "asof", []request{short}},
			{"update of version 10,000", "asof", []request{long}},
		} {
			writes, commits, err := batches(servers["asof"].URL)
			if err != nil {
				return nil, err
			}
			m, err := drive(servers[s.server].URL, s.clients, c.length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			round[s.name] = m
			if s.name != "durable updates" {
				continue
			}
			w, k, err := batches(servers["asof"].URL)
			if err != nil {
				return nil, err
			}
			if k == commits {
				return nil, fmt.Errorf("%s: the server counted no transactions for %d updates", s.name, m.Requests)
			}
			size = max(1, int(math.Round((w-writes)/(k-commits))))
		}
		rate, err := bareCommits(dir, size, data, c.length)
		if err != nil {
			return nil, err
		}
		bare = append(bare, round["durable updates"].PerSecond/rate)
		sizes, bareRates = append(sizes, float64(size)), append(bareRates, rate)
		rounds = append(rounds, round)
	}
	least, most, ratio := spread(bare)
	return []result{
		summarize("durable updates", "constant", 0.2, rounds),
		{
			Name: "durable updates", Against: "bare loop", Ratio: ratio, Least: least, Most: most,
			Target:      "at least 0.6, where the disk is the limit",
			Explanation: fmt.Sprintf("bare loop: %.0f updates a second in batches of %.0f, which is what the server's were", median(bareRates), median(sizes)),
		},
		summarize("update of version 10", "", 0, rounds),
		summarize("update of version 10,000", "update of version 10", 1/1.2, rounds),
	}, nil
}
