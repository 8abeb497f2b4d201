package mongostore

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// ChangeKind is what was done to a document of a Source.
type ChangeKind uint8

// The kinds of changes. Found is no change: the document was there.
const (
	Found ChangeKind = iota + 1
	Inserted
	Replaced
	Updated
	Deleted
)

// kindsOf are the kinds of events; 0: with it the collection ends.
var kindsOf = map[string]ChangeKind{
	"insert": Inserted, "replace": Replaced, "update": Updated, "delete": Deleted,
	"drop": 0, "rename": 0, "dropDatabase": 0, "invalidate": 0,
}

// Change is what was done to a document. Values are as encoding/json has them, numbers as
// json.Number; see value.
type Change struct {
	Kind     ChangeKind
	Key      string // its _id
	At       driver.Instant
	Group    string         // of its transaction; "" for none
	Document map[string]any // after it, without _id; nil: it was deleted, or Edits tell
	Edits    []Edit         // of Updated, in the order in which they are made

	token bson.Raw
}

// Edit changes what is at a path in a document. The name of an element of a list is its index.
type Edit struct {
	Path   []string
	Value  any  // to be there
	Remove bool // nothing is to be there
	Cut    bool // a list that is there is to have Size elements
	Size   int
}

// read takes a whole document.
func (c *Change) read(document bson.Raw) error {
	if err := document.Validate(); err != nil {
		return driver.Errorf(driver.CodeInvalid, "the document of the key %q cannot be read: %w", c.Key, err)
	}
	c.Document = object(document)
	delete(c.Document, "_id")
	return nil
}

// readEdits takes what an update says that it changed.
func (c *Change) readEdits(e *changeEvent) error {
	path := func(name string) (path []string) {
		parts := e.Update.Paths[name]
		if parts == nil {
			return strings.Split(name, ".")
		}
		for _, part := range parts {
			path = append(path, fmt.Sprint(part))
		}
		return path
	}
	for _, list := range e.Update.Truncated {
		c.Edits = append(c.Edits, Edit{Path: path(list.Field), Cut: true, Size: list.Size})
	}
	for _, name := range e.Update.Removed {
		c.Edits = append(c.Edits, Edit{Path: path(name), Remove: true})
	}
	if err := e.Update.Set.Validate(); err != nil {
		return driver.Errorf(driver.CodeInternal, "an update of %q does not say what it changed: %w", c.Key, err)
	}
	members, err := e.Update.Set.Elements()
	for _, m := range members {
		c.Edits = append(c.Edits, Edit{Path: path(m.Key()), Value: value(m.Value())})
	}
	return err
}

// object is a document that was validated.
func object(d bson.Raw) map[string]any {
	members, _ := d.Elements()
	out := make(map[string]any, len(members))
	for _, m := range members {
		out[m.Key()] = value(m.Value())
	}
	return out
}

// value is what a BSON value is in JSON, which has fewer types: what docs/growing-old.md says.
func value(v bson.RawValue) any {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return object(v.Document())
	case bson.TypeArray:
		elements, _ := v.Array().Values()
		list := make([]any, len(elements))
		for i, e := range elements {
			list[i] = value(e)
		}
		return list
	case bson.TypeBoolean:
		return v.Boolean()
	case bson.TypeInt32, bson.TypeInt64:
		return json.Number(strconv.FormatInt(v.AsInt64(), 10))
	case bson.TypeDouble:
		if f := v.Double(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return json.Number(strconv.FormatFloat(f+0, 'g', -1, 64))
		}
		return fmt.Sprint(v.Double())
	case bson.TypeNull, bson.TypeUndefined:
		return nil
	case bson.TypeString:
		return strings.ToValidUTF8(v.StringValue(), "\uFFFD")
	case bson.TypeSymbol:
		return v.Symbol()
	case bson.TypeObjectID:
		return v.ObjectID().Hex()
	case bson.TypeDateTime:
		return v.Time().UTC().Format(time.RFC3339Nano)
	case bson.TypeTimestamp:
		seconds, _ := v.Timestamp()
		return time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
	case bson.TypeDecimal128:
		return v.Decimal128().String()
	case bson.TypeBinary:
		kind, data := v.Binary()
		if h := hex.EncodeToString(data); kind == bson.TypeBinaryUUID && len(data) == 16 {
			return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
		}
		return base64.StdEncoding.EncodeToString(data)
	case bson.TypeRegex:
		pattern, flags := v.Regex()
		return "/" + pattern + "/" + flags
	case bson.TypeJavaScript:
		return v.JavaScript()
	case bson.TypeCodeWithScope:
		code, _ := v.CodeWithScope()
		return code
	case bson.TypeDBPointer:
		_, id := v.DBPointer()
		return id.Hex()
	default: // minKey and maxKey
		return v.Type.String()
	}
}

// setKey makes the key of the _id. One key never stands for two of them: once a key that looks
// like a number was one, a string that looks like a number is an error, and so on.
func (s *Source) setKey(c *Change, id bson.RawValue) error {
	const remedy = `; leave it out with --filter, such as {"_id": {"$type": "%s"}}`
	is := ""
	switch v := value(id).(type) {
	case json.Number:
		is = "number"
		f, _ := v.Float64()
		if c.Key = string(v); id.Type == bson.TypeDouble {
			c.Key = strconv.FormatFloat(f, 'f', -1, 64)
		}
	case string:
		switch c.Key = v; {
		case id.Type == bson.TypeString:
			is, c.Key = "string", id.StringValue() // as it is, so that no other one has the key
		case id.Type == bson.TypeObjectID:
			is = "objectId"
		case id.Type == bson.TypeBinary && len(v) == uuidLength && v[8] == '-':
			is = "binData"
		}
	}
	if is == "" {
		return invalidf("%s has a document whose _id, %.100s, is of the type %s; keys are made of strings, ObjectIds, numbers and UUIDs"+remedy, s.name, id, id.Type, "objectId")
	}
	looks := ""
	if _, err := strconv.ParseFloat(c.Key, 64); err == nil {
		looks = "number"
	}
	if _, err := hex.DecodeString(strings.ReplaceAll(c.Key, "-", "")); err == nil {
		switch len(c.Key) {
		case uuidLength:
			looks = "binData"
		case 2 * len(bson.ObjectID{}):
			looks = "objectId"
		}
	}
	switch was := s.Position.IDs[looks]; {
	case looks == "" || was == is:
	case was == "":
		ids := map[string]string{looks: is}
		maps.Copy(ids, s.Position.IDs) // positions share it
		s.Position.IDs = ids
	default:
		return invalidf("%s has the _id %.100s, a %s, beside others like it that are of the type %s: both would be the key %q"+remedy, s.name, id, is, was, c.Key, was)
	}
	return nil
}

const uuidLength = 36
