package sqlitestore

import (
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// checkedAhead is the check of what is loaded, beside the writer and ahead of
// him: most of it is reading the data once more.
type checkedAhead struct {
	parts []checkedPart
	quit  chan struct{}
}

// checkedPart is a run of checkedVersions versions.
type checkedPart struct {
	done  chan struct{} // closed when the rest is final
	first int           // the version that is refused; -1: none is
	err   error
}

const checkedVersions = 512

// checkAhead begins to check versions.
func (s *Store) checkAhead(vs []driver.Version) *checkedAhead {
	a := &checkedAhead{parts: make([]checkedPart, (len(vs)+checkedVersions-1)/checkedVersions), quit: make(chan struct{})}
	for i := range a.parts {
		a.parts[i] = checkedPart{done: make(chan struct{}), first: -1}
	}
	go func() {
		for i := range a.parts {
			part, from := &a.parts[i], i*checkedVersions
			for k := range vs[from:min(from+checkedVersions, len(vs))] {
				if err := s.checkLoad(&vs[from+k]); err != nil {
					part.first, part.err = from+k, err
					break
				}
			}
			close(part.done)
			select {
			case <-a.quit:
				for k := range a.parts[i+1:] {
					close(a.parts[i+1+k].done)
				}
				return
			default:
			}
		}
	}()
	return a
}

// check returns why a version is refused. Versions are asked for in their order,
// and none behind one that is.
func (a *checkedAhead) check(i int) error {
	part := &a.parts[i/checkedVersions]
	if i%checkedVersions == 0 {
		<-part.done
	}
	if part.first == i {
		return part.err
	}
	return nil
}

// end returns when the versions are not read any more.
func (a *checkedAhead) end() {
	close(a.quit)
	<-a.parts[len(a.parts)-1].done
}

func (s *Store) checkLoad(v *driver.Version) error {
	if _, err := s.collection(v.Collection); err != nil {
		return err
	}
	return check.Loaded(v)
}
