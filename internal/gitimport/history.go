package gitimport

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// Error says in which file of which commit something was wrong.
type Error struct {
	Commit, Path string
	Err          error
}

func (e *Error) Error() string { return fmt.Sprintf("commit %.12s, %q: %v", e.Commit, e.Path, e.Err) }

// Unwrap returns what is wrong with the file.
func (e *Error) Unwrap() error { return e.Err }

// Lines is a repository's history as lines for an import. It is to be closed.
type Lines struct {
	*io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{}
	work   *history
}

// Lines begins to read the history. Lenient leaves out files that hold no documents,
// from the commit on that made them so, where otherwise the first ends the
// stream with an *Error.
func (r *Repository) Lines(ctx context.Context, lenient bool) *Lines {
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	l := &Lines{out, cancel, make(chan struct{}), &history{
		sources: r.rules.Sources, rules: r.rules, lenient: lenient, out: bufio.NewWriterSize(in, 256<<10),
		files: map[fileID]*file{}, documents: map[documentID]*document{},
	}}
	go func() {
		defer close(l.ended)
		in.CloseWithError(l.work.run(ctx, r))
	}()
	return l
}

// Close stops what still reads.
func (l *Lines) Close() error {
	l.cancel()
	err := l.PipeReader.Close()
	<-l.ended
	return err
}

// Origin returns an error of a line with its commit and file. The stream must be closed.
// Of the lines that were read last, this many are known: more than an import has under way.
func (l *Lines) Origin(line int64, err error) error {
	if l.work.lines-line >= maxOrigins || line > l.work.lines {
		return err
	}
	at := l.work.origins[line%maxOrigins]
	return &Error{at.commit, at.path, err}
}

// LeftOut returns how often a file was left out, and why the first of them were. The
// stream must be closed.
func (l *Lines) LeftOut() (times int64, first []*Error) { return l.work.leftOut, l.work.firstOut }

// Continues checks that the newest commit that a store has in the collections of the map
// is still part of the history.
func (r *Repository) Continues(ctx context.Context, store *storage.Store) error {
	query := driver.LogQuery{Backward: true, Fields: []string{}}
	for i := range r.rules.Sources {
		name := r.rules.Sources[i].Collection
		if store.ByCollection()[name] != nil { // else the first line of it is refused
			query.Collections = append(query.Collections, name)
		}
	}
	if len(query.Collections) == 0 {
		return nil
	}
	for v, err := range store.Engine().Log(ctx, &query) {
		if err != nil {
			return err
		}
		if hash, err := hex.DecodeString(v.Group); err != nil || len(hash) != 20 && len(hash) != 32 {
			continue // not of a commit
		}
		if known, err := r.contains(ctx, v.Group); known || err != nil {
			return err
		}
		return fmt.Errorf("the store has %s %q of commit %s, which is not in the history of HEAD (along first parents): "+
			"the history was rewritten, another branch is checked out, or it is another repository; check out the branch that was imported, or import into an empty store",
			v.Collection, v.Key, v.Group)
	}
	return nil
}

// documentID names a document of the store.
type documentID struct{ collection, key string }

// document is one that exists after the commits that were read.
type document struct {
	owner *file
	sum   [sha256.Size]byte // of its data
	gone  bool              // the file of this commit that it was in holds it no more
}

// file is one that holds documents.
type file struct {
	path, key string
	holds     []documentID
	changing  bool // this commit changes it, and it was not read yet
}

// maxOrigins is of how many lines the origin is remembered: four times as many as an
// import has in batches.
const maxOrigins = 1 << 18

type origin struct{ commit, path string }

// history turns commits into lines.
type history struct {
	rules     *Map
	sources   []Source
	lenient   bool
	out       *bufio.Writer
	contents  *contents
	files     map[fileID]*file
	documents map[documentID]*document

	lines    int64
	origins  [maxOrigins]origin // of the last lines
	leftOut  int64
	firstOut []*Error
}

func (h *history) run(ctx context.Context, r *Repository) (err error) {
	if h.contents, err = r.contents(ctx); err != nil {
		return err
	}
	err = r.log(ctx, h.commit)
	if flushed := h.out.Flush(); err == nil { // also what precedes an error
		err = flushed
	}
	if closed := h.contents.close(); err == nil {
		err = closed
	}
	return err
}

// commit writes what a commit changed: first what is put, and then what is deleted.
func (h *history) commit(c *commit) error {
	for i := range c.changes {
		if f := h.files[c.changes[i].file]; f != nil {
			f.changing = true
		}
	}
	var gone []documentID
	for i := range c.changes {
		released, err := h.change(c, &c.changes[i])
		if err != nil {
			return err
		}
		gone = append(gone, released...)
	}
	for _, id := range gone {
		if d := h.documents[id]; d != nil && d.gone {
			delete(h.documents, id)
			if err := h.write(c, d.owner, id, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// change takes over what a commit did to a file, and returns the documents that it
// held and holds no more; another file of the commit may hold them.
func (h *history) change(c *commit, change *change) (gone []documentID, err error) {
	source := &h.sources[change.file.source]
	f := h.files[change.file]
	if f == nil {
		f = &file{path: change.file.path, key: change.key}
		if old := h.files[fileID{change.file.source, change.renamed}]; old != nil {
			f.key = old.key
		}
	}
	defer func() { f.changing = false }()
	var holds []documentID
	if change.deleted {
		delete(h.files, change.file)
	} else {
		entries, wrong, err := h.read(source, change, f.key)
		if err != nil {
			return nil, err
		}
		if wrong != nil { // it holds what it held
			return nil, h.refuse(c, f, wrong)
		}
		h.files[change.file] = f
		if holds, err = h.putAll(c, f, source.Collection, entries); err != nil {
			return nil, err
		}
	}
	held := make(map[documentID]bool, len(holds))
	for _, id := range holds {
		held[id] = true
	}
	for _, id := range f.holds {
		if d := h.documents[id]; d != nil && d.owner == f && !held[id] { // else another file has taken it over
			d.gone = true
			gone = append(gone, id)
		}
	}
	f.holds = holds
	return gone, nil
}

// read returns the documents of a changed file; or what is wrong with it; or an error
// of reading.
func (h *history) read(source *Source, change *change, key string) (entries []entry, wrong, err error) {
	switch change.mode {
	case "120000":
		return nil, errors.New("is a symbolic link"), nil
	case "160000":
		return nil, errors.New("is a submodule"), nil
	}
	data, err := h.contents.read(change.object)
	if errors.Is(err, errTooLarge) {
		return nil, err, nil
	} else if err != nil {
		return nil, nil, err
	}
	value, wrong := decode(change.file.path, data)
	if wrong != nil {
		return nil, wrong, nil
	}
	entries, wrong = source.documents(value, key)
	return entries, wrong, nil
}

// putAll writes those of a file's documents that are new or have changed, and returns
// those that it holds.
func (h *history) putAll(c *commit, f *file, collection string, entries []entry) (holds []documentID, err error) {
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		id := documentID{collection, e.key}
		d := h.documents[id]
		text, wrong := json.Marshal(e.data)
		if wrong == nil {
			text, wrong = normal.Object(text)
		}
		switch why := driver.KeyProblem(e.key); {
		case wrong != nil:
		case why != "":
			wrong = fmt.Errorf("the key %q %s", e.key, why)
		case seen[e.key]:
			wrong = fmt.Errorf("%s %q is there twice", collection, e.key)
		case len(text) > maxFile:
			wrong = errTooLarge
		case d != nil && d.owner != f && !d.owner.changing && !d.gone:
			wrong = fmt.Errorf("%s %q is in %q, too", collection, e.key, d.owner.path)
		}
		if wrong != nil {
			if err := h.refuse(c, f, wrong); err != nil {
				return nil, err
			}
			if d != nil && d.owner == f && !seen[e.key] { // as it was
				seen[e.key], holds = true, append(holds, id)
			}
			continue
		}
		seen[e.key] = true
		holds = append(holds, id)
		sum := sha256.Sum256(text)
		if d == nil {
			d = new(document)
			h.documents[id] = d
		}
		same := d.sum == sum
		*d = document{owner: f, sum: sum}
		if same {
			continue
		}
		if err := h.write(c, f, id, text); err != nil {
			return nil, err
		}
	}
	return holds, nil
}

// maxFirst is how many of the files that are left out are named.
const maxFirst = 3

// refuse returns the error of a file that holds no document, or leaves it out.
func (h *history) refuse(c *commit, f *file, why error) error {
	wrong := &Error{c.hash, f.path, why}
	if !h.lenient {
		wrong.Err = fmt.Errorf("%w; let the map name other files, or import with --lenient to leave it out from this commit on until another mends it", why)
		return wrong
	}
	if h.leftOut++; len(h.firstOut) < maxFirst {
		h.firstOut = append(h.firstOut, wrong)
	}
	return nil
}

// write writes the line of one version; without data the document is deleted.
func (h *history) write(c *commit, f *file, id documentID, data json.RawMessage) error {
	h.lines++
	h.origins[h.lines%maxOrigins] = origin{c.hash, f.path}
	line := struct {
		Collection string          `json:"collection"`
		ID         string          `json:"id"`
		At         string          `json:"at"`
		By         string          `json:"by"`
		Message    string          `json:"message"`
		Source     string          `json:"source"`
		Op         string          `json:"op"`
		Data       json.RawMessage `json:"data,omitempty"`
	}{id.collection, id.key, c.at.String(), h.rules.authorOf(c), clip(c.message, storage.MaxMessage), c.hash, "put", data}
	if data == nil {
		line.Op = "delete"
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = h.out.Write(append(text, '\n'))
	return err
}

// authorOf returns who made a commit: the name given to its address or name in the map,
// else what the map says.
func (m *Map) authorOf(c *commit) string {
	by := cmp.Or(c.author, c.email, "unknown")
	if m.Author == "email" {
		by = cmp.Or(c.email, by)
	}
	return clip(cmp.Or(m.Authors[c.email], m.Authors[c.author], by), storage.MaxAuthor)
}

// clip returns a text in UTF-8 without the space around it, and of at most so many bytes.
func clip(text string, most int) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
