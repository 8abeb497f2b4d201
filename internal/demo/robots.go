package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/storage/driver"
)

// projects are all rows, in a fixed order.
func projects() []row {
	rows := append([]row(nil), opening...)
	for _, a := range arrivals {
		rows = append(rows, a.row)
	}
	return rows
}

// dice makes the generator of numbers for one project and one purpose, so that
// a change to one row leaves what happens to the others.
func dice(purpose uint64, key string) *rand.Rand {
	var seed uint64
	for _, b := range []byte(key) {
		seed = seed*31 + uint64(b)
	}
	return rand.New(rand.NewPCG(seed, purpose))
}

// around returns a number between half of n and one and a half of it.
func around(r *rand.Rand, n int) int { return n/2 + r.IntN(n+1) }

// starRobot counts stars and commits every Monday night, in one change group.
func starRobot() []step {
	rows := projects()
	rolls := make([]*rand.Rand, len(rows))
	for i, r := range rows {
		rolls[i] = dice(1, r.key)
	}
	var steps []step
	for day := time.Date(2025, 1, 6, 4, 0, 0, 0, time.UTC); day.Year() == 2025; day = day.AddDate(0, 0, 7) {
		_, week := day.ISOWeek()
		s := step{
			at: day.Format(time.RFC3339), by: "star-robot", message: "Update stars and commits",
			group: fmt.Sprintf("stars-2025-w%02d", week),
		}
		for i, r := range rows {
			stars, commits := around(rolls[i], r.weekly), around(rolls[i], r.commits)
			if r.key == "lanternfish" && between(day, "2025-09-15", "2025-11-24") {
				stars = -2 * stars // the license affair
			}
			s.edits = append(s.edits, counted(r.key, day, stars, commits))
		}
		steps = append(steps, s)
	}
	return steps
}

func between(day time.Time, from, to string) bool {
	d := day.Format(time.DateOnly)
	return from <= d && d < to
}

// counted adds stars and the commits of the week before a day to a project
// that exists and is not archived.
func counted(key string, day time.Time, stars, commits int) edit {
	return ifActive(key, func(p *project) {
		total := *p.Stars + stars
		p.Stars = &total
		if commits == 0 {
			return
		}
		lastWeek := day.AddDate(0, 0, -3)
		if p.CommitHistory == nil {
			p.CommitHistory = make(map[string]int)
		}
		p.CommitHistory[lastWeek.Format("2006-01")] += commits
		if pushed := day.AddDate(0, 0, -1-commits%3).Format(time.DateOnly); pushed > p.UpdatedAt {
			p.UpdatedAt = pushed
		}
	})
}

// ifActive edits a project if it is there and not archived.
func ifActive(key string, f func(*project)) edit {
	return edit{collection: software, key: key, apply: func(before []byte) ([]byte, error) {
		if before == nil {
			return nil, nil
		}
		p, err := decode[project](before)
		if err != nil {
			return nil, err
		}
		if p.Archived != nil && *p.Archived {
			return before, nil
		}
		f(p)
		return encode(p)
	}}
}

// releaseRobot notes the releases of every project that is worked on, except
// Lanternfish, whose story is told by hand.
func releaseRobot() []step {
	var steps []step
	for _, r := range projects() {
		if r.key == "lanternfish" || r.commits < 3 {
			continue
		}
		roll, every := dice(2, r.key), 110-3*r.commits // days
		day := time.Date(2025, 1, 2, 17, roll.IntN(60), 0, 0, time.UTC).AddDate(0, 0, roll.IntN(every))
		for n := 1; day.Year() == 2025; n++ {
			steps = append(steps, step{
				at: day.Format(time.RFC3339), by: "release-robot", message: r.name + ": new release",
				edits: []edit{released(r.key, n, day)},
			})
			day = day.AddDate(0, 0, around(roll, every))
		}
	}
	return steps
}

// released gives a project its next release: every third one is a larger step.
func released(key string, n int, day time.Time) edit {
	return ifActive(key, func(p *project) {
		p.CurrentRelease = &release{
			Tag: nextVersion(p.CurrentRelease.Tag, n%3 == 0), PublishedAt: day.Format(time.DateOnly),
		}
	})
}

// nextVersion counts the last part of a version up, or, for a larger step of
// one that has three, the middle one.
func nextVersion(version string, larger bool) string {
	prefix := version[:len(version)-len(strings.TrimLeft(version, "v"))]
	parts := strings.Split(strings.TrimPrefix(version, prefix), ".")
	at := len(parts) - 1
	if larger && len(parts) == 3 {
		at, parts[2] = 1, "0"
	}
	n, err := strconv.Atoi(parts[at])
	if err != nil {
		return version
	}
	parts[at] = strconv.Itoa(n + 1)
	return prefix + strings.Join(parts, ".")
}

// The collections, as the schema names them.
const (
	software  = "software"
	tags      = "tags"
	licenses  = "licenses"
	platforms = "platforms"
)

// step is what one person wrote at one moment: one edit, or several that
// belong together.
type step struct {
	at      string // RFC 3339, UTC
	by      string
	message string
	group   string // empty: the edits of the step are a group if there are several
	op      driver.Op
	edits   []edit
}

// edit makes the next state of a document from the one before it; nil stands
// for a document that does not exist.
type edit struct {
	collection, key string
	apply           func(before []byte) (after []byte, err error)
	asOf            string // instead of apply: the state at this time
}

// put makes a document.
func put(collection, key string, document any) edit {
	return edit{collection: collection, key: key, apply: func([]byte) ([]byte, error) {
		return encode(document)
	}}
}

// remove deletes a document.
func remove(collection, key string) edit {
	return edit{collection: collection, key: key, apply: func([]byte) ([]byte, error) {
		return nil, nil
	}}
}

// restored gives a project the state that it had at a time.
func restored(key, at string) edit { return edit{collection: software, key: key, asOf: at} }

// change edits a document that must exist.
func change[T any](collection, key string, f func(*T)) edit {
	return edit{collection: collection, key: key, apply: func(before []byte) ([]byte, error) {
		if before == nil {
			return nil, fmt.Errorf("%s %q does not exist", collection, key)
		}
		document, err := decode[T](before)
		if err != nil {
			return nil, err
		}
		f(document)
		return encode(document)
	}}
}

// on edits a project.
func on(key string, f func(*project)) edit { return change(software, key, f) }

// The edits that the story is told in.

func describe(key, text string) edit { return on(key, func(p *project) { p.Description = text }) }

func rename(key, name string) edit { return on(key, func(p *project) { p.Name = name }) }

func tagAt(i int, key, tag string) edit {
	return on(key, func(p *project) { p.Tags = slices.Insert(p.Tags, min(i, len(p.Tags)), tag) })
}

func addTag(key, tag string) edit { return on(key, func(p *project) { p.Tags = append(p.Tags, tag) }) }

func swapTag(key, old, tag string) edit {
	return on(key, func(p *project) {
		if i := slices.Index(p.Tags, old); i >= 0 {
			p.Tags[i] = tag
		}
	})
}

func addPlatform(key, platform string) edit {
	return on(key, func(p *project) { p.Platforms = append(p.Platforms, platform) })
}

func dropPlatform(key, platform string) edit {
	return on(key, func(p *project) { p.Platforms = without(p.Platforms, platform) })
}

func relicense(key string, ids ...string) edit {
	return on(key, func(p *project) { p.Licenses = ids })
}

func demoAt(key, url string) edit { return on(key, func(p *project) { p.DemoURL = url }) }

func siteAt(key, url string) edit { return on(key, func(p *project) { p.WebsiteURL = url }) }

func archive(key string) edit {
	return on(key, func(p *project) { archived := true; p.Archived = &archived })
}

func publish(key, tag, day string) edit { //nolint:unparam // reads like its neighbours
	return on(key, func(p *project) { p.CurrentRelease = &release{Tag: tag, PublishedAt: day} })
}

func without(list []string, gone string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == gone })
}

// encode writes a document as it is stored: compact, nothing escaped that need
// not be.
func encode(document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(document); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func decode[T any](data []byte) (*T, error) {
	var document T
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	return &document, nil
}
