package app

import (
	"context"
	"errors"
	"fmt"
)

type eraseFlags struct {
	Author string `required:"" placeholder:"ID" help:"Whose name is replaced: the author's id."`
	Name   string `required:"" placeholder:"NEW" help:"What the author is called from now on, in all of the past, too."`
}

// erase replaces the name of an author, and has the engine give the space of the others back.
func (m *Main) erase(ctx context.Context) (err error) {
	f := &m.flags.Erase
	if f.Name == "" {
		return usageError{errors.New("--name: an author without a name has an empty line in every list; give another one")}
	}
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
	if err := store.ReplaceName(ctx, f.Author, f.Name); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(m.Stdout, "the author %s is called %s\n", f.Author, f.Name); err != nil {
		return err
	}
	return compact(ctx, store)
}
