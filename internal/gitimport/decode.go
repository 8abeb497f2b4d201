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
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"github.com/asof/asof/storage/normal"
)

// maxFile is how large a file with documents may be, in bytes. Its value takes
// up to two hundred times as much memory: YAML of many small elements does.
const maxFile = 8 << 20

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
