package transfer

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
	"github.com/asof/asof/storage/seal"
)

// ExportOptions choose what to export and how to watch it.
type ExportOptions struct {
	// Collections are those that are exported; empty: all that storage.IsArchived says, also those
	// that the schema no longer declares.
	Collections []string
	// From and To bound when a version was recorded, half-open [From, To); 0
	// means no bound. What is imported from such a part is numbered from 1, so with
	// From it has no seals.
	From, To driver.Instant
	// Progress, if set, is called now and then with what was written so far.
	Progress func(Progress)
}

// check refuses what would export nothing by mistake.
func (o ExportOptions) check(store *storage.Store) error {
	known := store.ByCollection()
	for _, name := range o.Collections {
		if known[name] == nil {
			return driver.Errorf(driver.CodeInvalid, "unknown collection %q; the schema has %s", name, collectionNames(known))
		}
	}
	if o.To != 0 && o.From >= o.To {
		return driver.Errorf(driver.CodeInvalid, "nothing lies from %s to %s: the end must be later", o.From, o.To)
	}
	return nil
}

// Export writes every version that the store held when it began, in commit
// order, and returns how many it wrote. The result is complete only if there
// is no error.
func Export(ctx context.Context, store *storage.Store, w io.Writer, opts ExportOptions) (int64, error) {
	if err := opts.check(store); err != nil {
		return 0, err
	}
	now, err := store.Engine().Now(ctx)
	if err != nil {
		return 0, err
	}
	query := driver.LogQuery{Collections: opts.Collections, From: opts.From, To: now + 1}
	if opts.To != 0 {
		query.To = min(query.To, opts.To)
	}
	out := bufio.NewWriterSize(w, 256<<10)
	prunes := map[string]bool{}
	for name, t := range store.ByCollection() {
		horizon, err := store.HorizonOf(ctx, t)
		if err != nil {
			return 0, err
		}
		prunes[name] = t.Keep != nil || horizon > 0
	}
	var done Progress
	var line []byte
	erased := map[[2]string]bool{} // documents of whose last version so far something was erased
	// Versions that are committed meanwhile are later than all that is read. Those
	// that are loaded into the past meanwhile may be in it or not.
	for v, err := range store.Engine().Log(ctx, &query) {
		if err != nil {
			return done.Lines, err
		}
		if !storage.IsArchived(v.Collection) { // an import finds out for itself
			continue
		}
		shown, document := *v, [2]string{v.Collection, v.Key}
		if (!prunes[v.Collection] || v.Number == 1) && !seal.Erased(v.Seal) && !erased[document] {
			shown.Changed = nil // an import works it out
		}
		if delete(erased, document); seal.Erased(v.Seal) {
			erased[document] = true
		}
		if line, err = appendLine(line[:0], &shown, opts.From == 0); err != nil {
			return done.Lines, err
		}
		if _, err := out.Write(line); err != nil {
			return done.Lines, fmt.Errorf("cannot write: %w", err)
		}
		done.Lines++
		done.Bytes += int64(len(line))
		if opts.Progress != nil && done.Lines%progressEvery == 0 {
			opts.Progress(done)
		}
	}
	if err := out.Flush(); err != nil {
		return done.Lines, fmt.Errorf("cannot write: %w", err)
	}
	return done.Lines, nil
}

// progressEvery is how many lines lie between two reports of progress.
const progressEvery = 1000

// operationName is what a line says of an operation that does not follow from the
// rest of it.
func operationName(op driver.Op) string {
	switch op {
	case driver.OpCreate:
		return "CREATE"
	case driver.OpUpdate:
		return "UPDATE"
	case driver.OpRestore:
		return "RESTORE"
	case driver.OpErase:
		return "ERASE"
	default:
		return ""
	}
}

// appendLine appends the line of one version, with its newline and, where it has one that is
// asked for, its seal. Of a version in Changed are the names that an import could not work out,
// as what was before may be pruned.
func appendLine(b []byte, v *driver.Version, sealed bool) ([]byte, error) {
	if err := check.Stored(v); err != nil {
		return b, fmt.Errorf("version %d is damaged; asof check finds all that are: %w", v.Number, err)
	}
	member := func(m int, value string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, memberNames[m]...)
		b = append(b, '"', ':')
		b, _ = jsontext.AppendQuote(b, value) // it fails for what is not UTF-8
	}
	b = append(b, '{')
	member(memberCollection, v.Collection)
	member(memberID, v.Key)
	member(memberAt, v.RecordedAt.String())
	member(memberBy, v.Author)
	if v.Message != "" {
		member(memberMessage, v.Message)
	}
	if v.Group != "" {
		member(memberSource, v.Group)
	}
	switch {
	case v.Op == driver.OpPruned:
		member(memberOp, "prune")
	case v.Deleted:
		member(memberOp, "delete")
	default:
		member(memberOp, "put")
	}
	if name := operationName(v.Op); name != "" {
		member(memberOperation, name)
	}
	if sealed && v.Seal != nil {
		b = append(b, `,"seal":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, v.Seal), '"')
	}
	for i, name := range v.Changed {
		if i == 0 {
			b = append(b, `,"changed":[`...)
		} else {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, name)
	}
	if len(v.Changed) > 0 {
		b = append(b, ']')
	}
	if !v.Deleted {
		b = append(b, `,"data":`...)
		b = append(b, v.Data...)
	}
	return append(b, '}', '\n'), nil
}
