package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// ImportOptions choose how strict an import is and how to watch it. The zero
// value is what most callers want.
type ImportOptions struct {
	// Name is the name of the file, for messages. A name that ends in .gz or
	// .zst promises such data; otherwise the data's first bytes tell.
	Name string
	// Lenient keeps documents with values of another type than the schema
	// declares; reading such a field is an error until it is declared so. It
	// also keeps what is larger than the API writes, see storage.Store.Excess.
	Lenient bool
	// SkipUnknown leaves out lines of collections that the schema does not
	// declare, instead of stopping at the first.
	SkipUnknown bool
	// MaxLine is the longest line accepted, in bytes without the newline; 0
	// means 16 MiB.
	MaxLine int
	// BatchVersions and BatchBytes bound what is committed at once; 0 means
	// 32768 versions and 20 MiB. A single longer line is a batch of its own.
	// Two batches are in memory at once.
	BatchVersions, BatchBytes int
	// Progress, if set, is called after every batch, from one goroutine.
	Progress func(Progress)
}

func (o ImportOptions) withDefaults() ImportOptions {
	set := func(n *int, value int) {
		if *n <= 0 {
			*n = value
		}
	}
	set(&o.MaxLine, 16<<20)
	set(&o.BatchVersions, 32768)
	set(&o.BatchBytes, 20<<20)
	return o
}

// firstVersions is how many versions the first batch has. Each of the following
// may have twice as many as the one before, so that the store is soon at work.
const firstVersions = 8192

// Import adds the versions that r holds to the store. Compressed data is recognised
// by its first bytes.
//
// It stops at the first line that it cannot keep: the error is then, or wraps,
// a *LineError. The report says in any case what was kept, and the store holds
// exactly that; importing the same data again skips it. After an error or the
// end of ctx, a Read of r that is under way is not waited for.
func Import(ctx context.Context, store *storage.Store, r io.Reader, opts ImportOptions) (ImportReport, error) {
	opts = opts.withDefaults()
	stats, err := store.Engine().Stats(ctx)
	if err != nil {
		return ImportReport{}, err
	}
	_, _, held := storage.Held(stats)
	src, err := openSource(r, opts.Name)
	if err != nil {
		return ImportReport{}, err
	}
	if src.compressed {
		defer tighten()()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loader{
		store: store, prepares: store.NewLoading(), opts: opts, raw: src.raw, next: &batch{}, most: min(firstVersions, opts.BatchVersions), held: held > 0,
	}
	jobs := parseAhead(ctx, src, opts, store)
	err = l.run(ctx, jobs)
	l.report.Stopped = err != nil
	l.report.Suspect = l.report.Added > 0 && errors.Is(err, ErrCorrupt) && !errors.Is(err, errFollowed)
	l.report.Unchecked = err != nil && src.compressed
	return l.report, err
}

// tighten keeps the heap near to what is in use, until the function that it
// returns is called. The window of compressed data, which can be 128 MB, is in
// use, and by default the collector lets the heap grow to twice of that. The
// setting is the whole process's; it costs little, as the window holds no
// pointers. At the end the window goes back to the system at once: closing the
// store may want memory.
func tighten() (restore func()) {
	const percent = 12
	before := debug.SetGCPercent(percent)
	if before < percent { // the user wants less, or (negative) none
		debug.SetGCPercent(before)
	}
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}

// parseAhead reads and parses the stream in goroutines of its own and yields
// the jobs in the order of the stream, each to be waited for. A bounded number
// is under way.
func parseAhead(ctx context.Context, src *source, opts ImportOptions, store *storage.Store) <-chan *job {
	workers := max(1, runtime.GOMAXPROCS(0)-1)
	ordered, work, spare := make(chan *job, workers+1), make(chan *job, workers+1), make(chan *job, workers+2)
	go func() {
		defer close(ordered)
		defer close(work)
		defer src.close()
		chunks := newChunker(src, opts.MaxLine)
		for last := false; !last; {
			var j *job
			select {
			case j = <-spare:
			default:
				j = &job{spare: spare}
			}
			j.chunk, j.done = chunks.next(j.text), make(chan struct{})
			last = j.end != nil
			for _, to := range []chan<- *job{work, ordered} {
				select {
				case to <- j:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	for range workers {
		go func() {
			p := newJobParser(opts, store)
			for j := range work {
				p.run(j)
				close(j.done)
			}
		}()
	}
	return ordered
}

// job is a chunk and what became of it. Its memory is used again when what it
// held was taken over.
type job struct {
	chunk
	spare   chan<- *job
	done    chan struct{} // closed when the rest is filled
	items   []item
	ignored []int64 // lines of unknown collections
	err     error   // why nothing follows the items: a *LineError, or nil
}

// maxSpare is how many bytes of text a job keeps for the next one.
const maxSpare = 4 * chunkBytes

// release gives the memory of a job back.
func (j *job) release() {
	clear(j.items)
	used := job{spare: j.spare, items: j.items[:0], ignored: j.ignored[:0]}
	if cap(j.text) <= maxSpare {
		used.text = j.text
	}
	*j = used
	select {
	case j.spare <- j:
	default:
	}
}

// item is a line that was read.
type item struct {
	line    int64
	version driver.Version
	remarks []remark
}

// jobParser parses jobs. It is not safe for concurrent use.
type jobParser struct {
	opts  ImportOptions
	store *storage.Store
	types map[string]*record.Type // by collection
	lines *lineParser
}

func newJobParser(opts ImportOptions, store *storage.Store) *jobParser {
	return &jobParser{opts: opts, store: store, types: store.ByCollection(), lines: newLineParser()}
}

func (p *jobParser) run(j *job) {
	number := j.firstLine
	for line := range bytes.Lines(j.text) {
		line = bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(line)) > 0 {
			if err := p.line(j, number, line); err != nil {
				j.err = &LineError{Line: number, Err: err}
				return
			}
		}
		number++
	}
	if j.end != nil && !errors.Is(j.end, io.EOF) {
		j.err = j.end
	}
}

func (p *jobParser) line(j *job, number int64, line []byte) error {
	if len(line) > p.opts.MaxLine {
		return tooLong(p.opts.MaxLine)
	}
	v, err := p.lines.parse(line)
	if err != nil {
		return err
	}
	if !storage.IsArchived(v.Collection) { // exports had them once
		return nil
	}
	it := item{line: number, version: v}
	t, known := p.types[v.Collection]
	switch {
	case !known && p.opts.SkipUnknown:
		j.ignored = append(j.ignored, number)
		return nil
	case !known:
		return fmt.Errorf("unknown collection %q; the schema has %s; declare it there, or import with --skip-unknown to leave such lines out", v.Collection, collectionNames(p.types))
	}
	if it.remarks, err = inspect(p.store, t, &v, p.opts.Lenient); err != nil {
		return fmt.Errorf("%s %q: %w", v.Collection, v.Key, err)
	}
	j.items = append(j.items, it)
	return nil
}

// Misfit says why a version does not fit its type, or is larger than one that can be written
// here; nil where it does, or is kept all the same.
func Misfit(store *storage.Store, t *record.Type, v *driver.Version, lenient bool) error {
	_, err := inspect(store, t, v, lenient)
	return err
}

// inspect compares a version, in today's form, with its type. What the type does not declare is
// remarked; so is, if the import is lenient, every value of another type.
func inspect(store *storage.Store, t *record.Type, v *driver.Version, lenient bool) (remarks []remark, err error) {
	if why := store.Excess(v); why != "" && !lenient {
		return nil, fmt.Errorf("%s; make it shorter, or use --lenient to keep it as it is", why)
	}
	if _, erased := rawjson.HideErased(v.Data); erased && !seal.Erased(v.Seal) {
		return nil, errors.New(`it has a member "asof:erased", which stands for a value that was erased, and its seal does not say that one was: give the member another name, or leave it out`)
	}
	if v.Deleted {
		return nil, nil
	}
	switch why := store.TagProblem(v); {
	case why != "" && lenient:
		return []remark{{collection: t.Collection, problem: why, readable: true}}, nil
	case why != "":
		return nil, fmt.Errorf("%s; or use --lenient to keep it as it is", why)
	}
	var unknown []string
	var mismatches []*record.MismatchError
	data, err := store.Today(v)
	switch {
	case err != nil && lenient:
		return []remark{{collection: t.Collection, problem: "its migration in resolvers/migrations.go fails"}}, nil
	case err != nil:
		return nil, fmt.Errorf("%w, or use --lenient to keep it as it is", err)
	case lenient:
		unknown, mismatches, err = t.ValidateAll(data)
	default:
		unknown, err = t.Validate(data)
	}
	if mismatch, ok := errors.AsType[*record.MismatchError](err); ok && mismatch.Missing {
		return nil, fmt.Errorf("%w; the schema requires it: declare it nullable or give it a @default, or use --lenient to keep the document as it is", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; declare it so in the schema, or use --lenient to keep it as it is", err)
	}
	for _, path := range unknown {
		remarks = append(remarks, remark{collection: t.Collection, path: path})
	}
	for _, m := range mismatches {
		remarks = append(remarks, remark{collection: t.Collection, problem: m.Error(), readable: m.Readable})
	}
	return remarks, nil
}

// collectionNames lists collections for messages.
func collectionNames(types map[string]*record.Type) string {
	declared := maps.Clone(types)
	maps.DeleteFunc(declared, func(name string, _ *record.Type) bool { return storage.IsOwn(name) })
	return strings.Join(slices.Sorted(maps.Keys(declared)), ", ")
}
