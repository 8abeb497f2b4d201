package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/asof/asof/internal/gitimport"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/transfer"
)

// exportFile writes every version to a file.
func (m *Main) exportFile(ctx context.Context) (err error) {
	f := &m.flags.Export
	if m.isStore(f.File) {
		return usageError{fmt.Errorf("%s is a file of the store, which an export would replace; name the file to write, and the store with --store", f.File)}
	}
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
	options := transfer.ExportOptions{Collections: f.Collection}
	if f.File == "-" {
		_, err := transfer.Export(ctx, store, m.Stdout, options)
		return err
	}
	out, err := transfer.CreateFile(f.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	progress, clear := m.meter("exported", 0)
	options.Progress = progress
	n, err := transfer.Export(ctx, store, out, options)
	clear()
	if err != nil && ctx.Err() != nil {
		return interruptedError{fmt.Sprintf("interrupted; %s is as it was before", f.File)}
	}
	if err != nil {
		return fmt.Errorf("export to %s: %w", f.File, err)
	}
	if err := out.Commit(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.Stdout, "exported %s to %s\n", plural(n, "version"), f.File)
	return err
}

// mismatches are the versions that do not fit the schema in one way: a field, and what
// is expected there. There are no more ways than the schema has fields.
type mismatches struct {
	field, expected   string
	missing           bool // there is no value, and it is required
	versions, current int64
	documents         map[string]struct{} // by key; they have one type
	first             []string            // some of them, in words
	key               string              // of the version that was counted last
	version           int
}

// maxFirst is how many versions are named of each way in which they do not fit.
const maxFirst = 3

func (w *mismatches) add(f storage.Mismatch) {
	if w.versions > 0 && w.key == f.Key && w.version == f.Version {
		return // another element of the same list
	}
	w.key, w.version = f.Key, f.Version
	w.documents[f.Key] = struct{}{}
	w.versions++
	if f.Current {
		w.current++
	}
	if len(w.first) < maxFirst {
		w.first = append(w.first, fmt.Sprintf("%q version %d has %s", f.Key, f.Version, f.Err.Found))
	}
}

// printMismatches counts the versions, of all times, that do not fit the schema, by field, and
// names the first. It returns the number of such fields.
func (m *Main) printMismatches(ctx context.Context, store *storage.Store) (fields int64, err error) {
	var ways []*mismatches
	type way struct {
		field, expected string
		missing         bool
	}
	byWay := map[way]*mismatches{}
	index := regexp.MustCompile(`\[\d+\]`)
	if err := store.Mismatches(ctx, func(f storage.Mismatch) {
		at := way{f.Type.Name + "." + index.ReplaceAllString(f.Err.Path, "[]"), f.Err.Expected, f.Err.Missing}
		w := byWay[at]
		if w == nil {
			w = &mismatches{field: at.field, expected: at.expected, missing: at.missing, documents: map[string]struct{}{}}
			byWay[at] = w
			ways = append(ways, w)
		}
		w.add(f)
	}); err != nil {
		return 0, err
	}
	for _, w := range ways {
		which := fmt.Sprintf("%s of %s", plural(w.versions, "version"), plural(int64(len(w.documents)), "document"))
		text := fmt.Sprintf("%s does not fit the schema, which expects %s, in %s", w.field, w.expected, which)
		if w.missing {
			text = fmt.Sprintf("%s lack the required field %s", which, w.field)
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s, %d of them current; first %s\n", text, w.current, strings.Join(w.first, ", ")); err != nil {
			return 0, err
		}
	}
	if len(ways) == 0 {
		return 0, nil
	}
	_, err = fmt.Fprintln(m.Stdout, "reading what does not fit is an error until it is declared so; of current versions also until the document is updated")
	return int64(len(ways)), err
}

// check reads the whole store.
func (m *Main) check(ctx context.Context) (err error) {
	engine, err := m.openEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	problems := int64(0)
	var writing error
	report := func(problem string) {
		problems++
		if _, err := fmt.Fprintln(m.Stdout, problem); err != nil {
			writing = err
		}
	}
	err = engine.Check(ctx, report)
	if err == nil {
		remedy := "asof check --repair gives versions times that have passed, and sets the clock back"
		if strings.HasPrefix(m.flags.Store, "mongodb") {
			remedy = "export the store, correct the times in the file, and import it into another database"
		}
		err = storage.Future(ctx, engine, driver.InstantOf(m.Now()), remedy, report)
	}
	if err != nil {
		return fmt.Errorf("check of %s: %w", m.storeName(), err)
	}
	if problems > 0 {
		return fmt.Errorf("%s has %s", m.storeName(), plural(problems, "problem"))
	}
	store, err := m.typed(ctx, engine)
	if err != nil {
		return err
	}
	unfit, err := m.printMismatches(ctx, store)
	if err != nil {
		return err
	}
	found := "is sound"
	if unfit > 0 {
		found = "is undamaged, but does not fit the schema in " + plural(unfit, "field")
	}
	stats, err := engine.Stats(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.Stdout, "%s %s: %s now, %s in all, with those of deleted documents\n",
		m.storeName(), found, held(stats), heldVersions(stats))
	return errors.Join(err, writing)
}

// open opens a file to read, and returns its size; 0: unknown.
func (m *Main) open(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(m.Stdin), 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, usageError{fmt.Errorf("cannot read: %w", err)}
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		if err == nil && info.IsDir() {
			return nil, 0, errors.Join(usageError{fmt.Errorf("cannot read %s: it is a directory", name)}, file.Close())
		}
		return file, 0, nil
	}
	return file, info.Size(), nil
}

// meter shows progress on standard error where that is a terminal.
func (m *Main) meter(verb string, total int64) (progress func(transfer.Progress), clear func()) {
	file, ok := m.Stderr.(*os.File)
	if !ok {
		return nil, func() {}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil, func() {}
	}
	meter := transfer.NewMeter(file, m.Now, verb, total)
	return meter.Update, meter.Clear
}

// plural is a number of things: "1 version", "2 versions".
func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// held says how many documents, and drafts where there are any, the store of the statistics has.
func held(stats driver.Stats) string {
	documents, drafts, _ := storage.Held(stats)
	if drafts == 0 {
		return plural(documents, "document")
	}
	return plural(documents, "document") + " and " + plural(drafts, "draft")
}

func heldVersions(stats driver.Stats) string {
	_, _, versions := storage.Held(stats)
	return plural(versions, "version")
}

func called(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// maxHealthAnswer bounds what is read of a server's answer.
const maxHealthAnswer = 1 << 10

// health asks a server on this machine whether it can answer, for those who
// cannot run anything but this program, such as a container without a shell.
func (m *Main) health(ctx context.Context) error {
	f := &m.flags.Health
	if f.Timeout <= 0 {
		return usageError{fmt.Errorf("--timeout must be positive, not %v", f.Timeout)}
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	path := "/readyz"
	if f.Alive {
		path = "/healthz"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.Addr+path, http.NoBody)
	if err != nil {
		return usageError{fmt.Errorf("--addr %s: want HOST:PORT, such as 127.0.0.1:8080", f.Addr)}
	}
	request.Host = "localhost" // which every server answers to
	// Of its own, since the usual one would ask a proxy.
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("no server answers at %s within %v: %w", f.Addr, f.Timeout.Round(time.Millisecond), err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxHealthAnswer))
	if err != nil {
		return fmt.Errorf("the answer of %s broke off: %w", f.Addr, err)
	}
	said := strings.TrimSpace(string(text))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server at %s is not ready: %s (status %d)", f.Addr, said, response.StatusCode)
	}
	_, err = fmt.Fprintln(m.Stdout, said)
	return err
}

// importFile adds the versions in a file, or in the history of a git repository, to the store.
func (m *Main) importFile(ctx context.Context) (err error) {
	f := &m.flags.Import
	if (f.File == "") == (f.Git == "") {
		return usageError{errors.New("import needs <file>, or --git and --map, and not both")}
	}
	var in io.ReadCloser
	var length int64
	var repository *gitimport.Repository
	if f.Git == "" {
		in, length, err = m.open(f.File)
	} else {
		repository, err = openRepository(ctx, f)
	}
	if err != nil {
		return err
	}
	defer func() {
		if in != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	var lines *gitimport.Lines
	if repository != nil {
		if err := repository.Continues(ctx, store); err != nil {
			return fmt.Errorf("import of %s: %w", f.Git, errors.Join(err, store.Engine().Close()))
		}
		lines = repository.Lines(ctx, f.Lenient)
		in = lines
	}
	options := transfer.ImportOptions{Name: f.File, Lenient: f.Lenient, SkipUnknown: f.SkipUnknown}
	progress, clear := m.meter("imported", length)
	options.Progress = progress
	report, err := transfer.Import(ctx, store, in, options)
	clear()
	// What is reported is durable: the last batches are when the store is closed.
	if closed := store.Engine().Close(); closed != nil {
		return errors.Join(err, closed)
	}
	if lines != nil {
		err = m.printLeftOut(lines, err)
	}
	if printed := report.Print(m.Stdout); err == nil {
		err = printed
	}
	if err != nil && ctx.Err() != nil {
		return interruptedError{fmt.Sprintf("interrupted after %s; run it again to continue", plural(report.Added+report.Skipped, "version"))}
	}
	if err != nil {
		return fmt.Errorf("import of %s: %w", cmp.Or(f.Git, called(f.File)), err)
	}
	return nil
}

// openRepository opens what --git and --map name.
func openRepository(ctx context.Context, f *importFlags) (*gitimport.Repository, error) {
	text, err := os.ReadFile(f.Map)
	if err != nil {
		return nil, usageError{fmt.Errorf("--map: %w", err)}
	}
	rules, err := gitimport.ReadMap(f.Map, text)
	if err != nil {
		return nil, usageError{fmt.Errorf("--map %s: %w", f.Map, err)}
	}
	repository, err := gitimport.Open(ctx, f.Git, rules)
	if err != nil {
		return nil, usageError{fmt.Errorf("--git %s: %w", f.Git, err)}
	}
	return repository, nil
}

// printLeftOut ends the reading of a repository. It says which files were left out, and
// returns the import's error with the commit and file that it is about.
func (m *Main) printLeftOut(lines *gitimport.Lines, err error) error {
	closed := lines.Close()
	times, first := lines.LeftOut()
	if times > 0 {
		_, printed := fmt.Fprintf(m.Stdout, "%s that hold no document left out\n", plural(times, "change")+" of files")
		closed = errors.Join(closed, printed)
	}
	for _, left := range first {
		_, printed := fmt.Fprintf(m.Stdout, "  %v\n", left)
		closed = errors.Join(closed, printed)
	}
	if wrong, ok := errors.AsType[*gitimport.Error](err); ok {
		return wrong
	}
	if refused, ok := errors.AsType[*transfer.LineError](err); ok {
		return lines.Origin(refused.Line, refused.Err)
	}
	return errors.Join(err, closed)
}

type schemaFlags struct {
	Diff  schemaDiffFlags  `cmd:"" help:"Say what has changed since a schema that the store was opened with, and which stored versions cannot be read any more."`
	List  struct{}         `cmd:"" help:"List the schemas that the store was opened with, by their numbers, and how many versions were written under each."`
	Apply schemaApplyFlags `cmd:"" help:"Bring documents into the form of today's schema."`
}

type schemaDiffFlags struct {
	Number string `arg:"" optional:"" help:"The number of an earlier schema. Default: the one that the store was last opened with."`
}

type schemaApplyFlags struct {
	Rewrite bool `help:"Write the documents that have another form than today's (@was, migrations) in that, as new versions. What does not fit the schema in any form stays: asof check says what. It can be stopped and repeated." required:""`
}

// schemaDiff compares a schema that the store was opened with with today's, and today's with what
// is stored.
func (m *Main) schemaDiff(ctx context.Context, store *storage.Store) error {
	old, err := m.knownSDL(ctx, store, m.flags.Schema.Diff.Number)
	if err != nil {
		return err
	}
	lines := changedSchema(old, m.SDL)
	for _, line := range append(lines, renamedFields(lines)...) {
		if _, err := fmt.Fprintln(m.Stdout, line); err != nil {
			return err
		}
	}
	unfit, err := m.printMismatches(ctx, store)
	if unfit > 0 && err == nil {
		err = fmt.Errorf("%s does not fit the schema in %s", m.storeName(), plural(unfit, "field"))
	}
	return err
}

// changedSchema returns what one schema says of types, fields and values and another does not,
// a line each, which begins with - or +, in the order of their names.
func changedSchema(before, after string) (lines []string) {
	was, is := declared(before), declared(after)
	for _, line := range was {
		if !slices.Contains(is, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			lines = append(lines, "+ "+line)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return lines
}

// fieldLine matches the line of a field: its sign, type, name, and where it is stored, if that is elsewhere.
var fieldLine = regexp.MustCompile(`^(.) (\w+)\.(\w+): (?:.* @stored\(as: "([^"]+)"\))?`)

// renamedFields says what to write where the one field that a type has no more may be the one that it has now.
func renamedFields(lines []string) (advice []string) {
	fields := map[string][][]string{} // by the type and the sign
	for _, line := range lines {
		f := fieldLine.FindStringSubmatch(line)
		if f == nil || strings.Contains(line, "@was(") || slices.ContainsFunc(lines, func(other string) bool { return other != line && strings.HasPrefix(other[2:], f[2]+"."+f[3]+":") }) {
			continue // of the same name is another type
		}
		fields[f[2]+f[1]] = append(fields[f[2]+f[1]], f)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		typ, _ := strings.CutSuffix(key, "-")
		if lost, gained := fields[typ+"-"], fields[typ+"+"]; len(lost) == 1 && len(gained) == 1 {
			was, is := lost[0], gained[0]
			if stored := cmp.Or(was[4], was[3]); stored != cmp.Or(is[4], is[3]) {
				advice = append(advice, fmt.Sprintf("if %s.%s was renamed to %s, declare %[3]s with @was(name: %q)", typ, was[3], is[3], stored))
			}
		}
	}
	return advice
}

// storedDefault matches a default as codegen writes it: a string of JSON.
var storedDefault = regexp.MustCompile(`: \W*(\w+).* @default\(value: ("(?:[^"\\]|\\.)*")\)`)

// asWritten returns the line of a field with its default as in schema.graphqls.
func asWritten(line string) string {
	m := storedDefault.FindStringSubmatch(line)
	var text string
	if len(m) == 0 || json.Unmarshal([]byte(m[2]), &text) != nil {
		return line
	}
	if !slices.Contains([]string{"String", "ID", "DateTime", "Date", "Decimal", "JSON"}, m[1]) {
		text = strings.ReplaceAll(text, `"`, "") // of an enum
	}
	return strings.Replace(line, "@default(value: "+m[2], "@default(value: "+text, 1)
}

// declared returns what a schema, as codegen writes it, says of each type, field and value, with
// the names of their types.
func declared(sdl string) (lines []string) {
	of := ""
	for line := range strings.Lines(sdl) {
		switch line = strings.TrimRight(line, "{ \n"); {
		case strings.HasPrefix(line, " "):
			lines = append(lines, of+"."+asWritten(strings.TrimSpace(line)))
		case line != "}":
			lines, of = append(lines, line), strings.Fields(line)[1]
		}
	}
	return lines
}

// knownSDL returns a schema that the store was opened with; number "": the last one.
func (m *Main) knownSDL(ctx context.Context, store *storage.Store, number string) (string, error) {
	known, err := store.Schemas(ctx)
	if err != nil {
		return "", err
	}
	for _, k := range known {
		if k.SDL != "" && (k.Number == number || number == "" && k.Current) {
			return k.SDL, nil
		}
	}
	if number == "" {
		return "", usageError{fmt.Errorf("no server has opened %s with a schema yet: asof check says what does not fit this one", m.storeName())}
	}
	return "", usageError{fmt.Errorf("%s was not opened with a schema of the number %s; asof schema list has those that it was", m.storeName(), number)}
}

// schemaList lists the schemas that the store was opened with.
func (m *Main) schemaList(ctx context.Context, store *storage.Store) error {
	known, err := store.Schemas(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		text := k.Number + "  not opened with it"
		switch {
		case k.Number == "":
			text = "unknown " + " imported, or written before schemas had numbers"
		case k.SDL != "":
			text = fmt.Sprintf("%s  since %s", k.Number, k.Since)
		}
		if k.Current {
			text += ", the last one"
		}
		if k.Number == fmt.Sprintf("%08x", storage.SchemaNumber(m.SDL)) {
			text += ", this program's"
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s: %s\n", text, plural(k.Versions, "version")); err != nil {
			return err
		}
	}
	return nil
}

// schemaApply rewrites documents in today's form.
func (m *Main) schemaApply(ctx context.Context, store *storage.Store) error {
	for _, t := range store.Types() {
		n, err := store.Rewrite(ctx, t)
		if err != nil && ctx.Err() != nil {
			return interruptedError{fmt.Sprintf("interrupted after %s of %s; the same command goes on", plural(int64(n), "document"), t.Name)}
		}
		if err != nil {
			return fmt.Errorf("rewriting %s: %w", t.Name, err)
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s: rewrote %s\n", t.Name, plural(int64(n), "document")); err != nil {
			return err
		}
	}
	return nil
}
