package plan_test

import (
	"testing"
)

// catalogue holds what every kind of field shows, and what cannot be shown.
func catalogue() []version {
	return []version{
		{"tags", "x", 10, `{"name":"X \"1\" é","description":"d","related_tags":["y","gone"],"external_links":[{"title":"t","url":"u"},{"title":"only"}]}`},
		{"tags", "x", 30, `{"name":"X2","description":"d","related_tags":["y"]}`},
		{"tags", "y", 10, `{"name":"Y","description":"d","related_tags":null,"redirect":[]}`},
		{"tags", "y", 40, ``},
		{"tags", "bad", 10, `{"name":7,"description":"d","related_tags":["x",3],"delegate_to":"z"}`},
		{"tags", "nulls", 10, `{"name":"N","description":"d","related_tags":["x",null],"delegate_to":[null]}`},
		{"licenses", "MIT", 5, `{"identifier":"MIT","name":"MIT License"}`},
		{"licenses", "odd", 5, `{"name":"has no identifier"}`},
		{"platforms", "Go", 5, `{"name":"Go","description":"d"}`},
		{"software", "a", 20, `{"name":"A","description":"one","tags":["x","y"],"licenses":["MIT"],"platforms":["Go"]}`},
		{"software", "a", 35, `{"name":"A2","description":"a\ttab","website_url":"https://a","tags":["x","y","gone"],"licenses":["MIT","odd"],"platforms":[],` +
			`"stargazers_count":7,"archived":true,"updated_at":"2026-01-05","current_release":{"tag":"v1","published_at":"2026-01-01"},"commit_history":{"2026-01":[1,2.5,null]}}`},
		{"software", "b\"q", 20, `{"name":"B","description":"d","tags":["bad"],"stargazers_count":"many","updated_at":"2026-02-30","current_release":{"published_at":"?"}}`},
		{"software", "c", 20, `{"name":null,"description":"d","tags":null,"current_release":[]}`},
		{"software", "d", 20, `{"name":"D","description":"d","tags":["x",null],"licenses":"MIT","stargazers_count":null}`},
		{"software", "e", 20, `{"name":"E","description":"d","archived":false,"stargazers_count":3,"tags":["x"]}`},
		{"software", "f", 20, `{"name":"F","description":"d"}`},
		{"software", "f", 50, ``},
	}
}

func TestAnswersAreTheSame(t *testing.T) {
	const everything = `fragment all on Project { id key version name description websiteUrl sourceCodeUrl demoUrl licenseKeys platformKeys tagKeys
		relatedSoftwareUrl stars archived updatedAt currentRelease { tag publishedAt } commitHistory }`
	tests := []struct{ name, query, variables string }{
		{"scalars", `{ project(key: "a") { ...all } } ` + everything, ``},
		{"as of", `{ project(key: "a", asOf: "1970-01-01T00:00:00.000021Z") { ...all tags { name id } } } ` + everything, ``},
		{"by version", `query ($v: Int) { project(key: "a", version: $v) { ...all tags { name id } licenses { name } } } ` + everything, `{"v":1}`},
		{"no such document", `{ project(key: "zzz") { name } p: project(key: "") { name } f: project(key: "f") { name } }`, ``},
		{"deleted", `{ project(key: "f") { name } old: project(key: "f", version: 1) { name id } gone: project(key: "f", version: 2) { name } }`, ``},
		{"no such version", `{ project(key: "a", version: 9) { name } tag(key: "x", version: 0) { name } }`, ``},
		{"both times", `{ project(key: "a", version: 1, asOf: "1970-01-01T00:00:00.000021Z") { name } }`, ``},
		{"the future", `{ project(key: "a", asOf: "2090-01-01T00:00:00Z") { name } }`, ``},
		{"values that do not fit", `{ project(key: "b\"q") { ...all } } ` + everything, ``},
		{"a non-null field without value", `{ project(key: "c") { name } other: project(key: "c") { key tags { name } tagKeys } }`, ``},
		{"several errors in one object", `{ project(key: "c") { name tags { name } currentRelease { tag } stars } }`, ``},
		{"an object of another type", `{ project(key: "c") { key currentRelease { tag } } }`, ``},
		{"lists of another type", `{ project(key: "d") { key } p: project(key: "d") { licenseKeys } q: project(key: "d") { licenses { name } } r: project(key: "d") { tagKeys } s: project(key: "d") { tags { name } } }`, ``},
		{"nested lists", `{ tag(key: "x", version: 1) { externalLinks { title url __typename } delegateTo { url } redirect { url } } bad: tag(key: "bad") { delegateTo { url } } nulls: tag(key: "nulls") { delegateTo { url } relatedTagKeys } }`, ``},
		{"references", `{ project(key: "a") { tags { id name description relatedTags { id name } relatedTagKeys } licenses { identifier name } platforms { name } } }`, ``},
		{"references in the past", `{ project(key: "a", version: 1) { tags { id name relatedTags { id name } } } }`, ``},
		{"references at another instant", `{ project(key: "a") { now: tags { name } then: tags(asOf: "1970-01-01T00:00:00.000012Z") { id name relatedTags { id name } } } }`, ``},
		{"references to what has not changed since", `{ project(key: "a") { tags(asOf: "1970-01-01T00:00:00.000035Z") { id relatedTags { id } } } }`, ``},
		{"references in the future", `query ($t: DateTime) { project(key: "a") { tags(asOf: $t) { name } } e: project(key: "f", version: 1) { tags(asOf: $t) { name } } }`, `{"t":"2090-01-01T00:00:00Z"}`},
		{"references that cannot be read", `{ project(key: "b\"q") { tags { key name relatedTags { name } } } }`, ``},
		{"references to what has no value", `{ projects { nodes { key licenses { identifier } } } }`, ``},
		{"a page", `{ projects { totalCount nodes { ...all } pageInfo { hasNextPage hasPreviousPage startCursor endCursor __typename } __typename } } ` + everything, ``},
		{"a page of good ones", `{ projects(where: {key: {in: ["a", "e"]}}) { nodes { ...all tags { name } } edges { cursor node { key tags { key relatedTags { key } } } } } } ` + everything, ``},
		{"how many there are", `{ projects(first: 1, where: {key: {ne: "a"}}) { __typename totalCount } tags(first: -1) { totalCount } }`, ``},
		{"an empty page", `{ projects(where: {name: {eq: "nobody"}}) { totalCount nodes { name } edges { cursor } pageInfo { hasNextPage startCursor endCursor } } }`, ``},
		{"a page in the past", `{ tags(asOf: "1970-01-01T00:00:00.000012Z", where: {key: {ne: "bad"}}) { nodes { id name } totalCount } }`, ``},
		{
			"pages by variables", `query ($w: ProjectWhere, $o: [ProjectOrder!], $n: Int) { projects(where: $w, orderBy: $o, first: $n) { nodes { key stars } edges { cursor } pageInfo { hasNextPage endCursor } } }`,
			`{"w":{"key":{"in":["a","e","f"]}},"o":{"field":"stars","direction":"DESC"},"n":1}`,
		},
		{"order by a field that is not shown", `{ projects(orderBy: [{field: updatedAt}, {field: key}], last: 2) { edges { cursor } pageInfo { startCursor hasPreviousPage } } }`, ``},
		{"wrong pages", `{ a: tags(first: -1) { nodes { key } } }`, ``},
		{"contradicting pages", `{ a: tags(first: 1, last: 1) { nodes { key } } }`, ``},
		{"wrong cursor", `{ tags(after: "?") { nodes { key } } }`, ``},
		{"wrong filter", `query ($w: ProjectWhere) { projects(where: $w) { nodes { key } } }`, `{"w":{"name":{"eq":null}}}`},
		{"version info", `{ projects { nodes { key versionInfo { number recordedAt supersededAt author { id __typename } approvedBy { id name } message operation changeGroup isCurrent changedFields hash __typename } } } }`, ``},
		{"version info of the past", `{ project(key: "a", version: 1) { versionInfo { number supersededAt isCurrent changedFields } } }`, ``},
		{"versions", `{ project(key: "a") { versions { totalCount nodes { id name tags { name } } edges { cursor node { version } } pageInfo { hasNextPage startCursor endCursor } } } }`, ``},
		{"versions of many", `query ($f: [TagField!]) { tags(where: {key: {in: ["x", "y"]}}) { nodes { key versions(first: 1, fields: $f) { nodes { id name relatedTags { key } } pageInfo { hasNextPage } __typename } } } }`, `{"f":"name"}`},
		{"versions in an empty range", `{ tag(key: "x") { versions(from: "1970-01-01T00:00:00.000015Z", to: "1970-01-01T00:00:00.000010Z") { nodes { id } } } }`, ``},
		{"versions without a page", `{ tag(key: "x") { versions(first: -1) { nodes { id } } } }`, ``},
		{"the last versions of many", `{ tags { nodes { key versions(last: 1) { totalCount edges { cursor node { id version } } pageInfo { hasNextPage hasPreviousPage startCursor } } } } }`, ``},
		{"versions of many, by who", `query ($a: ID) { projects { nodes { key versions(author: $a, from: "1970-01-01T00:00:00.000021Z") { totalCount nodes { version versionInfo { isCurrent supersededAt } } } } } }`, `{"a":"ann"}`},
		{"versions by nobody", `{ projects { nodes { key versions(author: "nobody") { totalCount nodes { version } } } } }`, ``},
		{"versions by fields that are none", `{ projects { nodes { key versions(fields: []) { totalCount nodes { version } } } } }`, ``},
		{"no versions on the page", `{ projects { nodes { key versions(first: 0) { totalCount nodes { name } pageInfo { hasNextPage } } } } }`, ``},
		{"versions of many in the past", `{ tags(asOf: "1970-01-01T00:00:00.000032Z") { nodes { key versions { totalCount nodes { id name } edges { cursor } } } } }`, ``},
		{"a cursor of one of many", `{ tags { nodes { key versions(first: 1, after: "WzEsIjFiOTBmNm1iMmk3bjYiLDEwMDAwMDAwMDAwMDAsMl0") { nodes { version } } } } }`, ``},
		{"versions of versions", `{ tags { nodes { versions { nodes { id versions(first: 1) { totalCount nodes { id relatedTags { key name } } edges { cursor } } } } } } }`, ``},
		{"versions of references", `{ projects(where: {key: {in: ["a", "e"]}}) { nodes { tags { key versions(first: 1) { nodes { id name } } } then: tags(asOf: "1970-01-01T00:00:00.000012Z") { versions { totalCount nodes { id } } } } } }`, ``},
		{"versions that do not fit", `{ projects { nodes { key versions { nodes { stars updatedAt currentRelease { tag } licenses { identifier } } } } } }`, ``},
		{"deletions with some of what they deleted", `{ nodes(ids: ["Project:f@1", "Tag:y@1", "Tag:x"]) { ... on Project { versions { nodes { name tagKeys versionInfo { operation } } } } ... on Tag { versions(first: 1) { nodes { description } } } } }`, ``},
		{"a deletion among versions", `{ nodes(ids: ["Project:f@1"]) { ... on Project { versions { nodes { id name versionInfo { operation } } } } } }`, ``},
		{"node", `{ node(id: "Project:a") { __typename id ... on Project { name tags { name } } ... on Tag { relatedTags { name } } ... on Document { key version } } }`, ``},
		{"node of a version", `{ node(id: "Tag:x@1") { __typename id ... on Node { id } ... on Document { key id versionInfo { number } } ... on Tag { id key name } } }`, ``},
		{"node that is none", `{ a: node(id: "Project:nobody") { id } b: node(id: "nonsense") { id } }`, ``},
		{"nodes", `query ($ids: [ID!]!) { nodes(ids: $ids) { id ... on Tag { name relatedTags { id } } ... on Project { tags { id name } } } }`, `{"ids":["Tag:x","Project:a","Tag:nobody","Tag:x@1","Project:b\"q","Tag:bad"]}`},
		{"wrong nodes", `{ nodes(ids: ["Tag:x", "?"]) { id } }`, ``},
		{"wrong nodes among errors of others", `{ a: nodes(ids: ["Tag:bad", "Tag:x@9", "?", "Tag:nobody@9", "Project:a"]) { id ... on Tag { name } ... on Project { tags { name } } } }`, ``},
		{"nodes by one id", `query ($ids: [ID!]!) { nodes(ids: $ids) { id } }`, `{"ids":"Tag:x"}`},
		{"an integer key", `{ tag(key: 7) { name } }`, ``},
		{"merged fields", `{ project(key: "a") { tags { name } ...more ... on Document { key } ... on Project { key tags { key } } currentRelease { tag } ...release } }
			fragment more on Project { tags { id } name } fragment release on Project { currentRelease { publishedAt } }`, ``},
		{"aliases", `{ p: project(key: "a") { n: name m: name t: tags { x: name } __typename k: __typename } __typename q: __typename }`, ``},
		{"conditions", `query ($a: Boolean!, $b: Boolean = true) { project(key: "a") { name @skip(if: $a) stars @include(if: $a) ... @include(if: $b) { key } ...f @skip(if: $b) version @skip(if: true) } } fragment f on Project { archived }`, `{"a":true}`},
		{"conditions, otherwise", `query ($a: Boolean!, $b: Boolean = true) { project(key: "a") { name @skip(if: $a) stars @include(if: $a) ... @include(if: $b) { key } ...f @skip(if: $b) version @skip(if: true) } } fragment f on Project { archived }`, `{"a":false,"b":false}`},
		{"nothing", `{ project(key: "a") { name @skip(if: true) } projects @include(if: false) { totalCount } }`, ``},
		{"default of a variable", `query ($k: ID! = "a", $n: Int = 2) { project(key: $k) { name } tags(first: $n) { nodes { key } } }`, ``},
		{"variables left out", `query ($t: DateTime, $v: Int) { project(key: "a", asOf: $t, version: $v) { name } }`, ``},
		{"variables that are null", `query ($t: DateTime, $v: Int) { project(key: "a", asOf: $t, version: $v) { name } }`, `{"t":null,"v":null}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPair(t, catalogue()...)
			for range 2 { // compiled, and from the cache
				p.compare(test.query, test.variables, "")
			}
		})
	}
}

func TestWhatIsNotPlanned(t *testing.T) {
	tests := []struct{ name, query, variables, why string }{
		{"a mutation", `mutation { createTag(input: {key: "", data: {name: "n", description: "d"}}) { __typename } }`, ``, "a mutation is not planned"},
		{"the schema", `{ __schema { queryType { name } } }`, ``, "Query.__schema is not planned"},
		{"a type", `{ project(key: "a") { name } __type(name: "Tag") { name } }`, ``, "Query.__type is not planned"},
		{"a changelog", `{ changelog { totalCount } }`, ``, "Query.changelog is not planned"},
		{"a history", `{ projectHistory(key: "a") { key } }`, ``, "Query.projectHistory is not planned"},
		{"blame", `{ project(key: "a") { blame { path } } }`, ``, "Project.blame is not planned"},
		{"changes of versions", `{ tag(key: "x") { versions { edges { changes { path } } } } }`, ``, "TagVersionEdge.changes is not planned"},
		{"a diff behind an interface", `{ node(id: "Project:a") { ... on Project { diff(from: {version: 1}) { from { number } } } } }`, ``, "Project.diff is not planned"},
		{"deferred", `{ project(key: "a") { key ... @defer { name } } }`, ``, "@defer is not planned"},
		{"arguments that are wrong", `{ project(key: "a", asOf: "yesterday") { name } }`, ``, "project: arguments cannot be read"},
		{"variables that are wrong", `query ($t: DateTime) { project(key: "a") { tags(asOf: $t) { name } } }`, `{"t":"tomorrow"}`, "tags: arguments cannot be read"},
		{"a direction in lower case", `query ($o: [ProjectOrder!]) { projects(orderBy: $o) { totalCount } }`, `{"o":[{"field":"name","direction":"asc"}]}`, "projects: arguments cannot be read"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPair(t, catalogue()...)
			for range 2 {
				p.compare(test.query, test.variables, test.why)
			}
		})
	}
}
