// Package demo is a small catalogue of self-hosted software that does not
// exist, with the edits of the year 2025: what `asof serve --demo` fills an
// empty store with, so that every capability has something to show.
//
// The same versions come out every time: the tables and the story in this
// package say what happened, and what the robots count comes from a generator
// of numbers with a fixed seed.
package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// The shapes of the documents, with the names under which they are stored.
type (
	project struct {
		Name           string         `json:"name"`
		WebsiteURL     string         `json:"website_url,omitempty"`
		Description    string         `json:"description"`
		SourceCodeURL  string         `json:"source_code_url,omitempty"`
		DemoURL        string         `json:"demo_url,omitempty"`
		Licenses       []string       `json:"licenses"`
		Platforms      []string       `json:"platforms"`
		Tags           []string       `json:"tags"`
		Stars          *int           `json:"stargazers_count,omitempty"`
		Archived       *bool          `json:"archived,omitempty"`
		UpdatedAt      string         `json:"updated_at,omitempty"`
		CurrentRelease *release       `json:"current_release,omitempty"`
		CommitHistory  map[string]int `json:"commit_history,omitempty"` // by month
	}
	release struct {
		Tag         string `json:"tag"`
		PublishedAt string `json:"published_at"`
	}
	tag struct {
		Name        string   `json:"name"`
		Description string   `json:"description"`
		RelatedTags []string `json:"related_tags,omitempty"`
	}
	license struct {
		Identifier string `json:"identifier"`
		Name       string `json:"name"`
		URL        string `json:"url,omitempty"`
	}
	platform struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
)

// row is a project as it enters the catalogue.
type row struct {
	key, name            string
	licenses             string // keys, separated by spaces, like the next two
	platforms, tags      string
	stars, weekly        int // when it enters, and about how many come in a week
	commits              int // about how many in a week
	release, description string
}

// opening is what the catalogue began with, on the first of January.
var opening = []row{
	{"lanternfish", "Lanternfish", "MIT", "go docker", "photos", 4120, 41, 17, "v1.8.0", "Photo library for families: timeline, faces, shared albums."},
	{"darkroom", "Darkroom", "GPL-3.0", "python", "photos files", 910, 5, 3, "2.0.1", "Sorts folders of raw photographs and keeps the originals untouched."},
	{"inkwell", "Inkwell", "AGPL-3.0", "nodejs docker", "notes", 2875, 22, 9, "3.4.0", "Notes in Markdown that several people can write at once."},
	{"pencil-margin", "Pencil Margin", "MIT", "rust", "notes bookmarks", 1340, 17, 6, "0.9.2", "Annotates web pages and books, and finds the annotation again years later."},
	{"commonplace", "Commonplace", "BSD-3-Clause", "python docker", "notes", 402, 3, 2, "1.1.0", "A notebook of one page per thought, linked both ways."},
	{"pebblechat", "Pebblechat", "MIT", "elixir", "chat", 1985, 2, 0, "1.12.3", "Group chat for slow links: text first, pictures when there is time."},
	{"longhouse", "Longhouse", "AGPL-3.0", "go docker", "chat", 3310, 29, 12, "v2.6.0", "Rooms, threads and voice for a club or a village."},
	{"semaphore-mail", "Semaphore Mail", "GPL-3.0", "go", "chat", 760, 6, 4, "v0.31.0", "Mailing lists with an archive that is pleasant to read."},
	{"almanac", "Almanac", "AGPL-3.0", "php docker", "calendar", 1522, 9, 5, "6.2.0", "Calendars and address books for every device in the house."},
	{"whose-turn", "Whose Turn", "MIT", "nodejs", "calendar home-automation", 288, 4, 1, "1.3.0", "Rotas for chores, with a fair memory and no nagging."},
	{"tidepool", "Tidepool", "Apache-2.0", "go docker", "files", 5230, 33, 14, "v4.1.2", "Synchronises folders between machines that are rarely online together."},
	{"parcelwing", "Parcelwing", "MIT", "rust docker", "files", 1876, 26, 7, "0.14.0", "Sends a large file once, to one person, and forgets it."},
	{"seed-vault", "Seed Vault", "Apache-2.0", "go", "files monitoring", 2240, 12, 8, "v1.20.0", "Backups that are restored for practice every night."},
	{"victrola", "Victrola", "GPL-3.0", "rust docker", "music", 2690, 24, 10, "0.22.1", "Streams a record collection and prints its sleeve notes."},
	{"hummingbird", "Hummingbird", "MIT", "python", "music", 534, 7, 3, "0.5.0", "Finds the song from the hummed beginning of it."},
	{"sourdough", "Sourdough", "AGPL-3.0", "nodejs docker", "recipes", 1630, 19, 6, "2.9.0", "Recipes that scale themselves, with a shopping list by aisle."},
	{"pantry-ledger", "Pantry Ledger", "MIT", "php", "recipes finance", 321, 2, 1, "1.0.4", "Knows what is in the cupboard and what it cost."},
	{"cairn", "Cairn", "MPL-2.0", "rust", "maps", 1112, 14, 7, "0.8.0", "Walking maps that work without a signal."},
	{"ferryman", "Ferryman", "Apache-2.0", "java docker", "maps calendar", 645, 4, 3, "3.3.1", "Timetables of buses, trains and boats from open data."},
	{"night-porter", "Night Porter", "Apache-2.0", "go docker", "monitoring", 6015, 36, 18, "v5.0.0", "Watches services and wakes one person, not all."},
	{"barograph", "Barograph", "BSD-3-Clause", "python docker", "monitoring home-automation", 873, 8, 4, "1.15.0", "Draws what the sensors say, ten years of it at once."},
	{"hearth", "Hearth", "Apache-2.0", "python docker", "home-automation", 7480, 52, 25, "2025.1", "Lights, heating and doors, without anybody else's cloud."},
	{"pincushion", "Pincushion", "MIT", "go", "home-automation", 219, 3, 1, "v0.4.0", "A rule engine for the home that fits in 4 MB."},
	{"dogear", "Dogear", "MIT", "nodejs docker", "bookmarks", 1490, 11, 4, "1.22.0", "Keeps bookmarks together with a copy of the page."},
	{"later-alligator", "Later Alligator", "GPL-3.0", "php", "bookmarks", 655, 5, 2, "2.5.3", "A reading list that gets shorter by itself."},
	{"abacus-house", "Abacus House", "AGPL-3.0", "java docker", "finance", 2051, 15, 6, "4.8.0", "Double-entry bookkeeping for a household or a small shop."},
	{"split-the-bill", "Split the Bill", "MIT", "nodejs", "finance", 777, 10, 2, "1.6.0", "Who owes whom after the holiday."},
	{"backgammon-night", "Backgammon Night", "GPL-3.0", "elixir docker", "games", 468, 6, 2, "0.11.0", "Board games by correspondence, with a clock that is kind."},
}

// arrival is a project that joined during the year.
type arrival struct {
	at, by string
	row
}

var arrivals = []arrival{
	{"2025-01-23T18:40:00Z", "adaeze", row{"field-notes", "Field Notes", "MIT", "go", "notes maps", 120, 9, 4, "v0.1.0", "Observations of birds and plants, with a place and a time."}},
	{"2025-02-11T07:15:00Z", "teo", row{"scriptorium", "Scriptorium", "MPL-2.0", "rust docker", "files", 388, 16, 9, "0.3.0", "Scans, reads and files the paper post."}},
	{"2025-03-19T20:05:00Z", "jonas", row{"moth-radio", "Moth Radio", "AGPL-3.0", "elixir", "music chat", 95, 8, 5, "0.2.0", "A radio station for twenty listeners and their requests."}},
	{"2025-04-08T12:30:00Z", "hana", row{"root-cellar", "Root Cellar", "MIT", "python", "recipes", 77, 5, 2, "0.1.1", "Plans a vegetable garden backwards from the kitchen."}},
	{"2025-05-06T09:20:00Z", "adaeze", row{"plumb-line", "Plumb Line", "Apache-2.0", "java", "monitoring", 243, 7, 6, "1.0.0", "Compares what a server should be with what it is."}},
	{"2025-06-17T16:45:00Z", "teo", row{"chess-by-post", "Chess by Post", "MIT", "go docker", "games", 150, 11, 3, "v0.6.0", "One move a day, and a postcard when it is over."}},
	{"2025-07-02T08:10:00Z", "jonas", row{"tollkeeper", "Tollkeeper", "BSD-3-Clause", "rust", "monitoring finance", 312, 13, 7, "0.4.0", "Says what each service costs to run, in coins."}},
	{"2025-09-16T21:30:00Z", "hana", row{"openfish", "Openfish", "MIT", "go docker", "photos", 640, 95, 21, "v2.4.1", "Community continuation of Lanternfish under its first license."}},
	{"2025-09-29T10:00:00Z", "adaeze", row{"lamplighter", "Lamplighter", "MIT", "nodejs", "home-automation", 58, 4, 3, "0.1.0", "Street-lamp colours at dusk, for every lamp in the house."}},
	{"2025-10-14T13:25:00Z", "teo", row{"patchwork-wiki", "Patchwork", "AGPL-3.0", "python docker", "notes", 431, 20, 8, "0.7.0", "A wiki in which every paragraph has its own history."}},
	{"2025-11-05T17:50:00Z", "jonas", row{"snowline", "Snowline", "MPL-2.0", "rust docker", "maps monitoring", 89, 9, 6, "0.2.2", "Avalanche and weather bulletins on one map."}},
	{"2025-12-03T19:05:00Z", "hana", row{"carol-service", "Carol Service", "MIT", "python", "music calendar", 41, 6, 4, "1.0.0", "Rehearsals, parts and lifts for a choir."}},
}

var openingTags = []struct {
	key string
	tag
}{
	{"photos", tag{"Photos", "Libraries and galleries of pictures.", []string{"files"}}},
	{"notes", tag{"Notes", "Writing things down and finding them again.", []string{"bookmarks"}}},
	{"chat", tag{"Chat", "Talking with each other, now or later.", nil}},
	{"calendar", tag{"Calendars", "Dates, rotas and timetables.", nil}},
	{"files", tag{"Files", "Storing, sending and saving files.", []string{"photos"}}},
	{"music", tag{"Music", "Listening, finding and playing.", nil}},
	{"recipes", tag{"Recipes", "Everything about the kitchen.", nil}},
	{"maps", tag{"Maps", "Finding the way.", nil}},
	{"monitoring", tag{"Monitoring", "Watching machines and measuring them.", nil}},
	{"home-automation", tag{"Home automation", "Lights, heating, sensors.", []string{"monitoring"}}},
	{"bookmarks", tag{"Bookmarks", "Keeping links.", []string{"notes"}}},
	{"finance", tag{"Money", "Budgets, bills and books.", nil}},
	{"games", tag{"Games", "Playing together at a distance.", nil}},
}

var openingLicenses = []license{
	{"MIT", "MIT License", "https://spdx.org/licenses/MIT.html"},
	{"Apache-2.0", "Apache License 2.0", "https://spdx.org/licenses/Apache-2.0.html"},
	{"AGPL-3.0", "GNU Affero General Public License v3.0", "https://spdx.org/licenses/AGPL-3.0.html"},
	{"GPL-3.0", "GNU General Public License v3.0", "https://spdx.org/licenses/GPL-3.0.html"},
	{"BSD-3-Clause", "BSD 3-Clause", "https://spdx.org/licenses/BSD-3-Clause.html"},
	{"MPL-2.0", "Mozilla Public License 2.0", "https://spdx.org/licenses/MPL-2.0.html"},
	{"CC0-1.0", "Creative Commons Zero v1.0 Universal", "https://spdx.org/licenses/CC0-1.0.html"},
}

var openingPlatforms = []struct {
	key string
	platform
}{
	{"docker", platform{"Docker", "Runs as a container image."}},
	{"elixir", platform{"Elixir", "Needs the Erlang runtime."}},
	{"go", platform{"Go", "One binary without dependencies."}},
	{"java", platform{"Java", "Needs a Java runtime, 17 or newer."}},
	{"nodejs", platform{"Node.js", "Needs Node.js 20 or newer."}},
	{"php", platform{"PHP", "Runs on ordinary web hosting."}},
	{"python", platform{"Python", "Needs Python 3.10 or newer."}},
	{"rust", platform{"Rust", "One binary without dependencies."}},
}

// document makes the document with which a project enters.
func (r row) document(day string) *project {
	stars, archived := r.stars, false
	site := "https://" + r.key + ".example"
	return &project{
		Name: r.name, Description: r.description,
		WebsiteURL: site, SourceCodeURL: "https://code.example/" + r.key,
		Licenses: strings.Fields(r.licenses), Platforms: strings.Fields(r.platforms), Tags: strings.Fields(r.tags),
		Stars: &stars, Archived: &archived, UpdatedAt: day,
		CurrentRelease: &release{Tag: r.release, PublishedAt: day},
	}
}

// Fill puts the catalogue into an empty store and reports whether it did: a
// store that holds anything, be it only deleted documents, is left as it is.
// The store's types must be those of the software catalogue.
func Fill(ctx context.Context, store *storage.Store) (bool, error) {
	stats, err := store.Engine().Stats(ctx)
	if _, _, versions := storage.Held(stats); err != nil || versions > 0 {
		return false, err
	}
	versions, err := Versions()
	if err != nil {
		return false, err
	}
	_, err = store.Load(ctx, versions)
	return err == nil, err
}

// Filled reports whether a store holds the demo's catalogue, be it from Fill or from
// an import of what was exported: the first version of the project that most of the
// story is about.
func Filled(ctx context.Context, engine driver.Engine) (bool, error) {
	first, err := engine.Get(ctx, software, []driver.Ref{{Key: "lanternfish", Number: 1}}, []string{"name"})
	if err != nil {
		return false, err
	}
	return first[0] != nil && first[0].Author == "mira", nil
}

// ErrUnfit is what Fits returns for types that lack some of the demo's.
var ErrUnfit = errors.New("the demo needs the types Project, Tag, License and Platform of the schema that comes with asof; leave --demo out")

// Fits reports whether the catalogue can be documents of these types: it wraps
// ErrUnfit where a type is missing, or where a value is not what a type declares.
func Fits(types []*storage.Type) error {
	byCollection := make(map[string]*storage.Type, len(types))
	for _, t := range types {
		byCollection[t.Collection] = t
	}
	for collection, name := range map[string]string{software: "Project", tags: "Tag", licenses: "License", platforms: "Platform"} {
		if t := byCollection[collection]; t == nil || t.Name != name {
			return ErrUnfit
		}
	}
	versions, err := Versions()
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.Deleted {
			continue
		}
		if _, err := byCollection[v.Collection].Validate(v.Data); err != nil {
			return fmt.Errorf("%w (%s %q: %w)", ErrUnfit, v.Collection, v.Key, err)
		}
	}
	return nil
}
