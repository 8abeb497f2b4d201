package hostile

import (
	"fmt"
	"strings"
)

// keysOf are the keys of documents that are worth asking for: those with the most
// versions.
type keysOf struct {
	project, tag string
	middle       string // an instant in the middle of the histories
}

const scalars = `id key version name description websiteUrl sourceCodeUrl demoUrl relatedSoftwareUrl stars archived updatedAt licenseKeys platformKeys tagKeys commitHistory currentRelease{tag publishedAt} versionInfo{number recordedAt supersededAt author{id} message operation changeGroup isCurrent changedFields}`

// requests are kinds of requests up to the limits.
func requests(k keysOf) []expensive {
	const change = `path field op oldValue newValue documentType documentKey version changedAt changedBy{id} message changeGroup document{id key version}`
	const tagScalars = `id key version name description relatedTagKeys delegateTo{title url} externalLinks{title url} redirect{title url}`
	list := []expensive{}
	add := func(name, field string) { list = append(list, expensive{name: name, field: field}) }

	// The logs of everything.
	for name, where := range map[string]string{
		"author": `authors:["x"]`, "not filtered": ``, "field": `fields:["nothing"]`, "field that is": `fields:["stars"]`, "group": `changeGroup:"x"`,
		"operation": `operation:[RESTORE]`, "key": `key:"` + k.project + `"`, "type": `documentType:[License]`, "until": `to:"2015-01-01T00:00:00Z"`,
	} {
		args := ""
		if where != "" {
			args = "where:{" + where + "}"
		}
		open := "(" + args + ")"
		if args == "" {
			open = ""
		}
		add("changelog, "+name+", total", "changelog"+open+"{totalCount}")
		add("changelog, "+name+", page", "changelog("+args+" first:{N}){nodes{"+change+"}}")
		add("changelog, "+name+", last page", "changelog("+args+" last:{N}){edges{cursor node{"+change+"}} pageInfo{hasPreviousPage hasNextPage}}")
	}

	// What a document has.
	long := func(kind, key, selection string) string { return fmt.Sprintf("%s(key:%q){%s}", kind, key, selection) }
	histories := []struct{ name, selection string }{
		{"blame", `blame{path field value version changedAt changedBy{id} message}`},
		{"changelog total", `changelog{totalCount}`},
		{"changelog of a field, total", `changelog(fields:[name]){totalCount}`},
		{"changelog by nobody", `changelog(author:"x", first:{N}){nodes{path}}`},
		{"changelog page", `changelog(first:{N}){nodes{` + change + `}}`},
		{"changelog last page", `changelog(last:{N}){nodes{` + change + `}}`},
		{"versions total", `versions{totalCount}`},
		{"versions by nobody", `versions(author:"x"){totalCount}`},
		{"versions with changes", `versions(first:{N}){edges{cursor changes{` + change + `}}}`},
		{"first versions with changes", `versions(last:{N}){edges{changes{` + change + `}}}`},
		{"diff", `diff(from:{version:1}){changes{` + change + `} jsonPatch before after}`},
		{"diff, patch only", `diff(from:{version:1}){jsonPatch}`},
	}
	for _, h := range histories {
		add("history of a project: "+h.name, long("projectHistory", k.project, h.selection))
		add("history of a tag: "+h.name, long("tagHistory", k.tag, h.selection))
		if !strings.Contains(h.selection, "fields:") {
			add("page of projects: "+h.name, "projects(first:{N}){nodes{"+strings.ReplaceAll(h.selection, "{N}", "5")+"}}")
			add("page of tags: "+h.name, "tags(first:{N}){nodes{"+strings.ReplaceAll(h.selection, "{N}", "5")+"}}")
			add("page of tags: 1 of "+h.name, "tags(first:{N}){nodes{"+strings.ReplaceAll(h.selection, "{N}", "1")+"}}")
			add("versions of a project: "+h.name, long("project", k.project, "versions(first:{N}){nodes{"+strings.ReplaceAll(h.selection, "{N}", "5")+"}}"))
			add("versions of a tag: "+h.name, long("tag", k.tag, "versions(first:{N}){nodes{"+strings.ReplaceAll(h.selection, "{N}", "5")+"}}"))
		}
	}
	add("versions of a project, whole", long("project", k.project, "versions(first:{N}){nodes{"+scalars+"}}"))
	add("versions of a tag, whole", long("tag", k.tag, "versions(first:{N}){nodes{"+tagScalars+"}}"))
	add("versions of a project, references", long("project", k.project, "versions(first:{N}){nodes{tags{name relatedTags{name}} licenses{name} platforms{name}}}"))
	add("versions of a tag, references", long("tag", k.tag, "versions(first:{N}){nodes{relatedTags{name relatedTags{name}}}}"))
	add("versions of versions", long("project", k.project, "versions(first:{N}){nodes{versions(first:{N}){nodes{version}}}}"))
	add("a tag and what it refers to, four levels", long("tag", k.tag, "relatedTags{relatedTags{relatedTags{relatedTags{name}}}}"))
	add("a tag and what it refers to, eight levels", long("tag", k.tag, strings.Repeat("relatedTags{", 5)+"name"+strings.Repeat("}", 5)))
	add("a tag and its keys, three levels", long("tag", k.tag, "relatedTags{relatedTags{relatedTagKeys}}"))
	add("a tag and its descriptions, two levels", long("tag", k.tag, "relatedTags{relatedTags{description}}"))

	// Pages.
	pages := []struct{ name, args string }{
		{"by key", ``},
		{"as of the middle", `asOf:"` + k.middle + `"`},
		{"a text", `where:{description:{contains:"zzz"}}`},
		{"a text, cases alike", `where:{description:{containsFold:"zzzİ"}}`},
		{"a text at the end", `where:{description:{endsWith:"zzz"}}`},
		{"a text as of the middle", `where:{description:{containsFold:"zzz"}},asOf:"` + k.middle + `"`},
		{"by description", `orderBy:[{field:description}]`},
		{"by description, version and time", `orderBy:[{field:description,direction:DESC},{field:version},{field:recordedAt}]`},
		{"by description as of the middle", `orderBy:[{field:description}],asOf:"` + k.middle + `"`},
		{"by author", `where:{versionInfo:{author:{eq:"x"}}}`},
		{"by message", `where:{versionInfo:{message:{containsFold:"zzz"}}}`},
		{"not, sixteen deep", `where:` + strings.Repeat("{not:", 14) + `{description:{contains:"e"}}` + strings.Repeat("}", 14)},
	}
	for _, p := range pages {
		comma := p.args
		if comma != "" {
			comma += ","
		}
		add("projects "+p.name+": total", "projects("+comma+"first:1){totalCount}")
		add("projects "+p.name+": whole", "projects("+comma+"first:{N}){totalCount nodes{"+scalars+"}}")
		add("projects "+p.name+": last", "projects("+comma+"last:{N}){nodes{key}}")
		add("tags "+p.name+": whole", "tags("+comma+"first:{N}){totalCount nodes{"+tagScalars+"}}")
	}
	add("projects with references", "projects(first:{N}){nodes{tags{name relatedTags{name}} licenses{name} platforms{name}}}")
	add("projects with references, three levels", "projects(first:{N}){nodes{tags{relatedTags{relatedTags{name}}}}}")
	add("projects with references at other times", `projects(first:{N}){nodes{a:tags(asOf:"`+k.middle+`"){name} b:licenses(asOf:"`+k.middle+`"){name} c:platforms(asOf:"`+k.middle+`"){name}}}`)
	add("tags by a link", `tags(where:{externalLinks:{some:{title:{containsFold:"zzz"}}}}, first:1){totalCount}`)
	add("tags without a link", `tags(where:{externalLinks:{none:{title:{contains:"zzz"}}}}, first:{N}){totalCount nodes{key}}`)
	add("tags by a reference", `tags(where:{relatedTags:{hasNone:["zzz"]}}, first:1){totalCount}`)

	// Large conditions, written once and used by many.
	many := func(n int, format string) []any {
		values := make([]any, n)
		for i := range values {
			values[i] = fmt.Sprintf(format, i)
		}
		return values
	}
	where := func(name string, w map[string]any) {
		for _, kind := range []string{"Project", "Tag"} {
			plural := strings.ToLower(kind) + "s"
			list = append(list,
				expensive{name: name + " in " + plural + ": total", field: plural + "(where:$w, first:1){totalCount}", variables: map[string]any{"w": w}, declare: "($w:" + kind + "Where)"},
				expensive{name: name + " in " + plural + ": as of", field: plural + "(where:$w, first:{N}, asOf:\"" + k.middle + "\"){totalCount nodes{key}}", variables: map[string]any{"w": w}, declare: "($w:" + kind + "Where)"})
		}
	}
	each := func(n int, make func(i int) map[string]any) []any {
		values := []any{}
		for i := range n {
			values = append(values, make(i))
		}
		return values
	}
	where("900 texts", map[string]any{"description": map[string]any{"in": many(900, "%07d")}})
	where("not 900 texts", map[string]any{"description": map[string]any{"notIn": many(900, "%07d")}})
	where("900 names", map[string]any{"name": map[string]any{"in": many(900, "%07d")}})
	where("not 900 keys", map[string]any{"key": map[string]any{"notIn": many(900, "%07d")}})
	where("240 searches", map[string]any{"or": each(240, func(i int) map[string]any {
		return map[string]any{"description": map[string]any{"contains": fmt.Sprintf("zz%d", i)}}
	})})
	where("240 searches, cases alike", map[string]any{"or": each(240, func(i int) map[string]any {
		return map[string]any{"description": map[string]any{"containsFold": fmt.Sprintf("ZZ%d", i)}}
	})})
	where("240 negations", map[string]any{"and": each(240, func(i int) map[string]any {
		return map[string]any{"not": map[string]any{"name": map[string]any{"eqFold": fmt.Sprint(i)}}}
	})})
	where("a long text", map[string]any{"description": map[string]any{"contains": strings.Repeat("a", 30000) + "b"}})
	where("a long text, cases alike", map[string]any{"description": map[string]any{"containsFold": strings.Repeat("a", 30000) + "B"}})
	list = append(list,
		expensive{name: "projects by 2,000 orders", field: "projects(orderBy:$o, first:{N}){nodes{key}}", declare: "($o:[ProjectOrder!])", variables: map[string]any{"o": each(2000, func(i int) map[string]any {
			return map[string]any{"field": []string{"description", "demoUrl", "archived", "version"}[i%4]}
		})}},
		expensive{name: "projects by 900 tags", field: "projects(where:{tags:{hasNone:$t}}, first:1){totalCount}", declare: "($t:[ID!])", variables: map[string]any{"t": many(900, "%07d")}},
		expensive{name: "changelog of 900 keys, total", field: "changelog(where:{keys:$k}){totalCount}", declare: "($k:[ID!])", variables: map[string]any{"k": many(900, "%07d")}},
		expensive{name: "changelog of 900 authors, total", field: "changelog(where:{authors:$k}){totalCount}", declare: "($k:[ID!])", variables: map[string]any{"k": many(900, "%07d")}},
		expensive{name: "changelog of 900 fields, total", field: "changelog(where:{fields:$k}){totalCount}", declare: "($k:[String!])", variables: map[string]any{"k": many(900, "/f%05d")}},
	)

	// Ids.
	ids := func(format string, n int) []any {
		values := make([]any, n)
		for i := range values {
			values[i] = fmt.Sprintf(format, k.project, i+1)
		}
		return values
	}
	for name, selection := range map[string]string{"id": "id", "blame": "...on Project{blame{path value}}", "references": "...on Project{tags{relatedTags{name}}}", "changelog": "...on Project{changelog(first:{N}){nodes{path}}}", "versions": "...on Project{versions(first:{N}){nodes{name}}}", "diff": "...on Project{diff(from:{version:1}){jsonPatch}}"} {
		list = append(list,
			expensive{name: "1,000 versions by id: " + name, field: "nodes(ids:$i){" + selection + "}", declare: "($i:[ID!]!)", variables: map[string]any{"i": ids("Project:%s@%d", 1000)}},
			expensive{name: "100 versions by id: " + name, field: "nodes(ids:$i){" + selection + "}", declare: "($i:[ID!]!)", variables: map[string]any{"i": ids("Project:%s@%d", 100)}},
			expensive{name: "3,000 ids that are none: " + name, field: "nodes(ids:$i){" + selection + "}", declare: "($i:[ID!]!)", variables: map[string]any{"i": many(3000, "Nothing:%d")}})
	}
	add("versions by number", fmt.Sprintf("project(key:%q, version:{N}){%s}", k.project, scalars))

	// The schema.
	leaves := strings.Repeat("name description ", 150)
	add("schema, many names", "__schema{types{fields{args{"+leaves+"} "+leaves+"} "+leaves+"}}")
	list = append(list, expensive{name: "schema by fragments", field: "__schema{...S}", fragments: " fragment S on __Schema{types{kind name description fields(includeDeprecated:true){name description args{" + leaves + " type{...T}} type{...T}} inputFields{name description defaultValue type{...T}} enumValues{name description} interfaces{name} possibleTypes{name}} directives{name description args{name}}} fragment T on __Type{kind name description ofType{kind name description ofType{kind name description ofType{kind name}}}}"})
	add("a type", `__type(name:"Project"){fields{args{name description type{kind name ofType{name}}} type{kind name ofType{name fields{name}}}}}`)
	add("inline fragments", "__schema{types{"+strings.Repeat("...on __Type{fields{...on __Field{", 1)+strings.Repeat("...{name}", 900)+"}}}}}")

	// Documents that are long and mean little.
	add("projects, a field 3,000 times", "projects(first:{N}){nodes{"+strings.Repeat("...{key}", 900)+"}}")
	add("projects, a reference 300 times", "projects(first:{N}){nodes{"+strings.Repeat("tags{name}", 300)+"}}")
	add("projects, deep fragments", "projects(first:{N}){nodes{"+strings.Repeat("...{", 150)+"key"+strings.Repeat("}", 150)+"}}")
	// Changes: of a document that others have changed since, and back.
	for name, c := range map[string]struct{ kind, key, field string }{"project": {"Project", k.project, "name"}, "tag": {"Tag", k.tag, "name"}} {
		conflict := "...on " + c.kind + "Conflict{message overlappingPaths mergeable changesSince{" + change + "}}"
		done := func(of string) string { return "...on " + of + c.kind + "Success{changed changes{" + change + "}}" }
		for what, field := range map[string]string{
			"a conflict":    fmt.Sprintf("update%s(input:{key:%q,expectedVersion:1,patch:{%s:%q}}){%s}", c.kind, c.key, c.field, "c", conflict),
			"a merge":       fmt.Sprintf("update%s(input:{key:%q,expectedVersion:1,patch:{%s:%q},onConflict:MERGE}){%s %s}", c.kind, c.key, c.field, "m", conflict, done("Update")),
			"a restoration": fmt.Sprintf("restore%s(input:{key:%q,expectedVersion:1,to:{version:1}}){%s %s}", c.kind, c.key, conflict, done("Restore")),
			"a deletion":    fmt.Sprintf("delete%s(input:{key:%q,expectedVersion:1}){%s}", c.kind, c.key, conflict),
		} {
			list = append(list, expensive{name: what + " of a " + name, field: field, writes: true})
		}
	}

	unique := &attacker{}
	for name, fields := range map[string]int{"8 KB": 999, "64 KB": 8_900} {
		list = append(list, expensive{name: "a document whose fields conflict, " + name, whole: conflictsOf(unique, fields)})
	}
	return list
}
