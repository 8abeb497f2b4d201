package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/asof/asof/internal/gitimport"
	"github.com/asof/asof/storage/transfer"
)

// importFile adds the versions in a file, or in the history of a git repository, to the store.
func (m *Main) importFile(ctx context.Context) (err error) {
	f := &m.flags.Import
	if (f.File == "") == (f.Git == "") {
		return usageError{errors.New("import needs <file>, or --git and --map, and not both")}
	}
	var in io.ReadCloser
	var length int64
	var repository *gitimport.Repository
	if f.Git == "" {
		in, length, err = m.open(f.File)
	} else {
		repository, err = openRepository(ctx, f)
	}
	if err != nil {
		return err
	}
	defer func() {
		if in != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	var lines *gitimport.Lines
	if repository != nil {
		if err := repository.Continues(ctx, store); err != nil {
			return fmt.Errorf("import of %s: %w", f.Git, errors.Join(err, store.Engine().Close()))
		}
		lines = repository.Lines(ctx, f.Lenient)
		in = lines
	}
	options := transfer.ImportOptions{Name: f.File, Lenient: f.Lenient, SkipUnknown: f.SkipUnknown}
	progress, clear := m.meter("imported", length)
	options.Progress = progress
	report, err := transfer.Import(ctx, store, in, options)
	clear()
	// What is reported is durable: the last batches are when the store is closed.
	if closed := store.Engine().Close(); closed != nil {
		return errors.Join(err, closed)
	}
	if lines != nil {
		err = m.printLeftOut(lines, err)
	}
	if printed := report.Print(m.Stdout); err == nil {
		err = printed
	}
	if err != nil && ctx.Err() != nil {
		return interruptedError{fmt.Sprintf("interrupted after %s; run it again to continue", plural(report.Added+report.Skipped, "version"))}
	}
	if err != nil {
		return fmt.Errorf("import of %s: %w", cmp.Or(f.Git, called(f.File)), err)
	}
	return nil
}

// openRepository opens what --git and --map name.
func openRepository(ctx context.Context, f *importFlags) (*gitimport.Repository, error) {
	text, err := os.ReadFile(f.Map)
	if err != nil {
		return nil, usageError{fmt.Errorf("--map: %w", err)}
	}
	rules, err := gitimport.ReadMap(f.Map, text)
	if err != nil {
		return nil, usageError{fmt.Errorf("--map %s: %w", f.Map, err)}
	}
	repository, err := gitimport.Open(ctx, f.Git, rules)
	if err != nil {
		return nil, usageError{fmt.Errorf("--git %s: %w", f.Git, err)}
	}
	return repository, nil
}

// printLeftOut ends the reading of a repository. It says which files were left out, and
// returns the import's error with the commit and file that it is about.
func (m *Main) printLeftOut(lines *gitimport.Lines, err error) error {
	closed := lines.Close()
	times, first := lines.LeftOut()
	if times > 0 {
		_, printed := fmt.Fprintf(m.Stdout, "%s that hold no document left out\n", plural(times, "change")+" of files")
		closed = errors.Join(closed, printed)
	}
	for _, left := range first {
		_, printed := fmt.Fprintf(m.Stdout, "  %v\n", left)
		closed = errors.Join(closed, printed)
	}
	if wrong, ok := errors.AsType[*gitimport.Error](err); ok {
		return wrong
	}
	if refused, ok := errors.AsType[*transfer.LineError](err); ok {
		return lines.Origin(refused.Line, refused.Err)
	}
	return errors.Join(err, closed)
}
