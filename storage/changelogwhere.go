package storage

import (
	"context"
	"slices"
	"strings"
)

// Changelog returns a page of the changes of all documents, newest version
// first. Errors: BAD_USER_INPUT for unknown types and fields, and for keys
// without the one type that they belong to.
func (s *Store) Changelog(ctx context.Context, where *ChangelogWhere, first *int, after *string, last *int, before *string) (*FieldChangeConnection, error) {
	op, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.paging(first, after, last, before)
	if err != nil {
		return nil, err
	}
	if where == nil {
		where = &ChangelogWhere{}
	}
	l := &changelog{store: s, seen: op.begin}
	empty, err := l.where(where)
	if err != nil {
		return nil, err
	}
	if empty {
		return emptyChanges(p), nil
	}
	return l.page(ctx, op, argsHash("changelog", where), p)
}

// where applies the conditions; it returns true if no change can meet them.
func (l *changelog) where(w *ChangelogWhere) (empty bool, err error) {
	types := l.store.types
	if w.DocumentType != nil {
		types = nil
		for _, name := range w.DocumentType {
			t := l.store.byName[name]
			if t == nil {
				return false, badInput("where.documentType: there is no type %s", quoteShort(name))
			}
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	keys, keyed := both(w.Key, w.Keys)
	if keyed && len(types) != 1 {
		return false, badInput("where: a key belongs to one type of documents; give exactly one documentType with it")
	}
	fields, named := both(w.Field, w.Fields)
	authors, authored := both(w.Author, w.Authors)
	for _, o := range w.Operation {
		op, ok := opOf(o)
		if !ok {
			return false, badInput("where.operation: there is no operation %s", quoteShort(string(o)))
		}
		l.log.Hints.Ops = append(l.log.Hints.Ops, op)
	}
	if most := l.store.limits.FilterSize; len(w.Keys)+len(w.Fields)+len(w.Authors)+len(w.DocumentType) > most {
		return false, badInput("where: more than %d keys, fields, authors and types", most)
	}
	if err := w.checkFields(types); err != nil {
		return false, err
	}
	l.fields = fields
	if w.ChangeGroup != nil {
		l.log.Hints.Groups = []string{*w.ChangeGroup}
	}
	l.log.Keys, l.log.Hints.Authors = keys, authors
	for _, t := range types {
		has := !named
		for _, name := range fields {
			if f := t.object.field(name); f != nil {
				has = true
				if !slices.Contains(l.log.Hints.Changed, f.Stored) {
					l.log.Hints.Changed = append(l.log.Hints.Changed, f.Stored)
				}
			}
		}
		if has {
			l.log.Collections = append(l.log.Collections, t.Collection)
		}
	}
	none := keyed && len(keys) == 0 || named && len(fields) == 0 || authored && len(authors) == 0 ||
		w.Operation != nil && len(w.Operation) == 0 || len(l.log.Collections) == 0
	empty, err = l.between("where.", w.From, w.To)
	return empty || none, err
}

// checkFields refuses names that none of the types that are asked for has.
func (w *ChangelogWhere) checkFields(types []*Type) error {
	check := func(arg, name string) error {
		if slices.ContainsFunc(types, func(t *Type) bool { return t.object.field(name) != nil }) {
			return nil
		}
		switch {
		case w.DocumentType == nil:
			return badInput("%s: no type of documents has a field %s", arg, quoteShort(name))
		case len(types) == 0: // nothing is asked for
			return nil
		case len(types) == 1:
			return badInput("%s: %s has no field %s", arg, types[0].Name, quoteShort(name))
		}
		names := make([]string, len(types))
		for i, t := range types {
			names[i] = t.Name
		}
		return badInput("%s: none of %s has a field %s", arg, strings.Join(names, ", "), quoteShort(name))
	}
	if w.Field != nil {
		if err := check("where.field", *w.Field); err != nil {
			return err
		}
	}
	for _, name := range w.Fields {
		if err := check("where.fields", name); err != nil {
			return err
		}
	}
	return nil
}

// both joins a condition on one value and its plural, which must both hold; given
// is false where neither is there. A list without elements holds for nothing.
func both(one *string, many []string) (all []string, given bool) {
	switch {
	case one == nil:
		return slices.Clone(many), many != nil
	case many == nil || slices.Contains(many, *one):
		return []string{*one}, true
	default:
		return nil, true
	}
}

// noneOf reports whether a list of alternatives is there and has none: nothing is
// one of them. A list that is not there asks for everything.
func noneOf(many []string) bool { return many != nil && len(many) == 0 }
