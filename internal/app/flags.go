package app

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kong"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
)

// flags is the command line. Every flag is also a variable of the
// environment: --cors-origin is ASOF_CORS_ORIGIN.
type flags struct {
	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`

	Store     string `help:"Where the documents are: sqlite:PATH, or mongodb://…" default:"sqlite:./asof.db" placeholder:"URL"`
	Sync      string `help:"When a write is acknowledged: full (it survives a loss of power), normal (it survives a killed process) or off (for tests and imports)." enum:"full,normal,off" default:"full"`
	LogFormat string `help:"How the log is written: text or json." enum:"text,json" default:"text"`
	LogLevel  string `help:"The least important lines of the log: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`

	Serve   serveFlags   `cmd:"" help:"Serve the GraphQL API and the Playground."`
	Import  importFlags  `cmd:"" help:"Add the versions in a file (NDJSON, also .gz or .zst), or a git repository, to the store. It can be repeated: what is there is skipped."`
	Export  exportFlags  `cmd:"" help:"Write every version in the store as NDJSON."`
	Archive archiveFlags `cmd:"" help:"Follow a store into another one, which keeps every version: also those that the first one prunes later."`
	Capture captureFlags `cmd:"" help:"Follow a collection of MongoDB that other programs write to, so that its documents get histories."`
	Prune   pruneFlags   `cmd:"" help:"Prune the versions that the schema does not keep, finish what was being erased, and give the space back to the file. A server does it too, without the last."`
	Erase   eraseFlags   `cmd:"" help:"Replace the name of an author everywhere, and give the space back to the file. Values are erased by mutations."`
	Check   checkFlags   `cmd:"" help:"Read the whole store and report what is wrong with it."`
	Verify  verifyFlags  `cmd:"" help:"Say whether the history is still the one that was seen earlier, by the hash of a version or a checkpoint."`
	Schema  schemaFlags  `cmd:"" help:"Say what a change of the schema means for what is stored, and rewrite documents in today's form."`
	Token   tokenFlags   `cmd:"" help:"Make and revoke the API tokens in a file."`
	Health  healthFlags  `cmd:"" help:"Ask a server on this machine whether it can answer requests; the exit status tells."`

	Checkpoint   checkpointFlags   `cmd:"" help:"Print a checkpoint: one line of JSON that vouches for all that the store holds, to be kept elsewhere."`
	ClientConfig clientConfigFlags `cmd:"" help:"Print what the cache of a client in TypeScript has to know of the schema."`
}

type serveFlags struct {
	Addr            string        `help:"Address to listen on." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Demo            bool          `help:"Fill an empty store with a small catalogue that has a year of edits."`
	InsecureNoAuth  bool          `help:"Listen on other addresses than this machine's own, and answer to any name in Host, although anybody can read, and write under any name."`
	CORSOrigin      []string      `name:"cors-origin" help:"An origin whose pages may use the API from a browser; may be repeated." placeholder:"ORIGIN"`
	Executor        string        `help:"How queries are executed: plan (compiled, where all their fields are of known kinds) or gqlgen (by the generated code, all of them)." enum:"plan,gqlgen" default:"plan"`
	Introspection   bool          `help:"Let clients ask for the schema." default:"true" negatable:""`
	Trusted         documentFile  `name:"trusted-documents" help:"Execute only the documents of this file (JSON, as graphql-codegen, Relay's compiler and Apollo's tools write it), and no introspection." placeholder:"FILE"`
	Archive         string        `help:"Follow this server's store into another one, as asof archive does; the only way for an embedded store that is served." placeholder:"URL"`
	ReadOnly        bool          `help:"Refuse all mutations, as for an archive, which nobody else may write to."`
	PruneRate       int           `help:"How many versions are pruned a second at most, of types that do not keep all. 0: none by this server." default:"1000" placeholder:"N"`
	CheckpointKey   string        `help:"A file with an Ed25519 key (PEM). GET /checkpoint then answers with a checkpoint of the store, signed with it, a new one each hour." placeholder:"FILE"`
	CachePast       time.Duration `help:"How long HTTP caches may keep answers of which all is asked for as of an instant. Imports into the past, erased values and another schema change such answers. 0: caches ask each time whether they have changed." default:"8760h"`
	VersionCache    size          `help:"Memory for versions that were read, of the embedded store. The process grows by some three times as much." default:"8MB" placeholder:"SIZE"`
	Verify          string        `help:"Which reads verify the hashes of what they return: off, sampled (one in a thousand) or always (which reads everything twice)." enum:"off,sampled,always" default:"sampled"`
	SlowOperation   time.Duration `help:"Log operations that take this long as warnings." default:"1s"`
	ShutdownTimeout time.Duration `help:"How long to wait for running operations at the end." default:"30s"`

	Proxies int `help:"Number of trusted proxies in front, each of which adds the address that it was asked from to X-Forwarded-For. With 0 that header is ignored, and all clients behind a proxy count as one when places and memory are shared." default:"0" placeholder:"N"`

	Auth   authFlags  `embed:""`
	Limits limitFlags `embed:"" prefix:"max-"`
}

// local reports whether the server is for this machine only: it knows nobody, and no others
// are meant to reach it.
func (f *serveFlags) local() bool { return !f.InsecureNoAuth && len(f.Auth.Auth) == 0 }

type limitFlags struct {
	Body       size          `help:"Size of a request." default:"1MB" placeholder:"SIZE"`
	Query      size          `help:"Size of a GraphQL document." default:"100KB" placeholder:"SIZE"`
	Tokens     int           `help:"Tokens of a document." default:"10000"`
	Depth      int           `help:"Levels of nested fields." default:"15"`
	Page       int           `help:"Documents on a page (first and last)." default:"500"`
	Cost       int           `help:"Fields that an answer may hold, pages counted in full; blame, diffs and changelogs count for more." default:"50000"`
	Document   size          `help:"Size of a document that is written through the API; at most 8MB." default:"1MB" placeholder:"SIZE"`
	Read       size          `help:"Size of the documents and versions that an operation reads; what one has beyond 32KB counts twice." default:"32MB" placeholder:"SIZE"`
	Answer     size          `help:"Size of an answer." default:"8MB" placeholder:"SIZE"`
	Memory     size          `help:"Memory for the whole program; requests may hold half of it, those of one client a quarter; at least 256MB. Default: a quarter of what the machine has, or its container." placeholder:"SIZE"`
	Time       time.Duration `help:"Time that an operation may take; at most 15m." default:"30s"`
	Execution  time.Duration `help:"Processor time that a query may take, with the embedded store; --max-time bounds also what it waits for. Totals over very large histories need more." default:"500ms"`
	Concurrent int           `help:"Operations at a time; more wait for a second." default:"64"`
	Slow       int           `help:"Slow queries at a time (those whose like took over 10ms the last time, for MongoDB 100ms), so that quick ones keep their turn; more wait. 0 is the default: half of the processors, for MongoDB 16, or one for each 96 MB of --max-memory if these are fewer." placeholder:"N"`
}

func (f limitFlags) limits() httpapi.Limits {
	return httpapi.Limits{
		Body: int64(f.Body), Query: int(f.Query), Tokens: f.Tokens, Depth: f.Depth,
		PageSize: f.Page, Cost: f.Cost, Read: int64(f.Read), Answer: int(f.Answer), Time: f.Time, Execution: f.Execution,
		Concurrent: f.Concurrent, Slow: f.Slow, Memory: requestMemory(f.memory()),
		SlowAfter: 10 * time.Millisecond, Wait: time.Second, Grace: 10 * time.Second, Rate: 256 << 10,
	}
}

// storage is what the store has to know of them.
func (f limitFlags) storage() storage.Limits {
	const usual = 20
	return storage.Limits{PageMax: f.Page, PageDefault: min(usual, f.Page), DocumentBytes: int(f.Document)}
}

type importFlags struct {
	File        string `arg:"" optional:"" help:"File to read; - for standard input."`
	Git         string `and:"git" help:"Read the history of the git repository in this directory instead, as --map says." placeholder:"DIR"`
	Map         string `and:"git" help:"Which files of the repository hold which documents (YAML, JSON or TOML; docs/import.md)." placeholder:"FILE"`
	Lenient     bool   `help:"Keep values of another type than the schema declares. Of a repository, leave out files that cannot be read."`
	SkipUnknown bool   `help:"Leave out collections that the schema does not declare."`
}

// Help describes the format, for "asof import --help".
func (importFlags) Help() string {
	return `Each line is one version of one document, oldest first:

  {"collection":"tags","id":"music","at":"2025-01-31T09:00:00Z","by":"ada","message":"Why","op":"put","data":{"name":"Music"}}
  {"collection":"tags","id":"music","at":"2025-02-01T09:00:00Z","by":"ada","op":"delete"}

"collection" and the members of "data" have the names under which they are stored (@versioned(collection:) and @stored(as:) in schema.graphqls); "data" is the whole document. docs/import.md has the details.`
}

type exportFlags struct {
	File       string   `arg:"" optional:"" default:"-" help:"File to write, compressed if it ends in .gz or .zst. None, or -: standard output."`
	Collection []string `help:"A collection to write; may be repeated. Default: all." placeholder:"NAME"`
}

type checkFlags struct {
	Repair bool `help:"Give versions that lie in the future, since a clock was wrong, times that have passed and that their order and identifiers allow."`
}

type verifyFlags struct {
	Since      string `help:"The hash of a version that was seen earlier (versionInfo.hash): all that follows on it is verified." placeholder:"HASH" xor:"what" required:""`
	Checkpoint string `help:"A file with a checkpoint that was kept: what the store held then is compared, and all of it checked." placeholder:"FILE" xor:"what" required:""`
	Collection string `help:"With --since: the collection of the document, to look only there." placeholder:"NAME"`
	Key        string `help:"With --since and --collection: the key of the document." placeholder:"KEY"`
	PublicKey  string `help:"With --checkpoint: a file with the Ed25519 key (PEM) by whose owner it must be signed." placeholder:"FILE"`
}

// Validate refuses a key without a collection.
func (f verifyFlags) Validate() error {
	if f.Key != "" && f.Collection == "" {
		return errors.New("--key needs --collection: keys are those of a collection")
	}
	return nil
}

type checkpointFlags struct {
	PrivateKey string `help:"A file with an Ed25519 key (PEM, as openssl genpkey -algorithm ed25519 makes it) to sign the checkpoint with." placeholder:"FILE"`
}

type healthFlags struct {
	Addr    string        `help:"Address that the server listens on." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Alive   bool          `help:"Ask only whether the server runs, not whether its store can be reached."`
	Timeout time.Duration `help:"How long to wait for the answer." default:"3s"`
}

type clientConfigFlags struct {
	Client string `arg:"" help:"apollo (Apollo Client), urql (Graphcache) or relay." enum:"apollo,urql,relay"`
}

// documentFile is a file of trusted documents.
type documentFile struct {
	Path      string
	Documents map[string]string // by id; nil: there is no file
}

// UnmarshalText reads the file with a name.
func (f *documentFile) UnmarshalText(name []byte) error {
	f.Path = string(name)
	text, err := os.ReadFile(f.Path)
	if err == nil {
		f.Documents, err = httpapi.ReadTrusted(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}

// size is a number of bytes: 4096, 100KB, 1MB.
type size int64

// UnmarshalText reads "100KB" and the like; K, M and G are powers of 1024.
func (s *size) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for suffix, factor := range map[string]int64{"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30} {
		if rest, ok := strings.CutSuffix(strings.ToUpper(digits), suffix); ok {
			digits, unit = rest, factor
			break
		}
	}
	n, err := positive(digits)
	if err != nil || n > 1<<40/unit {
		return errSize
	}
	*s = size(n * unit)
	return nil
}

// largestDocument is the largest --max-document.
const largestDocument = 8 << 20

var errSize = errors.New("want a size in bytes such as 4096, 100KB or 1MB")

func positive(digits string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n <= 0 {
		return 0, errors.New("want a positive number")
	}
	return n, nil
}

// Validate refuses limits that nothing could pass.
func (f limitFlags) Validate() error {
	for name, n := range map[string]int{
		"tokens": f.Tokens, "depth": f.Depth, "page": f.Page, "cost": f.Cost, "concurrent": f.Concurrent, "time": int(f.Time), "execution": int(f.Execution),
	} {
		if n <= 0 {
			return fmt.Errorf("--max-%s must be positive", name)
		}
	}
	switch {
	case f.Slow < 0:
		return errors.New("--max-slow must not be negative")
	case f.Memory != 0 && f.Memory < leastMemory:
		return fmt.Errorf("--max-memory must be at least %d bytes (%dMB)", leastMemory, leastMemory>>20)
	}
	if f.Time > storage.LongestOperation {
		return fmt.Errorf("--max-time must be at most %v", storage.LongestOperation)
	}
	if f.Document > largestDocument {
		return fmt.Errorf("--max-document must be at most %d bytes (8MB)", largestDocument)
	}
	return nil
}

// describeFlag adds the default to the help of flags whose placeholder hides it.
func describeFlag(value *kong.Value) string {
	if value.Tag == nil || value.Tag.PlaceHolder == "" || value.Default == "" {
		return kong.DefaultHelpValueFormatter(value)
	}
	shown := *value
	shown.Help += fmt.Sprintf(" Default: %s.", value.Default)
	return kong.DefaultHelpValueFormatter(&shown)
}

const (
	// leastMemory is the smallest --max-memory: the program itself needs some of it.
	leastMemory = 256 << 20
	// gcPercent is what the collector is asked for while serving, and ballast the bytes that
	// are allocated for it and never touched, so that they take no memory: it runs when the heap
	// has grown by half of what lives and 8 MB. Live memory is a few megabytes, most of it caches:
	// without ballast it would run some hundred times a second under load. 150 percent alone
	// are the same there, but a large request would take two and a half times what it holds.
	gcPercent = 50
	ballast   = 16 << 20
)

// memory returns --max-memory, or a quarter of what the machine has, or the
// container that the program runs in.
func (f limitFlags) memory() int64 {
	if f.Memory > 0 {
		return int64(f.Memory)
	}
	there := uint64(math.MaxUint64)
	for _, ask := range [...]func() (uint64, error){memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := ask(); err == nil && n > 0 { // where there is no limit, or none is known, the other counts
			there = min(there, n)
		}
	}
	if there == math.MaxUint64 {
		return 4 * leastMemory
	}
	return max(int64(min(there/4, math.MaxInt64)), leastMemory)
}

// requestMemory is how much of the memory requests may hold, as it is counted. The rest is
// for the program, its caches, and what the collector has not found yet.
func requestMemory(memory int64) int64 { return memory / 2 }

// limitMemory sets the collector for serving within a number of bytes, unless GOGC or
// GOMEMLIMIT do, and returns what puts it back.
func limitMemory(memory int64) (restore func()) {
	percent, limit := -2, int64(-1)
	var untouched []byte
	if os.Getenv("GOGC") == "" {
		untouched = make([]byte, ballast)
		percent = debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limit = debug.SetMemoryLimit(memory/10*9 + ballast)
	}
	return func() {
		runtime.KeepAlive(untouched)
		if percent != -2 {
			debug.SetGCPercent(percent)
		}
		if limit >= 0 {
			debug.SetMemoryLimit(limit)
		}
	}
}
