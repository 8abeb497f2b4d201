package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

func TestSavesOfADraftRace(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A"})
	d := e.start("ann", storage.StartDraftInput{Key: "a", Shared: ptr(true)})
	e.engine.beforeCommit = func() { e.save("bob", d, object{"stars": 1}) }
	res := must(e.projects.SaveDraft(e.as("ann"), object{"draft": d.ID(), "expectedRevision": 1, "patch": object{"stars": 2}}))(t)
	c, ok := res.(*storage.DraftConflict[*project])
	if !ok || c.ExpectedRevision != 1 || c.Draft.Revision() != 2 || !strings.Contains(c.Message, "revision 2") {
		t.Fatalf("%+v", res)
	}
	s := must(e.projects.SaveDraft(e.as("ann"), object{"draft": d.ID(), "expectedRevision": 2, "patch": object{"stars": 1}}))(t).(draftSuccess)
	if s.Changed || s.Draft.Revision() != 2 {
		t.Errorf("the same again: changed %t, revision %d", s.Changed, s.Draft.Revision())
	}
	later := e.clock.advance(0) + driver.Instant(time.Hour/time.Microsecond)
	s = must(e.projects.SaveDraft(e.as("ann"), object{"draft": d.ID(), "expectedRevision": 2, "shared": false, "expiresAt": later.String(), "title": "t"}))(t).(draftSuccess)
	if must(s.Draft.Shared())(t) || *must(s.Draft.ExpiresAt())(t) != later || *must(s.Draft.Title())(t) != "t" {
		t.Error("what belongs to the draft was not saved")
	}
	s = must(e.projects.SaveDraft(e.as("ann"), object{"draft": d.ID(), "expectedRevision": 3, "shared": nil, "expiresAt": nil, "title": nil, "clientMutationId": "m"}))(t).(draftSuccess)
	if must(s.Draft.Shared())(t) || must(s.Draft.ExpiresAt())(t) != nil || must(s.Draft.Title())(t) != nil || *s.ClientMutationID != "m" {
		t.Error("null did not clear what belongs to the draft")
	}
	for want, in := range map[string]object{
		"input.expiresAt: 1970": {"expiresAt": "1970-01-01T00:00:00Z"}, "input.expiresAt": {"expiresAt": "soon"},
		"input.title: a title": {"title": strings.Repeat("x", storage.MaxMessage+1)}, "input.title": {"title": 7},
		"input.shared": {"shared": "yes"}, "input.patch.stars": {"patch": object{"stars": "many"}},
	} {
		in["draft"], in["expectedRevision"] = d.ID(), 4
		_, err := e.projects.SaveDraft(e.as("ann"), in)
		wantError(t, err, fault.CodeBadUserInput, want)
	}
}

func TestApprovalsRace(t *testing.T) {
	for _, policy := range []storage.ConflictPolicy{storage.Reject, storage.Merge} {
		for name, meanwhile := range map[string]func(e *env, d draft){
			"approved": func(e *env, d draft) { e.approve("bob", d) },
			"saved":    func(e *env, d draft) { e.save("bob", d, object{"stars": 7}) },
			"discarded": func(e *env, d draft) {
				must(e.projects.DiscardDraft(e.as("bob"), storage.DiscardDraftInput{Draft: d.ID()}))(e.t)
			},
			"updated": func(e *env, _ draft) { e.update("bob", "a", 1, object{"name": "C"}) },
		} {
			t.Run(name+" "+string(policy), func(t *testing.T) {
				e := newEnv(t)
				e.create("a", object{"name": "A"})
				d := e.save("ann", e.start("ann", storage.StartDraftInput{Key: "a", Shared: ptr(true)}), object{"name": "B"})
				e.engine.beforeCommit = func() { meanwhile(e, d) }
				res, err := e.projects.ApproveDraft(e.as("ann"), storage.ApproveDraftInput{Draft: d.ID(), OnConflict: &policy})
				switch _, conflict := res.(*storage.Conflict[*project]); {
				case conflict: // with what is there now
				case err == nil:
					t.Fatalf("approved all the same: %+v", res)
				case name == "saved":
					wantError(t, err, fault.CodeBadUserInput, "at revision 3, not at revision 2")
				default:
					wantError(t, err, fault.CodeNotFound)
				}
				made := 2
				if name == "saved" || name == "discarded" {
					made = 1
				}
				if got := e.get("a").Version(); got != made {
					t.Errorf("version %d, want %d", got, made)
				}
			})
		}
	}
}

// Of those who save, approve and discard a draft at once, one ends it, and what was approved is
// what the last save left.
func TestADraftEndsOnce(t *testing.T) {
	e := newEnv(t)
	for round := range 20 {
		key := fmt.Sprint("k", round)
		e.create(key, object{"name": "A"})
		d := e.start("ann", storage.StartDraftInput{Key: key, Shared: ptr(true)})
		var group sync.WaitGroup
		var approved, discarded atomic.Int64
		saved := make([]int, 4) // the stars of the last save of each
		for w := range saved {
			group.Go(func() {
				ctx := storage.WithActor(context.Background(), storage.Actor{ID: "ann"})
				for range 50 {
					var err error
					switch rand.IntN(12) {
					case 0:
						var res any
						if res, err = e.projects.ApproveDraft(ctx, storage.ApproveDraftInput{Draft: d.ID()}); err == nil {
							if _, ok := res.(*storage.Success[*project]); ok {
								approved.Add(1)
							}
						}
					case 1:
						if _, err = e.projects.DiscardDraft(ctx, storage.DiscardDraftInput{Draft: d.ID()}); err == nil {
							discarded.Add(1)
						}
					default:
						var now draft
						if now, err = e.projects.Draft(ctx, d.ID()); err != nil || now == nil {
							break
						}
						stars := 100*now.Revision() + w
						var res any
						if res, err = e.projects.SaveDraft(ctx, object{"draft": d.ID(), "expectedRevision": now.Revision(), "patch": object{"stars": stars}}); err == nil {
							if s, ok := res.(draftSuccess); ok && s.Changed {
								saved[w] = stars
							}
						}
					}
					var known *fault.Error
					if err != nil && (!errors.As(err, &known) || known.Code != fault.CodeNotFound && !strings.Contains(known.Message, "read again what you approve")) {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		doc := e.get(key)
		stars := must(doc.OptInt(fStars))(t)
		if ended := approved.Load() + discarded.Load(); ended > 1 || int64(doc.Version()) != 1+approved.Load() && stars != nil || len(e.drafts("ann", object{"documentKey": object{"eq": key}})) != int(1-ended) {
			t.Errorf("approved %d times, discarded %d, version %d", approved.Load(), discarded.Load(), doc.Version())
		}
		if approved.Load() == 1 && stars != nil && *stars != slices.Max(saved) {
			t.Errorf("%d stars, the last save had %d", *stars, slices.Max(saved))
		}
	}
}

// An approval is one of the changes of a commit.
func TestApprovalInACommit(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A"})
	d := e.save("ann", e.start("ann", storage.StartDraftInput{Key: "a", Title: ptr("title"), Shared: ptr(true)}), object{"name": "B"})
	commit := func(expected int) any {
		t.Helper()
		return must(storage.Commit(e.as("bob"), e.store, storage.CommitInput[changes]{Message: ptr("both"), Changes: []changes{
			{{Type: e.projects.Type(), Field: "createProject", Input: &storage.CreateInput{Key: fmt.Sprint("b", expected), Data: object{"name": "N"}}}},
			{{Type: e.projects.Type(), Field: "approveProjectDraft", Input: &storage.ApproveDraftInput{Draft: d.ID()}}},
		}}))(t)
	}
	e.update("cid", "a", 1, object{"name": "C"})
	if c, ok := commit(1).(*storage.CommitConflict); !ok || len(c.Conflicts) != 1 {
		t.Fatalf("%+v", c)
	}
	if len(e.drafts("ann", nil)) != 1 || e.get("b1") != nil {
		t.Fatal("half a commit")
	}
	must(e.projects.DiscardDraft(e.as("bob"), storage.DiscardDraftInput{Draft: d.ID()}))(t)
	d = e.save("ann", e.start("ann", storage.StartDraftInput{Key: "a", Title: ptr("title"), Shared: ptr(true)}), object{"name": "B"})
	s, ok := commit(2).(*storage.CommitSuccess)
	if !ok || len(s.Results) != 2 {
		t.Fatalf("%+v", s)
	}
	info := s.Results[1].Document.VersionInfo()
	if info.Author().ID != "ann" || info.ApprovedBy().ID != "bob" || *info.Message() != "both" || *info.ChangeGroup() != s.ChangeGroup.ID() || len(e.drafts("ann", nil)) != 0 {
		t.Errorf("%+v", info)
	}
}

type changes []storage.Change

func (c changes) Given() []storage.Change { return c }

// What became of a draft while it was approved is said of that draft, also among several.
func TestApprovalsInACommitRace(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(e *env, d *storage.Draft[*tag])
		code      fault.Code
		want      string
	}{
		"saved": {func(e *env, d *storage.Draft[*tag]) {
			must(e.tags.SaveDraft(e.as("bob"), object{"draft": d.ID(), "expectedRevision": 2, "patch": object{"name": "C"}}))(e.t)
		}, fault.CodeBadUserInput, "the draft is at revision 3, not at revision 2"},
		"discarded": {func(e *env, d *storage.Draft[*tag]) {
			must(e.tags.DiscardDraft(e.as("bob"), storage.DiscardDraftInput{Draft: d.ID()}))(e.t)
		}, fault.CodeNotFound, "of a Tag that you could use"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.create("a", object{"name": "A"})
			of := e.save("ann", e.start("ann", storage.StartDraftInput{Key: "a"}), object{"name": "B"})
			d := must(e.tags.StartDraft(e.as("ann"), storage.StartDraftInput{Key: "t", Shared: ptr(true)}))(t).Draft
			d = must(e.tags.SaveDraft(e.as("ann"), object{"draft": d.ID(), "expectedRevision": 1, "patch": object{"name": "B"}}))(t).(*storage.DraftSuccess[*tag]).Draft
			e.engine.beforeCommit = func() { c.meanwhile(e, d) }
			_, err := e.commit(e.as("ann"), e.change("Project", &storage.ApproveDraftInput{Draft: of.ID()}), e.change("Tag", &storage.ApproveDraftInput{Draft: d.ID()}))
			wantError(t, err, c.code, "input.changes[1].changeTag", c.want)
			if got := e.get("a").Version(); got != 1 || len(e.drafts("ann", nil)) != 1 {
				t.Errorf("half a commit: version %d", got)
			}
		})
	}
}

// An approval ends a draft as well, and counts twice.
func TestApprovalsInALargeCommit(t *testing.T) {
	e := newEnv(t)
	d := e.save("ann", e.start("ann", storage.StartDraftInput{Key: "a"}), object{"name": "B"})
	all := []given{e.change("Project", &storage.ApproveDraftInput{Draft: d.ID()})}
	for i := range 999 {
		all = append(all, e.newTag(fmt.Sprint(i), "N"))
	}
	_, err := e.commit(e.as("ann"), all...)
	wantError(t, err, fault.CodeBadUserInput, "input.changes: 1000 changes are given", "at most 1000, of which an approval counts as two")
	if res, ok := must(e.commit(e.as("ann"), all[:999]...))(t).(*storage.CommitSuccess); !ok || len(res.Results) != 999 {
		t.Errorf("%+v", res)
	}
}
