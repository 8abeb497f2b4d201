package sqlitestore

import "github.com/asof/asof/storage/driver"

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
