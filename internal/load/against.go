package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/asof/asof/internal/load/process"
)

// against measures reads of this build against those of another, on copies of one
// store, in turn: throughput, and the CPU time of the server for each request,
// which says more where the clients need the same cores.
func against(ctx context.Context, c config, dir, asof, other string, out io.Writer) error {
	events := filepath.Join(dir, "catalogue.ndjson")
	when, err := writeDatasetFile(events, projects, perProject, map[string]int{"ten": fixedLengths["ten"]}, 1)
	if err != nil {
		return err
	}
	servers := map[string]*process.Server{}
	for name, binary := range map[string]string{"this": asof, "other": other} {
		db := filepath.Join(dir, name+".db")
		if _, _, err := run(ctx, binary, "import", "--sync", "off", "--store", "sqlite:"+db, events); err != nil {
			return err
		}
		command := serving(binary, db)
		if servers[name], err = process.Start(ctx, os.Stderr, command[0], command[1:]...); err != nil {
			return err
		}
		defer servers[name].Stop() //nolint:gocritic // there are two
	}
	var list []scenario
	for _, s := range scenarios(readers, when) {
		switch s.Name {
		case "point", "page of 50", "page of 50 as of", "page of 50 with tags and licenses", "page by tag":
			list = append(list, s)
		}
	}
	var results []result
	ratios, costs := map[string][]float64{}, map[string][]float64{}
	for round := range c.rounds {
		for _, s := range list {
			names := []string{"this", "other"}
			if round%2 == 1 {
				names[0], names[1] = names[1], names[0]
			}
			rate, cost := map[string]float64{}, map[string]float64{}
			for _, name := range names {
				before := servers[name].Usage().CPU
				m, err := drive(servers[name].URL, s.Clients, c.length)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.Name, name, err)
				}
				rate[name] = m.PerSecond
				cost[name] = float64(servers[name].Usage().CPU-before) / float64(time.Microsecond) / float64(m.Requests)
			}
			ratios[s.Name] = append(ratios[s.Name], rate["this"]/rate["other"])
			costs[s.Name] = append(costs[s.Name], cost["other"]/cost["this"])
		}
	}
	for _, s := range list {
		for kind, values := range map[string][]float64{"throughput": ratios[s.Name], "requests for each second of CPU": costs[s.Name]} {
			r := result{Name: s.Name + ", " + kind, Against: other, Target: "at least 0.97"}
			r.Least, r.Most, r.Ratio = spread(values)
			results = append(results, r)
		}
	}
	report := json.NewEncoder(out)
	report.SetIndent("", "  ")
	return report.Encode(results)
}
