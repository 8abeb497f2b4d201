package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base32"
	"encoding/binary"
	"iter"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
)

// The order of arrival.
//
// Commits arrive in the order of their times, which strictly increase. What one
// Load adds arrives together, between two commits. So the place of a version
// is made of three numbers:
//
//	{load, at, 0}   a commit at an instant, after so many loads
//	{load, 0, row}  a version that the load brought, by its row
//
// Table loads has a row for each load, with the runs of rows that it brought
// (a load of very many documents has several). A column at says when the last
// commit before the load was, and latest, what the latest time in the store was
// after it: the commits between two loads are those in (latest, at of the
// next]. Loaded versions whose times lie there, too, are listed in table late,
// which is empty unless history was loaded into a store that already had
// commits of that time.
type turn struct{ load, at, row int64 }

func (t turn) compare(o turn) int {
	return cmp.Or(cmp.Compare(t.load, o.load), cmp.Compare(t.at, o.at), cmp.Compare(t.row, o.row))
}

// storeID tells a store from all others. It is chosen when the file is made.
type storeID [16]byte

const turnBytes = 3 * 8

// positions are written so that they compare as the turns do.
var positionEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// position writes a turn for others to keep.
func (id storeID) position(t turn) driver.WatchPosition {
	b := make([]byte, 0, len(id)+turnBytes)
	b = append(b, id[:]...)
	for _, n := range []int64{t.load, t.at, t.row} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return driver.WatchPosition(positionEncoding.EncodeToString(b))
}

// turn reads a position.
func (id storeID) turn(p driver.WatchPosition) (turn, error) {
	b, err := positionEncoding.DecodeString(string(p))
	if err != nil || positionEncoding.EncodeToString(b) != string(p) || len(b) < len(id) {
		return turn{}, invalidf("%q is not a position of a watch", shorten(string(p)))
	}
	if !bytes.Equal(b[:len(id)], id[:]) {
		return turn{}, invalidf("the position is of another store; begin from now, or from the beginning")
	}
	b = b[len(id):]
	if len(b) != turnBytes {
		return turn{}, invalidf("%q is not a position of a watch", shorten(string(p)))
	}
	n := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	t := turn{n(0), n(1), n(2)}
	if t.load < 0 || t.at < 0 || t.row < 0 {
		return turn{}, invalidf("%q is not a position of a watch", shorten(string(p)))
	}
	return t, nil
}

func shorten(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// Watch implements driver.Engine. A watcher reads a stretch at a time and holds
// nothing of the file in between; at the end it sleeps until the writer wakes
// it. Any position stays good for as long as the file is there.
func (s *Store) Watch(ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
	return func(yield func(driver.Arrival, error) bool) {
		if err := s.watch(ctx, q, yield); err != nil {
			yield(driver.Arrival{}, wrap(err, "watching"))
		}
	}
}

func (s *Store) watch(ctx context.Context, q *driver.WatchQuery, yield func(driver.Arrival, error) bool) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	if err := s.ordered(); err != nil {
		return err
	}
	r, err := s.newArrivals(q)
	if err != nil {
		return err
	}
	if !yield(driver.Arrival{Position: s.id.position(r.at)}, nil) {
		return nil
	}
	told := r.at
	s.feed.join()
	defer s.feed.leave()
	for {
		// In this order nothing is missed: what comes after the look wakes.
		end, wake := s.feed.look()
		for more := r.at.compare(end) < 0; more; {
			if err := s.alive(ctx); err != nil {
				return err
			}
			var list []arrived
			if recent, ok := r.recent(); ok {
				list, more = recent, r.at.compare(end) < 0
			} else if list, more, err = r.read(ctx); err != nil {
				return err
			}
			for _, a := range list {
				if err := s.alive(ctx); err != nil {
					return err
				}
				if told = a.turn; !yield(driver.Arrival{Position: s.id.position(told), Version: a.version}, nil) {
					return nil
				}
			}
		}
		// All there was has been read; the rest is not what the watch is about.
		if r.at.compare(end) < 0 {
			r.at = end
		}
		if told.compare(r.at) < 0 {
			if told = r.at; !yield(driver.Arrival{Position: s.id.position(told)}, nil) {
				return nil
			}
		}
		select {
		case <-wake:
			if err := s.alive(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return wrap(ctx.Err(), "watching")
		}
	}
}

// newArrivals checks a query, and returns what reads for it.
func (s *Store) newArrivals(q *driver.WatchQuery) (*arrivals, error) {
	r := &arrivals{store: s, colls: s.collections, stretch: firstArrivals}
	if len(q.Collections) > 0 {
		r.colls = nil
		for _, name := range q.Collections {
			coll, err := s.collection(name)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(r.colls, coll) {
				r.colls = append(r.colls, coll)
			}
		}
	}
	end, _ := s.feed.look()
	switch {
	case q.After != "" && q.FromNow:
		return nil, invalidf("a watch begins behind a position or from now, not both")
	case q.FromNow:
		r.at = end
	case q.After != "":
		var err error
		if r.at, err = s.id.turn(q.After); err != nil {
			return nil, err
		}
		if r.at.compare(end) > 0 {
			return nil, invalidf("the position is ahead of the store, which was perhaps restored from an older copy; begin from now, or from the beginning")
		}
	}
	return r, nil
}

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

// recent is what arrived last, for the watches that are awake: they share what
// the writer has made instead of each reading it from the file. It is bounded,
// and kept only while there are watches; a watch that is behind it reads.
type recent struct {
	from  turn // all that arrived behind it is here
	list  []arrived
	bytes int
}

// Bounds of recent, and of what a watch takes of it at a time.
const (
	recentVersions = 512
	recentBytes    = 4 << 20
	takenVersions  = 64
)

// add adds commits, the first of which follows on the turn before.
func (r *recent) add(before turn, commits []arrived) {
	if len(r.list) == 0 {
		r.from = before
	}
	for _, a := range commits {
		r.list = append(r.list, a)
		r.bytes += len(a.version.Data)
	}
	for len(r.list) > recentVersions || r.bytes > recentBytes {
		r.from = r.list[0].turn
		r.bytes -= len(r.list[0].version.Data)
		r.list[0] = arrived{}
		r.list = r.list[1:]
	}
}

// behind returns some of what arrived behind a turn; ok: nothing is missing
// before it.
func (r *recent) behind(t turn) (list []arrived, ok bool) {
	if len(r.list) == 0 || t.compare(r.from) < 0 {
		return nil, false
	}
	// Watches are near the end.
	first := len(r.list)
	for first > 0 && r.list[first-1].turn.compare(t) > 0 {
		first--
	}
	size := 0
	for _, a := range r.list[first:min(len(r.list), first+takenVersions)] {
		list = append(list, a)
		if size += len(a.version.Data); size > arrivalBytes {
			break
		}
	}
	return list, true
}

// take returns what is next for a watch from memory; ok: there is no need to
// read the file.
func (f *feed) take(t turn) (list []arrived, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recent.behind(t)
}

// join is called by a watch that begins, and leave by one that ends.
func (f *feed) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches++
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches--; f.watches == 0 {
		f.recent = recent{}
	}
}

// keep keeps commits for the watches that there are. A load ends what is kept.
func (f *feed) keep(before, end turn, commits []arrived) {
	switch {
	case f.watches == 0:
	case len(commits) == 0 || commits[len(commits)-1].turn != end:
		f.recent = recent{}
	default:
		f.recent.add(before, commits)
	}
}

// recent returns the next versions for a watch from memory, if they are there.
func (r *arrivals) recent() (list []arrived, ok bool) {
	all, ok := r.store.feed.take(r.at)
	if !ok || len(all) == 0 {
		return nil, false
	}
	for _, a := range all {
		if r.wants(a.version) {
			list = append(list, a)
		}
	}
	r.at = all[len(all)-1].turn
	return list, true
}

func (r *arrivals) wants(v *driver.Version) bool {
	for _, coll := range r.colls {
		if coll.name == v.Collection {
			return true
		}
	}
	return false
}
