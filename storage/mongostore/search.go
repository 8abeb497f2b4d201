package mongostore

import (
	"strconv"

	"github.com/tidwall/gjson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/asof/asof/storage/driver"
)

// The search form of a document is what filters, orders and indexes look at.
// Each member becomes a small document with one member for each kind that its
// value reads as, so that a comparison of a kind never meets a value of another:
//
//	{"name":"Go","stars":5,"tags":["a"]}
//	{name: {s: "Go"}, stars: {i: 5, f: …, m: "6…"}, tags: {l: [{s: "a"}]}}
//
// Floats (f) and decimals (m) are encoded such that their order is exact.
// Objects are under o, lists under l, which keeps paths from entering lists by
// themselves. Null members are left out; null elements are empty documents.
// What is deeper than maxDepth is cut to {z: true}: it is there, and nothing
// more is known of it here.

// maxDepth is how many levels of objects and lists the search form has. Each
// takes two levels of BSON, of which the server allows 100.
const maxDepth = 40

// appendSearch appends the elements of an object's search form.
func appendSearch(dst []byte, object gjson.Result, depth int) []byte {
	object.ForEach(func(name, value gjson.Result) bool {
		if value.Type == gjson.Null {
			return true
		}
		var at int32
		at, dst = bsoncore.AppendDocumentElementStart(dst, memberName(text(name)))
		dst = appendValue(dst, value, depth+1)
		dst = end(dst, at)
		return true
	})
	return dst
}

// appendValue appends the readings of one value.
func appendValue(dst []byte, v gjson.Result, depth int) []byte {
	switch v.Type {
	case gjson.True, gjson.False:
		return bsoncore.AppendBooleanElement(dst, "b", v.Type == gjson.True)
	case gjson.String:
		s := text(v)
		dst = bsoncore.AppendStringElement(dst, "s", encodeString(s))
		if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
			return dst
		}
		return appendReadings(dst, textAs, s, driver.KindInstant, driver.KindDate, driver.KindDecimal)
	case gjson.Number:
		before := len(dst)
		dst = appendReadings(dst, numberAs, v.Raw, driver.KindInt, driver.KindFloat, driver.KindDecimal)
		if len(dst) == before {
			dst = bsoncore.AppendBooleanElement(dst, readingCut, true)
		}
		return dst
	case gjson.JSON:
		return appendNested(dst, v, depth)
	case gjson.Null:
	}
	return dst
}

func appendReadings(dst []byte, read func(driver.Kind, string) any, s string, kinds ...driver.Kind) []byte {
	for _, kind := range kinds {
		switch x := read(kind, s).(type) {
		case int64:
			dst = bsoncore.AppendInt64Element(dst, reading(kind), x)
		case string:
			dst = bsoncore.AppendStringElement(dst, reading(kind), x)
		}
	}
	return dst
}

func appendNested(dst []byte, v gjson.Result, depth int) []byte {
	if depth >= maxDepth {
		return bsoncore.AppendBooleanElement(dst, readingCut, true)
	}
	var at int32
	if v.IsObject() {
		at, dst = bsoncore.AppendDocumentElementStart(dst, readingObject)
		return end(appendSearch(dst, v, depth), at)
	}
	at, dst = bsoncore.AppendArrayElementStart(dst, readingList)
	i := 0
	v.ForEach(func(_, element gjson.Result) bool {
		var inner int32
		inner, dst = bsoncore.AppendDocumentElementStart(dst, strconv.Itoa(i))
		dst = end(appendValue(dst, element, depth+1), inner)
		i++
		return true
	})
	return end(dst, at)
}

// end ends a document or a list that was begun at a place.
func end(dst []byte, at int32) []byte {
	dst = append(dst, 0)
	return bsoncore.UpdateLength(dst, at, int32(len(dst[at:])))
}
