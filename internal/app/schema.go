package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/asof/asof/storage"
)

type schemaFlags struct {
	Diff  schemaDiffFlags  `cmd:"" help:"Say what has changed since a schema that the store was opened with, and which stored versions cannot be read any more."`
	List  struct{}         `cmd:"" help:"List the schemas that the store was opened with, by their numbers, and how many versions were written under each."`
	Apply schemaApplyFlags `cmd:"" help:"Bring documents into the form of today's schema."`
}

type schemaDiffFlags struct {
	Number string `arg:"" optional:"" help:"The number of an earlier schema. Default: the one that the store was last opened with."`
}

type schemaApplyFlags struct {
	Rewrite bool `help:"Write the documents that have another form than today's (@was, migrations) in that, as new versions. What does not fit the schema in any form stays: asof check says what. It can be stopped and repeated." required:""`
}

// schemaDiff compares a schema that the store was opened with with today's, and today's with what
// is stored.
func (m *Main) schemaDiff(ctx context.Context, store *storage.Store) error {
	old, err := m.knownSDL(ctx, store, m.flags.Schema.Diff.Number)
	if err != nil {
		return err
	}
	for _, line := range changedSchema(old, m.SDL) {
		if _, err := fmt.Fprintln(m.Stdout, line); err != nil {
			return err
		}
	}
	unfit, err := m.printMismatches(ctx, store)
	if unfit > 0 && err == nil {
		err = fmt.Errorf("%s does not fit the schema in %s", m.storeName(), plural(unfit, "field"))
	}
	return err
}

// changedSchema returns what one schema says of types, fields and values and another does not,
// a line each, which begins with - or +, in the order of their names.
func changedSchema(before, after string) (lines []string) {
	was, is := declared(before), declared(after)
	for _, line := range was {
		if !slices.Contains(is, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			lines = append(lines, "+ "+line)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return lines
}

// declared returns what a schema, as codegen writes it, says of each type, field and value, with
// the names of their types.
func declared(sdl string) (lines []string) {
	of := ""
	for line := range strings.Lines(sdl) {
		switch line = strings.TrimRight(line, "{ \n"); {
		case strings.HasPrefix(line, " "):
			lines = append(lines, of+"."+strings.TrimSpace(line))
		case line != "}":
			lines, of = append(lines, line), strings.Fields(line)[1]
		}
	}
	return lines
}

// knownSDL returns a schema that the store was opened with; number "": the last one.
func (m *Main) knownSDL(ctx context.Context, store *storage.Store, number string) (string, error) {
	known, err := store.Schemas(ctx)
	if err != nil {
		return "", err
	}
	for _, k := range known {
		if k.SDL != "" && (k.Number == number || number == "" && k.Current) {
			return k.SDL, nil
		}
	}
	if number == "" {
		return "", usageError{fmt.Errorf("no server has opened %s with a schema yet: asof check says what does not fit this one", m.storeName())}
	}
	return "", usageError{fmt.Errorf("%s was not opened with a schema of the number %s; asof schema list has those that it was", m.storeName(), number)}
}

// schemaList lists the schemas that the store was opened with.
func (m *Main) schemaList(ctx context.Context, store *storage.Store) error {
	known, err := store.Schemas(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		text := k.Number + "  not opened with it"
		switch {
		case k.Number == "":
			text = "unknown " + " imported, or written before schemas had numbers"
		case k.SDL != "":
			text = fmt.Sprintf("%s  since %s", k.Number, k.Since)
		}
		if k.Current {
			text += ", the last one"
		}
		if k.Number == fmt.Sprintf("%08x", storage.SchemaNumber(m.SDL)) {
			text += ", this program's"
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s: %s\n", text, plural(k.Versions, "version")); err != nil {
			return err
		}
	}
	return nil
}

// schemaApply rewrites documents in today's form.
func (m *Main) schemaApply(ctx context.Context, store *storage.Store) error {
	for _, t := range store.Types() {
		n, err := store.Rewrite(ctx, t)
		if err != nil && ctx.Err() != nil {
			return interruptedError{fmt.Sprintf("interrupted after %s of %s; the same command goes on", plural(int64(n), "document"), t.Name)}
		}
		if err != nil {
			return fmt.Errorf("rewriting %s: %w", t.Name, err)
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s: rewrote %s\n", t.Name, plural(int64(n), "document")); err != nil {
			return err
		}
	}
	return nil
}
