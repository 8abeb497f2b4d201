package transfer

import (
	"context"
	"errors"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// loader gathers what jobs hold into batches and gives them to the store.
type loader struct {
	store  *storage.Store
	opts   ImportOptions
	raw    *counter
	report ImportReport

	versions []driver.Version
	lines    []int64
	findings []finding // version is the index in versions
	ignored  []int64
	bytes    int
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
	l.ignored = append(l.ignored, j.ignored...)
	next := 0
	for i := range j.versions {
		size := len(j.versions[i].Data) + versionOverhead
		if len(l.versions) > 0 && (len(l.versions) >= l.opts.BatchVersions || l.bytes+size > l.opts.BatchBytes) {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
		for next < len(j.findings) && j.findings[next].version == i {
			l.findings = append(l.findings, finding{version: len(l.versions), remark: j.findings[next].remark})
			next++
		}
		l.versions = append(l.versions, j.versions[i])
		l.lines = append(l.lines, j.lines[i])
		l.bytes += size
	}
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

// flush loads what was gathered. Where the store refuses a version, those
// before it are kept.
func (l *loader) flush(ctx context.Context) error {
	kept := len(l.versions)
	result, err := l.load(ctx, kept)
	var refused *driver.LoadError
	if errors.As(err, &refused) && refused.Index >= 0 && refused.Index < kept {
		kept = refused.Index
		err = &LineError{Line: l.lines[kept], Err: refused.Err}
		var again error
		if result, again = l.load(ctx, kept); again != nil {
			return errors.Join(err, again)
		}
	} else if err != nil {
		return err
	}
	l.count(kept, result)
	clear(l.versions)
	l.versions, l.lines, l.findings = l.versions[:0], l.lines[:0], l.findings[:0]
	l.bytes = 0
	if l.opts.Progress != nil {
		l.opts.Progress(Progress{Lines: l.report.Added + l.report.Skipped, Bytes: l.raw.n.Load()})
	}
	return err
}

func (l *loader) load(ctx context.Context, n int) (driver.LoadResult, error) {
	if n == 0 {
		return driver.LoadResult{}, nil
	}
	return l.store.Load(ctx, l.versions[:n])
}

// count adds the first versions of the batch to the report.
func (l *loader) count(kept int, result driver.LoadResult) {
	l.report.Added += result.Added
	l.report.Skipped += result.Skipped
	end := int64(0) // the line that was not kept; 0: all were
	if kept < len(l.lines) {
		end = l.lines[kept]
	}
	for _, line := range l.ignored {
		if end == 0 || line < end {
			l.report.Ignored++
		}
	}
	l.ignored = l.ignored[:0]
	for _, f := range l.findings {
		if f.version < kept {
			l.report.remark(f.remark)
		}
	}
}
