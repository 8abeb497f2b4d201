package mongotest

import (
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Access is how a server reaches the documents of a collection: the first stage
// of a plan, that which all others get theirs from.
type Access struct {
	// Stage is IXSCAN, COLLSCAN, IDHACK and the like.
	Stage string
	// Index is the name of the index; empty where the stage uses none.
	Index string
}

// String writes an access as STAGE INDEX.
func (a Access) String() string { return strings.TrimSpace(a.Stage + " " + a.Index) }

// Indexed reports whether an index narrows what is read.
func (a Access) Indexed() bool { return a.Index != "" }

// idIndex is the index that every collection has.
const idIndex = "_id_"

// Accesses finds in a reply of the command explain how the winning plans reach
// the documents: of a find, an update, or an aggregation, on one server or on
// shards, of the classic engine, the slot-based one, or the express path.
// Stages that read nothing themselves are left out; so are those of a plan for
// a collection that does not exist (EOF), which make it empty.
func Accesses(reply bson.Raw) ([]Access, error) {
	var found []Access
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
func access(stage bson.Raw) (Access, bool) {
	name, ok := stage.Lookup("stage").StringValueOK()
	if !ok {
		return Access{}, false
	}
	index, known := leaves[name]
	if !known {
		return Access{}, false
	}
	if named, ok := stage.Lookup("indexName").StringValueOK(); ok {
		index = named
	}
	return Access{Stage: name, Index: index}, true
}
