package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/asof/asof/storage"
)

type schemaFlags struct {
	Diff  schemaDiffFlags  `cmd:"" help:"Say what has changed since an earlier schema, and which stored versions cannot be read any more."`
	List  struct{}         `cmd:"" help:"List the schemas that the store was opened with, by their numbers, and how many versions were written under each."`
	Apply schemaApplyFlags `cmd:"" help:"Bring documents into the form of today's schema."`
}

type schemaDiffFlags struct {
	Old  string `arg:"" optional:"" help:"A file with an earlier schema.graphqls, or the number of a schema. Default: the one that the store was last opened with."`
	Data bool   `help:"Read all that is stored, and count what cannot be read. --no-data compares a file without a store." default:"true" negatable:""`
}

type schemaApplyFlags struct {
	Rewrite bool `help:"Write the documents that have another form than today's (@was, migrations) in that, as new versions. It can be stopped and repeated." required:""`
}

// Validate refuses to compare nothing.
func (f schemaDiffFlags) Validate() error {
	if !f.Data && f.Old == "" {
		return errors.New("--no-data needs a file with an earlier schema")
	}
	return nil
}

var schemaNumber = regexp.MustCompile(`^[0-9a-f]{8}$`)

// schemaDiff compares an earlier schema with today's, and today's with what is stored.
func (m *Main) schemaDiff(ctx context.Context) (err error) {
	f, old := &m.flags.Schema.Diff, ""
	if f.Old != "" && !schemaNumber.MatchString(f.Old) {
		text, err := os.ReadFile(f.Old)
		if err != nil {
			return usageError{fmt.Errorf("cannot read the earlier schema: %w", err)}
		}
		old = string(text)
	}
	var store *storage.Store
	if f.Data || old == "" {
		if store, err = m.openStore(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Engine().Close()) }()
	}
	if old == "" {
		if old, err = m.knownSDL(ctx, store, f.Old); err != nil {
			return err
		}
	}
	lines, err := diffSchemas(old, m.SDL, m.Migrations)
	if err != nil {
		return usageError{fmt.Errorf("the earlier schema: %w", err)}
	}
	if len(lines) == 0 {
		lines = []string{"what documents can hold is the same"}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(m.Stdout, line); err != nil {
			return err
		}
	}
	if !f.Data {
		return nil
	}
	unfit, err := m.printMismatches(ctx, store)
	if unfit > 0 && err == nil {
		err = fmt.Errorf("%s does not fit the schema in %s", m.storeName(), plural(unfit, "field"))
	}
	return err
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
		return "", usageError{fmt.Errorf("no server has opened %s with a schema yet; name a file with the earlier one", m.storeName())}
	}
	return "", usageError{fmt.Errorf("%s was not opened with a schema of the number %s; asof schema list has those that it was", m.storeName(), number)}
}

// schemaList lists the schemas that the store was opened with.
func (m *Main) schemaList(ctx context.Context) (err error) {
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
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
func (m *Main) schemaApply(ctx context.Context) (err error) {
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
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
