package storage

import (
	"context"
	"errors"
	"iter"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// fromDriver turns an engine's error into one for users.
func fromDriver(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own
	}
	switch code := driver.CodeOf(err); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if driver.RefusalOf(err) != "" { // the store was not asked
			return fault.Ended(err)
		}
		return Unanswered(ctx, err)
	case code == driver.CodeUnavailable:
		return &fault.Error{Code: fault.CodeUnavailable, Message: "the store cannot be reached at the moment; try again", Cause: err}
	case code == driver.CodeInvalid:
		return &fault.Error{Code: fault.CodeBadUserInput, Message: err.Error(), Cause: err}
	default:
		return &fault.Error{Code: fault.CodeInternal, Message: "internal error", Cause: err}
	}
}

// Unanswered returns the error of a request whose context has ended, which err
// says, while it waited for the store. Where its database is reached over a network,
// that may be why, and not the request.
func Unanswered(ctx context.Context, err error) *fault.Error {
	e := fault.Ended(err)
	if op, ok := ctx.Value(operationKey{}).(*operation); ok && errors.Is(err, context.DeadlineExceeded) && op.store.distant {
		e.Message = "the database did not answer within the time that this server allows (--max-time); try again, or ask for less at a time"
	}
	return e
}

// ended returns an error once the context has ended. Work on long documents
// looks at it between two versions.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fault.Ended(err)
	}
	return nil
}

// endedAtTimes is ended for what is asked thousands of times, for each element of a list and
// each condition on it: it looks at some of them.
func endedAtTimes(ctx context.Context) func() bool {
	asked, over := 0, false
	return func() bool {
		asked++
		over = over || asked%64 == 0 && ctx.Err() != nil
		return over
	}
}

// untilEnded yields what seq does, until the context ends: err is why, then.
func untilEnded[T any](ctx context.Context, err *error, seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		over := endedAtTimes(ctx)
		for v := range seq {
			if over() {
				*err = ended(ctx)
				return
			}
			if !yield(v) {
				return
			}
		}
	}
}

// missing says that a version has no value for a non-null field.
func (o *Object) missing(i int) error {
	f := &o.typ.Fields[i]
	if o.doc.v.Deleted && o.doc.t.Keep != nil {
		return fault.Errorf(fault.CodeHistoryPruned, "%s is a deletion, before which all was pruned", o.doc.describe())
	}
	if rawjson.Erased(o.stored(i)) {
		return fault.Errorf(fault.CodeInternal, "%s had a value of the non-null field %s that was erased; declare @auth(erase: …) again on the type, so that it may be null", o.doc.describe(), o.fieldPath(i))
	}
	if inDraft(o.doc.t, o.doc.v) {
		return fault.BadInput("the draft of %s %q has no value for the required field %s yet; the draft's content tells what it holds", o.doc.t.Name, o.doc.v.Key, o.fieldPath(i))
	}
	return fault.Errorf(fault.CodeInternal, "%s has no value for the non-null field %s; declare it nullable (%s: %s) or give it @default(value: …), or, if it was renamed, @was(name: \"…\")",
		o.doc.describe(), o.fieldPath(i), f.Name, f.TypeName(false))
}

// nullElement says that a list holds a null where the schema allows none.
func (o *Object) nullElement(i int) error {
	f := &o.typ.Fields[i]
	if f.Kind == record.KindRef {
		return fault.Errorf(fault.CodeInternal, "%s holds a null in the list of references %s; correct the document: a list of references holds keys",
			o.doc.describe(), o.fieldPath(i))
	}
	return fault.Errorf(fault.CodeInternal, "%s holds a null in the list %s, whose elements are declared non-null; declare %s: [%s]",
		o.doc.describe(), o.fieldPath(i), f.Name, f.ElemName())
}

// mistyped says that a version holds a value of another type.
func (o *Object) mistyped(i int, raw []byte) error {
	f := &o.typ.Fields[i]
	whole := raw
	if list := o.value(i); f.List && list[0] == '[' { // it is one of the elements
		whole = list
	}
	if f.Kind == record.KindEnum && raw[0] == '"' {
		return fault.Errorf(fault.CodeInternal, "%s holds %s in field %s, which is declared as one of %v; declare that value again, or the field String or JSON, or correct the document",
			o.doc.describe(), record.Sample(raw), o.fieldPath(i), f.Enum)
	}
	return fault.Errorf(fault.CodeInternal, "%s holds %s in field %s, which is declared %s; %s",
		o.doc.describe(), record.Sample(raw), o.fieldPath(i), f.TypeName(true), record.Advice(f, whole))
}
