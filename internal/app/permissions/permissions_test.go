// Package permissions walks the whole API as somebody who may not read and write everything.
package permissions

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/tidwall/gjson"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// Who may read what: of projects, those that are archived, or whose demoUrl names one.
func TestMain(m *testing.M) {
	setRules(model.ProjectType, record.Auth{Rows: `archived = true or demoUrl = $sub or "staff" in $roles`}, map[string]record.Auth{
		"websiteUrl":         {Read: []string{"staff"}},
		"currentRelease":     {Read: []string{"staff"}},
		"commitHistory":      {Read: []string{"nobody"}},
		"relatedSoftwareUrl": {Write: []string{"staff"}},
		"demoUrl":            {Read: []string{"staff"}},
	})
	setRules(model.LicenseType, record.Auth{History: []string{"staff"}}, nil)
	setRules(model.PlatformType, record.Auth{Read: []string{"staff"}}, nil)
	os.Exit(m.Run())
}

func setRules(t *record.Type, of record.Auth, fields map[string]record.Auth) {
	t.Auth = of
	for i := range t.Fields {
		t.Fields[i].Auth = fields[t.Fields[i].Name]
	}
}

func onSQLite(t *testing.T) driver.Engine {
	t.Helper()
	engine, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), sqlitestore.Options{Collections: storage.CollectionsOf(model.Types), Sync: sqlitestore.SyncOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

func onMongoDB(t *testing.T) driver.Engine {
	t.Helper()
	uri, _ := mongotest.NewServer(t).Database(t)
	engine, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: storage.CollectionsOf(model.Types)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

const secret = "a secret of no less than 32 bytes"

// role is somebody.
type role struct {
	name  string // "": without credentials
	staff bool
}

func roles() []role { return []role{{}, {name: "ada"}, {name: "bob"}, {name: "eve", staff: true}} }

// state is what a version of a document held, of a project as far as it decides.
type state struct {
	typ, key   string
	number     int
	deleted    bool
	archived   bool
	owner      string
	marks      map[string]string // by field; "message" and "author", too
	at         driver.Instant
	superseded bool
	before     *state
}

// mayRead reports whether somebody may read a field of a version, by the rules in words.
func (r role) mayRead(s *state, field string) bool {
	if s.deleted {
		s = &state{typ: s.typ, archived: s.before.archived, owner: s.before.owner, superseded: s.superseded}
	}
	switch {
	case r.staff:
		return field != "commitHistory"
	case s.typ == "Platform", s.typ == "License" && s.superseded:
		return false
	case s.typ != "Project":
		return true
	case !s.archived && (s.owner != r.name || r.name == ""):
		return false
	}
	return !slices.Contains([]string{"websiteUrl", "currentRelease", "commitHistory", "demoUrl"}, field)
}

// world is a server and all that was written.
type world struct {
	t       *testing.T
	url     string
	random  *rand.Rand
	marks   int
	states  []*state
	current map[string]*state // by type and key
	groups  map[string]bool   // all change groups
}

func newWorld(t *testing.T, engine driver.Engine, executor string, seed uint64) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &app.Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
	handler, err := m.Handler(engine, "--auth=jwt", "--anonymous-read", "--jwt-secret-file="+file, "--executor="+executor, "--log-level=error", "--max-cost=5000000")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &world{t: t, url: server.URL + "/graphql", random: rand.New(rand.NewPCG(seed, 1)), current: map[string]*state{}, groups: map[string]bool{}}
}

func newToken(t testing.TB, r role) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(secret)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{"sub": r.name, "exp": time.Now().Add(time.Hour).Unix()}
	if r.staff {
		claims["roles"] = []string{"staff"}
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// ask sends an operation, and returns the answer.
func (w *world) ask(r role, document string, variables map[string]any) string {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url, strings.NewReader(string(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if r.name != "" {
		request.Header.Set("Authorization", "Bearer "+newToken(w.t, r))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(string(text), `"INTERNAL"`) {
		w.t.Errorf("%s: %s: %s", r.name, document, text)
	}
	return string(text)
}

// mark is a text that is nowhere else.
func (w *world) mark() string {
	w.marks++
	return fmt.Sprintf("m%05dk", w.marks)
}

var marks = regexp.MustCompile(`m\d{5}k`)

const staff = "root"

// write makes a version of a random document, as somebody who may.
func (w *world) write() {
	w.t.Helper()
	typ := []string{"Project", "Project", "Project", "License", "Platform", "Tag"}[w.random.IntN(6)]
	key := fmt.Sprintf("%c%d", typ[0]+'a'-'A', w.random.IntN(6))
	before := w.current[typ+key]
	s := &state{typ: typ, key: key, number: 1, marks: map[string]string{"message": w.mark()}, before: before}
	if before != nil {
		s.number = before.number + 1
	}
	data := map[string]any{}
	texts := map[string][]string{
		"Project": {"name", "description", "websiteUrl", "sourceCodeUrl", "relatedSoftwareUrl"}, "License": {"identifier", "name"},
		"Platform": {"name", "description"}, "Tag": {"name", "description"},
	}[typ]
	for i, f := range texts {
		if before != nil && !before.deleted && i > 0 && w.random.IntN(2) == 0 {
			s.marks[f] = before.marks[f]
			continue
		}
		s.marks[f] = w.mark()
		data[f] = s.marks[f]
	}
	if typ == "Project" {
		s.archived, s.owner = w.random.IntN(4) == 0, []string{"ada", "bob", "carl"}[w.random.IntN(3)]
		s.marks["currentRelease"], s.marks["commitHistory"] = w.mark(), w.mark()
		maps.Copy(data, map[string]any{
			"archived": s.archived, "demoUrl": s.owner, "currentRelease": map[string]any{"tag": s.marks["currentRelease"]},
			"tags": []string{"t1", "t2"}, "licenses": []string{"l1", "l2"}, "platforms": []string{"p1"},
		})
	}
	name := typ
	input := map[string]any{"key": key, "message": s.marks["message"]}
	verb := "create"
	switch {
	case before == nil || before.deleted:
		input["data"] = data
	case w.random.IntN(8) == 0:
		verb, s.deleted = "delete", true
		input["expectedVersion"] = before.number
		s.marks = map[string]string{"message": s.marks["message"]}
	default:
		verb = "update"
		input["expectedVersion"], input["patch"] = before.number, data
	}
	actor := role{name: staff, staff: true}
	document := fmt.Sprintf("mutation($i: %[2]s%[1]sInput!) {%[3]s%[1]s(input: $i) {__typename ... on %[2]s%[1]sSuccess {version changes {changeGroup}}}}",
		name, strings.ToUpper(verb[:1])+verb[1:], verb)
	got := w.ask(actor, document, map[string]any{"i": input})
	w.groups[gjson.Get(got, "data."+verb+name+".changes.0.changeGroup").Str] = true
	if gjson.Get(got, "data."+verb+name+".version").Int() != int64(s.number) {
		w.t.Fatalf("%v: %s", input, got)
	}
	delete(s.marks, "commitHistory") // nobody writes it
	if before != nil {
		before.superseded = true
	}
	w.current[typ+key] = s
	w.states = append(w.states, s)
}

// allowed are the marks that somebody may see.
func (w *world) allowed(r role) map[string]bool {
	may := map[string]bool{}
	for _, s := range w.states {
		for field, mark := range s.marks {
			if r.mayRead(s, field) {
				may[mark] = true
			}
		}
	}
	return may
}

const (
	change = `{changedAt changedBy {id name} message path field op oldValue newValue version changeGroup}`
	info   = `versionInfo {number recordedAt supersededAt author {id name} message operation changeGroup isCurrent changedFields tags {name message}}`
)

// selections are all fields of a document that tell of it.
func selection(typ string) string {
	own := map[string]string{
		"Project": `name description websiteUrl sourceCodeUrl demoUrl relatedSoftwareUrl stars archived currentRelease {tag publishedAt} commitHistory
			tags {id name} licenses {id identifier name} platforms {id name} tagKeys licenseKeys platformKeys`,
		"License": `identifier name url`, "Platform": `name description`, "Tag": `name description`,
	}[typ]
	return own + ` id key version ` + info
}

func histories(typ string) string {
	return selection(typ) + fmt.Sprintf(` versions(first: 50) {totalCount edges {changes %[1]s node {%[2]s}}} few: versions(first: 2) {totalCount nodes {%[2]s} pageInfo {hasNextPage endCursor}}
		changelog(first: 100) {totalCount nodes %[1]s} blame {path field value version changedAt changedBy {id} message}
		diff(from: {version: 1}) {from {number author {id} message} to {number} before after jsonPatch changes %[1]s}`, change, selection(typ))
}

// operations are what is asked: everything that tells of documents, in all ways.
func (w *world) operations() []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	instants := []string{""}
	for range 3 {
		instants = append(instants, w.states[w.random.IntN(len(w.states))].at.String())
	}
	for _, typ := range []string{"Project", "License", "Platform", "Tag"} {
		one := strings.ToLower(typ[:1]) + typ[1:]
		for _, at := range instants {
			asOf := ""
			if at != "" {
				asOf = `, asOf: "` + at + `"`
			}
			add(`{%ss(first: 50%s) {totalCount nodes {%s} edges {cursor}}}`, one, asOf, selection(typ))
			if at == "" {
				add(`{%ss(first: 50, tag: "v1") {totalCount nodes {%s}}}`, one, selection(typ))
			}
			add(`{%ss(first: 50, where: {not: {key: {eq: "x"}}}, orderBy: {field: key, direction: DESC}%s) {totalCount nodes {%s}}}`, one, asOf, histories(typ))
			for i := range 6 {
				add(`{%s(key: "%s%d"%s) {%s}}`, one, one[:1], i, asOf, histories(typ))
			}
		}
		for i := range 6 {
			add(`{%sHistory(key: "%s%d") {__typename tags {name key message taggedBy {id}} versions(first: 50) {totalCount nodes {%s}} changelog(first: 100) {totalCount nodes %s} diff(from: {version: 1}) {from {author {id} message} to {message} before after jsonPatch changes %[5]s}}}`,
				one, one[:1], i, selection(typ), change)
			add(`{%s(key: "%s%d", tag: "v2") {%s}}`, one, one[:1], i, selection(typ))
			for n := 1; n < 6; n++ {
				add(`{%s(key: "%s%d", version: %d) {%s}}`, one, one[:1], i, n, selection(typ))
				add(`{node(id: "%s:%s%d@%d") {id ... on %[1]s {%[5]s}} nodes(ids: ["%[1]s:%[2]s%[3]d@%[4]d", "%[1]s:%[2]s%[3]d"]) {id ... on %[1]s {%[5]s}}}`,
					typ, one[:1], i, n, selection(typ))
			}
		}
	}
	add(`{changelog(first: 500) {totalCount nodes {documentKey documentType document {__typename ... on Project {%s}} %s}}}`, selection("Project"), strings.Trim(change, "{}"))
	add(`{changelog(first: 500, where: {fields: ["websiteUrl", "currentRelease"]}) {totalCount nodes %s}}`, change)
	return all
}

// know adds what is known of change groups.
func (w *world) know(operations []string) []string {
	for id := range w.groups {
		operations = append(operations, fmt.Sprintf(`{changeGroup(id: %q) {id recordedAt author {id} message versions(first: 9) {nodes {id key ... on Project {%s} ... on Platform {name}}} changes(first: 99) {nodes %s}}}`,
			id, selection("Project"), change))
	}
	return operations
}

// subscribed returns what somebody is told of all that was ever written, up to a document that
// everybody may read.
func (w *world) subscribed(r role) string {
	w.t.Helper()
	document := fmt.Sprintf(`subscription {changes(since: {asOf: "2020-01-01T00:00:00Z"}) {kind key documentType deletedId %s changes %s document {id key version ... on Project {%s} ... on Tag {name}}}}`,
		info, change, selection("Project"))
	body, err := json.Marshal(map[string]any{"query": document})
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url, strings.NewReader(string(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	if r.name != "" {
		request.Header.Set("Authorization", "Bearer "+newToken(w.t, r))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var told strings.Builder
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		told.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "the last one") || strings.Contains(lines.Text(), "event: complete") {
			return told.String()
		}
	}
	w.t.Fatalf("%q is told %s", r.name, told.String())
	return ""
}

// mayKnow reports whether somebody may read any version of a document.
func (w *world) mayKnow(r role, typ, key string) bool {
	return typ == "Tag" && key == "end" || slices.ContainsFunc(w.states, func(s *state) bool { return s.typ == typ && s.key == key && r.mayRead(s, "name") })
}

var changed = regexp.MustCompile(`"changedFields":\[[^\]]*\]`)

var ids = regexp.MustCompile(`"(Project|License|Platform|Tag):([a-z]\d)`)

// check looks through an answer for what somebody may not read.
func (w *world) check(r role, document, answer string, may, seen map[string]bool) {
	w.t.Helper()
	for _, mark := range marks.FindAllString(answer, -1) {
		if seen[mark] = true; !may[mark] {
			w.t.Fatalf("%q is told %s, by %s: %s", r.name, mark, document, around(answer, mark))
		}
	}
	for _, id := range ids.FindAllStringSubmatch(answer, -1) {
		if !w.mayKnow(r, id[1], id[2]) {
			w.t.Fatalf("%q is told of %s, by %s: %s", r.name, id[0], document, around(answer, id[0]))
		}
	}
	for _, list := range changed.FindAllString(answer, -1) {
		if !r.staff && (strings.Contains(list, `"websiteUrl"`) || strings.Contains(list, `"currentRelease"`)) {
			w.t.Fatalf("%q is told of %s, by %s", r.name, list, document)
		}
	}
	for _, group := range gjson.Get(answer, "data.changelog.nodes").Array() {
		if typ, key := group.Get("documentType").Str, group.Get("documentKey").Str; typ != "" && !w.mayKnow(r, typ, key) {
			w.t.Fatalf("%q is told of %s %s, by %s", r.name, typ, key, document)
		}
	}
}

// conflicts are mutations that write nothing, and answer with what is there.
func (w *world) conflicts() []string {
	var all []string
	for _, typ := range []string{"Project", "License", "Platform", "Tag"} {
		for i := range 6 {
			key := fmt.Sprintf("%s%d", strings.ToLower(typ[:1]), i)
			answer := fmt.Sprintf(`{__typename ... on %[1]sConflict {message expectedVersion actualVersion current {%[2]s} base {%[2]s} changesSince %[3]s overlappingPaths mergeable}}`, typ, selection(typ), change)
			name := "name"
			if typ == "License" {
				name = "identifier"
			}
			all = append(all,
				fmt.Sprintf(`mutation {update%[1]s(input: {key: %[2]q, expectedVersion: 1, patch: {%[4]s: "x"}}) %[3]s}`, typ, key, strings.ReplaceAll(answer, "@", ""), name),
				fmt.Sprintf(`mutation {delete%[1]s(input: {key: %[2]q, expectedVersion: 99}) %[3]s}`, typ, key, answer))
		}
	}
	return all
}

// No answer has what somebody may not read, whatever is asked; and what he may read, some has.
func TestNothingIsLeaked(t *testing.T) {
	engines := []struct {
		name, executor string
		engine         func(*testing.T) driver.Engine
		writes         int
	}{{"sqlite", "plan", onSQLite, 150}, {"gqlgen", "gqlgen", onSQLite, 150}, {"mongodb", "plan", onMongoDB, 60}}
	if race { // one client asks after the other
		engines = engines[:1]
		engines[0].writes = 60
	}
	for _, c := range engines {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.engine(t), c.executor, 7)
			for range c.writes {
				w.write()
			}
			w.times()
			w.tags()
			operations := w.know(w.operations())
			if got := w.ask(role{name: staff, staff: true}, `mutation {createTag(input: {key: "end", data: {name: "the last one", description: ""}}) {__typename}}`, nil); !strings.Contains(got, "Success") {
				t.Fatal(got)
			}
			for _, r := range roles() {
				may, seen := w.allowed(r), map[string]bool{}
				asked := operations
				if r.name != "" {
					asked = append(slices.Clone(operations), w.conflicts()...)
				}
				for _, document := range asked {
					if strings.HasPrefix(document, "mutation") && w.succeeds(r, document) {
						continue
					}
					answer := w.ask(r, document, nil)
					for _, e := range gjson.Get(answer, "errors").Array() {
						if c := e.Get("extensions.code").Str; c != "VERSION_NOT_FOUND" && c != "FORBIDDEN" {
							t.Fatalf("%q: %s: %.200s", r.name, e, document)
						}
					}
					w.check(r, document, answer, may, seen)
				}
				for mark := range may {
					if !seen[mark] && !w.isOld(mark) {
						t.Errorf("%q is nowhere told %s", r.name, mark)
					}
				}
				w.check(r, "changes", w.subscribed(r), may, seen)
				w.totals(r)
				w.secretConditions(r)
			}
		})
	}
}

func around(text, mark string) string {
	i := strings.Index(text, mark)
	return text[max(0, i-200):min(len(text), i+100)]
}

// isOld reports whether only a document has a mark that cannot be asked for any more at its time.
func (w *world) isOld(mark string) bool {
	for _, s := range w.states {
		for field, m := range s.marks {
			if m == mark {
				return s.superseded || s.deleted || field == "message"
			}
		}
	}
	return true
}

// tags tags the first two versions of all documents, with the messages of these.
func (w *world) tags() {
	w.t.Helper()
	for _, s := range w.states {
		if s.number > 2 || s.deleted {
			continue
		}
		got := w.ask(role{name: staff, staff: true}, fmt.Sprintf(`mutation {tag%sVersion(input: {key: %q, version: %d, name: "v%[3]d", message: %q}) {changed}}`, s.typ, s.key, s.number, s.marks["message"]), nil)
		if !strings.Contains(got, `"changed":true`) {
			w.t.Fatal(got)
		}
	}
}

// times finds out when the versions were made.
func (w *world) times() {
	for _, s := range w.states {
		one := strings.ToLower(s.typ[:1]) + s.typ[1:]
		n := s.number
		if s.deleted {
			n--
		}
		got := w.ask(role{name: staff, staff: true}, fmt.Sprintf(`{%s(key: %q, version: %d) {versionInfo {recordedAt}}}`, one, s.key, n), nil)
		at, err := time.Parse(time.RFC3339, gjson.Get(got, "data."+one+".versionInfo.recordedAt").Str)
		if err != nil {
			w.t.Fatal(got, err)
		}
		s.at = driver.InstantOf(at)
	}
}

// succeeds reports whether a mutation would change something.
func (w *world) succeeds(r role, document string) bool {
	key := regexp.MustCompile(`key: "(\w\d)"`).FindStringSubmatch(document)[1]
	for _, s := range w.current {
		if s.key == key && strings.Contains(document, "expectedVersion: 1,") && s.number == 1 && !s.deleted {
			return r.mayRead(s, "name")
		}
	}
	return false
}

// totals compares the numbers of documents.
func (w *world) totals(r role) {
	w.t.Helper()
	want := map[string]int64{}
	for _, s := range w.current {
		if !s.deleted && r.mayRead(s, "name") {
			want[s.typ]++
		}
	}
	want["Tag"]++ // the last one
	got := w.ask(r, `{Project: projects(first: 1) {totalCount} License: licenses(first: 1) {totalCount} Platform: platforms(first: 1) {totalCount} Tag: tags(first: 1) {totalCount}}`, nil)
	for _, typ := range []string{"Project", "License", "Platform", "Tag"} {
		if n := gjson.Get(got, "data."+typ+".totalCount").Int(); n != want[typ] {
			w.t.Errorf("%q is told of %d documents of %s, not %d", r.name, n, typ, want[typ])
		}
	}
}

// secretConditions ask by a condition or an order for what may not be read.
func (w *world) secretConditions(r role) {
	w.t.Helper()
	for _, document := range []string{
		`{projects(where: {websiteUrl: {startsWith: "m"}}) {totalCount}}`,
		`{projects(where: {not: {or: [{and: [{websiteUrl: {isNull: true}}]}]}}) {totalCount}}`,
		`{projects(where: {demoUrl: {in: ["ada"]}}) {nodes {key}}}`,
		`{projects(where: {currentRelease: {tag: {eq: "m"}}}) {nodes {key}}}`,
		`{projects(orderBy: {field: websiteUrl}) {nodes {key}}}`,
	} {
		got := w.ask(r, document, nil)
		if forbidden := strings.Contains(got, `"FORBIDDEN"`); forbidden == r.staff || forbidden && strings.Contains(got, `"key"`) {
			w.t.Errorf("%q, %s: %s", r.name, document, got)
		}
	}
}
