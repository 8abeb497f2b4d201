package transfer

import (
	"fmt"
	"io"
	"time"
)

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
