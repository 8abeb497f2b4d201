package storage_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// One parser decides what a moment and a day are, wherever they are written:
// documents, patches, filters and imports. What is in a store already can be
// read all the same.
func TestMomentsAndDaysAreCheckedAlikeEverywhere(t *testing.T) {
	tests := []struct {
		field, stored string // in the schema, and in documents
		text          string
		bad           string // why it is refused; "" where it is not
		imported      bool   // accepted by imports only
		reads         string // stored already, it reads as this; "": it cannot be read
	}{
		{"checkedAt", "checkedAt", "2024-03-01T12:30:00Z", "", true, "2024-03-01T12:30:00Z"},
		{"checkedAt", "checkedAt", "2024-03-01T14:30:00.25+02:00", "", true, "2024-03-01T12:30:00.25Z"},
		{"checkedAt", "checkedAt", "2024-03-01T12:30:00.1234560000000Z", "", true, "2024-03-01T12:30:00.123456Z"},
		{"checkedAt", "checkedAt", "2024-02-29T23:59:59+24:00", "there is no offset +24:00", false, "2024-02-28T23:59:59Z"},
		{"checkedAt", "checkedAt", "2024-02-29T1:59:59Z", "not in the format of RFC 3339", false, "2024-02-29T01:59:59Z"},
		{"checkedAt", "checkedAt", "2024-02-29T23:59:59,5Z", "not in the format of RFC 3339", false, "2024-02-29T23:59:59.5Z"},
		{"checkedAt", "checkedAt", "0000-01-01T00:00:00Z", "there is no year 0000", false, "0000-01-01T00:00:00Z"},
		{"checkedAt", "checkedAt", "2024-03-01T12:30:00.123456789123Z", "exact to the microsecond", true, "2024-03-01T12:30:00.123456Z"},
		{"checkedAt", "checkedAt", "2024-03-01T12:30:00-00:00", "the offset is unknown", false, "2024-03-01T12:30:00Z"},
		{"checkedAt", "checkedAt", "2024-03-01T12:30:00", "the offset is missing", false, ""},
		{"checkedAt", "checkedAt", "2024-02-30T12:30:00Z", "its day does not exist", false, ""},
		{"checkedAt", "checkedAt", "2024-03-01T24:00:00Z", "its hour does not exist", false, ""},
		{"checkedAt", "checkedAt", "2016-12-31T23:59:60Z", "its second does not exist", false, ""},
		{"updatedAt", "updated_at", "2024-02-29", "", true, "2024-02-29"},
		{"updatedAt", "updated_at", "0000-01-01", "there is no year 0000", false, "0000-01-01"},
		{"updatedAt", "updated_at", "2023-02-29", "its day does not exist", false, ""},
		{"updatedAt", "updated_at", "2024-3-1", "a date has four digits", false, ""},
	}
	e := newEnv(t)
	e.create("p", object{"name": "P"})
	types := fixtureTypes()
	for i, tt := range tests {
		writes := map[string]func() error{
			"input.data.": func() error {
				_, err := e.projects.Create(e.begin(), storage.CreateInput{Key: "new" + strconv.Itoa(i), Data: object{"name": "N", tt.field: tt.text}})
				return err
			},
			"input.patch.": func() error {
				_, err := e.projects.Update(e.begin(), storage.UpdateInput{Key: "p", ExpectedVersion: e.get("p").Version(), Patch: object{tt.field: tt.text}})
				return err
			},
			"where.": func() error {
				_, err := e.projects.Page(e.begin(), object{tt.field: object{"eq": tt.text}}, nil, nil, nil, nil, nil, nil, nil)
				return err
			},
		}
		for path, do := range writes {
			switch err := do(); {
			case tt.bad == "" && err != nil:
				t.Errorf("%s%s: %v", path, tt.text, err)
			case tt.bad != "":
				wantError(t, err, fault.CodeBadUserInput, path+tt.field, tt.bad, strconv.Quote(tt.text))
			}
		}
		data := `{"name":"N","` + tt.stored + `":"` + tt.text + `"}`
		if _, err := types[0].Validate([]byte(data)); (err == nil) != tt.imported {
			t.Errorf("an import of %s: %v", tt.text, err)
		}
		key := "old" + strconv.Itoa(i)
		e.load("software", key, data)
		got := ""
		var at *driver.Instant
		text, err := (*string)(nil), error(nil)
		if tt.field == "updatedAt" {
			text, err = e.get(key).OptString(fUpdatedAt)
		} else if at, err = e.get(key).OptInstant(fCheckedAt); err == nil {
			text = ptr(at.String())
		}
		if err == nil {
			got = *text
		}
		if got != tt.reads {
			t.Errorf("%s in the store reads as %q (%v), want %q", tt.text, got, err, tt.reads)
		}
	}
	// Only what cannot be read is wrong in the store.
	var wrong []string
	if err := e.store.Mismatches(t.Context(), func(m storage.Mismatch) { wrong = append(wrong, m.Key) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(wrong)
	var want []string
	for i, tt := range tests {
		if tt.reads == "" {
			want = append(want, "old"+strconv.Itoa(i))
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, wrong); diff != "" {
		t.Error(diff)
	}
}

func TestValidateAllGoesOn(t *testing.T) {
	undeclared, mismatches, err := fixtureTypes()[0].ValidateAll([]byte(
		`{"stargazers_count":"many","secret":1,"tags":["x",5,null],"current_release":{"tag":2,"draft":true},"releases":[{"by":1},7],"checkedAt":"2024-02-29T1:59:59Z","other":2}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mismatches {
		line := m.Error()
		if m.Missing {
			line += " (missing)"
		}
		if m.Readable {
			line += " (readable)"
		}
		got = append(got, line)
	}
	want := []string{
		`stargazers_count: expected Int, found the string "many"`,
		`tags[1]: expected a string (the key of a Tag), found the number 5`,
		`tags[2]: expected a string (the key of a Tag), found null (missing)`,
		`current_release.tag: expected String, found the number 2`,
		`releases[0].by: expected a string (the key of a Tag), found the number 1`,
		`releases[1]: expected Release, found the number 7`,
		`checkedAt: expected DateTime (like "2006-01-02T15:04:05Z"), found the string "2024-02-29T1:59:59Z" (readable)`,
		`name: expected String!, found nothing (missing)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"secret", "current_release.draft", "other"}, undeclared); diff != "" {
		t.Error(diff)
	}
}

func TestValidateAllIsBounded(t *testing.T) {
	_, mismatches, err := fixtureTypes()[0].ValidateAll([]byte(`{"name":"n","tags":[` + strings.Repeat("1,", 5000) + `1]}`))
	if err != nil || len(mismatches) != 1000 {
		t.Errorf("%d mismatches, %v", len(mismatches), err)
	}
}
