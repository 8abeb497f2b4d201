package app

import (
	"path/filepath"
	"strings"
	"testing"
)

// A document that does not fit the schema is refused, unless it is wanted; then
// a check says so.
func TestCheckListsWhatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	store := func(name string) string { return "--store=sqlite:" + filepath.Join(dir, name) }
	const odd = `{"collection":"tags","id":"b","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"B","descriptions":""}}` + "\n"
	if status, _, errs := run(t, odd, "import", "-", store("odd.db")); status != 1 || !strings.Contains(errs, `line 1: tags "b": description: expected String!, found nothing`) {
		t.Errorf("import of a line without a required field: status %d: %s", status, errs)
	}
	if status, out, errs := run(t, odd, "import", "-", "--lenient", store("odd.db")); status != 0 || !strings.Contains(out+errs, "did you mean description?") {
		t.Errorf("lenient import: status %d: %s%s", status, out, errs)
	}
	if status, out, errs := run(t, "", "check", store("odd.db")); status != 0 || !strings.Contains(out, `Tag "b", version 1, does not fit the schema: description: expected String!`) ||
		!strings.Contains(out, "do not fit the schema: 1;") {
		t.Errorf("check: status %d: %s%s", status, out, errs)
	}
}
