package sqlitestore

import (
	"encoding/binary"
	"sync"

	"github.com/asof/asof/storage/driver"
)

// feed tells watchers how far the order of arrival has got.
type feed struct {
	mu   sync.Mutex
	end  turn          // of the last version that arrived
	wake chan struct{} // closed when the end moves; nil: nobody waits
	shut bool

	watches int
	recent  recent
}

// look returns the end, and a channel that is closed when it moves on, or when
// the store closes.
func (f *feed) look() (turn, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wake == nil {
		f.wake = make(chan struct{})
		if f.shut {
			close(f.wake)
		}
	}
	return f.end, f.wake
}

// move notes where the end is now, and the commits that led there.
func (f *feed) move(end turn, commits []arrived) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(f.end, end, commits)
	f.end = end
	if f.wake != nil && !f.shut {
		close(f.wake)
		f.wake = nil
	}
}

// close wakes all watchers for the last time.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shut && f.wake != nil {
		close(f.wake)
	}
	f.shut = true
}

// arriving is what the writer knows of the order of arrival. What a transaction
// adds counts once it has landed.
type arriving struct {
	stored, next arrivingState
	commits      []arrived
	runs         []byte // of the load that is being written
	documents    int    // in runs
	last         docID  // in runs
	row          int64  // the last in runs
}

type arrivingState struct {
	end  turn  // of the last version
	live int64 // when the last commit was
}

// runsDocuments is how many documents a row of table loads is about at most, so
// that reading one is cheap.
const runsDocuments = 4096

// commit notes a commit.
func (a *arriving) commit(v *driver.Version) {
	a.next.live = int64(v.RecordedAt)
	a.next.end = turn{load: a.next.end.load, at: a.next.live}
	a.commits = append(a.commits, arrived{a.next.end, v})
}

// reset forgets what a transaction that failed has noted.
func (a *arriving) reset() {
	*a = arriving{stored: a.stored, next: a.stored, runs: a.runs[:0], commits: a.commits[:0]}
}

// landed says that the transaction has happened, before those who wait for it
// are told.
func (w *writer) landed() {
	a := &w.arriving
	if a.stored != a.next {
		a.stored = a.next
		w.store.feed.move(a.stored.end, a.commits)
	}
	clear(a.commits)
	a.commits = a.commits[:0]
}

// loaded notes what a load adds to a document. It is called in the order of
// the documents.
func (w *writer) loaded(st *state) error {
	a := &w.arriving
	first, count := st.written+1, int64(len(st.unwritten))
	late := int64(0)
	for late < count && int64(st.unwritten[late].RecordedAt) <= a.next.live {
		late++
	}
	if late > 0 {
		if _, err := w.integer(`INSERT INTO late(first, last) VALUES(?1, ?2)`, st.id.version(first), st.id.version(first+late-1)); err != nil {
			return err
		}
	}
	return w.addRun(st.id, first, count)
}

// addRun adds versions of a document to the load that is being written.
func (w *writer) addRun(doc docID, first, count int64) error {
	a := &w.arriving
	if a.documents == runsDocuments {
		if err := w.flushRuns(); err != nil {
			return err
		}
	}
	a.runs = binary.AppendUvarint(a.runs, uint64(doc-a.last))
	a.runs = binary.AppendUvarint(a.runs, uint64(first))
	a.runs = binary.AppendUvarint(a.runs, uint64(count))
	a.last, a.row = doc, doc.version(first+count-1)
	a.documents++
	return nil
}

// flushRuns writes a row of table loads.
func (w *writer) flushRuns() error {
	a := &w.arriving
	if a.documents == 0 {
		return nil
	}
	latest := driver.Instant(0)
	for _, coll := range w.store.collections {
		latest = max(latest, coll.last)
	}
	s, err := w.Prepare(`INSERT INTO loads(id, at, latest, runs) VALUES(?1, ?2, ?3, ?4)`)
	if err != nil {
		return err
	}
	a.next.end = turn{load: a.next.end.load + 1, row: a.row}
	s.BindInt64(1, a.next.end.load)
	s.BindInt64(2, a.next.live)
	s.BindInt64(3, int64(latest))
	s.BindBytes(4, a.runs)
	_, err = s.Step()
	a.runs, a.documents, a.last = a.runs[:0], 0, 0
	return finish(s, err)
}

// rowRun is a stretch of rows of one document.
type rowRun struct{ first, last int64 }

// decodeRuns reads what addRun has written.
func decodeRuns(b []byte) ([]rowRun, error) {
	var runs []rowRun
	doc := uint64(0)
	for len(b) > 0 {
		var n [3]uint64
		for i := range n {
			size := 0
			if n[i], size = binary.Uvarint(b); size <= 0 {
				return nil, internalf("the record of a load is damaged")
			}
			b = b[size:]
		}
		doc += n[0]
		first := docID(doc).version(int64(n[1]))
		runs = append(runs, rowRun{first, first + int64(n[2]) - 1})
	}
	return runs, nil
}
