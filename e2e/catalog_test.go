package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// catalog is the software catalogue, whose types are the program's own.
func catalog() dataset {
	return dataset{
		program: program, events: "catalog-small.ndjson.gz", root: "project", history: "projectHistory",
		fields: []fieldOf{
			{name: "name", stored: "name"},
			{name: "description", stored: "description"},
			{name: "websiteUrl", stored: "website_url"},
			{name: "sourceCodeUrl", stored: "source_code_url"},
			{name: "demoUrl", stored: "demo_url"},
			{name: "licenses", stored: "licenses", selection: "licenseKeys", answer: "licenseKeys", absent: []any{}},
			{name: "platforms", stored: "platforms", selection: "platformKeys", answer: "platformKeys", absent: []any{}},
			{name: "tags", stored: "tags", selection: "tagKeys", answer: "tagKeys", absent: []any{}},
			{name: "relatedSoftwareUrl", stored: "related_software_url"},
			{name: "stars", stored: "stargazers_count"},
			{name: "archived", stored: "archived"},
			{name: "updatedAt", stored: "updated_at"},
			{
				name: "currentRelease", stored: "current_release", selection: "currentRelease { tag publishedAt }",
				objects: []fieldOf{{name: "tag", stored: "tag"}, {name: "publishedAt", stored: "published_at"}},
			},
			{name: "commitHistory", stored: "commit_history"},
		},
	}
}

func TestCatalog(t *testing.T) {
	dir, d := dataDir(t), catalog()
	store := "sqlite:" + filepath.Join(t.TempDir(), "catalog.db")
	said := run(t, program, "import", "--store", store, filepath.Join(dir, d.events))
	for _, want := range []string{"41910 versions added", "software.related_software", "tags.related tags"} {
		if !strings.Contains(said, want) {
			t.Errorf("the import did not say %q:\n%s", want, said)
		}
	}
	if n := checkRoundTrip(t, program, store); n != 41910 {
		t.Errorf("%d versions exported, want 41910", n)
	}
	if again := run(t, program, "import", "--store", store, filepath.Join(dir, d.events)); !strings.Contains(again, "0 versions added, 41910 already there") {
		t.Errorf("imported again:\n%s", again)
	}
	checkAgainst(t, d, store, filepath.Join(dir, "catalog-truth.ndjson"), 50, filepath.Join(dir, "catalog-changelog.ndjson"), 20)
}

// checkAgainst serves a store, with either executor, and checks every answer that
// is known.
func checkAgainst(t *testing.T, d dataset, store, truths string, reads int, changelogs string, logs int) {
	for _, executor := range executors() {
		t.Run(executor, func(t *testing.T) {
			s := startServer(t, d.program, store, "--executor", executor)
			checkAnswers(t, s, d, truths, reads, changelogs, logs)
		})
	}
}

func checkAnswers(t *testing.T, s *server, d dataset, truths string, reads int, changelogs string, logs int) {
	rows := readLines[truth](t, truths)
	if len(rows) != reads {
		t.Errorf("%d reads to check, want %d", len(rows), reads)
	}
	for _, row := range rows {
		t.Run("read/"+row.Kind+"/"+row.ID, func(t *testing.T) { checkTruth(t, s, d, row) })
	}
	lists := readLines[changelogTruth](t, changelogs)
	if len(lists) != logs {
		t.Errorf("%d changelogs to check, want %d", len(lists), logs)
	}
	for _, list := range lists {
		t.Run("changelog/"+list.ID+"/"+strings.Join(list.Path, "/"), func(t *testing.T) { checkChangelog(t, s, d, list) })
	}
}
