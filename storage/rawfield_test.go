package storage_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// What is copied is what the accessors read, in the form in which it is written.
func TestRawInstantsAreThoseThatAreRead(t *testing.T) {
	e := newEnv(t)
	texts := []string{
		"2026-01-05T10:00:00Z", "2026-01-05T10:00:00.5Z", "2026-01-05T10:00:00.123456Z", "2026-01-05T10:00:00.1234567Z",
		"2026-01-05T10:00:00.50Z", "2026-01-05T10:00:00.Z", "2026-01-05T10:00:00.x5Z", "2026-01-05T10:00:00,5Z",
		"2026-01-05T10:00:00+00:00", "2026-01-05T10:00:00+02:00", "2026-01-05t10:00:00z", "2026-01-05 10:00:00Z",
		"2026-01-05T24:00:00Z", "2026-01-05T10:60:00Z", "2026-01-05T10:00:60Z", "2026-02-29T10:00:00Z", "2024-02-29T10:00:00Z",
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-1-05T10:00:00Z", "2026-01-05T1:00:00Z", "2026-01-05T10-00-00Z", "", "now",
		`2026-01-05T10:00:00\u005a`,
	}
	for i, text := range texts {
		key := fmt.Sprintf("k%d", i)
		e.load("software", key, `{"name":"n","checkedAt":"`+text+`"}`)
		d := must(e.projects.Get(e.begin(), key, nil, nil))(t)
		at, err := d.OptInstant(fCheckedAt)
		raw, rawErr := d.RawField(fCheckedAt)
		if (err == nil) != (rawErr == nil) {
			t.Errorf("%s: read with %v, copied with %v", text, err, rawErr)
			continue
		}
		if err == nil && string(raw) != `"`+at.String()+`"` {
			t.Errorf("%s is read as %s and copied as %s", text, at, raw)
		}
	}
}

func TestRawDaysAndEnumsAreThoseThatAreRead(t *testing.T) {
	e := newEnv(t)
	for i, text := range []string{`"2026-02-28"`, `"2026-02-29"`, `"2024-02-29"`, `"2026-02-2\u0038"`, `"2026-2-28"`, `""`, `7`, `"FREE"`, `"free"`, `"FRE\u0045"`, `"PAID "`} {
		key := fmt.Sprintf("k%d", i)
		e.load("software", key, `{"name":"n","updated_at":`+text+`,"plan":`+text+`}`)
		d := must(e.projects.Get(e.begin(), key, nil, nil))(t)
		for _, field := range []int{fUpdatedAt, fPlan} {
			_, err := d.OptString(field)
			raw, rawErr := d.RawField(field)
			if (err == nil) != (rawErr == nil) || err == nil && len(raw) < len(`"FREE"`) {
				t.Errorf("%s: read with %v, copied as %s with %v", text, err, raw, rawErr)
			}
		}
	}
}

func TestRawFloatsAreThoseThatAreRead(t *testing.T) {
	e := newEnv(t)
	for i, text := range []string{
		"0", "-0", "1", "0.5", "-12.5", "1.0", "12345678901234567890", "123456789012345678901234567890", "0.1000000000000000055511151231257827",
		"1e5", "1e22", "1e-7", "0.0000001", "0.000000123", "-0.00000000001", "999999999999999", "100000000000000", "123456.12345678", "0.30000000000001", "1.5E+3", "5e-324", "1e-400", "1e400", "-1e400",
	} {
		key := fmt.Sprintf("k%d", i)
		e.load("software", key, `{"name":"n","rating":`+text+`}`)
		d := must(e.projects.Get(e.begin(), key, nil, nil))(t)
		x, err := d.OptFloat(fRating)
		raw, rawErr := d.RawField(fRating)
		if (err == nil) != (rawErr == nil) {
			t.Errorf("%s: read with %v, copied as %s with %v", text, err, raw, rawErr)
			continue
		}
		if err != nil {
			continue
		}
		if want, err := json.Marshal(*x); err != nil || string(want) != string(raw) {
			t.Errorf("%s is read as %s, %v, and copied as %s", text, want, err, raw)
		}
	}
}
