package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

func (m *model) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// All or nothing: on an error the documents are put back.
	type document struct{ collection, key string }
	before := make(map[document][]*driver.Version)
	floor, now := m.floor, m.now()
	var result driver.LoadResult
	for i := range vs {
		d := document{vs[i].Collection, vs[i].Key}
		if _, saved := before[d]; !saved {
			before[d] = slices.Clone(m.documents[d.collection][d.key])
		}
		added, err := m.loadOne(&vs[i], now)
		switch {
		case err != nil:
			m.floor = floor
			for d, versions := range before {
				if len(versions) == 0 {
					delete(m.documents[d.collection], d.key)
				} else {
					m.documents[d.collection][d.key] = versions
				}
			}
			return driver.LoadResult{}, &driver.LoadError{Index: i, Err: err}
		case added:
			result.Added++
		default:
			result.Skipped++
		}
	}
	if result.Added > 0 {
		m.floor = max(m.floor+1, driver.InstantOf(m.clock()))
		m.loaded = m.floor
	}
	return result, nil
}

func (m *model) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	versions := m.documents[collection][key]
	for i := range vs {
		if vs[i].Number >= int64(len(versions)) {
			return driver.Errorf(driver.CodeInvalid, "%q has no earlier version %d", key, vs[i].Number)
		}
	}
	for i := range vs {
		to := vs[i]
		was := versions[to.Number-1]
		if to.Seal != nil && !bytes.Equal(to.Seal, was.Seal) {
			continue
		}
		to.Collection, to.Key, to.RecordedAt, to.SupersededAt = collection, key, was.RecordedAt, was.SupersededAt
		to.Seal, to.Schema = seal.Rewritten(was, &to), 0
		to.Changed, to.Data = slices.Clone(to.Changed), bytes.Clone(to.Data)
		versions[to.Number-1] = &to
	}
	return nil
}

func (m *model) loadOne(v *driver.Version, now driver.Instant) (added bool, err error) {
	for _, there := range m.documents[v.Collection][v.Key] {
		if there.RecordedAt != v.RecordedAt {
			continue
		}
		if v.Number != 0 && v.Number != there.Number {
			return false, fmt.Errorf("%s %q: the version of %s is number %d, not %d",
				v.Collection, v.Key, v.RecordedAt, there.Number, v.Number)
		}
		if !sameContent(there, v) {
			return false, fmt.Errorf("%s %q: another version of %s is there already", v.Collection, v.Key, v.RecordedAt)
		}
		return false, nil
	}
	last := m.last(v.Collection, v.Key)
	switch {
	case v.RecordedAt > now:
		return false, fmt.Errorf("%s %q: %s is in the future", v.Collection, v.Key, v.RecordedAt)
	case last != nil && v.RecordedAt < last.RecordedAt:
		return false, fmt.Errorf("%s %q: %s is not after the last version, of %s",
			v.Collection, v.Key, v.RecordedAt, last.RecordedAt)
	case v.Number != 0 && v.Number != numberOf(last)+1:
		return false, fmt.Errorf("%s %q: number %d does not follow number %d", v.Collection, v.Key, v.Number, numberOf(last))
	}
	loaded := *v
	loaded.Changed, loaded.Data, loaded.Seal = slices.Clone(v.Changed), bytes.Clone(v.Data), bytes.Clone(v.Seal)
	loaded.Number = numberOf(last) + 1
	if v.Seal != nil {
		if err := seal.Verify(sealOf(last), &loaded); err != nil {
			return false, fmt.Errorf("%s %q: version %d %w", v.Collection, v.Key, loaded.Number, err)
		}
	}
	m.add(&loaded, 0)
	return true, nil
}

// sameContent compares what a version says, not how it came about: Op and
// Changed are left out, because a load sets them anew; as far as all of it is there.
func sameContent(a, b *driver.Version) bool {
	return seal.Same(a, b) || a.Deleted == b.Deleted && a.Author == b.Author && a.Message == b.Message &&
		a.Group == b.Group && bytes.Equal(a.Data, b.Data)
}
