package sqlitestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/asof/asof/storage/driver"
)

// lease is an instant that no reader was given a later one than, noted in the
// lock file before. After a process was killed, commits begin behind it, so
// that an instant that was only read at, and is in no table, does not get a
// commit when the clock was set back meanwhile. A clock that was not set back
// passes the lease within clock.Bound; until then the store's runs before it,
// by no more however often the process is killed.
//
// It is one write to the system's memory, not to the disk: it survives the end
// of the process, as the lock goes with it. After a power cut, the times of
// commits hold, and those of reads as far as the system had written the note.
// The note is beside the tables so that a reader waits neither for the writer
// nor for the disk.
type lease struct {
	file io.WriterAt
	log  *slog.Logger
	// failed is the last error that was logged, so that a broken disk is
	// reported once and not by every read.
	failed string
}

// The note is the instant and, so that no other content is taken for one, its
// complement.
const leaseBytes = 16

// extend makes the lease cover instants up to one. Where it cannot be noted,
// that is logged and reads go on: what is lost is the safety from a kill
// together with a clock that goes back.
func (l *lease) extend(until driver.Instant) {
	err := l.note(until)
	text := fmt.Sprint(err)
	if err != nil && text != l.failed {
		l.log.Error("noting up to which instant was read failed; if the process is killed and the clock set back, a commit may get a time that was read at", "error", err)
	}
	l.failed = text
}

func (l *lease) note(t driver.Instant) error {
	var note [leaseBytes]byte
	binary.BigEndian.PutUint64(note[:8], uint64(t))
	binary.BigEndian.PutUint64(note[8:], ^uint64(t))
	_, err := l.file.WriteAt(note[:], 0)
	return err
}

// readLease returns what a process before noted; 0 where none did, or it
// closed the store.
func readLease(f *os.File) (driver.Instant, error) {
	var note [leaseBytes]byte
	if _, err := f.ReadAt(note[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil // a lock file as it is made
		}
		return 0, driver.Errorf(driver.CodeUnavailable, "cannot read %s: %w", f.Name(), err)
	}
	t := binary.BigEndian.Uint64(note[:8])
	if binary.BigEndian.Uint64(note[8:]) != ^t || t >= uint64(driver.Forever) {
		return 0, nil
	}
	return driver.Instant(t), nil
}
