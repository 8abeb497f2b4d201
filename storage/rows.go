package storage

import (
	"slices"

	"github.com/asof/asof/internal/rule"
	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// parse reads the rule of a type, which must fit its fields.
func (p *protected) parse() error {
	e, err := rule.Parse(p.t.Auth.Rows)
	if err != nil {
		return err
	}
	err = rule.Check(e, func(name string) (rule.Kind, bool, bool) {
		f := p.t.Object.Field(name)
		if f == nil {
			return "", false, false
		}
		p.needs = append(p.needs, f.Stored)
		kinds := map[driver.Kind]rule.Kind{driver.KindString: rule.Text, driver.KindInt: rule.Number, driver.KindBool: rule.Truth}
		kind, ok := kinds[f.DriverKind()]
		if !ok || f.List && f.Default != nil || f.Kind == record.KindObject || f.Kind == record.KindJSON {
			kind = rule.Other
		}
		return kind, f.List, true
	})
	if err == nil {
		p.rule = p.fix(e)
	}
	return err
}

// fixed is a comparison without claims: its condition, and that of its opposite, are the same for everybody.
type fixed struct {
	rule.Compare

	is, isNot driver.Filter
}

// fix returns an expression in which the comparisons without claims are fixed.
func (p *protected) fix(e rule.Expr) rule.Expr {
	switch e := e.(type) {
	case rule.Not:
		return rule.Not{Of: p.fix(e.Of)}
	case rule.And:
		return rule.And{A: p.fix(e.A), B: p.fix(e.B)}
	case rule.Or:
		return rule.Or{A: p.fix(e.A), B: p.fix(e.B)}
	case rule.Compare:
		if e.A.Claim == "" && e.B.Claim == "" {
			return fixed{e, p.condition(nil, e, false), p.condition(nil, e, true)}
		}
	}
	return e
}

// condition returns the filter for a rule, or for its opposite. A comparison with a claim that
// the actor does not have, or of what was erased, is never met, nor is its opposite.
func (p *protected) condition(a *Actor, e rule.Expr, not bool) driver.Filter {
	several := func(all bool, list ...rule.Expr) driver.Filter {
		parts := make([]driver.Filter, len(list))
		for i, e := range list {
			parts[i] = p.condition(a, e, not)
		}
		if all != not {
			return driver.And(parts)
		}
		return driver.Or(parts)
	}
	switch e := e.(type) {
	case rule.Not:
		return p.condition(a, e.Of, !not)
	case rule.And:
		return several(true, e.A, e.B)
	case rule.Or:
		return several(false, e.A, e.B)
	case fixed:
		if not {
			return e.isNot
		}
		return e.is
	case rule.Compare:
		f := p.comparison(a, e)
		if f == nil {
			break
		}
		if not != (e.Op == rule.Unequal) {
			f = driver.Not{Filter: f}
		}
		if _, one := f.(driver.In); one { // what was erased is no value
			return f
		}
		for _, name := range []string{e.A.Field, e.B.Field} { // what was erased meets nothing
			if name == "" {
				continue
			}
			path := []string{p.t.Object.Field(name).Stored}
			if condition.Holds(f, nil, rawjson.Set(nil, path, rawjson.AppendErased(nil, 1, 1))) {
				f = driver.And{f, driver.Not{Filter: driver.Present{Field: driver.Field{Path: append(path, rawjson.ErasedMember)}}}}
			}
		}
		return f
	}
	return driver.Or{}
}

// comparison returns the filter for =, for != too, or for in; nil where a claim is missing.
func (p *protected) comparison(a *Actor, c rule.Compare) driver.Filter {
	of, with := c.A, c.B
	if of.Field == "" {
		of, with = with, of
	}
	values, ok := a.values(with)
	if !ok {
		return nil
	}
	if of.Field == "" { // of claims alone
		others, known := a.values(of)
		switch {
		case !known:
			return nil
		case slices.ContainsFunc(values, func(v driver.Value) bool { return slices.Contains(others, v) }):
			return driver.And{}
		}
		return driver.Or{}
	}
	f := p.t.Object.Field(of.Field)
	field := f.Driver()
	switch {
	case with.Claim == "" && with.Literal == nil:
		null, _ := condition.IsNull(f, field, true, "")
		return null
	case f.List:
		return driver.Any{Field: driver.Field{Path: field.Path}, Filter: in(driver.Field{Kind: field.Kind}, values)}
	case c.Op != rule.In && len(values) != 1: // a list is no value
		return nil
	}
	return condition.OrDefault(f, field, in(field, values))
}

// in is driver.In with those values that are of the field's kind.
func in(f driver.Field, values []driver.Value) driver.Filter {
	var fits []driver.Value
	for _, v := range values {
		kind := driver.KindString
		switch v.(type) {
		case int64:
			kind = driver.KindInt
		case bool:
			kind = driver.KindBool
		}
		if kind == f.Kind {
			fits = append(fits, v)
		}
	}
	return driver.In{Field: f, Values: fits}
}

// values returns what a claim or a literal is: one value, or those of a list; false for a
// claim that the actor does not have.
func (a *Actor) values(v rule.Value) ([]driver.Value, bool) {
	var claim any
	switch v.Claim {
	case "":
		return []driver.Value{v.Literal}, true
	case "sub":
		return []driver.Value{a.ID}, a.ID != Anonymous
	case "roles":
		out := make([]driver.Value, len(a.Roles))
		for i, role := range a.Roles {
			out[i] = role
		}
		return out, true
	default:
		claim = a.Claims[v.Claim]
	}
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	var out []driver.Value
	for _, v := range list {
		switch v := v.(type) {
		case string, bool:
			out = append(out, v)
		case float64:
			if n := int64(v); float64(n) == v {
				out = append(out, n)
			}
		}
	}
	return out, ok || out != nil
}
