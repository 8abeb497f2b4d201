package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"

	"github.com/asof/asof/internal/load/process"
)

// rare is a text that few descriptions hold.
const rare = "number 77"

// A scenario is one kind of request. Its ratio is its throughput over that of
// the scenario named in Against, in the same rounds.
type scenario struct {
	Name    string
	Server  string // "asof" or "constant"
	Against string
	Target  float64 // the least ratio aimed at; 0: only measured
	Clients []request
}

func query(text string, variables map[string]any) []byte {
	body, err := json.Marshal(map[string]any{"query": text, "variables": variables})
	if err != nil {
		panic(err) // only literals come here
	}
	return body
}

// wideDocuments is how many documents the store has that is read all over, which
// is as many as the longest history has versions.
var wideDocuments = fixedLengths["hundred-thousand"]

// pageSize is how many documents a page holds, of every server: pages of other
// sizes cost something else.
const pageSize = 50

const (
	fields     = `key name description websiteUrl stars`
	pageFields = `key name description websiteUrl stars updatedAt`
)

// scenarios are all kinds of reads.
func scenarios(clients int, when moments) []scenario {
	point := func(key, time string) []request {
		text := `query Point($key: ID!) { project(key: $key` + time + `) { ` + fields + ` } }`
		return repeat(clients, fixed{query(text, map[string]any{"key": key}), []byte(documentIn), 1})
	}
	page := func(time, filter, selection string) []request {
		text := fmt.Sprintf(`query Page { projects(%s first: %d%s) { nodes { %s } } }`, filter, pageSize, time, selection)
		return repeat(clients, fixed{query(text, nil), []byte(documentIn), pageSize})
	}
	const byStars = `where: {stars: {gte: 1000}}, orderBy: [{field: stars, direction: DESC}],`
	// A tag that more than a page of the documents have, now and then.
	const byTag = `where: {tags: {has: "Tag 10"}}, orderBy: [{field: stars, direction: DESC}],`
	asOf := fmt.Sprintf(", asOf: %q", when.page.Format(time.RFC3339))
	list := []scenario{
		{Name: "constant", Server: "constant", Clients: point("ten", "")},
		{Name: "constant page", Server: "constant", Clients: page("", byStars, pageFields)},
		{Name: "point", Server: "asof", Against: "constant", Target: 0.7, Clients: point("ten", "")},
		{Name: "page of 50", Server: "asof", Against: "constant page", Target: 0.8, Clients: page("", byStars, pageFields)},
		{Name: "page of 50 as of", Server: "asof", Against: "constant page", Target: 0.6, Clients: page(asOf, byStars, pageFields)},
		{
			Name: "page of 50 with tags and licenses", Server: "asof", Against: "constant page", Target: 0.4,
			Clients: page("", byStars, pageFields+` tags { name } licenses { name }`),
		},
		{Name: "indexed page as of / now", Server: "asof", Against: "page of 50", Target: 0.5, Clients: page(asOf, byStars, pageFields)},
		{Name: "page by tag", Server: "asof", Clients: page("", byTag, pageFields)},
		{Name: "page by tag as of / now", Server: "asof", Against: "page by tag", Target: 0.5, Clients: page(asOf, byTag, pageFields)},
	}
	history := func(selection, want string) []request {
		return repeat(1, fixed{query(`query History { project(key: "fourteen-hundred") { `+selection+` } }`, nil), []byte(want), 0})
	}
	list = append(list,
		scenario{Name: "changelog of a field, 500 of 1,400 versions", Server: "asof", Clients: history(`changelog(fields: [stars], first: 500) { nodes { version oldValue newValue } }`, `"newValue":`)},
		scenario{Name: "blame over 1,400 versions", Server: "asof", Clients: history(`blame { path version changedBy { id } }`, `"changedBy":`)},
	)
	for _, key := range []string{"ten", "hundred-thousand"} {
		versions := fixedLengths[key]
		current := "point"
		if key != "ten" {
			current = "point, " + key
			list = append(list, scenario{Name: current, Server: "asof", Against: "point", Clients: point(key, "")})
		}
		list = append(list,
			scenario{Name: "point as of, " + key, Server: "asof", Against: current, Target: 0.9, Clients: point(key, fmt.Sprintf(", asOf: %q", when.fixed[key].Format(time.RFC3339)))},
			scenario{Name: "point by version, " + key, Server: "asof", Against: current, Target: 0.9, Clients: point(key, fmt.Sprintf(", version: %d", versions/2))},
		)
	}
	return list
}

// anyScenarios are the reads above with another document, instant or bound in
// each request, so that little of what one of them read is there for the next.
func anyScenarios(clients int, when moments) []scenario {
	const many = 4096
	bodies := func(n int, f func(i int) (string, map[string]any)) [][]byte {
		list := make([][]byte, n)
		for i := range list {
			list[i] = query(f(i))
		}
		return list
	}
	variables := func(declared string) string { return `query Any(` + declared + `) { ` }
	point := bodies(when.projects, func(i int) (string, map[string]any) {
		return variables("$key: ID!") + `project(key: $key) { ` + fields + ` } }`, map[string]any{"key": fmt.Sprintf("project-%04d", i*1231%when.projects)}
	})
	// All of them, in an order that does not come back to a page of the file soon.
	wide := bodies(wideDocuments, func(i int) (string, map[string]any) {
		return variables("$key: ID!") + `project(key: $key) { ` + fields + ` } }`, map[string]any{"key": fmt.Sprintf("project-%04d", i*7919%wideDocuments)}
	})
	instants := when.longest.random(many, 2)
	long := bodies(many, func(i int) (string, map[string]any) {
		return variables("$at: DateTime!") + `project(key: "hundred-thousand", asOf: $at) { ` + fields + ` } }`, map[string]any{"at": instants[i]}
	})
	numbers := bodies(many, func(i int) (string, map[string]any) {
		return variables("$version: Int!") + `project(key: "hundred-thousand", version: $version) { ` + fields + ` } }`, map[string]any{"version": 1 + i*7919%fixedLengths["hundred-thousand"]}
	})
	page := func(at string) string {
		return `projects(where: {stars: {gte: $stars}}, orderBy: [{field: stars, direction: DESC}], first: ` + strconv.Itoa(pageSize) + at + `) { nodes { ` + pageFields + ` } } }`
	}
	pages := bodies(many, func(i int) (string, map[string]any) {
		return variables("$stars: Int!, $below: Int!") + `projects(where: {stars: {gte: $stars, lt: $below}}, orderBy: [{field: stars, direction: DESC}], first: ` + strconv.Itoa(pageSize) + `) { nodes { ` + pageFields + ` } } }`,
			map[string]any{"stars": 500, "below": 5_000 + i*7919%45_000}
	})
	instants = when.pages.random(many, 3)
	past := bodies(many, func(i int) (string, map[string]any) {
		return variables("$stars: Int!, $at: DateTime!") + page(", asOf: $at"), map[string]any{"stars": 1000, "at": instants[i]}
	})
	return []scenario{
		{Name: "point, any document", Server: "asof", Against: "constant", Clients: vary(clients, point, 1)},
		{Name: "point, any of 100,000 documents", Server: "wide", Against: "constant", Clients: vary(clients, wide, 1)},
		{Name: "point as of any instant, hundred-thousand", Server: "asof", Against: "point, any of 100,000 documents", Clients: vary(clients, long, 1)},
		{Name: "point by any version, hundred-thousand", Server: "asof", Against: "point, any of 100,000 documents", Clients: vary(clients, numbers, 1)},
		{Name: "page of 50, any part", Server: "asof", Against: "constant", Clients: vary(clients, pages, pageSize)},
		{Name: "page of 50 as of any instant", Server: "asof", Against: "constant", Clients: vary(clients, past, pageSize)},
	}
}

// comparisons are further ratios of scenarios: what planned queries are aimed
// at, against one constant document, and what reads of versions that are not in
// memory cost beside one that is.
var comparisons = []scenario{
	{Name: "point", Against: "constant", Target: 1.1},
	{Name: "point as of any instant, hundred-thousand", Against: "point, hundred-thousand"},
	{Name: "point by any version, hundred-thousand", Against: "point, hundred-thousand"},
	{Name: "point as of, ten", Against: "constant", Target: 1},
	{Name: "point by version, ten", Against: "constant", Target: 1},
	{Name: "page of 50", Against: "constant", Target: 0.3},
	{Name: "page of 50 as of", Against: "constant", Target: 0.2},
	{Name: "page of 50 with tags and licenses", Against: "constant", Target: 0.12},
}

// writer updates one document over and over, each time from the version that
// the last answer named.
type writer struct {
	key     string
	version int
	stars   int
}

var versionIn = regexp.MustCompile(`"version":(\d+)`)

func (w *writer) body() []byte {
	w.stars++
	return query(`mutation Star($input: UpdateProjectInput!) { updateProject(input: $input) { ... on UpdateProjectSuccess { changed project { version } } } }`,
		map[string]any{"input": map[string]any{"key": w.key, "expectedVersion": w.version, "patch": map[string]any{"stars": w.stars}}})
}

func (w *writer) check(answer []byte) error {
	found := versionIn.FindSubmatch(answer)
	if found == nil {
		return fmt.Errorf("update of %s from version %d: %.300s", w.key, w.version, answer)
	}
	v, err := strconv.Atoi(string(found[1]))
	if err != nil || v != w.version+1 {
		return fmt.Errorf("update of %s from version %d led to %d", w.key, w.version, v)
	}
	w.version = v
	return nil
}

// writeRounds measures durable updates, and whether they take longer with the
// number of versions. The bare loop commits documents of the same size, in
// batches of the size that the server's batches had on average.
func writeRounds(c config, servers map[string]*process.Server, dir string) ([]result, error) {
	newWriter := func(key string, version int) *writer { return &writer{key: key, version: version, stars: 1_000_000} }
	fleet := make([]request, writers)
	for i := range fleet {
		fleet[i] = newWriter(fmt.Sprintf("project-%04d", i), perProject)
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
			{"constant", "constant", scenarios(writers, moments{})[0].Clients},
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
