package dataloader

import (
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// Levels is a loader for one goroutine that follows references level by level: the
// caller names all documents that a level refers to (Want), and reads them then
// (Missing, Fill). A document is read once for each instant. The zero value is
// ready for use.
type Levels struct {
	cohorts  map[cohortKey]*cohort
	order    []*cohort // as they were first met
	last     *cohort
	loaded   int
	followed int
}

// cohort is the documents of one type that are read at one instant.
type cohort struct {
	cohortKey
	places map[string]int
	keys   []string
	docs   []*storage.Document // of the first keys; the others are still to be read
}

type cohortKey struct {
	t      *storage.Type
	at     driver.Instant
	pinned bool
}

// Place is where a document will be.
type Place struct {
	in *cohort
	n  int
}

// Wanted reports whether the document is still to be read.
func (p Place) Wanted() bool { return p.n >= len(p.in.docs) }

// Document is what was read; nil for one that does not exist.
func (p Place) Document() *storage.Document { return p.in.docs[p.n] }

// Want appends to places those of the documents of type t with the keys, as of an
// instant; pinned says that an argument named it. It returns an error, and has
// added no place, where an operation may not load or follow so many.
func (l *Levels) Want(places []Place, t *storage.Type, at driver.Instant, pinned bool, keys [][]byte) ([]Place, error) {
	c := l.cohort(cohortKey{t, at, pinned})
	known, before := len(c.keys), len(places)
	if err := l.Follow(len(keys)); err != nil {
		return places, err
	}
	for _, key := range keys {
		n, there := c.places[string(key)]
		if !there {
			if l.loaded >= MaxDocs {
				l.forget(c, known)
				return places[:before], errTooMany()
			}
			l.loaded++
			n = len(c.keys)
			c.keys = append(c.keys, string(key))
			c.places[c.keys[n]] = n
		}
		places = append(places, Place{c, n})
	}
	return places, nil
}

// Follow counts references, and what costs as much as one. Once it has returned
// an error it always does.
func (l *Levels) Follow(n int) error {
	if l.followed += n; l.Full() {
		return errTooMany()
	}
	return nil
}

// Full reports whether Follow refuses more.
func (l *Levels) Full() bool { return l.followed > MaxFollowed }

func (l *Levels) cohort(k cohortKey) *cohort {
	if l.last != nil && l.last.cohortKey == k {
		return l.last
	}
	c := l.cohorts[k]
	if c == nil {
		c = &cohort{cohortKey: k, places: map[string]int{}}
		if l.cohorts == nil {
			l.cohorts = map[cohortKey]*cohort{}
		}
		l.cohorts[k], l.order = c, append(l.order, c)
	}
	l.last = c
	return c
}

// forget drops the keys from a place on, so that they can be wanted again.
func (l *Levels) forget(c *cohort, from int) {
	for _, key := range c.keys[from:] {
		delete(c.places, key)
	}
	l.loaded -= len(c.keys) - from
	c.keys = c.keys[:from]
}

// Missing are the documents of a type that are wanted and were not read.
func (l *Levels) Missing(t *storage.Type) []storage.KeyAt {
	var missing []storage.KeyAt
	for _, c := range l.order {
		if c.t != t {
			continue
		}
		for _, key := range c.keys[len(c.docs):] {
			missing = append(missing, storage.KeyAt{Key: key, At: c.at, Pinned: c.pinned})
		}
	}
	return missing
}

// Fill stores the documents that were Missing, in that order. Nil says that they
// could not be read: they are dropped and can be wanted again.
func (l *Levels) Fill(t *storage.Type, docs []*storage.Document) {
	for _, c := range l.order {
		n := len(c.keys) - len(c.docs)
		switch {
		case c.t != t || n == 0:
		case docs == nil:
			l.forget(c, len(c.docs))
		default:
			c.docs, docs = append(c.docs, docs[:n]...), docs[n:]
		}
	}
}

// Reset forgets all documents.
func (l *Levels) Reset() {
	clear(l.order)
	*l = Levels{order: l.order[:0]}
}
