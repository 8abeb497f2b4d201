// Package check has what all engines refuse, as a Guard in front of them, and how
// they compare, so that they do so alike. The oracle of the conformance suite has
// rules of its own, to find mistakes in these.
//
// What is malformed is a *driver.Error with CodeInvalid.
package check

import (
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"github.com/asof/asof/storage/driver"
)

// maxWriteID is the length of the longest ID of a write, in bytes.
const maxWriteID = 36

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

// write refuses a malformed write, see driver.Engine.Commit. The collection
// must be known.
func write(w *driver.Write) error {
	switch {
	case w.ID == "" || len(w.ID) > maxWriteID:
		return invalidf("a write needs an ID of 1 to %d bytes, got %d", maxWriteID, len(w.ID))
	case w.Expected < 0:
		return invalidf("%s %q: the expected version is %d; version numbers start at 1, and 0 means that it must not exist", w.Collection, w.Key, w.Expected)
	}
	if w.Compare {
		return key(w.Collection, w.Key)
	}
	if w.Op == driver.OpPruned {
		return invalidf("%s %q: a write cannot make a pruned version", w.Collection, w.Key)
	}
	return content(w.Collection, w.Key, w.Op, w.Deleted, w.Data)
}

// together refuses writes that cannot be committed at once, of which each is well-formed.
func together(ws []driver.Write, most int) error {
	switch {
	case !slices.ContainsFunc(ws, func(w driver.Write) bool { return !w.Compare }):
		return invalidf("a commit makes no version")
	case len(ws) > most:
		return invalidf("a commit has %d writes; this store takes at most %d at once", len(ws), most)
	}
	type document struct{ collection, key string }
	documents, ids := make(map[document]bool, len(ws)), make(map[string]bool, len(ws))
	bytes := 0
	for i := range ws {
		w := &ws[i]
		d := document{w.Collection, w.Key}
		switch {
		case documents[d]:
			return invalidf("a commit has two writes of %s %q; make one of them", w.Collection, w.Key)
		case ids[w.ID]:
			return invalidf("a commit has two writes with the ID %q", w.ID)
		}
		documents[d], ids[w.ID] = true, true
		bytes += len(w.Data)
	}
	if bytes > driver.MaxCommitBytes {
		return invalidf("the writes of a commit have %d bytes of data; at most %d are possible at once", bytes, driver.MaxCommitBytes)
	}
	return nil
}

// loaded refuses a malformed version, see driver.Engine.Load. The collection
// must be known.
func loaded(v *driver.Version) error {
	switch {
	case v.RecordedAt <= 0:
		return invalidf("%s %q: the time %s is not after 1970-01-01", v.Collection, v.Key, v.RecordedAt)
	case v.Number < 0:
		return invalidf("%s %q: version numbers start at 1, got %d", v.Collection, v.Key, v.Number)
	}
	return content(v.Collection, v.Key, v.Op, v.Deleted, v.Data)
}

// rewritten refuses malformed versions, see driver.Engine.Rewrite. The collection must be
// known.
func rewritten(collection, k string, vs []driver.Version) error {
	numbers := make(map[int64]bool, len(vs))
	for i := range vs {
		v := &vs[i]
		switch {
		case v.Number < 1:
			return invalidf("%s %q: version numbers start at 1, got %d", collection, k, v.Number)
		case numbers[v.Number]:
			return invalidf("%s %q: version %d is rewritten twice at once", collection, k, v.Number)
		}
		numbers[v.Number] = true
		if err := content(collection, k, v.Op, v.Deleted, v.Data); err != nil {
			return err
		}
	}
	return key(collection, k)
}

func key(collection, key string) error {
	switch {
	case key == "":
		return invalidf("a version of %s has no key", collection)
	case !utf8.ValidString(key):
		return invalidf("%s: the key %q is not valid UTF-8", collection, key)
	}
	return nil
}

// content refuses what no version could hold.
func content(collection, k string, op driver.Op, deleted bool, data []byte) error {
	if err := key(collection, k); err != nil {
		return err
	}
	switch {
	case op < driver.OpCreate || op > driver.OpPruned:
		return invalidf("%s %q: unknown operation %d", collection, k, op)
	case op == driver.OpPruned && !deleted:
		return invalidf("%s %q: a pruned version has no data", collection, k)
	case deleted && data != nil:
		return invalidf("%s %q: a tombstone has no data", collection, k)
	case !deleted && (len(data) < 2 || data[0] != '{' || !gjson.ValidBytes(data)):
		return invalidf("%s %q: the data is not a JSON object", collection, k)
	case !utf8.Valid(data):
		return invalidf("%s %q: the data is not valid UTF-8", collection, k)
	}
	return nil
}

// Stored says what is wrong with a version that a store holds: what no version could hold, or
// what no line of an export could.
func Stored(v *driver.Version) error {
	if err := content(v.Collection, v.Key, v.Op, v.Deleted, v.Data); err != nil {
		return err
	}
	for what, text := range map[string]string{"author": v.Author, "message": v.Message, "change group": v.Group} {
		if !utf8.ValidString(text) {
			return invalidf("%s %q: the %s is not valid UTF-8", v.Collection, v.Key, what)
		}
	}
	if !v.Deleted && !jsontext.Value(v.Data).IsValid() { // it is stricter about members and escapes
		return invalidf("%s %q: the data is not a JSON object", v.Collection, v.Key)
	}
	return nil
}

// log refuses a malformed query of the log, see driver.Engine.Log. Its collections
// must be known.
func log(q *driver.LogQuery) error {
	if len(q.Keys) > 0 && len(q.Collections) != 1 {
		return invalidf("a log of keys needs exactly one collection, got %d", len(q.Collections))
	}
	return limit(q.Limit)
}

func limit(n int) error {
	if n < 0 {
		return invalidf("the limit %d is negative", n)
	}
	return nil
}
