package transfer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// loader gathers what jobs hold into batches and gives them to the store, one
// after the other. While the store takes one, the next gathers.
type loader struct {
	store  *storage.Store
	opts   ImportOptions
	raw    *counter
	report ImportReport

	next   *batch       // gathers
	loaded chan outcome // of the batch that the store has; nil: it has none
}

// batch is what is loaded at once.
type batch struct {
	items    []item
	ignored  []int64 // lines left out
	bytes    int
	versions []driver.Version // of the items, while they are loaded
}

// outcome is what became of a batch.
type outcome struct {
	*batch
	result  driver.LoadResult
	stopped *LineError // the first line that the store refused
	err     error
}

// run loads what the jobs hold, in their order.
func (l *loader) run(ctx context.Context, jobs <-chan *job) error {
	for {
		select {
		case <-ctx.Done(): // the jobs may wait for a Read that does not end
			_ = l.wait() // it was stopped, too
			return driver.Errorf(driver.CodeUnavailable, "the import was stopped: %w", context.Cause(ctx))
		case j, ok := <-jobs:
			switch {
			case ok:
				<-j.done
				if err := l.add(ctx, j); err != nil {
					return err
				}
			case ctx.Err() == nil: // else they ended early
				return l.finish(ctx)
			}
		}
	}
}

// add takes what a job holds. It returns the job's error when what precedes it
// is in the store.
func (l *loader) add(ctx context.Context, j *job) error {
	for _, it := range j.items {
		size := len(it.version.Data) + versionOverhead
		if n := len(l.next.items); n > 0 && (n >= l.opts.BatchVersions || l.next.bytes+size > l.opts.BatchBytes) {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
		l.next.items = append(l.next.items, it)
		l.next.bytes += size
	}
	l.next.ignored = append(l.next.ignored, j.ignored...)
	if j.err == nil {
		return nil
	}
	if err := l.finish(ctx); err != nil {
		return err
	}
	return j.err
}

// versionOverhead is about what a version takes besides its data.
const versionOverhead = 256

// finish loads what was gathered and waits for it.
func (l *loader) finish(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	return l.wait()
}

// flush gives the store what was gathered, when it has taken what it has. Its
// error is about the latter.
func (l *loader) flush(ctx context.Context) error {
	if err := l.wait(); err != nil {
		return err
	}
	b := l.next
	l.next, l.loaded = &batch{items: make([]item, 0, len(b.items))}, make(chan outcome, 1)
	go func(loaded chan<- outcome) {
		o := outcome{batch: b}
		o.result, o.stopped, o.err = b.load(ctx, l.store)
		loaded <- o
	}(l.loaded)
	return nil
}

// wait waits for the batch that the store has, and counts it. Where the store
// refused a version, those on the lines before it are kept.
func (l *loader) wait() error {
	if l.loaded == nil {
		return nil
	}
	o := <-l.loaded
	l.loaded = nil
	if o.err != nil {
		return o.err
	}
	l.count(o)
	if l.opts.Progress != nil {
		l.opts.Progress(Progress{Lines: l.report.Added + l.report.Skipped, Bytes: l.raw.n.Load()})
	}
	if o.stopped != nil {
		return o.stopped
	}
	return nil
}

// load gives the batch to the store, up to the first line that this refuses,
// which it returns. The order in which lines are tried is not that of the
// file, so another refusal may show an earlier line.
func (b *batch) load(ctx context.Context, store *storage.Store) (result driver.LoadResult, stopped *LineError, err error) {
	// Versions of one document lie together in a store, so a batch that is
	// ordered by document is written with less effort. Nothing else depends on
	// the order of different documents.
	slices.SortStableFunc(b.items, func(x, y item) int {
		return cmp.Or(strings.Compare(x.version.Collection, y.version.Collection), strings.Compare(x.version.Key, y.version.Key))
	})
	for len(b.items) > 0 {
		b.versions = b.versions[:0]
		for i := range b.items {
			b.versions = append(b.versions, b.items[i].version)
		}
		result, err = store.Load(ctx, b.versions)
		var refused *driver.LoadError
		if !errors.As(err, &refused) || refused.Index < 0 || refused.Index >= len(b.items) {
			return result, stopped, err
		}
		stopped = &LineError{Line: b.items[refused.Index].line, Err: refused.Err}
		b.items = slices.DeleteFunc(b.items, func(it item) bool { return it.line >= stopped.Line })
	}
	return driver.LoadResult{}, stopped, nil
}

// similar names a field that may be meant by a member that is not declared.
func (l *loader) similar(r remark) string {
	t := typesOf(l.store)[r.collection]
	if t == nil || r.problem != "" {
		return ""
	}
	return t.SimilarMember(r.path)
}

// count adds a batch, as far as it was kept, to the report.
func (l *loader) count(o outcome) {
	l.report.Added += o.result.Added
	l.report.Skipped += o.result.Skipped
	for _, line := range o.ignored {
		if o.stopped == nil || line < o.stopped.Line {
			l.report.Ignored++
		}
	}
	for i := range o.items {
		for _, r := range o.items[i].remarks {
			l.report.remark(r, l.similar)
		}
	}
}
