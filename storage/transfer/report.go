package transfer

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/storage/driver"
)

// ImportReport says what an import did, whether or not it came to the end.
type ImportReport struct {
	Added   int64 // versions that the store did not have
	Skipped int64 // versions that it had
	Ignored int64 // lines of unknown collections that were left out
	// Remarks say what was kept although the schema does not cover it, with
	// how often, by collection, path and problem.
	Remarks []Remark
	// MoreRemarks counts what did not fit into Remarks any more.
	MoreRemarks int64
	// Past is set where versions were added to a store that held some already:
	// what was read at an instant before it is as it was, and what was read at a
	// later one may read differently now.
	Past driver.Instant
	// Stopped says that the import ended with an error.
	Stopped bool
	// Suspect says that the compressed data is damaged: its checksum is at its
	// end, and so what was added before that was known may be wrong.
	Suspect bool
	// Unchecked says that the import stopped before the checksum of compressed data.
	Unchecked bool

	index map[remark]int // into Remarks
}

// Remark is something that the schema does not cover, in Count versions.
type Remark struct {
	Collection string
	// Path is made of stored names, with dots, where the schema lacks a member.
	Path string
	// Problem says which value that does not fit the schema Lenient kept; it is empty
	// for a member that the schema does not declare.
	Problem string
	// Readable says that such a value can be read all the same.
	Readable bool
	Count    int64
}

// remark identifies a Remark.
type remark struct {
	collection, path, problem string
	readable                  bool
}

// maxRemarks bounds how many different remarks are counted separately.
const maxRemarks = 1000

// remark counts a remark.
func (r *ImportReport) remark(m remark) {
	i, ok := r.index[m]
	switch {
	case ok:
		r.Remarks[i].Count++
	case len(r.Remarks) < maxRemarks:
		if r.index == nil {
			r.index = make(map[remark]int)
		}
		r.index[m] = len(r.Remarks)
		r.Remarks = append(r.Remarks, Remark{Collection: m.collection, Path: m.path, Problem: m.problem, Readable: m.readable, Count: 1})
	default:
		r.MoreRemarks++
	}
}

// Print writes the report in sentences, one to a line.
func (r *ImportReport) Print(w io.Writer) error {
	p := printer{w: w}
	p.line("%s added, %d already there", versions(r.Added), r.Skipped)
	if r.Ignored > 0 {
		p.line("%s of collections that the schema does not declare left out", versions(r.Ignored))
	}
	remarks := slices.SortedFunc(slices.Values(r.Remarks), func(a, b Remark) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.Path, b.Path))
	})
	for _, m := range remarks {
		switch {
		case m.Problem == "":
			p.line("%s.%s is not declared in the schema: kept in %s, not visible to GraphQL", m.Collection, shownPath(m.Path), versions(m.Count))
		case m.Readable:
			p.line("%s %s: kept in %s, can be read, not written", m.Collection, m.Problem, versions(m.Count))
		default:
			p.line("%s %s: kept in %s, reading it is an error", m.Collection, m.Problem, versions(m.Count))
		}
	}
	if r.MoreRemarks > 0 {
		p.line("and %d more of that kind", r.MoreRemarks)
	}
	if r.Past != 0 {
		p.line("the store held versions already, and this adds to its past: what was read as of %s or later may read differently now", r.Past)
	}
	switch {
	case r.Suspect:
		p.line("the import stopped; what it added is kept, and may be wrong, as damage is noticed late: go back to a copy of the store, or to an empty one, before you import again")
	case r.Unchecked && r.Added > 0:
		p.line("the import stopped before the checksum of the compressed file; what it added is kept, and importing again skips it, unless gzip -t or zstd -t says that the file is damaged: then go back to a copy of the store")
	case r.Stopped:
		p.line("the import stopped; what it added is kept, and importing again skips it")
	}
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// mostShown is how many bytes of a path are shown: names within objects may be long.
const mostShown = 200

// shownPath is a path with quotes where a terminal would not show it as it is.
func shownPath(path string) string {
	if len(path) > mostShown {
		path = strings.ToValidUTF8(path[:mostShown], "") + "…"
	}
	if quoted := strconv.Quote(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

func versions(n int64) string {
	if n == 1 {
		return "1 version"
	}
	return fmt.Sprintf("%d versions", n)
}

// Progress says how far an import or an export is.
type Progress struct {
	Lines int64 // lines kept, or written
	// Bytes is what was read of the file as it is stored (compressed), or what
	// was written before compression.
	Bytes int64
}

// Meter draws progress as one line that is written over and over. It is meant
// for a terminal, and for one goroutine.
type Meter struct {
	w      io.Writer
	now    func() time.Time
	verb   string
	total  int64
	start  time.Time
	drawn  time.Time
	length int
}

// NewMeter makes a meter. The total is the size of the file in bytes, 0 if
// that is not known.
func NewMeter(w io.Writer, now func() time.Time, verb string, total int64) *Meter {
	t := now()
	return &Meter{w: w, now: now, verb: verb, total: total, start: t, drawn: t}
}

// redrawAfter is the least time between two drawings.
const redrawAfter = 200 * time.Millisecond

// Update draws, unless that was done just before.
func (m *Meter) Update(p Progress) {
	now := m.now()
	if now.Sub(m.drawn) < redrawAfter {
		return
	}
	m.drawn = now
	rate := float64(p.Lines) / now.Sub(m.start).Seconds()
	text := fmt.Sprintf("%s %d versions, %.0f/s", m.verb, p.Lines, rate)
	if m.total > 0 {
		text += fmt.Sprintf(", %.0f%%", 100*float64(min(p.Bytes, m.total))/float64(m.total))
	}
	m.draw(text)
}

// Clear removes what was drawn, so that other text can follow.
func (m *Meter) Clear() {
	if m.length > 0 {
		m.draw("")
	}
}

func (m *Meter) draw(text string) {
	// Spaces cover what the line before had more; errors of a terminal are not
	// worth stopping for.
	_, _ = fmt.Fprintf(m.w, "\r%-*s\r%s", m.length, "", text)
	m.length = len(text)
}
