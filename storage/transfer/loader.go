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

// loader gathers what jobs hold into batches and gives them to the store.
type loader struct {
	store  *storage.Store
	opts   ImportOptions
	raw    *counter
	report ImportReport

	items    []item
	ignored  []int64 // lines left out
	bytes    int
	versions []driver.Version // of the items, while they are loaded
}

// run loads what the jobs hold, in their order.
func (l *loader) run(ctx context.Context, jobs <-chan *job) error {
	for j := range jobs {
		<-j.done
		if err := l.add(ctx, j); err != nil {
			return err
		}
	}
	// The jobs end early when the context does.
	if ctx.Err() != nil {
		return driver.Errorf(driver.CodeUnavailable, "the import was stopped: %w", context.Cause(ctx))
	}
	return l.flush(ctx)
}

// add takes what a job holds. It returns the job's error when what precedes it
// is in the store.
func (l *loader) add(ctx context.Context, j *job) error {
	for _, it := range j.items {
		size := len(it.version.Data) + versionOverhead
		if len(l.items) > 0 && (len(l.items) >= l.opts.BatchVersions || l.bytes+size > l.opts.BatchBytes) {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
		l.items = append(l.items, it)
		l.bytes += size
	}
	l.ignored = append(l.ignored, j.ignored...)
	if j.err == nil {
		return nil
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	return j.err
}

// versionOverhead is about what a version takes besides its data.
const versionOverhead = 256

// flush loads what was gathered. Where the store refuses a version, those on
// the lines before it are kept.
func (l *loader) flush(ctx context.Context) error {
	// Versions of one document lie together in a store, so a batch that is
	// ordered by document is written with less effort. Nothing else depends on
	// the order of different documents.
	slices.SortStableFunc(l.items, func(a, b item) int {
		return cmp.Or(strings.Compare(a.version.Collection, b.version.Collection), strings.Compare(a.version.Key, b.version.Key))
	})
	result, stopped, err := l.load(ctx)
	if err != nil {
		return err
	}
	l.count(result, stopped)
	clear(l.items)
	l.items, l.ignored, l.bytes = l.items[:0], l.ignored[:0], 0
	if l.opts.Progress != nil {
		l.opts.Progress(Progress{Lines: l.report.Added + l.report.Skipped, Bytes: l.raw.n.Load()})
	}
	if stopped != nil {
		return stopped
	}
	return nil
}

// load gives the batch to the store, up to the first line that this refuses,
// which it returns. The order in which lines are tried is not that of the
// file, so another refusal may show an earlier line.
func (l *loader) load(ctx context.Context) (result driver.LoadResult, stopped *LineError, err error) {
	for len(l.items) > 0 {
		l.versions = l.versions[:0]
		for i := range l.items {
			l.versions = append(l.versions, l.items[i].version)
		}
		result, err = l.store.Load(ctx, l.versions)
		clear(l.versions)
		var refused *driver.LoadError
		if !errors.As(err, &refused) || refused.Index < 0 || refused.Index >= len(l.items) {
			return result, stopped, err
		}
		stopped = &LineError{Line: l.items[refused.Index].line, Err: refused.Err}
		l.items = slices.DeleteFunc(l.items, func(it item) bool { return it.line >= stopped.Line })
	}
	return driver.LoadResult{}, stopped, nil
}

// count adds the batch, as far as it was kept, to the report.
func (l *loader) count(result driver.LoadResult, stopped *LineError) {
	l.report.Added += result.Added
	l.report.Skipped += result.Skipped
	for _, line := range l.ignored {
		if stopped == nil || line < stopped.Line {
			l.report.Ignored++
		}
	}
	for i := range l.items {
		for _, r := range l.items[i].remarks {
			l.report.remark(r)
		}
	}
}
