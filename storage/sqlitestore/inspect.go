package sqlitestore

import (
	"github.com/asof/asof/storage/driver"
)

// asItIs reads what the writer keeps in memory of a file that keeps its format,
// its collections and its indexes (see Options.Inspect).
func (s *Store) asItIs() error {
	version, err := s.writer.integer("PRAGMA user_version")
	if err != nil {
		return err
	}
	if version == 0 {
		return invalidf("the file is empty, and no store yet")
	}
	if err := s.readDeclarations(); err != nil {
		return err
	}
	s.addUnknown()
	return s.readLoaded()
}

// addUnknown makes declared collections that the file does not have known for
// reads, which find nothing in them.
func (s *Store) addUnknown() {
	const free = 0 // no collection of a file has it: ids begin at 1
	for _, decl := range s.opts.Collections {
		if s.byName[decl.Name] == nil {
			s.byName[decl.Name] = newCollection(free, decl.Name)
		}
	}
}

// inspecting refuses writes where the store is only looked at.
func (s *Store) inspecting() error {
	if !s.opts.Inspect {
		return nil
	}
	return driver.Refused("the store takes no writes: it is only looked at",
		driver.Errorf(driver.CodeInvalid, "the store was opened to be looked at, and takes no writes"))
}
