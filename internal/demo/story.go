package demo

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// lanternLicense is what Lanternfish moved to in September, to the dismay of many.
var lanternLicense = license{
	Identifier: "Lantern-SAL-1.0",
	Name:       "Lantern Source Available License 1.0",
	URL:        "https://lanternfish.example/license",
}

// story is what people did. Mira keeps the catalogue; Jonas, Adaeze, Teo and
// Hana help; guest-7141 does not.
func story() []step {
	return []step{
		// A quiet winter: corrections, and the first larger releases.
		{at: "2025-01-08T20:14:00Z", by: "jonas", message: "Almanac: it does contacts as well", edits: []edit{
			describe("almanac", "Calendars, tasks and address books for every device in the house."),
		}},
		{at: "2025-01-14T11:32:00Z", by: "mira", message: "Lanternfish has a public demo", edits: []edit{
			demoAt("lanternfish", "https://try.lanternfish.example"),
		}},
		{at: "2025-01-29T08:50:00Z", by: "hana", message: "Sourdough runs without Docker", edits: []edit{
			dropPlatform("sourdough", "docker"),
		}},
		{at: "2025-02-03T16:05:00Z", by: "teo", message: "Lanternfish v1.9.0", edits: []edit{
			publish("lanternfish", "v1.9.0", "2025-02-03"),
		}},
		{at: "2025-02-05T09:12:00Z", by: "hana", message: "No, it does not: the image is still the documented way", edits: []edit{
			addPlatform("sourdough", "docker"),
		}},
		{at: "2025-02-19T13:44:00Z", by: "adaeze", message: "Later Alligator goes by its initials now", edits: []edit{
			rename("later-alligator", "L8R"), siteAt("later-alligator", "https://l8r.example"),
		}},

		// Pebblechat's maintainers are gone.
		{at: "2025-03-03T10:00:00Z", by: "mira", message: "Remove Pebblechat: no commit for two years, the site is down", edits: []edit{
			remove(software, "pebblechat"),
		}},
		{at: "2025-03-11T19:27:00Z", by: "jonas", message: "Lanternfish also keeps the files: list it under Files", edits: []edit{
			addTag("lanternfish", "files"),
		}},
		{at: "2025-03-17T15:30:00Z", by: "teo", message: "Lanternfish v2.0.0: face recognition, and a new description to go with it", edits: []edit{
			on("lanternfish", func(p *project) {
				p.CurrentRelease = &release{Tag: "v2.0.0", PublishedAt: "2025-03-17"}
				p.Description = "Photo library for families: timeline, faces, shared albums, and search that understands what is in the picture."
			}),
		}},

		// A tag is renamed: everything that refers to it reads the new name from then on.
		{at: "2025-04-02T12:00:00Z", by: "mira", message: "Nobody says home automation at home", edits: []edit{
			change(tags, "home-automation", func(t *tag) {
				t.Name, t.Description = "Smart home", "Lights, heating, doors and sensors."
			}),
		}},
		{at: "2025-04-15T07:58:00Z", by: "adaeze", message: "Lanternfish: Rust for the indexer, says its readme", edits: []edit{
			addPlatform("lanternfish", "rust"),
		}},
		{at: "2025-04-28T14:20:00Z", by: "teo", message: "Lanternfish v2.1.0", edits: []edit{
			publish("lanternfish", "v2.1.0", "2025-04-28"),
		}},

		// Bookmarks become Reading; one project is forgotten for two weeks, and
		// refers to a tag that does not exist any more.
		{at: "2025-05-12T09:00:00Z", by: "jonas", message: "Reading: bookmarks, reading lists and annotations together", group: "reading", edits: []edit{
			put(tags, "reading", tag{Name: "Reading", Description: "Keeping, reading and annotating what others wrote.", RelatedTags: []string{"notes"}}),
			swapTag("dogear", "bookmarks", "reading"),
			swapTag("later-alligator", "bookmarks", "reading"),
			change(tags, "notes", func(t *tag) { t.RelatedTags = []string{"reading"} }),
			remove(tags, "bookmarks"),
		}},
		{at: "2025-05-26T18:11:00Z", by: "hana", message: "Pencil Margin was left behind when Bookmarks went", edits: []edit{
			on("pencil-margin", func(p *project) { p.Tags = []string{"reading", "notes"} }),
		}},

		// A bad Saturday.
		{at: "2025-06-14T11:40:00Z", by: "guest-7141", message: "fixed", group: "guest-7141-1", edits: []edit{
			on("lanternfish", func(p *project) {
				p.Description, p.Tags = "DO NOT USE!!! steals your pictures", []string{}
				p.WebsiteURL = "https://better-photos.example"
			}),
			describe("darkroom", "abandoned, use better-photos"),
			on("hearth", func(p *project) { p.Name, p.Licenses = "hearth (DEAD)", []string{} }),
		}},
		{at: "2025-06-14T11:44:00Z", by: "guest-7141", message: "fixed more", edits: []edit{
			demoAt("lanternfish", "https://better-photos.example/demo"),
		}},
		{at: "2025-06-14T11:53:00Z", by: "mira", message: "Revert vandalism by guest-7141", group: "revert-7141", op: driver.OpRestore, edits: []edit{
			restored("lanternfish", "2025-06-14T11:39:00Z"),
			restored("darkroom", "2025-06-14T11:39:00Z"),
			restored("hearth", "2025-06-14T11:39:00Z"),
		}},

		// Summer.
		{at: "2025-06-23T10:15:00Z", by: "teo", message: "Lanternfish v2.2.0", edits: []edit{
			publish("lanternfish", "v2.2.0", "2025-06-23"),
		}},
		{at: "2025-07-07T15:00:00Z", by: "teo", message: "Lanternfish v2.3.0", edits: []edit{
			publish("lanternfish", "v2.3.0", "2025-07-07"),
		}},
		{at: "2025-07-18T21:02:00Z", by: "hana", message: "Lanternfish is a sharing tool first", edits: []edit{
			tagAt(0, "lanternfish", "sharing"),
			put(tags, "sharing", tag{Name: "Sharing", Description: "Giving files and pictures to others.", RelatedTags: []string{"files", "photos"}}),
			tagAt(0, "parcelwing", "sharing"),
		}},
		{at: "2025-07-21T08:33:00Z", by: "mira", message: "Photos first: that is what people look for", edits: []edit{
			on("lanternfish", func(p *project) { p.Tags = []string{"photos", "sharing", "files"} }),
		}},
		{at: "2025-08-04T12:25:00Z", by: "adaeze", message: "Pantry Ledger was archived by its author", edits: []edit{
			archive("pantry-ledger"),
		}},
		{at: "2025-08-18T15:10:00Z", by: "teo", message: "Lanternfish v2.4.0", edits: []edit{
			publish("lanternfish", "v2.4.0", "2025-08-18"),
		}},
		// Pebblechat again, by other people, from version 3 on.
		{at: "2025-08-20T19:45:00Z", by: "adaeze", message: "Pebblechat is back, with new maintainers", edits: []edit{
			put(software, "pebblechat", row{
				"pebblechat", "Pebblechat", "AGPL-3.0", "elixir docker", "chat", 2014, 18, 9, "2.0.0",
				"Group chat for slow links, rewritten: text first, pictures when there is time, calls if you must.",
			}.document("2025-08-20")),
		}},
		{at: "2025-09-01T09:05:00Z", by: "teo", message: "Lanternfish v2.4.1", edits: []edit{
			publish("lanternfish", "v2.4.1", "2025-09-01"),
		}},

		// The license affair.
		{at: "2025-09-15T17:00:00Z", by: "teo", message: "Lanternfish v3.0.0 changes its license", group: "lanternfish-3", edits: []edit{
			put(licenses, lanternLicense.Identifier, lanternLicense),
			on("lanternfish", func(p *project) {
				p.Licenses = []string{lanternLicense.Identifier}
				p.CurrentRelease = &release{Tag: "v3.0.0", PublishedAt: "2025-09-15"}
			}),
		}},
		{at: "2025-09-15T17:52:00Z", by: "jonas", message: "Say so in the description, please", edits: []edit{
			on("lanternfish", func(p *project) { p.Description += " Source available since v3." }),
		}},
		{at: "2025-09-17T06:40:00Z", by: "adaeze", message: "The old code is still MIT", edits: []edit{
			relicense("lanternfish", lanternLicense.Identifier, "MIT"),
		}},
		{at: "2025-09-17T07:05:00Z", by: "mira", message: "We list what the current release has", edits: []edit{
			relicense("lanternfish", lanternLicense.Identifier),
		}},
		{at: "2025-10-01T11:11:00Z", by: "hana", message: "The demo is for customers only now", edits: []edit{
			demoAt("lanternfish", ""),
		}},
		{at: "2025-10-06T10:30:00Z", by: "teo", message: "Lanternfish v3.0.1", edits: []edit{
			publish("lanternfish", "v3.0.1", "2025-10-06"),
		}},
		{at: "2025-10-20T20:20:00Z", by: "jonas", message: "Money sounds like a bank", edits: []edit{
			change(tags, "finance", func(t *tag) { t.Name = "Household finance" }),
		}},
		{at: "2025-11-12T14:48:00Z", by: "adaeze", message: "Ferryman needs Java 21 now", group: "java-21", edits: []edit{
			change(platforms, "java", func(p *platform) { p.Description = "Needs a Java runtime, 21 or newer." }),
			describe("ferryman", "Timetables of buses, trains and boats from open data, with delays as they happen."),
		}},
		{at: "2025-11-24T16:16:00Z", by: "teo", message: "Lanternfish v3.1.0 is free software again", group: "lanternfish-3.1", edits: []edit{
			on("lanternfish", func(p *project) {
				p.Licenses = []string{"AGPL-3.0"}
				p.CurrentRelease = &release{Tag: "v3.1.0", PublishedAt: "2025-11-24"}
				p.Description = "Photo library for families: timeline, faces, shared albums, and search that understands what is in the picture."
				p.DemoURL = "https://try.lanternfish.example"
			}),
			remove(licenses, lanternLicense.Identifier),
		}},
		{at: "2025-11-25T08:02:00Z", by: "hana", message: "Openfish says thank you and goes home", edits: []edit{
			archive("openfish"),
		}},
		{at: "2025-12-01T12:30:00Z", by: "mira", message: "Lanternfish Photos, as the project calls itself", edits: []edit{
			rename("lanternfish", "Lanternfish Photos"),
		}},
		{at: "2025-12-24T22:00:00Z", by: "jonas", message: "Nobody uses CC0 for programs", edits: []edit{
			remove(licenses, "CC0-1.0"),
		}},
	}
}

// id names a document.
type id struct{ collection, key string }

// history is what happened so far.
type history struct {
	versions []driver.Version
	current  map[id][]byte // nil: deleted
	past     map[id][]int  // indexes in versions
	last     driver.Instant
}

// Versions returns the demo's versions in the order of their times, which
// strictly increase, with the members that each one changed.
func Versions() ([]driver.Version, error) {
	steps := slices.Concat(beginning(), story(), newcomers(), starRobot(), releaseRobot())
	slices.SortStableFunc(steps, func(a, b step) int { return bytes.Compare([]byte(a.at), []byte(b.at)) })
	h := &history{current: make(map[id][]byte), past: make(map[id][]int)}
	for _, s := range steps {
		if err := h.add(s); err != nil {
			return nil, fmt.Errorf("demo: %s, %s: %w", s.at, s.by, err)
		}
	}
	return h.versions, nil
}

// add applies a step. Edits that change nothing make no version.
func (h *history) add(s step) error {
	t, err := time.Parse(time.RFC3339, s.at)
	if err != nil {
		return err
	}
	at, group := driver.InstantOf(t), s.group
	if group == "" && len(s.edits) > 1 {
		group = t.Format("2006-01-02") + "-" + s.by
	}
	for _, e := range s.edits {
		if err := h.edit(s, e, max(at, h.last+1), group); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) edit(s step, e edit, at driver.Instant, group string) error {
	d := id{e.collection, e.key}
	before := h.current[d]
	var after []byte
	var err error
	if e.asOf != "" {
		after, err = h.read(d, e.asOf)
	} else {
		after, err = e.apply(before)
	}
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	v := driver.Version{
		Collection: e.collection, Key: e.key, RecordedAt: at, Op: s.op,
		Author: s.by, Message: s.message, Group: group, Data: after, Deleted: after == nil,
		Changed: normal.Changed(before, after),
	}
	switch {
	case after == nil:
		v.Op = driver.OpDelete
	case v.Op != 0:
	case before == nil:
		v.Op = driver.OpCreate
	default:
		v.Op = driver.OpUpdate
	}
	h.past[d] = append(h.past[d], len(h.versions))
	h.versions = append(h.versions, v)
	h.current[d], h.last = after, at
	return nil
}

// read returns a document as it was at a time.
func (h *history) read(d id, at string) ([]byte, error) {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return nil, err
	}
	for _, i := range slices.Backward(h.past[d]) {
		if v := h.versions[i]; v.RecordedAt <= driver.InstantOf(t) && !v.Deleted {
			return v.Data, nil
		}
	}
	return nil, fmt.Errorf("%s %q did not exist at %s", d.collection, d.key, at)
}

// beginning is the day on which the catalogue was opened.
func beginning() []step {
	var edits []edit
	for _, l := range openingLicenses {
		edits = append(edits, put(licenses, l.Identifier, l))
	}
	for _, p := range openingPlatforms {
		edits = append(edits, put(platforms, p.key, p.platform))
	}
	for _, t := range openingTags {
		edits = append(edits, put(tags, t.key, t.tag))
	}
	for _, r := range opening {
		edits = append(edits, put(software, r.key, r.document("2025-01-01")))
	}
	return []step{{
		at: "2025-01-01T09:00:00Z", by: "mira", message: "Open the catalogue", group: "opening", edits: edits,
	}}
}

// newcomers are the projects that joined later.
func newcomers() []step {
	var steps []step
	for _, a := range arrivals {
		steps = append(steps, step{
			at: a.at, by: a.by, message: "Add " + a.name,
			edits: []edit{put(software, a.key, a.document(a.at[:len("2025-01-01")]))},
		})
	}
	return steps
}
