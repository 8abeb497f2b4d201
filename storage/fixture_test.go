package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// The fields of the tests' types, by their place.
const (
	fName = iota
	fDescription
	fWebsite
	fTags
	fLicense
	fStars
	fArchived
	fUpdatedAt
	fCheckedAt
	fPrice
	fPlan
	fRelease
	fReleases
	fHistory
	fRating
)

func fixtureTypes() []*record.Type {
	release := &record.ObjectType{Name: "Release", Fields: []record.Field{
		{Name: "tag", Kind: record.KindString},
		{Name: "publishedAt", Stored: "published_at", Kind: record.KindDate},
		{Name: "notes", Kind: record.KindString, List: true},
		{Name: "by", Kind: record.KindRef, Ref: "Tag"},
	}}
	return []*record.Type{
		{Name: "Project", Singular: "project", Plural: "projects", Collection: "software", Fields: []record.Field{
			fName:        {Name: "name", Kind: record.KindString, NonNull: true, Indexed: true},
			fDescription: {Name: "description", Kind: record.KindString},
			fWebsite:     {Name: "websiteUrl", Stored: "website_url", Kind: record.KindString},
			fTags:        {Name: "tags", Kind: record.KindRef, Ref: "Tag", List: true, NonNull: true, Indexed: true},
			fLicense:     {Name: "license", Kind: record.KindRef, Ref: "Tag"},
			fStars:       {Name: "stars", Stored: "stargazers_count", Kind: record.KindInt, Indexed: true},
			fArchived:    {Name: "archived", Kind: record.KindBoolean, NonNull: true, Default: json.RawMessage("false")},
			fUpdatedAt:   {Name: "updatedAt", Stored: "updated_at", Kind: record.KindDate},
			fCheckedAt:   {Name: "checkedAt", Kind: record.KindDateTime},
			fPrice:       {Name: "price", Kind: record.KindDecimal},
			fPlan:        {Name: "plan", Kind: record.KindEnum, Enum: []string{"FREE", "PAID"}},
			fRelease:     {Name: "currentRelease", Stored: "current_release", Kind: record.KindObject, Object: release},
			fReleases:    {Name: "releases", Kind: record.KindObject, Object: release, List: true},
			fHistory:     {Name: "commitHistory", Stored: "commit_history", Kind: record.KindJSON},
			fRating:      {Name: "rating", Kind: record.KindFloat},
		}},
		{Name: "Tag", Singular: "tag", Plural: "tags", Collection: "tags", Fields: []record.Field{
			{Name: "name", Kind: record.KindString, NonNull: true},
			{Name: "related", Kind: record.KindRef, Ref: "Tag", List: true},
		}},
	}
}

type project struct{ *storage.Document }

type tag struct{ *storage.Document }

// env is a store over the model engine, with a clock that stands still until it
// is moved.
type env struct {
	t        *testing.T
	engine   *spy
	store    *storage.Store
	projects *storage.Collection[*project]
	tags     *storage.Collection[*tag]
	clock    *clock
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) driver.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return driver.InstantOf(c.now)
}

// spy counts the calls of an engine, and lets a test act between a read and the
// commit that follows it.
type spy struct {
	driver.Engine
	gets, logs, counts, queries, found atomic.Int64
	beforeCommit                       func()
	commitErr                          error
}

func (s *spy) Get(ctx context.Context, c string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	s.gets.Add(1)
	return s.Engine.Get(ctx, c, refs, fields)
}

func (s *spy) Count(ctx context.Context, q *driver.Query) (int64, error) {
	s.counts.Add(1)
	return s.Engine.Count(ctx, q)
}

func (s *spy) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	vs, err := s.Engine.Query(ctx, q)
	s.queries.Add(1)
	s.found.Add(int64(len(vs)))
	return vs, err
}

func (s *spy) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	s.logs.Add(1)
	return s.Engine.Log(ctx, q)
}

func (s *spy) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	if f := s.beforeCommit; f != nil {
		s.beforeCommit = nil
		f()
	}
	if s.commitErr != nil {
		return nil, s.commitErr
	}
	return s.Engine.Commit(ctx, ws)
}

func newEnv(t *testing.T, opts ...storage.Option) *env {
	t.Helper()
	return newEnvOver(t, nil, opts...)
}

// newEnvOver is newEnv with an engine of its own around the one that counts.
func newEnvOver(t *testing.T, around func(driver.Engine) driver.Engine, opts ...storage.Option) *env {
	t.Helper()
	return newEnvOf(t, fixtureTypes(), around, opts...)
}

// newEnvOf is newEnvOver with types like those of the fixture.
func newEnvOf(t *testing.T, types []*record.Type, around func(driver.Engine) driver.Engine, opts ...storage.Option) *env {
	t.Helper()
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	engine := &spy{Engine: newEngine(t, c, storage.CollectionsOf(types))}
	outer := driver.Engine(engine)
	if around != nil {
		outer = around(engine)
	}
	store, err := storage.New(outer, types, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &env{
		t: t, engine: engine, store: store, clock: c,
		projects: storage.NewCollection(store, types[0], func(d *storage.Document) *project { return &project{d} }),
		tags:     storage.NewCollection(store, types[1], func(d *storage.Document) *tag { return &tag{d} }),
	}
}

// onSQLite is the test that runs the others on the embedded engine.
const onSQLite = "TestOnSQLite"

// newEngine returns the naive model, or, below onSQLite, the embedded engine.
func newEngine(t *testing.T, c *clock, collections []driver.Collection) driver.Engine {
	t.Helper()
	if !strings.HasPrefix(t.Name(), onSQLite+"/") {
		return drivertest.NewModel(c.Now, collections)
	}
	engine, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlitestore.Options{Collections: collections, Clock: c.Now, Elapsed: drivertest.Elapsed(c.Now)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

func TestOnSQLite(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"AsOfIsInclusive": TestAsOfIsInclusive, "VersionIsChosenBeforeTheFilter": TestVersionIsChosenBeforeTheFilter, "TimeArguments": TestTimeArguments,
		"OneInstantForAnOperation": TestOneInstantForAnOperation, "LaterWritesNeverShowInAPinnedRead": TestLaterWritesNeverShowInAPinnedRead, "IDs": TestIDs,
		"DeletedDocumentsKeepTheirHistory": TestDeletedDocumentsKeepTheirHistory, "OldVersionsUnderTheSchema": TestOldVersionsUnderTheSchema, "NestedViews": TestNestedViews,
		"PagesPinTheirInstant": TestPagesPinTheirInstant, "PagesBothWays": TestPagesBothWays, "PageRefuses": TestPageRefuses, "Where": TestWhere,
		"OrderAndCursorsOfEveryKind": TestOrderAndCursorsOfEveryKind, "CursorsOfExtremeDecimals": TestCursorsOfExtremeDecimals, "ChangelogOfADocument": TestChangelogOfADocument, "GlobalChangelog": TestGlobalChangelog, "ChangelogsAreWalked": TestChangelogsAreWalked,
		"Versions": TestVersions, "Blame": TestBlame, "BlameStopsEarly": TestBlameStopsEarly, "Diff": TestDiff, "HistoryOfWhatWasJustWritten": TestHistoryOfWhatWasJustWritten, "Create": TestCreate, "InputIsChecked": TestInputIsChecked,
		"PatchTellsNullFromAbsent": TestPatchTellsNullFromAbsent, "NothingChangedMakesNoVersion": TestNothingChangedMakesNoVersion, "ConflictSaysEverything": TestConflictSaysEverything,
		"Merge": TestMerge, "AConflictIsShownAtASettledInstant": TestAConflictIsShownAtASettledInstant, "CompareAndSwapIsTheEngines": TestCompareAndSwapIsTheEngines, "ConcurrentUpdatesLoseNothing": TestConcurrentUpdatesLoseNothing,
		"Delete": TestDelete, "CommitIsAllOrNothing": TestCommitIsAllOrNothing, "CommitNamesEveryConflict": TestCommitNamesEveryConflict, "CommitMergesAgain": TestCommitMergesAgain,
		"CommitComparesWhatItLeaves": TestCommitComparesWhatItLeaves, "CommitRefuses": TestCommitRefuses, "CommitsThatRace": TestCommitsThatRace,
		"RestoreLosesNothing": TestRestoreLosesNothing, "ChangeGroups": TestChangeGroups, "LoadWorksOutWhatChanged": TestLoadWorksOutWhatChanged,
		"IDsOfLaterPages": TestIDsOfLaterPages, "Watch": TestWatch, "WatchRefuses": TestWatchRefuses, "WhatCannotBeReadIsNullInFilters": TestWhatCannotBeReadIsNullInFilters,
		"Draft": TestDraft, "DraftOfANewDocument": TestDraftOfANewDocument, "DraftConflict": TestDraftConflict, "DraftsAreOfTheirAuthor": TestDraftsAreOfTheirAuthor,
		"SavesOfADraftRace": TestSavesOfADraftRace, "ApprovalsRace": TestApprovalsRace,
		"DraftsShowNowhereElse": TestDraftsShowNowhereElse, "DraftsUnderAnotherSchema": TestDraftsUnderAnotherSchema, "ApprovalInACommit": TestApprovalInACommit, "ApprovalsInACommitRace": TestApprovalsInACommitRace, "ADraftEndsOnce": TestADraftEndsOnce,
		"Rules": TestRules, "WritesNeedPermission": TestWritesNeedPermission, "WatchesNeedPermission": TestWatchesNeedPermission, "Retention": TestRetention, "WatchOfThePruned": TestWatchOfThePruned, "PrunedAgain": TestPrunedAgain, "KeepChanges": TestKeepChanges, "ConflictWithThePruned": TestConflictWithThePruned, "OnlyThePrunedIsLoaded": TestOnlyThePrunedIsLoaded, "PrunedMeanwhile": TestPrunedMeanwhile, "Grace": TestGrace, "DraftsNeedPermission": TestDraftsNeedPermission, "Tags": TestTags, "PagesByTag": TestPagesByTag, "TagsKeep": TestTagsKeep, "TagsRaceWithPruning": TestTagsRaceWithPruning, "TagsNeedPermission": TestTagsNeedPermission, "DraftsKeepWhatTheirAuthorCouldNotSee": TestDraftsKeepWhatTheirAuthorCouldNotSee, "PagesWithoutThePast": TestPagesWithoutThePast,
		"Archive": TestArchive, "ArchiveOfWhatIsPruned": TestArchiveOfWhatIsPruned, "ArchiveGoesOn": TestArchiveGoesOn,
		"Erase": TestErase, "EraseAll": TestEraseAll, "EraseKilled": TestEraseKilled, "ErasuresRace": TestErasuresRace,
		"TodaysForm": TestTodaysForm, "Migration": TestMigration, "MigrationFails": TestMigrationFails, "Rewrite": TestRewrite, "RewritesRace": TestRewritesRace, "EraseEarlierForms": TestEraseEarlierForms,
		"WatchesOfWhatCannotBeRead": TestWatchesOfWhatCannotBeRead, "EraseWhatMigrationsFailFor": TestEraseWhatMigrationsFailFor, "ErasuresAreFinishedTwice": TestErasuresAreFinishedTwice,
		"CopiesAreLikeOwnFields": testCopiesAreLikeOwnFields, "CopiesOfWhatMayNotBeRead": TestCopiesOfWhatMayNotBeRead, "CopiesOfManyDocuments": testCopiesOfManyDocuments, "CopiesOfEarlierForms": TestCopiesOfEarlierForms, "CopiesFromTheSameType": TestCopiesFromTheSameType, "CopiesReadFewSources": TestCopiesReadFewSources,
	} {
		t.Run(name, test)
	}
}

// begin starts an operation, a second after what was before.
func (e *env) begin() context.Context {
	e.t.Helper()
	e.clock.advance(time.Second)
	ctx, err := e.store.Begin(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return ctx
}

func (e *env) as(actor string) context.Context {
	return storage.WithActor(e.begin(), storage.Actor{ID: actor})
}

// load records a version as it is, a second after what was before; "" deletes.
func (e *env) load(collection, key, data string) driver.Instant {
	e.t.Helper()
	v := driver.Version{Collection: collection, Key: key, RecordedAt: e.clock.advance(time.Second), Author: "importer", Deleted: data == ""}
	if data != "" {
		raw, err := normal.Object([]byte(data))
		if err != nil {
			e.t.Fatal(err)
		}
		v.Data = raw
	}
	if _, err := e.store.Load(e.t.Context(), []driver.Version{v}); err != nil {
		e.t.Fatal(err)
	}
	return v.RecordedAt
}

func (e *env) create(key string, data map[string]any) {
	e.t.Helper()
	if _, ok := must(e.projects.Create(e.as("ann"), storage.CreateInput{Key: key, Data: data}))(e.t).(*storage.Success[*project]); !ok {
		e.t.Fatalf("%s exists", key)
	}
}

func (e *env) update(actor, key string, expected int, patch map[string]any) *storage.Success[*project] {
	e.t.Helper()
	res := must(e.projects.Update(e.as(actor), storage.UpdateInput{Key: key, ExpectedVersion: expected, Patch: patch}))(e.t)
	s, ok := res.(*storage.Success[*project])
	if !ok {
		e.t.Fatalf("a conflict: %+v", res)
	}
	return s
}

func (e *env) get(key string) *project {
	e.t.Helper()
	return must(e.projects.Get(e.begin(), key, nil, nil))(e.t)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ptr[T any](v T) *T { return &v }

// wantError checks the code of an error and that its message says something.
func wantError(t *testing.T, err error, code fault.Code, parts ...string) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want a %s", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(e.Message, p) {
			t.Fatalf("the message %q does not say %q", e.Message, p)
		}
	}
}

// lines describes changes, one line each.
func lines(changes []*storage.FieldChange) []string {
	var out []string
	for _, c := range changes {
		line := string(c.Op) + " " + c.Path
		if c.OldValue != nil {
			line += " " + string(c.OldValue)
		}
		if c.NewValue != nil {
			line += " -> " + string(c.NewValue)
		}
		out = append(out, line)
	}
	return out
}

type object = map[string]any

// counted counts the entries that are taken from a log.
type counted struct {
	driver.Engine
	entries *int
}

func (c *counted) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		for e, err := range c.Engine.Log(ctx, q) {
			*c.entries++
			if !yield(e, err) {
				return
			}
		}
	}
}
