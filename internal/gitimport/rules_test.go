package gitimport

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a.json", "\ufeff{\"n\": 12345678901234567890123, \"f\": 1.50, \"s\": \"\\u00e9\"}", `{"f":1.5,"n":12345678901234567890123,"s":"é"}`},
		{"a.YAML", "d: 2024-02-30\nt: 2024-01-01T00:00:00+02:00\ny: yes\nb: True\nn: ~\no: 0o17\nx: 0x1F\nu: 1_000\np: +12", `{"b":true,"d":"2024-02-30","n":null,"o":15,"p":12,"t":"2024-01-01T00:00:00+02:00","u":1000,"x":31,"y":"yes"}`},
		{"a.yml", "big: 123456789012345678901234567890\nmax: 18446744073709551615\nf: 1.10\ng: +.5\ne: 12e03\nh: 1e999\nq: '1'", `{"big":123456789012345678901234567890,"e":12e03,"f":1.10,"g":0.5,"h":"1e999","max":18446744073709551615,"q":"1"}`},
		{"a.yml", "1: a\ntrue: b\n~: c\n2024-01-01: d", `{"1":"a","2024-01-01":"d","true":"b","~":"c"}`},
		{"a.yml", "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  a: 3\n  <<: [*x, *y]\nw: *x\n<<: {v: 4}", `{"v":4,"w":{"a":1,"b":1},"x":{"a":1,"b":1},"y":{"b":2,"c":2},"z":{"a":3,"b":1,"c":2}}`},
		{"a.yml", "b: !!binary aGk=\ns: !!str 1\nf: !!float 3\nt: |\n  two\n  lines", `{"b":"aGk=","f":3,"s":"1","t":"two\nlines"}`},
		{"a.toml", "o = 1979-05-27T07:32:00.123456-07:00\nd = 1979-05-27\nt = 07:32:00\nl = 1979-05-27T07:32:00\nx = 0x1F\nf = 1.0\n[[list]]\nn = 9223372036854775807", `{"d":"1979-05-27","f":1,"l":"1979-05-27T07:32:00","list":[{"n":9223372036854775807}],"o":"1979-05-27T07:32:00.123456-07:00","t":"07:32:00","x":31}`},
	} {
		value, err := decode(test.name, []byte(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got, err := json.Marshal(value); err != nil || string(got) != test.want {
			t.Errorf("%s is %s, %v, want %s", test.text, got, err, test.want)
		}
	}
}

func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"a: 1", "a: &x [*x]", "<<: [{a: 1}]", "? a\n: b", "a: !!int x", "- [{", "a: 0x\n---\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := decodeYAML(text)
		if err != nil {
			return
		}
		if _, err := json.Marshal(value); err != nil {
			t.Errorf("%q cannot be JSON: %v", text, err)
		}
	})
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct{ pattern, path, key string }{
		{"tags/{key}.yml", "tags/a.b.yml", "a.b"},
		{"tags/{key}.yml", "tags/a/b.yml", ""},
		{"tags/{key}.yml", "x/tags/a.yml", ""},
		{"tags/{key}.yml", "tags/a.yml\n", ""},
		{"tags/{key}.yml", "tags/a\nb.yml", "a\nb"},
		{"tags/{key}.yml", "tags/.yml", ""},
		{"tags/{key}.yml", "tags/aXyml", ""},
		{"**/{key}/meta.*", "a/meta.json", "a"},
		{"**/{key}/meta.*", "x/y/a/meta.json", "a"},
		{"v?/**/[{key}].json", "v1/x/[a].json", "a"},
		{"{key}.json", "a.json", "a"},
	} {
		s := Source{Collection: "c", Path: test.pattern}
		if err := s.prepare(); err != nil {
			t.Fatal(err)
		}
		if key, _ := s.match(test.path); key != test.key {
			t.Errorf("%s of %q has the key %q, want %q", test.pattern, test.path, key, test.key)
		}
	}
}

func TestReadMap(t *testing.T) {
	for text, want := range map[string]string{
		"sources: []": "no sources",
		"source: []":  `unknown field "source"`,
		"sources: [{collection: a, path: 'a', keys: b}]":                       `unknown field "keys"`,
		"sources: [{path: 'a', key: b}]":                                       "source 1 (a): it names no collection",
		"sources: [{collection: a, path: /a, key: b}]":                         "from the root of the repository",
		"sources: [{collection: a, path: a}]":                                  "nothing tells the key",
		"sources: [{collection: a, path: '{key}/{key}'}]":                      "more than once",
		"sources: [{collection: a, path: '{key}', many: true}]":                "leave one of both out",
		"sources: [{collection: a, path: a, many: true, root: a}]":             "JSON Pointer",
		"sources: [{collection: a, path: a, many: true, followRenames: true}]": "followRenames is for keys",
		"author: me\nsources: [{collection: a, path: a, many: true}]":          "name or email",
		"a: [":           "line",
		"- 1":            "cannot unmarshal array",
		"sources: 1":     "cannot unmarshal number",
		"authors: {a: 1": "line",
	} {
		if _, err := ReadMap("map.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := ReadMap("map", []byte("{}")); err == nil || !strings.Contains(err.Error(), "does not end in") {
		t.Error(err)
	}
}

func TestDocumentsThatDoNotFitTheMap(t *testing.T) {
	for _, test := range []struct {
		source     Source
		text, want string
	}{
		{Source{Path: "a", Key: "id"}, `{"id": null}`, `the member "id", is null or absent`},
		{Source{Path: "a", Key: "id"}, `{"id": {}}`, "is an object, and neither a string nor a number"},
		{Source{Path: "{key}", Root: "/a/b~1c"}, `{"a": {"b": 1}}`, "there is nothing at /a/b~1c"},
		{Source{Path: "{key}", Root: "/a/0"}, `{"a": [1]}`, "there is nothing at /a/0"},
		{Source{Path: "{key}", Rename: map[string]string{"a": "b"}}, `{"a": 1, "b": 2}`, `"a" cannot be renamed to "b"`},
		{Source{Path: "{key}", Rename: map[string]string{"a": "c", "b": "c"}}, `{"a": 1, "b": 2}`, `"b" cannot be renamed to "c"`},
		{Source{Path: "a", Many: true}, `[{}]`, "name the member that holds the key"},
		{Source{Path: "a", Many: true}, `"x"`, "is a string; many documents"},
		{Source{Path: "a", Many: true}, `{"x": true}`, `member "x": is a boolean; a document is an object`},
	} {
		test.source.Collection = "c"
		if err := test.source.prepare(); err != nil {
			t.Fatal(err)
		}
		value, err := decodeJSON([]byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := test.source.documents(value, "key"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
	// Two members may swap their names.
	s := Source{Collection: "c", Path: "{key}", Rename: map[string]string{"a": "b", "b": "a"}, Drop: []string{"c"}}
	value, err := decodeJSON([]byte(`{"a": 1, "b": 2, "c": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.documents(value, "key")
	if text, _ := json.Marshal(got[0].data); err != nil || got[0].key != "key" || string(text) != `{"a":2,"b":1}` {
		t.Errorf("%v, %v", got, err)
	}
}

// A small file of which reading would take a great deal of memory is refused before.
func TestManyValuesOfYAML(t *testing.T) {
	for _, part := range []string{"- a\n", "[],", "{},", "a,", "- - ", `"a":b,`, "? \n"} {
		text := "[" + strings.Repeat(part, 1+maxValues)
		if _, err := decode("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "make several files of it") {
			t.Errorf("%q: %v", part, err)
		}
	}
	text := strings.Repeat("- it's at https://example.org/some-page?a:b-c, or so, in other words: nowhere\n", 1000)
	if n := mostValues([]byte(text)); n < 1000 || n > 5000 {
		t.Errorf("up to %d values in a list of 1000", n)
	}
	text = "a: |\n" + strings.Repeat("  a line, short\n", maxFile/16-1)
	if value, err := decode("a.yaml", []byte(text)); err != nil || len(value.(map[string]any)["a"].(string)) < maxFile/2 {
		t.Errorf("a long text: %v", err)
	}
}
