package sqlitestore

import (
	"context"
	"errors"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// wrap gives an error of SQLite or of a context the code that driver.Engine
// promises, and says what was being done. Errors that have a code keep it.
func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	var coded *driver.Error
	var conflict *driver.ConflictError
	var load *driver.LoadError
	if errors.As(err, &coded) || errors.As(err, &conflict) || errors.As(err, &load) {
		return err
	}
	return withRefusal(err, classified(err, doing))
}

// uncommitted is an error of a transaction before it was told to commit: nothing
// of it is in the database, whatever happens.
type uncommitted struct{ error }

func (u uncommitted) Unwrap() error { return u.error }

// withRefusal says to clients why nothing was written, where that is certain: of a
// transaction that was not told to commit, and of one that found no room, as
// what makes it valid is written last.
func withRefusal(err error, coded *driver.Error) *driver.Error {
	if coded.Code != driver.CodeUnavailable {
		return coded
	}
	var before uncommitted
	certain := errors.As(err, &before)
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull:
		return driver.Refused("the store takes no writes now: its disk is full", coded)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		if certain {
			return driver.Refused("the store takes no writes now: its file cannot be written", coded)
		}
	case sqlite.ResultBusy, sqlite.ResultLocked:
		if certain {
			return driver.Refused("the store takes no writes now: another program holds its file", coded)
		}
	default:
		if certain {
			return driver.Refused("the store takes no writes now: its disk fails", coded)
		}
	}
	return coded
}

// unsure is the error of a write that was refused, but which was part of a
// transaction that may have happened.
func unsure(err error) error {
	if driver.RefusalOf(err) == "" {
		return err
	}
	return driver.Errorf(driver.CodeOf(err), "%s", err)
}

// classified gives an error that has no code one.
func classified(err error, doing string) *driver.Error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return driver.Errorf(driver.CodeUnavailable, "%s: %w", doing, err)
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull:
		return driver.Errorf(driver.CodeUnavailable, "%s: the disk is full, nothing was written; make room and try again: %w", doing, err)
	case sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultInterrupt, sqlite.ResultCantOpen, sqlite.ResultProtocol, sqlite.ResultNoMem:
		return driver.Errorf(driver.CodeUnavailable, "%s: %w", doing, err)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		return driver.Errorf(driver.CodeUnavailable, "%s: the database cannot be written; check the permissions of the file and its directory: %w", doing, err)
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return driver.Errorf(driver.CodeInternal, "%s: the database file is damaged; restore it from a backup: %w", doing, err)
	case sqlite.ResultTooBig:
		return driver.Errorf(driver.CodeInvalid, "%s: the document is too large: %w", doing, err)
	default:
		return driver.Errorf(driver.CodeInternal, "%s: %w", doing, err)
	}
}

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

func internalf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInternal, format, args...)
}
