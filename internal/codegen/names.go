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

// writeFields are the fields that the results of mutations have beside the document.
func writeFields() []string {
	return []string{"deletedId", "version", "changed", "merged", "changes", "clientMutationId"}
}

// notEnumValues are the names that GraphQL does not allow as enum values; the
// names of fields become values of generated enums.
func notEnumValues() []string { return []string{"true", "false", "null"} }

// notResolved are the names of fields that gqlgen answers itself, for Apollo
// Federation.
func notResolved() []string { return []string{"_entities", "_service"} }

// isMethod reports whether gqlgen finds a name in Go for a field that has a
// resolver: what is left of it without underscores begins with a letter.
func isMethod(field string) bool {
	rest := strings.TrimLeft(field, "_")
	return rest != "" && (rest[0] < '0' || rest[0] > '9')
}

// mutationVerbs are what the mutations of a document are called, with its type behind.
func mutationVerbs() []string { return []string{"Create", "Update", "Delete", "Restore"} }

// documentTypeNames are the names that one document type makes, in the schema
// or in Go.
func documentTypeNames(name string) []string {
	names := append(goDocumentNames(name),
		name+"Where", name+"Order", name+"OrderField", name+"Field", name+"Data", name+"Patch", name+"DraftWhere",
		"Erase"+name+"Result", "Erase"+name+"Success", "Save"+name+"DraftInput", "Save"+name+"DraftResult", "Approve"+name+"DraftResult", "Approve"+name+"DraftSuccess",
	)
	for _, verb := range mutationVerbs() {
		names = append(names, verb+name+"Input", verb+name+"Result", verb+name+"Success")
	}
	return names
}

// goDocumentNames are those of them that are names in package model.
func goDocumentNames(name string) []string {
	return []string{
		name + "Connection", name + "Edge", name + "VersionConnection", name + "VersionEdge", name + "History", name + "Event",
		name + "Conflict", name + "Success", name + "Type", "New" + name,
		name + "Draft", name + "DraftConnection", name + "DraftEdge", name + "DraftSuccess", name + "DraftConflict",
	}
}

// objectTypeNames are the names that a nested object makes.
func objectTypeNames(name string) []string {
	return append(goObjectNames(name), name+"Where", name+"ListFilter", name+"Input", name+"Patch")
}

// goObjectNames are those of them that are names in package model.
func goObjectNames(name string) []string { return []string{name + "Type"} }

// enumTypeNames are the names of the types that an enum makes.
func enumTypeNames(name string) []string { return []string{name + "Filter", name + "ListFilter"} }

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
	switch {
	case name == "" || name[0] >= '0' && name[0] <= '9':
		return "F" + name
	case slices.ContainsFunc(taken, func(t string) bool { return strings.EqualFold(t, name) }):
		return name + "_"
	default:
		return name
	}
}
