package transfer

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

func at(t *testing.T, s string) driver.Instant {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return driver.InstantOf(parsed)
}

func TestParseLine(t *testing.T) {
	noon := at(t, "2024-05-06T12:00:00Z")
	tests := []struct {
		name, line string
		want       driver.Version
	}{
		{
			"everything",
			`{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"ann","message":"m","source":"s","op":"put","data":{"a":1}}`,
			driver.Version{Collection: "c", Key: "k", RecordedAt: noon, Author: "ann", Message: "m", Group: "s", Op: driver.OpImport, Data: []byte(`{"a":1}`)},
		},
		{
			"any order, spaces, no message and no source",
			` { "data" : { "a" : 1.50 } , "op":"put", "by":"ann", "at":"2024-05-06T14:00:00.000000+02:00", "id":"k", "collection":"c" } `,
			driver.Version{Collection: "c", Key: "k", RecordedAt: noon, Author: "ann", Op: driver.OpImport, Data: []byte(`{"a":1.5}`)},
		},
		{
			"delete, null is nothing",
			`{"collection":"c","id":"k","at":"2024-05-06T12:00:00.000001999Z","by":"","message":null,"source":null,"op":"delete","data":null}`,
			driver.Version{Collection: "c", Key: "k", RecordedAt: noon + 1, Op: driver.OpDelete, Deleted: true},
		},
		{
			"an operation",
			`{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"ann","op":"put","operation":"RESTORE","data":{}}`,
			driver.Version{Collection: "c", Key: "k", RecordedAt: noon, Author: "ann", Op: driver.OpRestore, Data: []byte(`{}`)},
		},
		{
			"null is no operation",
			`{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"ann","op":"put","operation":null,"data":{}}`,
			driver.Version{Collection: "c", Key: "k", RecordedAt: noon, Author: "ann", Op: driver.OpImport, Data: []byte(`{}`)},
		},
		{
			"the operation of a delete",
			`{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"ann","op":"delete","operation":"DELETE"}`,
			driver.Version{Collection: "c", Key: "k", RecordedAt: noon, Author: "ann", Op: driver.OpDelete, Deleted: true},
		},
		{
			"escapes",
			`{"collection":"c","id":"\u0041\n\ud83d\ude00","at":"2024-05-06T12:00:00Z","by":"a\"b","op":"put","data":{"\u0062":"\u00e9\/"}}`,
			driver.Version{Collection: "c", Key: "A\n😀", RecordedAt: noon, Author: `a"b`, Op: driver.OpImport, Data: []byte(`{"b":"é/"}`)},
		},
	}
	p := newLineParser()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := p.parse([]byte(test.line))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// good is a line that is well; the tests break one thing in it.
const good = `{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"ann","op":"put","data":{"a":1}}`

func TestParseLineErrors(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in the line", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	tests := []struct{ name, line, want string }{
		{"not JSON", "hello", "is not one JSON object, at byte 1: invalid character"},
		{"a number", "17", "is not one JSON object, at byte 1"},
		{"a list", "[]", "is not one JSON object, at byte 1"},
		{"half", good[:30], "is not one JSON object, at byte 31: unexpected EOF"},
		{"half in data", good[:len(good)-3], "is not one JSON object, at byte 90: unexpected EOF"},
		{"two objects", good + " " + good, "at byte 94: invalid character '{' after top-level value"},
		{"garbage behind", good + "]", "at byte 93: invalid character ']' after top-level value"},
		{"comma missing", replace(`"c",`, `"c"`), "is not one JSON object, at byte 18"},
		{"trailing comma", replace(`1}}`, `1},}`), "is not one JSON object"},
		{"byte order mark", "\ufeff" + good, "byte order mark"},
		{"unknown member", replace(`"by"`, `"author"`), `unknown member "author"; a line has collection, id, at, by, message, source, op, operation, seal, changed, data`},
		{"no collection", replace(`"collection":"c",`, ``), `has no "collection"`},
		{"no id", replace(`"id":"k",`, ``), `has no "id"`},
		{"no at", replace(`"at":"2024-05-06T12:00:00Z",`, ``), `has no "at"`},
		{"no by", replace(`"by":"ann",`, ``), `has no "by"`},
		{"no op", replace(`"op":"put",`, ``), `has no "op"`},
		{"no data", replace(`,"data":{"a":1}`, ``), `has no "data"`},
		{"empty collection", replace(`"c"`, `""`), `"collection" is empty`},
		{"empty id", replace(`"k"`, `""`), `"id" is empty`},
		{"long id", replace(`"k"`, `"`+strings.Repeat("k", 513)+`"`), `"id" is longer than 512 bytes`},
		{"id with NUL", replace(`"k"`, `"k\u0000"`), `"id" contains a NUL character`},
		{"id is a number", replace(`"k"`, `7`), `"id" must be a string, not "7"`},
		{"by is null", replace(`"ann"`, `null`), `has no "by"`},
		{"op unknown", replace(`"put"`, `"PUT"`), `"op" must be "put", "delete" or "prune", not "PUT"`},
		{"an unknown operation", replace(`"put"`, `"put","operation":"create"`), `"operation" of a put must be CREATE, UPDATE, RESTORE, IMPORT or ERASE, or left out, not "create"`},
		{"no operation", replace(`"put"`, `"put","operation":""`), `"operation" of a put must be CREATE`},
		{"a put that deletes", replace(`"put"`, `"put","operation":"DELETE"`), `"operation" of a put must be CREATE`},
		{"a delete that creates", replace(`"put","data":{"a":1}`, `"delete","operation":"CREATE"`), `"operation" of a delete must be DELETE or ERASE, or left out, not "CREATE"`},
		{"delete with data", replace(`"put"`, `"delete"`), `is a delete with "data"`},
		{"data is a list", replace(`{"a":1}`, `[1]`), `"data" must be an object, not "[1]"`},
		{"data is null", replace(`{"a":1}`, `null`), `has no "data"; a put carries the document as it was after it; to delete`},
		{"data is text", replace(`{"a":1}`, `"{}"`), `"data" must be an object, not`},
		{"member twice", replace(`"by":"ann"`, `"by":"ann","by":"bob"`), `the member "by" is there twice`},
		{"member twice in data", replace(`{"a":1}`, `{"a":1,"a":2}`), `the member "a" is there twice`},
		{"member twice, written differently", replace(`{"a":1}`, `{"a":1,"\u0061":2}`), `the member "a" is there twice`},
		{"member twice, deep", replace(`{"a":1}`, `{"x":[{"a":1,"a":1}]}`), `the member "a" is there twice`},
		{"invalid UTF-8", replace(`"ann"`, "\"a\xffn\""), "invalid UTF-8"},
		{"invalid UTF-8 in data", replace(`"a":1`, "\"a\":\"\xc3\""), "invalid UTF-8"},
		{"half a surrogate pair", replace(`"ann"`, `"\ud83d"`), "invalid surrogate pair"},
		{"no offset", replace(`12:00:00Z`, `12:00:00`), `"at": DateTime cannot be "2024-05-06T12:00:00": the offset is missing; write it as`},
		{"impossible date", replace(`05-06T`, `02-30T`), `"at": DateTime cannot be "2024-02-30T12:00:00Z": its day does not exist`},
		{"impossible hour", replace(`T12`, `T25`), `its hour does not exist`},
		{"date only", replace(`T12:00:00Z`, ``), `it is not in the format of RFC 3339`},
		{"seconds since 1970", replace(`"2024-05-06T12:00:00Z"`, `1715000000`), `"at" must be a string, not "1715000000"`},
		{"no minutes of offset", replace(`00Z`, `00+02`), `it is not in the format of RFC 3339`},
		{"an offset of a day", replace(`00Z`, `00+24:00`), `there is no offset +24:00`},
		{"an hour of one digit", replace(`T12:00`, `T1:00`), `it is not in the format of RFC 3339`},
		{"a comma", replace(`00Z`, `00,5Z`), `it is not in the format of RFC 3339`},
		{"an unknown offset", replace(`00Z`, `00-00:00`), `-00:00 means that the offset is unknown`},
		{"the year 0000", replace(`2024-`, `0000-`), `there is no year 0000`},
	}
	p := newLineParser()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := p.parse([]byte(test.line))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
			// What was wrong with one line is forgotten at the next.
			if _, err := p.parse([]byte(good)); err != nil {
				t.Errorf("a good line after it: %v", err)
			}
		})
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"collection":"c","id":"k","at":"2024-05-06T12:00:00.123456789+05:30","by":"","op":"delete"}`))
	f.Add([]byte(`{"collection":"c","id":"\ud83d\ude00","at":"0001-01-01T00:00:00Z","by":"\u0000","message":"\\","source":"<","op":"put","data":{"":[1e400,-0,null,{"a":{}}]}}`))
	f.Add([]byte(`{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"é","op":"put","data":{"a":"}"}}`))
	f.Add([]byte(`{"collection":"c","id":"k","at":"2024-05-06T12:00:00Z","by":"x","by":"y","op":"put","data":{}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		v, err := newLineParser().parse(append([]byte(nil), line...))
		if err != nil {
			return
		}
		// What was read is written in one way, and that is read back as the same.
		written, err := appendLine(nil, &v, true)
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", line, err)
		}
		again, err := newLineParser().parse(append([]byte(nil), written[:len(written)-1]...))
		if err != nil {
			t.Fatalf("%q was written as %q, which cannot be read: %v", line, written, err)
		}
		if diff := cmp.Diff(v, again); diff != "" {
			t.Fatalf("%q was written as %q, which is something else: %s", line, written, diff)
		}
		rewritten, err := appendLine(nil, &again, true)
		if err != nil || string(rewritten) != string(written) {
			t.Fatalf("%q was written again as %q, %v", written, rewritten, err)
		}
	})
}
