package demo

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
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
