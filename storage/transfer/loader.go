package transfer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
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
	held   bool // there were versions in the store

	prepares *storage.Loading
	next     *batch       // gathers
	most     int          // versions that it may have
	spare    *batch       // the one before, for its memory; nil: there is none yet
	loaded   chan outcome // of the batch that the store has; nil: it has none
}

// batch is what is loaded at once. The versions of its items are loaded by
// document. Those of one document lie together in a store, so that it is written
// with less effort; nothing else depends on the order of different documents.
type batch struct {
	versions []driver.Version
	origins  []origin // of each version
	ignored  []int64  // lines left out
	bytes    int
}

// origin is what a line said beside its version.
type origin struct {
	line    int64
	remarks []remark
}

// reuse empties a batch whose memory is used again.
func (b *batch) reuse() {
	clear(b.versions)
	clear(b.origins)
	b.versions, b.origins, b.ignored, b.bytes = b.versions[:0], b.origins[:0], b.ignored[:0], 0
}

// outcome is what became of a batch.
type outcome struct {
	*batch
	result driver.LoadResult
	err    error
}

// run loads what the jobs hold, in their order.
func (l *loader) run(ctx context.Context, jobs <-chan *job) error {
	for {
		select {
		case <-ctx.Done(): // the jobs may wait for a Read that does not end
			_ = l.wait(ctx) // it was stopped, too
			return driver.Errorf(driver.CodeUnavailable, "the import was stopped: %w", context.Cause(ctx))
		case j, ok := <-jobs:
			switch {
			case ok:
				<-j.done
				if err := l.add(ctx, j); err != nil {
					return err
				}
				j.release()
			case ctx.Err() == nil: // else they ended early
				return l.finish(ctx)
			}
		}
	}
}

// add takes what a job holds. It returns the job's error when what precedes it
// is in the store.
func (l *loader) add(ctx context.Context, j *job) error {
	for i := range j.items {
		it := &j.items[i]
		size := len(it.version.Data) + versionOverhead
		if n := len(l.next.versions); n > 0 && (n >= l.most || l.next.bytes+size > l.opts.BatchBytes) {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
		l.next.versions = append(l.next.versions, it.version)
		l.next.origins = append(l.next.origins, origin{it.line, it.remarks})
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
	return l.wait(ctx)
}

// flush gives the store what was gathered, when it has taken what it has; until
// then the batch is prepared. Its error is about either.
func (l *loader) flush(ctx context.Context) error {
	b := l.next
	prepared := b.prepare(ctx, l.prepares)
	if err := l.wait(ctx); err != nil {
		return err
	}
	if l.next, l.spare = l.spare, nil; l.next == nil {
		l.next = &batch{versions: make([]driver.Version, 0, len(b.versions)), origins: make([]origin, 0, len(b.versions))}
	}
	l.most = min(2*l.most, l.opts.BatchVersions)
	loaded := make(chan outcome, 1)
	l.loaded = loaded
	if prepared != nil {
		loaded <- outcome{batch: b, err: prepared}
		return nil
	}
	go func() {
		o := outcome{batch: b}
		o.result, o.err = l.store.LoadPrepared(ctx, b.versions)
		loaded <- o
	}()
	return nil
}

// wait waits for the batch that the store has, and counts it. Where the store
// refused a version, those on the lines before it are kept.
func (l *loader) wait(ctx context.Context) error {
	if l.loaded == nil {
		return nil
	}
	o := <-l.loaded
	l.loaded = nil
	stopped := l.retry(ctx, &o)
	if o.err != nil {
		return o.err
	}
	l.count(o, stopped)
	if l.opts.Progress != nil {
		l.opts.Progress(Progress{Lines: l.report.Added + l.report.Skipped, Bytes: l.raw.n.Load()})
	}
	if stopped != nil {
		return stopped
	}
	o.reuse()
	l.spare = o.batch
	return nil
}

// retry gives a batch of which the store refused a version to it again, up to
// the line of that, which it returns. The order in which lines are tried is not
// that of the file, so another refusal may show an earlier line.
func (l *loader) retry(ctx context.Context, o *outcome) (stopped *LineError) {
	for {
		var refused *driver.LoadError
		if !errors.As(o.err, &refused) || refused.Index < 0 || refused.Index >= len(o.versions) {
			return stopped
		}
		stopped = &LineError{Line: o.origins[refused.Index].line, Err: refused.Err}
		o.cut(stopped.Line)
		o.result, o.err = driver.LoadResult{}, nil
		l.prepares = l.store.NewLoading() // which knows nothing of the batch behind this one
		if len(o.versions) == 0 {
			return stopped
		}
		if o.err = o.prepare(ctx, l.prepares); o.err == nil {
			o.result, o.err = l.store.LoadPrepared(ctx, o.versions)
		}
	}
}

// prepare puts the versions in order, by document and line, and prepares them.
func (b *batch) prepare(ctx context.Context, l *storage.Loading) error {
	sort.Sort(b)
	return l.Prepare(ctx, b.versions)
}

// Len, Less and Swap are sort.Interface's.
func (b *batch) Len() int { return len(b.versions) }

func (b *batch) Less(i, j int) bool {
	x, y := &b.versions[i], &b.versions[j]
	return cmp.Or(strings.Compare(x.Collection, y.Collection), strings.Compare(x.Key, y.Key), cmp.Compare(b.origins[i].line, b.origins[j].line)) < 0
}

func (b *batch) Swap(i, j int) {
	b.versions[i], b.versions[j] = b.versions[j], b.versions[i]
	b.origins[i], b.origins[j] = b.origins[j], b.origins[i]
}

// cut leaves out what is on a line and behind it.
func (b *batch) cut(line int64) {
	n := 0
	for i := range b.origins {
		if b.origins[i].line < line {
			b.versions[n], b.origins[n] = b.versions[i], b.origins[i]
			n++
		}
	}
	clear(b.versions[n:])
	clear(b.origins[n:])
	b.versions, b.origins = b.versions[:n], b.origins[:n]
}

// count adds a batch, as far as it was kept, to the report.
func (l *loader) count(o outcome, stopped *LineError) {
	l.report.Added += o.result.Added
	l.report.Skipped += o.result.Skipped
	if l.held && o.result.Added > 0 {
		for i := range o.versions {
			if at := o.versions[i].RecordedAt; l.report.Past == 0 || at < l.report.Past {
				l.report.Past = at
			}
		}
	}
	for _, line := range o.ignored {
		if stopped == nil || line < stopped.Line {
			l.report.Ignored++
		}
	}
	for i := range o.origins {
		for _, r := range o.origins[i].remarks {
			l.report.remark(r)
		}
	}
}

// chunkBytes is about how much is read, parsed and handed on at a time.
const chunkBytes = 512 << 10

// chunk is a run of whole lines.
type chunk struct {
	text      []byte // every line with its newline
	firstLine int64  // the number of the first line, from 1
	// end is why nothing follows the text: io.EOF, or what was wrong there.
	// It is nil where another chunk follows.
	end error
}

// chunker cuts a stream into chunks.
type chunker struct {
	r       io.Reader
	rest    []byte // the beginning of the next line, in memory of its own
	line    int64  // the number of that line
	maxLine int
}

func newChunker(r io.Reader, maxLine int) *chunker {
	return &chunker{r: r, line: 1, maxLine: maxLine}
}

// next returns the next chunk, in the memory given if that is large enough. It
// must not be called after the one that has end set.
func (c *chunker) next(memory []byte) chunk {
	buf := memory[:0]
	if least := max(chunkBytes, 2*len(c.rest)); cap(buf) < least {
		buf = make([]byte, 0, least)
	}
	buf = append(buf, c.rest...)
	searched := len(buf)
	for {
		n, err := fill(c.r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		cut := searched + bytes.LastIndexByte(buf[searched:], '\n') + 1
		if cut == searched {
			cut = 0
		}
		searched = len(buf)
		switch {
		case err != nil:
			return c.cut(buf, cut, err)
		case cut > 0:
			return c.cut(buf, cut, nil)
		case len(buf) > c.maxLine:
			return c.cut(buf, 0, tooLong(c.maxLine))
		}
		buf = append(make([]byte, 0, 2*cap(buf)), buf...)
	}
}

// fill reads until p is full or there is an error.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// cut makes a chunk of buf up to at and keeps what follows.
func (c *chunker) cut(buf []byte, at int, end error) chunk {
	out := chunk{text: buf[:at], firstLine: c.line, end: end}
	c.rest = append(c.rest[:0], buf[at:]...)
	c.line += int64(bytes.Count(out.text, []byte{'\n'}))
	switch {
	case end == nil:
	case !errors.Is(end, io.EOF):
		out.end = &LineError{Line: c.line, Err: end}
	case len(c.rest) > c.maxLine:
		out.end = &LineError{Line: c.line, Err: tooLong(c.maxLine)}
	case len(bytes.TrimSpace(c.rest)) == 0:
	case c.rest[0] == '{' && json.Valid(c.rest): // an object that is cut off is none
		out.text = append(buf, '\n')
	default:
		out.end = &LineError{Line: c.line, Err: fmt.Errorf("%w: it ends here in the middle of a line, or this line is not valid JSON", ErrTruncated)}
	}
	return out
}

func tooLong(most int) error {
	return fmt.Errorf("is longer than the %d bytes that a line may have", most)
}
