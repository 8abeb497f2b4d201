package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base32"
	"encoding/binary"
	"iter"
	"slices"

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
