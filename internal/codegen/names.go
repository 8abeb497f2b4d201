package codegen

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-openapi/inflect"
)

// plural is the plural of a name in lower camel case: only its last word is
// inflected ("gameServer" → "gameServers").
func plural(name string) string {
	head, last := lastWord(name)
	return head + matchCase(last, inflect.Pluralize(strings.ToLower(last)))
}

// singular is the singular of a name in lower camel case.
func singular(name string) string {
	head, last := lastWord(name)
	return head + matchCase(last, inflect.Singularize(strings.ToLower(last)))
}

// lastWord splits a name before its last upper-case letter or after its last
// underscore.
func lastWord(name string) (head, last string) {
	i := strings.LastIndexFunc(name, func(r rune) bool { return unicode.IsUpper(r) || r == '_' })
	if i < 0 {
		return "", name
	}
	if name[i] == '_' {
		i++
	}
	return name[:i], name[i:]
}

// matchCase gives the inflected word the first letter of the original: nouns
// are looked up in lower case.
func matchCase(original, inflected string) string {
	if original == "" || inflected == "" {
		return original
	}
	o, _ := utf8.DecodeRuneInString(original)
	r, size := utf8.DecodeRuneInString(inflected)
	if unicode.IsUpper(o) {
		r = unicode.ToUpper(r)
	}
	return string(r) + inflected[size:]
}

// lowerFirst turns a type's name into a field's: "Project" → "project",
// "URLMap" → "urlMap", "DNS" → "dns".
func lowerFirst(name string) string {
	upper := 0
	for upper < len(name) && name[upper] >= 'A' && name[upper] <= 'Z' {
		upper++
	}
	if upper > 1 && upper < len(name) {
		upper-- // the last capital begins the next word
	}
	return strings.ToLower(name[:upper]) + name[upper:]
}

// upperFirst turns a field's name into the ending of a type's.
func upperFirst(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// keyName names the field that holds a reference's keys: "tags" → "tagKeys",
// "license" → "licenseKey".
func keyName(field string, list bool) string {
	if list {
		return singular(field) + "Keys"
	}
	return field + "Key"
}

// reservedFields are the fields that every document has, and the words of
// filters: no field of a document may be called so.
func reservedFields() []string {
	return []string{
		"id", "key", "version", "versionInfo", "versions", "changelog", "blame", "diff", "recordedAt",
		"and", "or", "not",
	}
}

// reservedNestedFields are the words of filters.
func reservedNestedFields() []string { return []string{"and", "or", "not"} }

// isReserved reports whether a field may not have this name; it may not differ
// in case or underscores only either, as methods in Go would clash.
func isReserved(name string, nested bool) bool {
	words := reservedFields()
	if nested {
		words = reservedNestedFields()
	}
	return slices.ContainsFunc(words, func(word string) bool { return strings.EqualFold(word, goName(name)) })
}

// mutationVerbs are what the mutations of a document are called, with its type behind.
func mutationVerbs() []string { return []string{"Create", "Update", "Delete", "Restore"} }

// goName is the name of a field's method in Go: "websiteUrl" → "WebsiteUrl",
// "source_code" → "SourceCode". An underscore is added to the names of methods
// that must stay what they are: those that the executor calls on models, and
// those that gqlgen, package fmt or go vet looks for. That distinguishes them because models embed
// under names that are not exported: gqlgen ignores underscores in the names of
// fields in Go.
func goName(field string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(field, "_") {
		b.WriteString(upperFirst(part))
	}
	name := b.String()
	taken := []string{
		"Base", "IsNode", "IsDocument", "RawField", "String", "Error", "Format", "GoString",
		"GobDecode", "GobEncode", "MarshalGQL", "MarshalGQLContext", "MarshalJSON", "MarshalXML",
		"ReadByte", "ReadRune", "UnmarshalGQL", "UnmarshalGQLContext", "UnmarshalJSON", "UnmarshalXML",
		"UnreadByte", "UnreadRune", "WriteByte",
	}
	if slices.ContainsFunc(taken, func(t string) bool { return strings.EqualFold(t, name) }) {
		return name + "_"
	}
	return name
}
