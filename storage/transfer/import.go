package transfer

import (
	"context"
	"errors"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/asof/asof/storage"
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
		store: store, opts: opts, raw: src.raw, next: &batch{}, most: min(firstVersions, opts.BatchVersions), held: held > 0,
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
