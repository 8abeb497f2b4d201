package storage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// A value of an immutable field stays while the document exists, whichever way it is written.
func TestImmutable(t *testing.T) {
	types := fixtureTypes()
	for i := range types[0].Fields {
		if types[0].Fields[i].Name == "websiteUrl" {
			types[0].Fields[i].Immutable = true
		}
	}
	e := newEnvOf(t, types, nil)
	refused := func(_ any, err error) {
		t.Helper()
		wantError(t, err, fault.CodeBadUserInput, "Project.websiteUrl is immutable")
	}
	update := func(key string, expected int, patch object, policy storage.ConflictPolicy) (any, error) {
		return e.projects.Update(e.begin(), storage.UpdateInput{Key: key, ExpectedVersion: expected, Patch: patch, OnConflict: &policy})
	}
	e.create("a", object{"name": "A", "websiteUrl": "https://a.example"})
	e.update("ada", "a", 1, object{"name": "A2", "websiteUrl": "https://a.example"}) // as it is
	refused(update("a", 2, object{"websiteUrl": "https://b.example"}, storage.Reject))
	refused(update("a", 2, object{"websiteUrl": nil}, storage.Reject))
	refused(update("a", 1, object{"websiteUrl": "https://b.example"}, storage.Merge))

	// Where there is none it can be given, and stays then.
	e.create("late", object{"name": "Late"})
	e.update("ada", "late", 1, object{"websiteUrl": "https://late.example"})
	refused(update("late", 2, object{"websiteUrl": "https://b.example"}, storage.Reject))
	refused(e.projects.Restore(e.begin(), storage.RestoreInput{Key: "late", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}}))
	refused(e.projects.Restore(e.begin(), storage.RestoreInput{Key: "late", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{"/websiteUrl"}}))

	// A draft may hold it, and is not approved.
	d := e.save("ada", e.start("ada", storage.StartDraftInput{Key: "a"}), object{"websiteUrl": "https://b.example"})
	refused(e.projects.ApproveDraft(e.as("ada"), storage.ApproveDraftInput{Draft: d.ID()}))

	// Deleting ends it: another document of the key has its own.
	must(e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 2}))(t)
	e.clock.advance(time.Second)
	e.create("a", object{"name": "B", "websiteUrl": "https://b.example"})
	refused(e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 4, To: &storage.VersionRef{Version: ptr(1)}}))
	var seen []string
	for _, key := range []string{"a", "late"} {
		seen = append(seen, must(e.get(key).String(fWebsite))(t))
	}
	if diff := cmp.Diff("https://b.example https://late.example", strings.Join(seen, " ")); diff != "" {
		t.Error(diff)
	}
}
