package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

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
