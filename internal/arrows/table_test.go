package arrows

import "slices"

// module is the path of what is tested.
const module = "github.com/asof/asof"

// What a package may speak beside Go, as one import stands for it.
const (
	gqlgen = "github.com/99designs/gqlgen/graphql"
	parser = "github.com/vektah/gqlparser/v2/gqlerror"
	web    = "net/http"
	sqlite = "zombiezen.com/go/sqlite"
	libc   = "modernc.org/sqlite/lib" // of SQLite
	mongo  = "go.mongodb.org/mongo-driver/v2/mongo"
)

// outside returns all of these.
func outside() []string { return []string{gqlgen, parser, web, sqlite, libc, mongo} }

// place is what a package may import, apart from tests.
type place struct {
	knows     []string // packages of the module, as paths in it
	speaks    []string // of outside
	generated []string // what only its generated code knows, at which the linter does not look
}

// arrows returns the place of every package, by its path in the module.
func arrows() map[string]place {
	anything, graphQL := []string{gqlgen, parser, web}, []string{gqlgen, parser}
	suite := []string{"storage/driver", "storage/driver/check", "storage/seal"}
	engine := joined(suite, "storage/clock", "storage/rawjson", "internal/lru", "internal/scalar/literal")
	store := []string{"storage", "storage/driver", "storage/fault", "storage/record"}
	values := []string{"storage/normal", "storage/rawjson"}
	both := []string{"storage/mongostore", "storage/sqlitestore"}
	fixture := place{
		knows: joined(store, "dataloader", "internal/app", "internal/fixture", "internal/fixture/graph", "internal/fixture/graph/model",
			"internal/fixture/resolvers", "internal/scalar"),
		speaks: anything,
	}
	return map[string]place{
		".": {knows: []string{"graph/model", "internal/app", "resolvers"}, speaks: anything},

		"storage/driver":               {},
		"storage/driver/check":         {knows: []string{"storage/driver", "storage/seal", "internal/scalar/literal"}},
		"storage/seal":                 {knows: []string{"storage/driver"}},
		"storage/clock":                {knows: []string{"storage/driver"}},
		"storage/drivertest":           {knows: suite},
		"storage/sqlitestore":          {knows: engine, speaks: []string{sqlite}},
		"storage/mongostore":           {knows: engine, speaks: []string{mongo}},
		"storage/mongostore/mongotest": {knows: engine, speaks: []string{mongo}},
		"storage/rawjson":              {knows: joined(values, "internal/scalar/literal")},
		"storage/normal":               {knows: joined(values, "internal/scalar/literal")},
		"storage/diff":                 {knows: joined(values, "internal/scalar/literal")},
		"storage/fault":                {knows: []string{"storage/driver"}},
		"storage/record":               {knows: joined(values, "storage/driver", "storage/diff", "storage/fault", "internal/scalar/literal")},
		"storage/condition":            {knows: []string{"storage/driver", "storage/driver/check", "storage/fault", "storage/rawjson", "storage/record", "internal/scalar/literal"}},
		"storage/checkpoint":           {knows: []string{"storage/driver", "storage/fault", "storage/seal", "internal/scalar/literal"}},
		"storage":                      {knows: joined(values, "storage/checkpoint", "storage/condition", "storage/fault", "storage/record", "storage/driver", "storage/driver/check", "storage/seal", "storage/diff", "internal/lru", "internal/rule", "internal/scalar/literal")},
		"storage/transfer":             {knows: joined(values, "storage/driver", "storage/driver/check", "storage/seal", "storage/diff", "storage", "storage/checkpoint", "storage/condition", "storage/fault", "storage/record", "internal/lru", "internal/rule", "internal/scalar/literal")},

		"dataloader":  {knows: store},
		"graph":       {knows: joined(store, "graph/model", "internal/scalar"), speaks: graphQL},
		"graph/model": {knows: joined(store, "internal/scalar"), speaks: graphQL},
		"resolvers": {
			knows:  []string{"dataloader", "graph", "graph/model", "internal/scalar", "storage"},
			speaks: graphQL, generated: []string{"storage/driver"},
		},

		"internal/fixture":             fixture,
		"internal/fixture/graph":       fixture,
		"internal/fixture/graph/model": fixture,
		"internal/fixture/resolvers":   fixture,

		"internal/app": {
			knows: joined(joined(both, store...), "dataloader", "internal/app/auth", "internal/app/httpapi", "internal/capture", "internal/demo", "internal/gitimport", "internal/plan", "internal/web",
				"storage/checkpoint", "storage/transfer"),
			speaks: anything,
		},
		"internal/app/admission":   {speaks: anything},
		"internal/app/permissions": {speaks: anything}, // tests
		"internal/app/auth":        {knows: []string{"internal/lru"}, speaks: anything},
		"internal/app/httpapi":     {knows: []string{"internal/app/admission", "internal/lru", "internal/scalar/literal"}, speaks: anything},
		"internal/capture":         {knows: joined(store, "storage/mongostore", "storage/normal", "storage/transfer")},
		"internal/demo":            {knows: joined(store, "storage/normal")},
		"internal/gitimport":       {knows: joined(store, "storage/normal")},
		"internal/plan":            {knows: joined(store, "storage/rawjson", "dataloader", "internal/lru", "internal/scalar", "internal/scalar/literal"), speaks: graphQL},
		"internal/scalar":          {knows: joined(store, "dataloader", "storage/rawjson", "internal/scalar/literal"), speaks: graphQL},
		"internal/scalar/literal":  {speaks: anything},
		"internal/web":             {speaks: anything},

		"internal/codegen":             {knows: []string{"internal/rule", "internal/scalar/literal"}, speaks: anything},
		"internal/codegen/cmd":         {knows: []string{"internal/codegen", "internal/rule", "internal/scalar/literal"}, speaks: anything},
		"internal/codegen/codegentest": {knows: []string{"internal/codegen", "internal/rule", "internal/scalar/literal"}, speaks: anything},

		"internal/arrows":        {speaks: anything},
		"internal/audit":         {speaks: anything},
		"internal/container":     {speaks: anything},
		"internal/lru":           {speaks: anything},
		"internal/notices":       {speaks: anything},
		"internal/rule":          {speaks: anything},
		"internal/web/webtest":   {speaks: anything},
		"e2e":                    {speaks: anything},
		"internal/load":          {knows: joined(both, "internal/load/constant", "internal/load/hostile", "internal/load/process", "storage/driver", "storage/mongostore/mongotest"), speaks: outside()},
		"internal/load/constant": {speaks: anything},
		"internal/load/hostile":  {knows: []string{"internal/load/process"}, speaks: anything},
		"internal/load/process":  {speaks: anything},
		"internal/plan/plantest": {knows: joined(joined(values, store...), "internal/app"), speaks: anything},
		"internal/plan/plantest/cmd": {
			knows:  joined(both, "graph", "graph/model", "internal/plan/plantest", "resolvers", "storage", "storage/driver", "storage/mongostore/mongotest"),
			speaks: joined(anything, mongo),
		},
	}
}

func joined(some []string, more ...string) []string { return slices.Concat(some, more) }

// allows reports whether a package of this place may import another.
func (p place) allows(path string) bool {
	if inside, ok := cut(path); ok {
		return slices.Contains(p.knows, inside)
	}
	return slices.Contains(p.speaks, path)
}
