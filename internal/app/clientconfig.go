package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
)

// clientConfig prints what a client's cache has to know of the schema, as TypeScript.
func (m *Main) clientConfig() error {
	store, err := storage.New(nil, m.Types) // nothing is read
	if err != nil {
		return err
	}
	schema := m.Schema(store).Schema()
	text := map[string]func(*ast.Schema) string{"apollo": apolloConfig, "urql": urqlConfig, "relay": relayConfig}[m.flags.ClientConfig.Client](schema)
	_, err = fmt.Fprintf(m.Stdout, "// Written by \"asof client-config %s\". Write it again when the schema has changed.\n%s", m.flags.ClientConfig.Client, text)
	return err
}

// apolloConfig is for new InMemoryCache({ possibleTypes, typePolicies }).
func apolloConfig(schema *ast.Schema) string {
	return `import type { FieldPolicy, TypePolicies } from '@apollo/client'

// pages puts the pages of a list together, as relayStylePagination does, which knows edges only.
const pages = (keyArgs: string[]): FieldPolicy<any> => ({
  keyArgs,
  merge(existing: any, incoming: any, { args }: any) {
    const at = args?.after ?? args?.before
    let parts: any[] = existing?.parts ?? []
    const i = parts.findIndex((part) => part.at === at)
    const part = { ...parts[i], ...incoming, at }
    const rest = (from: number, to?: number) => (i < 0 ? parts : parts.slice(from, to))
    parts = args?.before ? [part, ...rest(i + 1)] : args?.after ? [...rest(0, i), part] : [part]
    const all = { ...incoming, parts, pageInfo: { ...part.pageInfo } }
    for (const name of ['nodes', 'edges']) {
      if (parts.every((part) => part[name])) all[name] = parts.flatMap((part) => part[name])
      else delete all[name]
    }
    const [first, last] = [parts[0].pageInfo, parts[parts.length - 1].pageInfo]
    for (const name of ['startCursor', 'hasPreviousPage']) if (first && name in first) all.pageInfo[name] = first[name]
    for (const name of ['endCursor', 'hasNextPage']) if (last && name in last) all.pageInfo[name] = last[name]
    return all
  },
  read: (existing: any, { canRead, readField }: any) =>
    existing?.edges ? { ...existing, edges: existing.edges.filter((edge: any) => canRead(readField('node', edge))) } : existing,
})

// elements merges the elements of a list that have no id by their places.
const elements: FieldPolicy<any> = {
  merge: (existing: any, incoming: any, { mergeObjects }: any) =>
    incoming?.map((value: any, i: number) => (value && existing?.[i] ? mergeObjects(existing[i], value) : value)) ?? incoming,
}

` + exported("possibleTypes", "", possibleTypes(schema)) + exported("typePolicies", ": TypePolicies", typePolicies(schema))
}

// urqlConfig is for cacheExchange({ keys, possibleTypes, updates }) of Graphcache.
func urqlConfig(schema *ast.Schema) string {
	var embedded []string
	for _, def := range objects(schema) {
		if def.Fields.ForName("id") == nil {
			embedded = append(embedded, def.Name)
		}
	}
	deleted := map[string]any{}
	for _, root := range []*ast.Definition{schema.Mutation, schema.Subscription} {
		if root == nil {
			continue
		}
		fields := map[string]any{}
		for _, field := range root.Fields {
			if tellsDeleted(schema, schema.Types[field.Type.Name()]) {
				fields[field.Name] = code("remove('" + field.Name + "')")
			}
		}
		if len(fields) > 0 {
			deleted[root.Name] = fields
		}
	}
	return `import type { KeyingConfig, UpdateResolver, UpdatesConfig } from '@urql/exchange-graphcache'

// remove takes what was deleted out of the cache, where deletedId is asked for.
const remove = (field: string): UpdateResolver => (result: any, _args, cache) => {
  for (const { deletedId: id } of [result[field], ...(result[field]?.results ?? [])]) {
    if (id) cache.invalidate({ __typename: id.slice(0, id.indexOf(':')), id })
  }
}

// What has no id belongs to the object that it was read in.
` + exported("embedded", "", embedded) +
		exported("keys", ": KeyingConfig", code("Object.fromEntries(embedded.map((name) => [name, () => null]))")) +
		exported("updates", ": UpdatesConfig", deleted) +
		exported("possibleTypes", "", possibleTypes(schema))
}

// tellsDeleted reports whether an answer may have the deletedId of a document, by itself or in its
// results.
func tellsDeleted(schema *ast.Schema, answer *ast.Definition) bool {
	return slices.ContainsFunc(schema.GetPossibleTypes(answer), func(member *ast.Definition) bool {
		if results := member.Fields.ForName("results"); results != nil {
			member = schema.Types[results.Type.Name()]
		}
		return member.Fields.ForName("deletedId") != nil && slices.ContainsFunc(member.Fields, func(field *ast.FieldDefinition) bool {
			result := schema.Types[field.Type.Name()]
			return result.Name == "Document" || slices.Contains(result.Interfaces, "Document")
		})
	})
}

// relayConfig is for new Environment({ getDataID }).
func relayConfig(schema *ast.Schema) string {
	var others []string // whose ids are not those of documents
	for _, def := range objects(schema) {
		if def.Fields.ForName("id") != nil && !slices.Contains(def.Interfaces, "Node") {
			others = append(others, def.Name)
		}
	}
	return exported("others", "", others) + `
// getDataID is the id under which Relay keeps a record: ids of documents name their type, others do not.
export const getDataID = (node: any, typename: string) => (others.includes(typename) && node.id ? typename + ':' + node.id : node.id)
`
}

// code is a value that is an expression of TypeScript.
type code string

// exported declares a constant.
func exported(name, kind string, value any) string {
	return "export const " + name + kind + " = " + expression(value, "") + "\n"
}

// expression writes a value, with the members of an object in the order of their names.
func expression(value any, indent string) string {
	switch value := value.(type) {
	case code:
		return string(value)
	case map[string]any:
		members := make([]string, 0, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) {
			members = append(members, name+": "+expression(value[name], indent+"  "))
		}
		if line := "{ " + strings.Join(members, ", ") + " }"; len(line) < 120 && indent != "" {
			return line
		}
		return "{\n" + indent + "  " + strings.Join(members, ",\n"+indent+"  ") + ",\n" + indent + "}"
	default:
		text, _ := json.Marshal(value) // strings and lists of them
		return strings.ReplaceAll(string(text), `","`, `", "`)
	}
}

// objects are the object types of a schema in the order of their names, without those of
// operations and introspection.
func objects(schema *ast.Schema) (list []*ast.Definition) {
	for _, name := range slices.Sorted(maps.Keys(schema.Types)) {
		def := schema.Types[name]
		if def.Kind == ast.Object && !def.BuiltIn && !strings.HasPrefix(name, "__") && def != schema.Query && def != schema.Mutation && def != schema.Subscription {
			list = append(list, def)
		}
	}
	return list
}

// possibleTypes are the types that implement each interface.
func possibleTypes(schema *ast.Schema) map[string]any {
	types := map[string]any{}
	for name, def := range schema.Types {
		if def.Kind != ast.Interface {
			continue
		}
		var members []string
		for _, member := range schema.GetPossibleTypes(def) {
			if member.Kind == ast.Object {
				members = append(members, member.Name)
			}
		}
		slices.Sort(members)
		types[name] = members
	}
	return types
}

// typePolicies says how Apollo's cache merges what has no id, and pages.
func typePolicies(schema *ast.Schema) map[string]any {
	types := map[string]any{}
	for _, def := range append(objects(schema), schema.Query) {
		has := func(field string) bool { return def.Fields.ForName(field) != nil }
		if has("edges") && has("pageInfo") || has("node") && has("cursor") || has("clientMutationId") {
			continue // pages merges its own, and results of mutations are read once
		}
		policy, fields := map[string]any{}, map[string]any{}
		if def != schema.Query && !has("id") {
			policy["merge"] = code("true")
		}
		for _, field := range def.Fields {
			result := schema.Types[field.Type.Name()]
			switch {
			case result == nil || result.Kind != ast.Object || strings.HasPrefix(field.Name, "__"):
			case result.Fields.ForName("pageInfo") != nil:
				fields[field.Name] = code("pages(" + expression(keyArguments(field), "") + ")")
			case field.Type.Elem != nil && result.Fields.ForName("id") == nil:
				fields[field.Name] = code("elements")
			}
		}
		if len(fields) > 0 {
			policy["fields"] = fields
		}
		if len(policy) > 0 {
			types[def.Name] = policy
		}
	}
	return types
}

// keyArguments are the names of a list's arguments that do not choose a page of it.
func keyArguments(field *ast.FieldDefinition) []string {
	names := []string{}
	for _, argument := range field.Arguments {
		if !slices.Contains([]string{"first", "after", "last", "before"}, argument.Name) {
			names = append(names, argument.Name)
		}
	}
	return names
}
