package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/internal/codegen/codegentest"
)

// zonesSDL declares power zones: names with spaces as keys, null against
// absent, objects of any shape, and members whose names GraphQL cannot have.
const zonesSDL = `
"A zone of the power grid."
type Zone @versioned(collection: "zones") {
  name: String @index
  comment: String
  note: String @stored(as: "_comment")
  flagFileName: String @stored(as: "flag_file_name")
  capacity: JSON
  parsers: JSON
  boundingBox: JSON @stored(as: "bounding_box")
  contributors: [String!]
  timezone: String
  subZoneNames: [String!]
  country: String
  delays: JSON
  disclaimer: String
  estimationMethod: String @stored(as: "estimation_method")
}
`

func zones(program string) dataset {
	return dataset{
		program: program, events: filepath.Join("zones", "zones.ndjson.gz"), root: "zone", history: "zoneHistory",
		fields: []fieldOf{
			{name: "name", stored: "name"},
			{name: "comment", stored: "comment"},
			{name: "note", stored: "_comment"},
			{name: "flagFileName", stored: "flag_file_name"},
			{name: "capacity", stored: "capacity"},
			{name: "parsers", stored: "parsers"},
			{name: "boundingBox", stored: "bounding_box"},
			{name: "contributors", stored: "contributors", absent: []any{}},
			{name: "timezone", stored: "timezone"},
			{name: "subZoneNames", stored: "subZoneNames", absent: []any{}},
			{name: "country", stored: "country"},
			{name: "delays", stored: "delays"},
			{name: "disclaimer", stored: "disclaimer"},
			{name: "estimationMethod", stored: "estimation_method"},
		},
	}
}

func TestZones(t *testing.T) {
	dir := dataDir(t)
	d := zones(codegentest.Build(t, zonesSDL))
	store := "sqlite:" + filepath.Join(t.TempDir(), "zones.db")
	said := run(t, d.program, "import", "--store", store, filepath.Join(dir, d.events))
	if !strings.Contains(said, "2869 versions added, 0 already there") || strings.Contains(said, "not declared") {
		t.Errorf("the import said:\n%s", said)
	}
	if n := checkRoundTrip(t, d.program, store); n != 2869 {
		t.Errorf("%d versions exported, want 2869", n)
	}
	checkAgainst(t, d, store, filepath.Join(dir, "zones", "zones-truth.ndjson"), 50, filepath.Join(dir, "zones", "zones-changelog.ndjson"), 20)
}
