// Package gitimport makes histories of the documents in a git repository: lines
// as package transfer reads them.
//
// Invariants:
//
//   - The history is that of HEAD along first parents. What a merge brought in is
//     one change of the documents, by who merged.
//   - All versions of a commit have one time, greater than that of the commit
//     before; so a store as of any instant is the repository as of a commit.
//   - The same commits and the same map give the same lines, so that an import can
//     be repeated, and continues.
//   - Nothing of the repository is executed: no hook, filter, pager or helper that
//     its configuration names, and nothing is fetched. Its paths and names are
//     never arguments of a command.
//   - Memory is bounded by the number of documents that exist at a time and of
//     files that one commit changes, and not by the number of commits, nor by the size
//     of all documents together.
package gitimport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/asof/asof/storage/normal"
)

// Map says which files of a repository hold documents. It is read from a file.
type Map struct {
	Sources []Source `json:"sources"`
	// Author is what names the author of a commit: "name", also if it is empty, or "email".
	Author string `json:"author"`
	// Authors are names to be written instead of the names or addresses in commits.
	Authors map[string]string `json:"authors"`
}

// Source is files that hold documents of one collection.
type Source struct {
	Collection string `json:"collection"`
	// Path is a pattern of paths from the root of the repository: {key} stands for
	// the document's key, * for a part of a name, ** for any number of directories.
	Path string `json:"path"`
	// Root is a JSON Pointer to where the document lies in the file; empty: it is
	// the whole file.
	Root string `json:"root"`
	// Many says that there are many documents: a list, or an object with a member
	// for each.
	Many bool `json:"many"`
	// Key is the member that holds the key. Where it is empty the key is {key} of
	// the path, or with Many the member's name.
	Key string `json:"key"`
	// Drop are members that are left out, and Rename gives others their stored names.
	Drop   []string          `json:"drop"`
	Rename map[string]string `json:"rename"`
	// FollowRenames keeps the key of a document whose file gets another name.
	FollowRenames bool `json:"followRenames"`

	pattern *regexp.Regexp
}

// ReadMap reads a map from the text of a file; its name determines the format, as that of
// a document does.
func ReadMap(name string, text []byte) (*Map, error) {
	value, err := decode(name, text)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	m := new(Map)
	if err := in.Decode(m); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if m.Author != "" && m.Author != "name" && m.Author != "email" {
		return nil, fmt.Errorf("author must be name or email, not %q", m.Author)
	}
	if len(m.Sources) == 0 {
		return nil, errors.New("it has no sources")
	}
	for i := range m.Sources {
		if err := m.Sources[i].prepare(); err != nil {
			return nil, fmt.Errorf("source %d (%s): %w", i+1, m.Sources[i].Path, err)
		}
	}
	return m, nil
}

// keyMark stands for the key in the pattern of a path.
const keyMark = "{key}"

// parts are what a pattern of a path is made of, apart from plain characters.
var parts = []struct{ glob, expression string }{
	{keyMark, "([^/]+)"},
	{"**/", "(?:.*/)?"},
	{"**", ".*"},
	{"*", "[^/]*"},
	{"?", "[^/]"},
}

// prepare checks what was read, and compiles the pattern.
func (s *Source) prepare() error {
	marks := strings.Count(s.Path, keyMark)
	switch {
	case s.Collection == "":
		return errors.New("it names no collection")
	case s.Path == "" || strings.HasPrefix(s.Path, "/") || strings.HasPrefix(s.Path, "./"):
		return errors.New("path must be a pattern of paths from the root of the repository, such as software/{key}.yml")
	case s.Root != "" && s.Root[0] != '/':
		return errors.New("root must be a JSON Pointer, such as /metadata")
	case marks > 1:
		return errors.New("path has {key} more than once")
	case marks == 1 && (s.Many || s.Key != ""):
		return errors.New("path has {key}, and the key is to come from the document, too; leave one of both out")
	case marks == 0 && !s.Many && s.Key == "":
		return errors.New("nothing tells the key: write {key} in path, name the member that holds it (key), or say that a file holds many documents (many)")
	case s.FollowRenames && marks == 0:
		return errors.New("followRenames is for keys that come from the path ({key}); others stay as they are when a file is renamed")
	}
	expression := strings.Builder{}
	for rest := s.Path; rest != ""; {
		before := len(rest)
		for _, part := range parts {
			if after, ok := strings.CutPrefix(rest, part.glob); ok {
				expression.WriteString(part.expression)
				rest = after
				break
			}
		}
		if len(rest) == before {
			expression.WriteString(regexp.QuoteMeta(rest[:1]))
			rest = rest[1:]
		}
	}
	var err error
	s.pattern, err = regexp.Compile(`(?s)\A` + expression.String() + `\z`)
	return err
}

// match reports whether a file is of this source, and the key that its path holds.
func (s *Source) match(path string) (key string, ok bool) {
	found := s.pattern.FindStringSubmatch(path)
	if found == nil {
		return "", false
	}
	return found[len(found)-1], true // the whole path where there is no {key}
}

// entry is a document in a file.
type entry struct {
	key  string
	data map[string]any
}

// documents returns those in a file's value. The key is that of its path.
func (s *Source) documents(value any, key string) ([]entry, error) {
	for _, name := range strings.Split(s.Root, "/")[1:] {
		object, _ := value.(map[string]any)
		inner, ok := object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
		if !ok {
			return nil, fmt.Errorf("there is nothing at %s", s.Root)
		}
		value = inner
	}
	if !s.Many {
		one, err := s.document(value, key)
		return []entry{one}, err
	}
	var all []entry
	add := func(value any, key string) error {
		one, err := s.document(value, key)
		all = append(all, one)
		return err
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(value) {
			if err := add(value[key], key); err != nil {
				return nil, fmt.Errorf("member %q: %w", key, err)
			}
		}
	case []any:
		if s.Key == "" {
			return nil, errors.New("its documents are a list; name the member that holds the key of each (key)")
		}
		for i, element := range value {
			if err := add(element, ""); err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
		}
	default:
		return nil, fmt.Errorf("is %s; many documents are a list or an object", describe(value))
	}
	return all, nil
}

// document makes a document of a value.
func (s *Source) document(value any, key string) (entry, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return entry{}, fmt.Errorf("is %s; a document is an object", describe(value))
	}
	if s.Key != "" {
		switch named := object[s.Key].(type) {
		case string:
			key = named
		case json.Number:
			key = named.String()
		case int64:
			key = strconv.FormatInt(named, 10)
		default:
			return entry{}, fmt.Errorf("its key, the member %q, is %s, and neither a string nor a number", s.Key, describe(named))
		}
	}
	out := maps.Clone(object)
	for _, name := range s.Drop {
		delete(out, name)
	}
	for from := range s.Rename {
		delete(out, from)
	}
	for _, from := range sortedKeys(s.Rename) {
		to := s.Rename[from]
		member, has := object[from]
		if _, taken := out[to]; has && taken {
			return entry{}, fmt.Errorf("its member %q cannot be renamed to %q, which is there, too", from, to)
		}
		if has {
			out[to] = member
		}
	}
	return entry{key, out}, nil
}

// maxFile is how large a file with documents may be, in bytes.
const maxFile = 8 << 20

// maxValues is about how many values a YAML file may have, each of which takes some 300 bytes
// until the file is read.
const maxValues = 1 << 19

// decode returns the value of a file, as encoding/json makes it of JSON, with numbers
// as they are written. Moments and days of YAML are strings; those of TOML marshal as such.
func decode(name string, data []byte) (any, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	switch extension := strings.ToLower(path.Ext(name)); extension {
	case ".json":
		return decodeJSON(data)
	case ".yaml", ".yml":
		return decodeYAML(data)
	case ".toml":
		var value map[string]any
		err := toml.Unmarshal(data, &value)
		if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := wrong.Position()
			return nil, fmt.Errorf("line %d, column %d: %w", row, column, err)
		}
		return value, err
	default:
		return nil, errors.New("its name does not end in .json, .yaml, .yml or .toml, which tells the format")
	}
}

func decodeJSON(data []byte) (value any, err error) {
	text, err := normal.Value(data) // no name twice, and valid UTF-8
	if wrong, ok := errors.AsType[*normal.SyntaxError](err); ok {
		return nil, fmt.Errorf("line %d: %s", 1+bytes.Count(data[:wrong.Offset], []byte{'\n'}), wrong.Message)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	err = in.Decode(&value)
	return value, err
}

func decodeYAML(data []byte) (any, error) {
	if n := mostValues(data); n > maxValues {
		return nil, fmt.Errorf("it has up to %d values, and %d are possible; make several files of it, or JSON", n, maxValues)
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := in.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	} else if err != nil {
		return nil, err
	}
	if err := in.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, errors.New("it holds more than one YAML document (---)")
	}
	tree := yamlTree{left: maxFile}
	return tree.value(&document, 0)
}

// mostValues counts what may begin or separate the values of a YAML file; some of it is in texts. The end
// of a line does neither alone.
func mostValues(data []byte) int {
	n := 0
	for i, c := range data {
		switch c {
		case ',', '[', '{':
			n++
		case ':', '-', '?':
			if i+1 == len(data) || data[i+1] <= ' ' || i > 0 && (data[i-1] == '"' || data[i-1] == '\'') {
				n++
			}
		}
	}
	return n
}

// yamlTree turns nodes of YAML into values.
type yamlTree struct {
	aliases int // around the node
	left    int // bytes that aliases may still repeat
}

// aliasCost is about what an aliased node takes beside its text, in bytes.
const aliasCost = 8

func (t *yamlTree) value(n *yaml.Node, depth int) (any, error) {
	if depth > normal.MaxDepth {
		return nil, fmt.Errorf("line %d: nested more than %d deep, or an anchor contains its own alias", n.Line, normal.MaxDepth)
	}
	if t.aliases > 0 {
		if t.left -= len(n.Value) + aliasCost; t.left < 0 {
			return nil, fmt.Errorf("line %d: its aliases repeat more than %d bytes", n.Line, maxFile)
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return t.value(n.Content[0], depth)
	case yaml.AliasNode:
		t.aliases++
		defer func() { t.aliases-- }()
		return t.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, element := range n.Content {
			var err error
			if list[i], err = t.value(element, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return t.object(n, depth)
	default:
		value, err := scalar(n)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
		return value, nil
	}
}

func (t *yamlTree) object(n *yaml.Node, depth int) (any, error) {
	object := make(map[string]any, len(n.Content)/2)
	var merged []any // what << names: objects whose members are added where there are none
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		value, err := t.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		if name.ShortTag() == "!!merge" {
			if list, ok := value.([]any); ok {
				merged = append(merged, list...)
			} else {
				merged = append(merged, value)
			}
			continue
		}
		if name.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a member's name is no plain text", n.Content[i].Line)
		}
		if _, twice := object[name.Value]; twice {
			return nil, fmt.Errorf("line %d: the member %q is there twice", n.Content[i].Line, name.Value)
		}
		object[name.Value] = value
	}
	for _, value := range merged {
		from, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("line %d: << names %s, and no object", n.Line, describe(value))
		}
		for name, member := range from {
			if _, has := object[name]; !has {
				object[name] = member
			}
		}
	}
	return object, nil
}

// scalar returns the value of a plain node. Moments and days stay as they are written.
func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp", "!!binary":
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		return strconv.ParseBool(strings.ToLower(n.Value))
	case "!!int":
		if number, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return number, nil
		}
		if number, err := strconv.ParseUint(n.Value, 0, 64); err == nil {
			return number, nil
		}
	case "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value), nil
		}
		var number float64
		if err := n.Decode(&number); err == nil && !math.IsInf(number, 0) && !math.IsNaN(number) {
			return number, nil
		}
	}
	return nil, fmt.Errorf("%q is no %s that JSON can hold", n.Value, n.ShortTag())
}

// describe names a kind of value.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null or absent"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number or a moment"
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
