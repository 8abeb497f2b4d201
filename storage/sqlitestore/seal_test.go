package sqlitestore

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// sealedFile makes a file of a few documents, with many versions of the first.
func sealedFile(t *testing.T, versions int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "asof.db")
	s, err := open(t.Context(), path, Options{Collections: formatDeclared(), Clock: formatClock})
	if err != nil {
		t.Fatal(err)
	}
	var vs []driver.Version
	for i := range versions {
		vs = append(vs, driver.Version{
			Collection: "things", Key: "kk" + strings.Repeat("k", max(0, 4-i)), RecordedAt: driver.Instant(1000 + i), Op: driver.OpImport, Author: "ann",
			Message: "first", Group: "g", Changed: []string{"n"}, Data: fmt.Appendf(nil, `{"n":%d,"tags":["x"]}`, i),
		})
	}
	if _, err := s.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func checkFile(t *testing.T, path string) (problems []string) {
	t.Helper()
	s, err := open(t.Context(), path, Options{Collections: formatDeclared(), Clock: formatClock, Inspect: true})
	if err != nil {
		return []string{err.Error()}
	}
	if err := s.Check(t.Context(), func(problem string) { problems = append(problems, problem) }); err != nil {
		problems = append(problems, err.Error())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return problems
}

// A single bit that is another one, in any column of a version or of a current state, is found.
func TestFlippedBitsAreFound(t *testing.T) {
	path := sealedFile(t, 12)
	if problems := checkFile(t, path); len(problems) > 0 {
		t.Fatal(problems)
	}
	random := rand.New(rand.NewPCG(1, 7))
	for _, table := range []struct {
		name, row string
		numbers   []string
	}{
		{"versions", "id % 67108864 = 4", []string{"id", "document", "at", "op", "deleted", "collection"}},
		{"documents", "number > 5", []string{"id", "number", "at", "op", "deleted", "collection"}},
	} {
		flip := func(column, flipped, what string) {
			t.Helper()
			query := fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s", table.name, column, flipped, table.row)
			copied := filepath.Join(t.TempDir(), "copy.db")
			execSQL(t, path, "VACUUM INTO '"+copied+"'")
			execSQL(t, copied, query)
			if problems := checkFile(t, copied); len(problems) == 0 {
				t.Errorf("nothing is wrong after %s%s", query, what)
			}
		}
		for _, column := range table.numbers {
			bit := random.IntN(3)
			if column == "id" || column == "at" {
				bit += 10 // no other row has it
			}
			flip(column, fmt.Sprintf("(%s | %d) - (%[1]s & %[2]d)", column, 1<<bit), fmt.Sprintf(" (bit %d)", bit))
		}
		for column, length := range map[string]int{"author": 3, "message": 5, "grp": 1, "changed": 5, "key": 2, "data": 20, "seal": 48} {
			at, bit := random.IntN(length), random.IntN(7)
			kind := "TEXT"
			if column == "data" || column == "seal" {
				kind = "BLOB"
			}
			// The byte at a place, with one bit changed.
			value := fmt.Sprintf("unhex(substr(hex(%[1]s), 1, %[2]d) || (SELECT printf('%%02X', (b | %[3]d) - (b & %[3]d)) FROM "+
				"(SELECT (instr('0123456789ABCDEF', substr(hex(%[1]s), %[2]d + 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(hex(%[1]s), %[2]d + 2, 1)) - 1 AS b))"+
				" || substr(hex(%[1]s), %[2]d + 3))", column, 2*at, 1<<bit)
			flip(column, "CAST("+value+" AS "+kind+")", fmt.Sprintf(" (byte %d, bit %d)", at, bit))
		}
	}
}
