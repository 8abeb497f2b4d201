package hostile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/asof/asof/internal/load/process"
)

// expensive is a request that may cost much. In its document, A is a number of
// root fields that the document is repeated for, and N the size of each page.
type expensive struct {
	name      string
	field     string         // of the root; {N} is the size of a page
	variables map[string]any // of the operation
	declare   string         // what declares them: "($w: ProjectWhere)"
	fragments string
	writes    bool   // it is a mutation
	whole     string // instead: the document
}

// document repeats the field for so many aliases, with pages of so many.
func (e expensive) document(aliases, page int) string {
	if e.whole != "" {
		return e.whole
	}
	var text strings.Builder
	kind := "query"
	if e.writes {
		kind = "mutation"
	}
	text.WriteString(kind + " " + e.declare + "{")
	field := strings.ReplaceAll(e.field, "{N}", fmt.Sprint(page))
	for i := range aliases {
		fmt.Fprintf(&text, "a%d:%s ", i, field)
	}
	text.WriteString("}" + strings.ReplaceAll(e.fragments, "{N}", fmt.Sprint(page)))
	return text.String()
}

// cost is what one request cost the server.
type cost struct {
	name          string
	aliases, page int
	body          []byte
	cpu, took     time.Duration
	growth        int64 // of the resident memory, at its peak, in bytes
	status        int
	answer        int64  // bytes
	said          string // the first message in the answer
}

// score is how often a cost exceeds a second of CPU time or 64 MiB.
func (c cost) score() float64 { return max(c.cpu.Seconds(), float64(c.growth)/(64<<20)) }

func (c cost) String() string {
	return fmt.Sprintf("%6.2f CPU s %6.2f s %5d MiB; %d B → %d, %d B; %s × %d, first %d %.120s",
		c.cpu.Seconds(), c.took.Seconds(), c.growth>>20, len(c.body), c.status, c.answer, c.name, c.aliases, c.page, c.said)
}

// mostSent is how long a request is that must not cost much.
const mostSent = 64 << 10

// rank sends each request by itself, with as many root fields and as large pages
// as the server accepts, and returns what they cost, the worst first.
func rank(s *process.Server, list []expensive, out io.Writer) ([]cost, error) {
	var costs []cost
	client := &http.Client{Timeout: 2 * time.Minute}
	for _, e := range list {
		for _, aliases := range []int{50, 10, 1} {
			tried := ""
			for _, page := range []int{500, 100, 25, 5, 1} {
				document := e.document(aliases, page)
				if document == tried || e.whole != "" && aliases > 1 {
					break // it has no pages
				}
				tried = document
				body, err := json.Marshal(map[string]any{"query": document, "variables": e.variables})
				if err != nil {
					return nil, err
				}
				if len(body) > mostSent {
					continue
				}
				c, err := measure(s, client, body)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", e.name, err)
				}
				c.name, c.aliases, c.page = e.name, aliases, page
				if strings.Contains(c.said, "may return") || strings.Contains(c.said, "larger than") || strings.Contains(c.said, "more than") && c.cpu < 100*time.Millisecond {
					continue // it was refused for its size: ask for less
				}
				costs = append(costs, c)
				_, _ = fmt.Fprintln(out, c)
				break
			}
		}
	}
	return costs, nil
}

// measure sends one request to a server that has nothing else to do.
func measure(s *process.Server, client *http.Client, body []byte) (cost, error) {
	c := cost{body: body}
	if err := s.ResetPeak(); err != nil {
		return c, err
	}
	before, began := s.Usage(), time.Now()
	resp, err := client.Post(s.URL, "application/json", bytes.NewReader(body))
	if err != nil {
		return c, err
	}
	var start bytes.Buffer
	_, _ = io.CopyN(&start, resp.Body, 4<<10)
	rest, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return c, err
	}
	c.took = time.Since(began)
	if c.took > 100*time.Millisecond {
		settle(s, time.Minute) // the collector may be at work
	}
	after := s.Usage()
	c.cpu, c.growth = after.CPU-before.CPU, after.Peak-before.RSS
	c.status, c.answer = resp.StatusCode, int64(start.Len())+rest
	if _, said, ok := strings.Cut(start.String(), `"message":"`); ok {
		c.said, _, _ = strings.Cut(said, `"`)
	}
	return c, nil
}

// settle waits until the server does nothing, which its CPU time shows over a
// while, or until the time is over, and returns how long that took.
func settle(s *process.Server, most time.Duration) time.Duration {
	const while, little = 300 * time.Millisecond, 20 * time.Millisecond
	began := time.Now()
	for time.Since(began) < most && s.Alive() {
		before := s.Usage().CPU
		time.Sleep(while)
		if s.Usage().CPU-before <= little {
			break
		}
	}
	return time.Since(began)
}

// search ranks requests on every store that there is, and prints the worst with
// their bodies.
func (b *bench) search(ctx context.Context, out io.Writer) error {
	stores := []string{demoData, editedData}
	if b.Import != "" {
		stores = append(stores, catalogueData)
	}
	for _, data := range stores {
		s, err := b.serve(ctx, data, io.Discard)
		if err != nil {
			return err
		}
		err = b.searchIn(s, data, out)
		s.Stop()
		if err != nil {
			return fmt.Errorf("%s: %w", data, err)
		}
	}
	return nil
}

// worst is how many requests of a store are shown.
const worst = 10

func (b *bench) searchIn(s *process.Server, data string, out io.Writer) error {
	project, err := longest(s.URL, "projects")
	if err != nil {
		return err
	}
	tag, err := longest(s.URL, "tags")
	if err != nil {
		return err
	}
	keys := []keysOf{{project: project, tag: tag}}
	if data == editedData {
		keys = []keysOf{{project: jsonProject, tag: linksTag}, {project: editsProject, tag: selfTag}}
	}
	var costs []cost
	for _, k := range keys {
		if k.middle, err = midway(s.URL, k.project); err != nil {
			return err
		}
		list := slices.DeleteFunc(requests(k), func(e expensive) bool { return !b.Only(e.name) })
		more, err := rank(s, list, out)
		if err != nil {
			return err
		}
		costs = append(costs, more...)
	}
	slices.SortFunc(costs, func(a, b cost) int { return cmp.Compare(b.score(), a.score()) })
	_, _ = fmt.Fprintf(out, "\nThe worst on %s:\n", data)
	for _, c := range costs[:min(worst, len(costs))] {
		_, _ = fmt.Fprintf(out, "%v\n    %s\n", c, c.body)
	}
	return nil
}

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
