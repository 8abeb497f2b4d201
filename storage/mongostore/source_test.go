package mongostore

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What JSON lacks is told by the text that the manual says.
func TestSourceValues(t *testing.T) {
	id, decimal := bson.ObjectID{0: 0xab, 11: 1}, func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	uuid := make([]byte, 16)
	for _, c := range []struct {
		value any
		want  string
	}{
		{int32(5), "5"},
		{int64(math.MaxInt64), "9223372036854775807"},
		{5.0, "5"},
		{-0.5, "-0.5"},
		{1e300, "1e+300"},
		{math.Copysign(0, -1), "0"},
		{math.NaN(), `"NaN"`},
		{math.Inf(-1), `"-Inf"`},
		{true, "true"},
		{nil, "null"},
		{bson.Undefined{}, "null"},
		{"ä\xff", `"ä�"`},
		{time.Date(2024, 1, 2, 3, 4, 5, 6_000_000, time.UTC), `"2024-01-02T03:04:05.006Z"`},
		{bson.Timestamp{T: 60, I: 5}, `"1970-01-01T00:01:00Z"`},
		{decimal("12.50"), `"12.50"`},
		{decimal("NaN"), `"NaN"`},
		{id, `"ab0000000000000000000001"`},
		{bson.Binary{Data: []byte{1, 2}}, `"AQI="`},
		{bson.Binary{Subtype: 4, Data: uuid}, `"00000000-0000-0000-0000-000000000000"`},
		{bson.Regex{Pattern: "a.b", Options: "i"}, `"/a.b/i"`},
		{bson.JavaScript("f()"), `"f()"`},
		{bson.Symbol("s"), `"s"`},
		{bson.CodeWithScope{Code: "g()", Scope: bson.D{}}, `"g()"`},
		{bson.MinKey{}, `"min key"`},
		{bson.MaxKey{}, `"max key"`},
		{bson.DBPointer{DB: "x", Pointer: id}, `"ab0000000000000000000001"`},
		{bson.D{{Key: "a", Value: bson.A{bson.D{}, int32(1)}}}, `{"a":[{},1]}`},
	} {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: int32(1)}, {Key: "v", Value: c.value}})
		if err != nil {
			t.Fatal(err)
		}
		var change Change
		if err := change.read(raw); err != nil {
			t.Errorf("%v: %v", c.value, err)
		}
		text, err := json.Marshal(change.Document)
		if got := string(text); err != nil || got != `{"v":`+c.want+`}` {
			t.Errorf("%T %v: %s; want %s", c.value, c.value, got, c.want)
		}
	}
	if err := new(Change).read(bson.Raw{5, 0, 0, 0, 1}); err == nil {
		t.Error("half a document was read")
	}
}

// A key is one of the _ids that look like it, and of no other type.
func TestSourceKeys(t *testing.T) {
	id, _ := bson.ObjectIDFromHex("123456789012345678901234")
	uuid := bson.Binary{Subtype: 4, Data: make([]byte, 16)}
	const nil36 = "00000000-0000-0000-0000-000000000000"
	for _, c := range []struct {
		ids  []any
		want string
	}{
		{[]any{int32(5), int64(6), 7.0, 0.5, 1e22, -1.0}, "5 6 7 0.5 10000000000000000000000 -1"},
		{[]any{"a", id, uuid, int32(5), "b"}, "a 123456789012345678901234 " + nil36 + " 5 b"},
		{[]any{"5", "1e3", id.Hex(), nil36}, "5 1e3 123456789012345678901234 " + nil36},
		{[]any{"5", int32(7)}, "5 error"},
		{[]any{int32(7), "5"}, "7 error"},
		{[]any{id, id.Hex()}, id.Hex() + " error"},
		{[]any{nil36, uuid}, nil36 + " error"},
		{[]any{"a\xff", "a\xfe"}, "a\xff a\xfe"},
		{[]any{math.NaN()}, "error"},
		{[]any{nil}, "error"},
		{[]any{true}, "error"},
		{[]any{time.Unix(0, 0)}, "error"},
		{[]any{bson.D{}}, "error"},
		{[]any{bson.Binary{Data: []byte{1}}}, "error"},
	} {
		s, got := &Source{name: "shop.orders"}, []string{}
		for _, id := range c.ids {
			raw, err := bson.Marshal(bson.D{{Key: "_id", Value: id}})
			if err != nil {
				t.Fatal(err)
			}
			var change Change
			if err := s.setKey(&change, bson.Raw(raw).Lookup("_id")); err != nil {
				change.Key = "error"
				if !strings.Contains(err.Error(), "--filter") {
					t.Error(err)
				}
			}
			got = append(got, change.Key)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v; want %s", c.ids, got, c.want)
		}
	}
}

// What was not captured, as its key could be that of another document, does not keep that one out.
func TestSourceKeysOfWhatIsLeftOut(t *testing.T) {
	s := &Source{name: "shop.orders", filter: bson.D{{Key: "kept", Value: true}}}
	event := func(kind string, id any) bson.Raw {
		raw, err := bson.Marshal(bson.D{
			{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}},
			{Key: "operationType", Value: kind},
			{Key: "clusterTime", Value: bson.Timestamp{T: 100, I: 7}},
			{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: id}}},
			{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for _, c := range []struct {
		raw  bson.Raw
		want string
	}{
		{event("replace", int32(5)), "5"},
		{event("insert", "5"), "5"},
		{event("replace", int32(5)), ""},
		{event("replace", "5"), "5"},
		{event("insert", int32(6)), "error"},
	} {
		got, err := s.change(c.raw)
		if err != nil {
			got.Key = "error"
		}
		if got.Key != c.want || (got.Kind == 0) != (c.want == "") {
			t.Errorf("%s: %q, %v; want %q", c.raw, got.Key, err, c.want)
		}
	}
}

// After an error a capture goes on, waits for what an operator does, or says that there is a gap.
func TestSourceErrors(t *testing.T) {
	s := &Source{name: "shop.orders"}
	for _, c := range []struct {
		err  mongo.CommandError
		code driver.Code
		want string
	}{
		{mongo.CommandError{Code: 286, Name: "ChangeStreamHistoryLost"}, driver.CodeInvalid, "replSetResizeOplog"},
		{mongo.CommandError{Code: 136, Name: "CappedPositionLost"}, driver.CodeUnavailable, "can go on"},
		{mongo.CommandError{Code: 234, Labels: []string{"ResumableChangeStreamError"}}, driver.CodeUnavailable, "can go on"},
		{mongo.CommandError{Code: 239, Name: "SnapshotTooOld"}, driver.CodeUnavailable, "try again"},
		{mongo.CommandError{Code: 13, Name: "Unauthorized"}, driver.CodeUnavailable, "it needs find and changeStream"},
	} {
		if err := s.explain(c.err); driver.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v (%s)", c.err, err, driver.CodeOf(err))
		}
	}
}

// An event as the manual of MongoDB has it, with names that have dots and numbers that are names.
func TestSourceEvents(t *testing.T) {
	s := &Source{name: "shop.orders"}
	raw, err := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}},
		{Key: "operationType", Value: "update"},
		{Key: "clusterTime", Value: bson.Timestamp{T: 100, I: 7}},
		{Key: "fullDocument", Value: nil},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
		{Key: "documentKey", Value: bson.D{{Key: "region", Value: "eu"}, {Key: "_id", Value: "a"}}},
		{Key: "lsid", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: []byte{1, 2}}}, {Key: "uid", Value: bson.Binary{}}}},
		{Key: "txnNumber", Value: int64(3)},
		{Key: "updateDescription", Value: bson.D{
			{Key: "updatedFields", Value: bson.D{{Key: "a.0.b", Value: int32(1)}, {Key: "home.town", Value: "x"}}},
			{Key: "removedFields", Value: bson.A{"c.d"}},
			{Key: "truncatedArrays", Value: bson.A{bson.D{{Key: "field", Value: "l"}, {Key: "newSize", Value: int32(2)}}}},
			{Key: "disambiguatedPaths", Value: bson.D{{Key: "a.0.b", Value: bson.A{"a", int32(0), "b"}}, {Key: "home.town", Value: bson.A{"home.town"}}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.change(raw)
	if err != nil {
		t.Fatal(err)
	}
	var edits []string
	for _, e := range got.Edits {
		edits = append(edits, fmt.Sprintf("%q %v %v %v %d", e.Path, e.Value, e.Remove, e.Cut, e.Size))
	}
	if diff := cmp.Diff([]string{`["l"] <nil> false true 2`, `["c" "d"] <nil> true false 0`, `["a" "0" "b"] 1 false false 0`, `["home.town"] x false false 0`}, edits); diff != "" {
		t.Error(diff)
	}
	if got.Key != "a" || got.Kind != Updated || got.At != 100_000_007 || got.Group != "0102-3" || got.Document != nil {
		t.Errorf("%+v", got)
	}
}

// A server that loses a cursor has not said that there is no change: it is asked again by another
// cursor, once; who follows waits where it loses that one, too.
func TestSourceCursorsAreLost(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		s := mongotest.NewStreams(t)
		source, err := OpenSource(t.Context(), s.URI(), "orders", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(source.Close)
		source.Wait = 20 * time.Millisecond
		if err := source.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for !source.Position.Scanned() {
			if _, err := source.Scan(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			s.Put(int32(i), bson.D{{Key: "n", Value: int32(i)}}, true)
			s.LoseCursors(closed)
			if found, err := source.Next(t.Context()); err != nil || len(found) != 1 {
				t.Errorf("closed: %v; a cursor was lost: %v, %v", closed, found, err)
			}
		}
		s.LoseCursors(closed, closed, closed, closed)
		if found, err := source.Next(t.Context()); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "loses the cursors") {
			t.Errorf("closed: %v; each cursor is lost: %v, %v", closed, found, err)
		}
		s.LoseCursors()
		if found, err := source.Next(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("closed: %v; nothing more: %v, %v", closed, found, err)
		}
	}
}
