package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// nameOf is the name of an index.
func nameOf(t *testing.T, fields ...string) string {
	t.Helper()
	var o options.IndexOptions
	for _, set := range index(fields...).Options.List() {
		if err := set(&o); err != nil {
			t.Fatal(err)
		}
	}
	return *o.Name
}

// explainable takes a command apart from what belongs to its session, and makes
// it the argument of explain; nil where it reads nothing that has a plan.
func explainable(command bson.Raw) (bson.D, error) {
	var d bson.D
	if err := bson.Unmarshal(command, &d); err != nil {
		return nil, err
	}
	switch d[0].Key {
	case "find", "aggregate", "update":
	default:
		return nil, nil
	}
	kept := bson.D{}
	for _, field := range d {
		switch field.Key {
		case "lsid", "$db", "$clusterTime", "txnNumber", "$readPreference", "readConcern", "writeConcern", "comment", "maxTimeMS", "ordered":
		default:
			kept = append(kept, field)
		}
	}
	return bson.D{{Key: "explain", Value: kept}, {Key: "verbosity", Value: "queryPlanner"}}, nil
}

// plannedCommands are those that a store sent, ready to be explained.
type plannedCommands struct {
	mu       sync.Mutex
	commands []bson.D
	err      error
}

func (p *plannedCommands) started(_ context.Context, e *event.CommandStartedEvent) {
	d, err := explainable(e.Command)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = err
	}
	if d != nil {
		p.commands = append(p.commands, d)
	}
}

func (p *plannedCommands) take() ([]bson.D, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	commands := p.commands
	p.commands = nil
	return commands, p.err
}

// Every kind of query reaches what it reads by an index that narrows it, at
// present and in the past: the server's own plans say so.
func TestPlans(t *testing.T) {
	uri := mongotest.URI(t)
	ctx := t.Context()
	sent := &plannedCommands{}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(&event.CommandMonitor{Started: sent.started}))
	if err != nil {
		t.Fatal(err)
	}
	server := mongotest.NewServer(t)
	mongotest.Needs(t, "the command explain", func() error {
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: "explain", Value: bson.D{{Key: "find", Value: "nothing"}}}}).Err()
	})
	_, database := server.Database(t)
	now := time.UnixMicro(1_000_000_000).UTC()
	s, err := open(ctx, client, database, Options{
		Clock: func() time.Time { return now }, timing: unhurried, Bounds: map[string]Bounds{"tools": {Versions: 2}},
		Collections: []driver.Collection{{Name: "tools", Indexes: []driver.Index{
			{Path: []string{"stars"}, Kind: driver.KindInt}, {Path: []string{"tags"}, Kind: driver.KindString, List: true},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	// So many documents that a scan is never the cheaper plan: each with a
	// version in the document, two in its prev and two in the overflow.
	const documents, versions, step = 2000, 5, 100_000_000
	for v := range versions {
		batch := make([]driver.Version, documents)
		for i := range batch {
			batch[i] = driver.Version{
				Collection: "tools", Key: fmt.Sprintf("k%05d", i), Op: driver.OpImport, RecordedAt: driver.Instant((v+1)*step + i),
				Data: fmt.Appendf(nil, `{"stars":%d,"tags":["t%d","u%d"]}`, i*versions+v, i%500, v),
			}
		}
		if _, err := s.Load(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	const (
		present = driver.Instant(900_000_000)
		recent  = driver.Instant(4*step + documents) // in prev
		old     = driver.Instant(1*step + documents) // in the overflow
	)
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	few := driver.And{driver.Compare{Field: stars, Op: driver.Ge, Value: int64(500)}, driver.Compare{Field: stars, Op: driver.Lt, Value: int64(520)}}
	tagged := driver.Any{Field: driver.Field{Path: []string{"tags"}}, Filter: driver.Compare{Field: driver.Field{Kind: driver.KindString}, Op: driver.Eq, Value: "t7"}}
	query := func(at driver.Instant, f driver.Filter, order ...driver.Order) func() error {
		return func() error {
			_, err := s.Query(ctx, &driver.Query{Collection: "tools", At: at, Filter: f, Order: order, Limit: 10})
			return err
		}
	}
	get := func(refs ...driver.Ref) func() error {
		return func() error {
			found, err := s.Get(ctx, "tools", refs, nil)
			if err == nil && found[0] == nil {
				err = fmt.Errorf("nothing found")
			}
			return err
		}
	}
	log := func(q driver.LogQuery) func() error {
		return func() error {
			q.Collections = []string{"tools"}
			for _, err := range s.Log(ctx, &q) {
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	next := func(order driver.Order) func() error {
		return func() error {
			_, err := s.Query(ctx, &driver.Query{
				Collection: "tools", At: present, Order: []driver.Order{order}, Limit: 10, After: &driver.Position{Values: []driver.Value{int64(500)}, Key: "k"},
			})
			return err
		}
	}
	recordedAt := driver.Field{Meta: driver.MetaRecordedAt, Kind: driver.KindInstant}
	const byID, counted = "_id_", "how much there is"
	var (
		since    = nameOf(t, "current.at", "_id", "current.v", "current.del")
		last     = nameOf(t, "current.at", "-_id")
		inPrev   = nameOf(t, "prev.at")
		byNumber = nameOf(t, "k", "n", "last")
		byTime   = nameOf(t, "k", "from", "to")
		around   = nameOf(t, "to", "from")
		changed  = []string{since, last, around}
		// What declared indexes are called in the three places.
		up, down = nameOf(t, "current.x.stars.i", "_id"), nameOf(t, "current.x.stars.i", "-_id")
		ofStars  = []string{up, down, nameOf(t, "prev.x.stars.i"), nameOf(t, "vs.x.stars.i")}
		ofTags   = []string{nameOf(t, "current.x.tags.l.s", "_id"), nameOf(t, "prev.x.tags.l.s"), nameOf(t, "vs.x.tags.l.s")}
	)
	for _, c := range []struct {
		name string
		call func() error
		// want are the indexes that may be used, wherever one narrows what is read.
		want []string
		// ordered: the index has the order as well.
		ordered bool
	}{
		{"a current document", get(driver.Ref{Key: "k00007", At: driver.Forever}), []string{byID}, false},
		{"several current documents", get(driver.Ref{Key: "k00007", At: driver.Forever}, driver.Ref{Key: "k00008", At: driver.Forever}), []string{byID}, false},
		{"a recent version", get(driver.Ref{Key: "k00007", At: recent}), []string{byID}, false},
		{"an old version", get(driver.Ref{Key: "k00007", At: old}), []string{byID, byNumber, byTime}, false},
		{"an old version by number", get(driver.Ref{Key: "k00007", Number: 1}), []string{byID, byNumber, byTime}, false},
		{"an update", func() error {
			_, err := driver.CommitOne(ctx, s, &driver.Write{ID: "one", Collection: "tools", Key: "k00009", Expected: versions, Op: driver.OpUpdate, Data: []byte(`{"stars":1}`)})
			return err
		}, []string{byID, since, last, byNumber, byTime}, false}, // each of which finds one document
		{"current documents by a value", query(driver.Forever, few), []string{up, down}, false},
		{"current documents by an element", query(driver.Forever, tagged), ofTags[:1], false},
		{"present documents by a value", query(present, few), slices.Concat(ofStars, changed), false},
		{"present documents in an order", query(present, nil, driver.Order{Field: stars}), []string{up, since, last}, true},
		{"present documents in a descending order", query(present, nil, driver.Order{Field: stars, Desc: true}), []string{down, since, last}, true},
		{"the next page of it", next(driver.Order{Field: stars, Desc: true}), []string{down, since, last}, true},
		{"those that changed last", query(driver.Forever, nil, driver.Order{Field: recordedAt, Desc: true}), []string{last}, true},
		{"recent versions by a value", query(recent, few), slices.Concat(ofStars, changed), false},
		{"recent versions by an element", query(recent, tagged), slices.Concat(ofTags, changed), false},
		{"old versions by a value", query(old, few), slices.Concat(ofStars, changed), false},
		{"old versions by an element", query(old, tagged), slices.Concat(ofTags, changed), false},
		{"how many there were by a value", func() error {
			_, err := s.Count(ctx, &driver.Query{Collection: "tools", At: old, Filter: few})
			return err
		}, slices.Concat(ofStars, changed), false},
		{"the log of one document", log(driver.LogQuery{Keys: []string{"k00007"}}), []string{byID, byNumber, byTime}, false},
		{"what changed last, of all documents", log(driver.LogQuery{Backward: true, Limit: 20}), []string{since, last, inPrev, around}, false},
		{"a further page of it", log(driver.LogQuery{Backward: true, Limit: 20, After: &driver.LogPosition{At: recent, Collection: "tools", Key: "k", Number: 1}}), []string{since, last, inPrev, around}, false},
		{counted, func() error {
			_, err := s.Stats(ctx)
			return err
		}, []string{since}, false},
	} {
		if _, err := sent.take(); err != nil {
			t.Fatal(err)
		}
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		commands, err := sent.take()
		if err != nil {
			t.Fatal(err)
		}
		if len(commands) == 0 {
			t.Errorf("%s: no command was sent", c.name)
		}
		for _, command := range commands {
			var reply bson.Raw
			if err := server.Client.Database(database).RunCommand(ctx, command).Decode(&reply); err != nil {
				t.Errorf("%s: %v\n%v", c.name, err, command)
				continue
			}
			plan := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: reply}
			if c.ordered && hasStage(plan, "SORT") {
				t.Errorf("%s: the server sorts all that there is:\n%v", c.name, command)
			}
			if c.name == counted && hasStage(plan, "FETCH") {
				t.Errorf("%s: the server reads documents:\n%v", c.name, command)
			}
			accesses, err := accessesOf(reply)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, a := range accesses {
				if !slices.Contains(c.want, a.Index) {
					t.Errorf("%s: %s, want one of %q:\n%v", c.name, a, c.want, command)
				}
			}
		}
	}
}

// hasStage reports whether the plan that was chosen has a stage, such as SORT, instead
// of reading an index that has the order.
func hasStage(v bson.RawValue, stage string) bool {
	var values []bson.RawValue
	switch v.Type {
	case bson.TypeArray:
		values, _ = v.Array().Values()
	case bson.TypeEmbeddedDocument:
		elements, _ := v.Document().Elements()
		for _, e := range elements {
			if name, _ := e.Value().StringValueOK(); e.Key() == "stage" && name == stage {
				return true
			}
			if e.Key() != "rejectedPlans" && e.Key() != "command" {
				values = append(values, e.Value())
			}
		}
	default: // holds nothing
	}
	return slices.ContainsFunc(values, func(v bson.RawValue) bool { return hasStage(v, stage) })
}

func TestHasStage(t *testing.T) {
	stage := func(name string, input any) bson.D {
		return bson.D{{Key: "stage", Value: name}, {Key: "inputStage", Value: input}}
	}
	for _, c := range []struct {
		reply bson.D
		want  bool
	}{
		{bson.D{{Key: "winningPlan", Value: stage("LIMIT", stage("SORT", bson.D{}))}}, true},
		{bson.D{{Key: "shards", Value: bson.A{bson.D{{Key: "winningPlan", Value: stage("SORT", bson.D{})}}}}}, true},
		{bson.D{{Key: "winningPlan", Value: stage("SORT_MERGE", stage("IXSCAN", "SORT"))}, {Key: "rejectedPlans", Value: bson.A{stage("SORT", 1)}}}, false},
	} {
		if got := hasStage(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw(t, c.reply)}, "SORT"); got != c.want {
			t.Errorf("%v sorts: %t, want %t", c.reply, got, c.want)
		}
	}
}

// What is explained is the command that was sent, without its session.
func TestExplainable(t *testing.T) {
	for _, c := range []struct {
		command bson.D
		want    string
	}{
		{
			bson.D{
				{Key: "find", Value: "c"},
				{Key: "filter", Value: bson.D{{Key: "_id", Value: 1}}},
				{Key: "lsid", Value: bson.D{}},
				{Key: "$db", Value: "db"},
				{Key: "maxTimeMS", Value: 1},
				{Key: "readConcern", Value: bson.D{{Key: "level", Value: "majority"}}},
			},
			`{"explain":{"find":"c","filter":{"_id":1}},"verbosity":"queryPlanner"}`,
		},
		{bson.D{{Key: "getMore", Value: int64(1)}}, ""},
		{bson.D{{Key: "insert", Value: "c"}}, ""},
	} {
		command, err := bson.Marshal(c.command)
		if err != nil {
			t.Fatal(err)
		}
		d, err := explainable(command)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if d != nil {
			text, err := bson.MarshalExtJSON(d, false, false)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if got != c.want {
			t.Errorf("%v is explained as %s, want %s", c.command, got, c.want)
		}
	}
}

// indexAccess is how a server reaches the documents of a collection: the first stage
// of a plan, that which all others get theirs from.
type indexAccess struct {
	// Stage is IXSCAN, COLLSCAN, IDHACK and the like.
	Stage string
	// Index is the name of the index; empty where the stage uses none.
	Index string
}

// String writes an access as STAGE INDEX.
func (a indexAccess) String() string { return strings.TrimSpace(a.Stage + " " + a.Index) }

// idIndex is the index that every collection has.
const idIndex = "_id_"

// accessesOf finds in a reply of the command explain how the winning plans reach
// the documents: of a find, an update, or an aggregation, on one server or on
// shards, of the classic engine, the slot-based one, or the express path.
// Stages that read nothing themselves are left out; so are those of a plan for
// a collection that does not exist (EOF), which make it empty.
func accessesOf(reply bson.Raw) ([]indexAccess, error) {
	var found []indexAccess
	var walk func(v bson.RawValue, in string) error
	walk = func(v bson.RawValue, in string) error {
		switch v.Type {
		case bson.TypeArray:
			values, err := v.Array().Values()
			if err != nil {
				return err
			}
			for _, value := range values {
				if err := walk(value, in); err != nil {
					return err
				}
			}
		case bson.TypeEmbeddedDocument:
			elements, err := v.Document().Elements()
			if err != nil {
				return err
			}
			if in == "plan" {
				if a, ok := access(v.Document()); ok {
					found = append(found, a)
				}
			}
			for _, e := range elements {
				next := in
				switch e.Key() {
				case "winningPlan":
					next = "plan"
				case "rejectedPlans", "slotBasedPlan", "executionStats", "command", "parsedQuery", "serverParameters", "indexBounds":
					continue // not what is done
				}
				if err := walk(e.Value(), next); err != nil {
					return err
				}
			}
		default: // holds nothing
		}
		return nil
	}
	if reply.Lookup("ok").IsZero() {
		return nil, errors.New("not a reply of a server")
	}
	if err := walk(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: reply}, ""); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the plan reads nothing: %v", reply)
	}
	return found, nil
}

// leaves are the stages that read from a collection, with the index of those
// that do not name theirs.
var leaves = map[string]string{
	"IXSCAN": "", "COLLSCAN": "", "CLUSTERED_IXSCAN": idIndex, "IDHACK": idIndex, "DISTINCT_SCAN": "", "COUNT_SCAN": "",
	"EXPRESS_IXSCAN": "", "EXPRESS_CLUSTERED_IXSCAN": idIndex, "EXPRESS_UPDATE": "", "EXPRESS_DELETE": "",
}

// access reads a stage of a plan; false where it does not read a collection.
func access(stage bson.Raw) (indexAccess, bool) {
	name, ok := stage.Lookup("stage").StringValueOK()
	if !ok {
		return indexAccess{}, false
	}
	index, known := leaves[name]
	if !known {
		return indexAccess{}, false
	}
	if named, ok := stage.Lookup("indexName").StringValueOK(); ok {
		index = named
	}
	return indexAccess{Stage: name, Index: index}, true
}

// Replies of explain in the shapes that MongoDB's manual documents.
func TestAccesses(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		want        []indexAccess
	}{
		{
			"the classic engine",
			`{"explainVersion":"1","queryPlanner":{"namespace":"db.c","parsedQuery":{"stage":{"$eq":"IXSCAN"}},
			  "winningPlan":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","keyPattern":{"a":1},"indexName":"a_1","indexBounds":{"a":["[1,1]"]}}},
			  "rejectedPlans":[{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"b_1"}}]},"ok":1}`,
			[]indexAccess{{"IXSCAN", "a_1"}},
		},
		{
			"the slot-based engine",
			`{"explainVersion":"2","queryPlanner":{"winningPlan":{"isCached":false,"queryPlan":{"stage":"GROUP","inputStage":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"a_1"}}},
			  "slotBasedPlan":{"slots":"$$RESULT=s7","stages":"[2] ixseek"}},"rejectedPlans":[]},"ok":1}`,
			[]indexAccess{{"IXSCAN", "a_1"}},
		},
		{
			"an aggregation with stages of its own",
			`{"stages":[{"$cursor":{"queryPlanner":{"winningPlan":{"stage":"PROJECTION_SIMPLE","inputStage":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"a_1"}}},"rejectedPlans":[]}}},{"$unwind":{"path":"$l"}}],"ok":1}`,
			[]indexAccess{{"IXSCAN", "a_1"}},
		},
		{
			"either of two indexes",
			`{"queryPlanner":{"winningPlan":{"stage":"SUBPLAN","inputStage":{"stage":"FETCH","inputStage":{"stage":"OR","inputStages":[{"stage":"IXSCAN","indexName":"a_1"},{"stage":"COLLSCAN"}]}}}},"ok":1}`,
			[]indexAccess{{"IXSCAN", "a_1"}, {"COLLSCAN", ""}},
		},
		{
			"by _id, three ways",
			`{"queryPlanner":{"winningPlan":{"stage":"X","inputStages":[{"stage":"IDHACK"},{"stage":"EXPRESS_IXSCAN","keyPattern":"{ _id: 1 }","indexName":"_id_"},{"stage":"CLUSTERED_IXSCAN"}]}},"ok":1}`,
			[]indexAccess{{"IDHACK", "_id_"}, {"EXPRESS_IXSCAN", "_id_"}, {"CLUSTERED_IXSCAN", "_id_"}},
		},
		{
			"an update",
			`{"queryPlanner":{"winningPlan":{"stage":"UPDATE","inputStage":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"_id_"}}}},"ok":1}`,
			[]indexAccess{{"IXSCAN", "_id_"}},
		},
		{
			"a scan",
			`{"queryPlanner":{"winningPlan":{"stage":"SORT","inputStage":{"stage":"COLLSCAN","direction":"forward"}}},"ok":1}`,
			[]indexAccess{{"COLLSCAN", ""}},
		},
		{
			"shards",
			`{"queryPlanner":{"winningPlan":{"stage":"SHARD_MERGE","shards":[{"shardName":"a","winningPlan":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"a_1"}}},
			  {"shardName":"b","winningPlan":{"stage":"COLLSCAN"}}]}},"ok":1}`,
			[]indexAccess{{"IXSCAN", "a_1"}, {"COLLSCAN", ""}},
		},
	} {
		var reply bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(c.reply), false, &reply); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := accessesOf(reply)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	for _, reply := range []string{
		`{"ok":1,"queryPlanner":{"winningPlan":{"stage":"EOF"}}}`,
		`{"ok":1}`,
		`{"queryPlanner":{"winningPlan":{"stage":"COLLSCAN"}}}`,
	} {
		var raw bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(reply), false, &raw); err != nil {
			t.Fatal(err)
		}
		if got, err := accessesOf(raw); err == nil {
			t.Errorf("%s: %v", reply, got)
		}
	}
}
