package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) hostileTests() []test {
	return []test{
		{"Keys", s.testHostileKeys},
		{"MemberNames", s.testHostileNames},
		{"BigDocuments", s.testBigDocuments},
		{"DeepDocuments", s.testDeepDocuments},
		{"CollectionNames", s.testCollectionNames},
		{"HugeFilters", s.testHugeFilters},
	}
}

// hostileKeys are legal, in bytewise order.
func hostileKeys() []string {
	keys := []string{
		" ", " a", "\x00", "\x00\x00", "a\x00", "a\x00b", "a", "A", "a ", "a@1", "a%40", "a%", "%", "_", "'", "''", "\"", "`", "\\", "\\\\", "/",
		"..", "../../etc/passwd", "a/b", "a:b", "$", "$where", "?1", ":a", "'; DROP TABLE versions; --", "null", "0", "1e3", "01",
		"é", "e\u0301", "\u202e", "\ufeff", "\uffff", "\U0010ffff", "🎉", "日本", "\n", "\r\n", "\t", "\x7f", "\x1b[31m",
		strings.Repeat("k", 10_000), strings.Repeat("k", 10_000) + "2", strings.Repeat("é", 5_000),
	}
	slices.Sort(keys)
	return keys
}

func (s *suite) testHostileKeys(t *testing.T) {
	f := s.fixture(t)
	keys := hostileKeys()
	at := make(map[string]driver.Instant)
	for i, key := range keys {
		at[key] = f.put(key, fmt.Sprintf(`{"n":%d}`, i)).RecordedAt
	}
	f.clock.move(time.Minute)
	for i, key := range keys {
		f.put(key, fmt.Sprintf(`{"n":%d}`, i+1000))
	}
	short := func(s string) string { return fmt.Sprintf("%.40q (%d bytes)", s, len(s)) }
	meta := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	for i, key := range keys {
		if v := f.get(driver.Ref{Key: key, At: driver.Forever}); v == nil || v.Key != key || v.Number != 2 {
			t.Errorf("Get of %s: %+v", short(key), v)
		}
		if v := f.get(driver.Ref{Key: key, At: at[key]}); v == nil || string(v.Data) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("Get of %s, then: %+v", short(key), v)
		}
		for _, instant := range []driver.Instant{driver.Forever, at[keys[len(keys)-1]]} {
			if got := f.keys(&driver.Query{At: instant, Filter: eq(meta, key)}); !slices.Equal(got, []string{key}) {
				t.Errorf("Query for %s at %d: %q", short(key), instant, got)
			}
			if got := f.keys(&driver.Query{At: instant, After: &driver.Position{Key: key}}); !slices.Equal(got, keys[i+1:]) {
				t.Errorf("Query after %s at %d: %d documents, want %d", short(key), instant, len(got), len(keys)-i-1)
			}
		}
		if got := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{key}}); len(got) != 2 || got[0].Key != key {
			t.Errorf("Log of %s: %d versions", short(key), len(got))
		}
	}
	if got := f.keys(&driver.Query{At: driver.Forever}); !slices.Equal(got, keys) {
		t.Errorf("all: %q", got)
	}
}

// hostileNames are member names that mean something to some query language.
var hostileNames = [...]string{
	"a.b", "a b", "$", "$.a", "[0]", "a[0]", "*", "#", "@", "%", "", "0", "'", "it's", "é", "e\u0301", "null", "a\\b", "a\"b", "\"", "\n", "ключ", "_id", "a:b", "~1",
}

func (s *suite) testHostileNames(t *testing.T) {
	var collections []driver.Collection
	for _, name := range hostileNames {
		plain := driver.Collection{Name: fmt.Sprintf("c%d", len(collections))}
		indexed := driver.Collection{Name: plain.Name + "indexed", Indexes: []driver.Index{
			{Path: []string{name}, Kind: driver.KindInt},
			{Path: []string{"o", name}, Kind: driver.KindInt},
			{Path: []string{"l" + name}, Kind: driver.KindInt, List: true},
		}}
		collections = append(collections, plain, indexed)
	}
	f := s.fixture(t, collections...)
	for i, c := range collections {
		name := hostileNames[i/2]
		for n := range 3 {
			data := fmt.Appendf(nil, `{"other":7,%s:%d,"o":{%[1]s:%[2]d},%[3]s:[%[2]d]}`, quoted(name), n, quoted("l"+name))
			f.commit(&driver.Write{ID: f.id(), Collection: c.Name, Key: fmt.Sprintf("k%d", n), Op: driver.OpCreate, Changed: []string{name}, Data: data})
		}
		for what, filter := range map[string]driver.Filter{
			"at the root": eq(intField(name), int64(1)),
			"nested":      eq(intField("o", name), int64(1)),
			"in a list":   driver.Any{Field: intField("l" + name), Filter: eq(intField(), int64(1))},
		} {
			if got := f.keys(&driver.Query{Collection: c.Name, At: driver.Forever, Filter: filter}); !slices.Equal(got, []string{"k1"}) {
				t.Errorf("%s %q %s: %q, want k1", c.Name, name, what, got)
			}
		}
		q := &driver.Query{Collection: c.Name, At: driver.Forever, Order: []driver.Order{{Field: intField(name), Desc: true}}}
		if got := f.keys(q); !slices.Equal(got, []string{"k2", "k1", "k0"}) {
			t.Errorf("%s in descending order of %q: %q", c.Name, name, got)
		}
		q.Fields = []string{name}
		if got := f.query(q); len(got) != 3 {
			t.Errorf("%s with only %q: %d documents", c.Name, name, len(got))
		} else if root, err := decode(got[0].Data); err != nil || fmt.Sprint(lookup(root, []string{name})) != "2" {
			t.Errorf("%s with only %q: %s, %v", c.Name, name, got[0].Data, err)
		}
		if got := f.log(&driver.LogQuery{Collections: []string{c.Name}, Hints: driver.Hints{Changed: []string{name}}}); len(got) != 3 {
			t.Errorf("%s, Log of changes of %q: %d versions, want 3", c.Name, name, len(got))
		}
	}
}

func (s *suite) testBigDocuments(t *testing.T) {
	f := s.fixture(t)
	data := fmt.Sprintf(`{"n":3,"s":"%s"}`, strings.Repeat("0123456789abcde\\n", 3<<16))
	f.put("big", data)
	f.put("big", strings.Replace(data, `{"n"`, `{"m"`, 1))
	if got := f.get(driver.Ref{Key: "big", Number: 1}); string(got.Data) != data {
		t.Errorf("version 1 has %d bytes, want %d", len(got.Data), len(data))
	}
	q := &driver.Query{At: driver.Forever, Filter: driver.Text{Field: stringField("s"), Op: driver.HasSuffix, Value: "bcde\n"}}
	if got := f.keys(q); !slices.Equal(got, []string{"big"}) {
		t.Errorf("by its end: found %q", got)
	}
	// Many big versions of one document: no record, of 16 MB at most, has to hold them all.
	const versions = 18
	for i := range versions {
		f.put("grows", fmt.Sprintf(`{"n":%d,"s":"%s"}`, i, strings.Repeat(string(rune('a'+i)), 1<<20)))
	}
	for i := range versions {
		v := f.get(driver.Ref{Key: "grows", Number: int64(i) + 1})
		if v == nil || len(v.Data) < 1<<20 || v.Data[1<<19] != byte('a'+i) {
			t.Errorf("version %d of a history of %d MB is wrong", i+1, versions)
		}
	}
	if got := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"grows"}, FromNumber: versions - 1}); len(got) != 2 ||
		got[0].Data[1<<19] != byte('a'+versions-2) {
		t.Errorf("Log of the last two of %d MB: %d versions", versions, len(got))
	}
}

func (s *suite) testDeepDocuments(t *testing.T) {
	f := s.fixture(t)
	const depth = 200
	data := strings.Repeat(`{"o":`, depth) + `{"n":7}` + strings.Repeat("}", depth)
	f.put("deep", data)
	f.put("lists", `{"l":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+"}")
	path := slices.Repeat([]string{"o"}, 32)
	if got := f.keys(&driver.Query{At: driver.Forever, Filter: driver.Present{Field: field(driver.KindObject, path...)}}); !slices.Equal(got, []string{"deep"}) {
		t.Errorf("by a value %d levels down: %q", len(path), got)
	}
	if got := f.get(driver.Ref{Key: "deep", Number: 1}); string(got.Data) != data {
		t.Errorf("it reads as %s", got.Data)
	}
}

// No two different pairs of collection and key are the same place.
func (s *suite) testCollectionNames(t *testing.T) {
	var collections []driver.Collection
	for _, name := range []string{
		"sqlite_master", "versions", "documents", "a.b", "a b", "select", "ключ", "1", "it's", "A", "a", "a_b", "a-b", "a/b", "a:b", "ab", strings.Repeat("n", 100),
	} {
		collections = append(collections, driver.Collection{Name: name, Indexes: []driver.Index{{Path: []string{"n"}, Kind: driver.KindInt}}})
	}
	f := s.fixture(t, collections...)
	keys := []string{"b", "b/c", "c", "/b/c", ":b:c", "bc", "\x00c"}
	for round := range 2 {
		for i, c := range collections {
			for k, key := range keys {
				f.commit(&driver.Write{
					ID: f.id(), Collection: c.Name, Key: key, Expected: int64(round), Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"n":%d}`, i*10+k+round),
				})
			}
		}
		for i, c := range collections {
			for k, key := range keys {
				q := &driver.Query{Collection: c.Name, At: driver.Forever, Filter: eq(intField("n"), int64(i*10+k+round))}
				if got := f.query(q); len(got) != 1 || got[0].Collection != c.Name || got[0].Key != key || got[0].Number != int64(round)+1 {
					t.Errorf("Query of %q for %q: %+v", c.Name, key, got)
				}
			}
		}
		f.reopen(collections...)
	}
}

// A filter with more conditions than a statement takes is answered, or
// refused in words; it never fails in another way.
func (s *suite) testHugeFilters(t *testing.T) {
	f := s.fixture(t)
	for i := range 20 {
		f.put(fmt.Sprintf("k%02d", i), fmt.Sprintf(`{"n":%d,"tags":["t%d"]}`, i, i))
	}
	var values []driver.Value
	var or driver.Or
	for i := range 3000 {
		values = append(values, int64(i*5))
		if i < 300 {
			or = append(or, eq(intField("n"), int64(i*5)))
		}
	}
	nested := eq(intField("n"), int64(5))
	for range 40 {
		nested = driver.Not{Filter: driver.And{nested}}
	}
	for name, test := range map[string]struct {
		filter driver.Filter
		want   []string
	}{
		"In with 3000 values": {driver.In{Field: intField("n"), Values: values}, []string{"k00", "k05", "k10", "k15"}},
		"Or of 300":           {or, []string{"k00", "k05", "k10", "k15"}},
		"80 levels":           {nested, []string{"k05"}},
	} {
		if got := f.keys(&driver.Query{At: driver.Forever, Filter: test.filter}); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for range 5000 {
		nested = driver.Not{Filter: driver.And{nested}}
	}
	got, err := f.engine.Query(f.ctx, &driver.Query{Collection: collection, At: driver.Forever, Filter: nested})
	if err == nil && (len(got) != 1 || got[0].Key != "k05") || err != nil && driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("10,080 levels: %d documents, %v; want k05 or CodeInvalid", len(got), err)
	}
}
