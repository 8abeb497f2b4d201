package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// Code is the extensions.code of a GraphQL error.
type Code string

// The codes.
const (
	CodeBadUserInput     Code = "BAD_USER_INPUT"
	CodeNotFound         Code = "NOT_FOUND"
	CodeAmbiguousVersion Code = "AMBIGUOUS_VERSION"
	CodeAsOfInFuture     Code = "AS_OF_IN_FUTURE"
	CodeVersionNotFound  Code = "VERSION_NOT_FOUND"
	CodeQueryTooComplex  Code = "QUERY_TOO_COMPLEX"
	CodeHistoryPruned    Code = "HISTORY_PRUNED"
	CodeResync           Code = "RESYNC"
	CodeTooSlow          Code = "TOO_SLOW"
	CodeUnsupported      Code = "UNSUPPORTED" // this engine cannot
	CodeForbidden        Code = "FORBIDDEN"
	CodeUnavailable      Code = "UNAVAILABLE"
	CodeInternal         Code = "INTERNAL"
)

// Error is what this package returns. Its message is for the user; the cause is
// for the operator: it is to be logged and never shown.
type Error struct {
	Code    Code
	Message string
	Cause   error
	// Earliest, of HISTORY_PRUNED, is the least instant from which on nothing is missing.
	Earliest driver.Instant
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func badInput(format string, args ...any) *Error { return errorf(CodeBadUserInput, format, args...) }

// fromDriver turns an engine's error into one for users.
func fromDriver(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	switch code := driver.CodeOf(err); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if driver.RefusalOf(err) != "" { // the store was not asked
			return Ended(err)
		}
		return Unanswered(ctx, err)
	case code == driver.CodeUnavailable:
		return &Error{Code: CodeUnavailable, Message: "the store cannot be reached at the moment; try again", Cause: err}
	case code == driver.CodeInvalid:
		return &Error{Code: CodeBadUserInput, Message: err.Error(), Cause: err}
	case code == driver.CodeNotFound:
		return &Error{Code: CodeNotFound, Message: err.Error(), Cause: err}
	default:
		return &Error{Code: CodeInternal, Message: "internal error", Cause: err}
	}
}

// Ended returns the error of a request whose context has ended, which err says.
func Ended(err error) *Error {
	message := "the request was given up by its sender"
	if errors.Is(err, context.DeadlineExceeded) {
		message = "the request took longer than this server allows (--max-execution, --max-time); ask for less at a time, or for a shorter time"
	}
	return &Error{Code: CodeUnavailable, Message: message, Cause: err}
}

// Unanswered returns the error of a request whose context has ended, which err
// says, while it waited for the store. Where its database is reached over a network,
// that may be why, and not the request.
func Unanswered(ctx context.Context, err error) *Error {
	e := Ended(err)
	if op, ok := ctx.Value(operationKey{}).(*operation); ok && errors.Is(err, context.DeadlineExceeded) && op.store.distant {
		e.Message = "the database did not answer within the time that this server allows (--max-time); try again, or ask for less at a time"
	}
	return e
}

// ended returns an error once the context has ended. Work on long documents
// looks at it between two versions.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return Ended(err)
	}
	return nil
}

// missing says that a version has no value for a non-null field.
func (o *Object) missing(i int) error {
	f := &o.typ.Fields[i]
	if o.doc.v.Deleted && o.doc.t.Keep != nil {
		return errorf(CodeHistoryPruned, "%s: what was deleted was pruned", o.doc.describe())
	}
	if rawjson.Erased(o.stored(i)) {
		return errorf(CodeInternal, "%s: what the non-null field %s held was erased; declare @auth(erase: …) again on the type, so that it may be null", o.doc.describe(), o.fieldPath(i))
	}
	if o.doc.t.inDraft(o.doc.v) {
		return badInput("the draft of %s %q has no value for the required field %s yet; the draft's content tells what it holds", o.doc.t.Name, o.doc.v.Key, o.fieldPath(i))
	}
	return errorf(CodeInternal, "%s has no value for the non-null field %s; declare it nullable (%s: %s) or give it @default(value: …)",
		o.doc.describe(), o.fieldPath(i), f.Name, f.typeName(false))
}

// nullElement says that a list holds a null where the schema allows none.
func (o *Object) nullElement(i int) error {
	f := &o.typ.Fields[i]
	if f.Kind == KindRef {
		return errorf(CodeInternal, "%s holds a null in the list of references %s; correct the document: a list of references holds keys",
			o.doc.describe(), o.fieldPath(i))
	}
	return errorf(CodeInternal, "%s holds a null in the list %s, whose elements are declared non-null; declare %s: [%s]",
		o.doc.describe(), o.fieldPath(i), f.Name, f.elemName())
}

// mistyped says that a version holds a value of another type.
func (o *Object) mistyped(i int, raw []byte) error {
	f := &o.typ.Fields[i]
	whole := raw
	if list := o.value(i); f.List && list[0] == '[' { // it is one of the elements
		whole = list
	}
	if f.Kind == KindEnum && raw[0] == '"' {
		return errorf(CodeInternal, "%s holds %s in field %s, which is declared as one of %v; declare that value again, or the field String or JSON, or correct the document",
			o.doc.describe(), sample(raw), o.fieldPath(i), f.Enum)
	}
	return errorf(CodeInternal, "%s holds %s in field %s, which is declared %s; %s",
		o.doc.describe(), sample(raw), o.fieldPath(i), f.typeName(true), advice(f, whole))
}

// advice says what to declare for a value, which for a list is the whole list.
func advice(f *Field, raw []byte) string {
	if fits := fittingType(raw); fits != "" && fits != f.typeName(false) {
		return fmt.Sprintf("declare %s: %s, or JSON, or correct the document", f.Name, fits)
	}
	return "declare it JSON, or correct the document"
}

// fittingType names a GraphQL type that can hold the value; "" for none.
func fittingType(raw []byte) string {
	switch raw[0] {
	case '"':
		return "String"
	case 't', 'f':
		return "Boolean"
	case '[':
		inner := ""
		rawjson.Elements(raw, func(start, end int) bool {
			elem := raw[start:end]
			fits := "JSON"
			if elem[0] != '{' && elem[0] != '[' && elem[0] != 'n' {
				fits = fittingType(elem)
			}
			switch numbers := inner + fits; {
			case rawjson.IsNull(elem) || inner == fits:
			case inner == "":
				inner = fits
			case numbers == "IntFloat" || numbers == "FloatInt":
				inner = "Float"
			default:
				inner = "JSON"
			}
			return true
		})
		if inner == "" {
			inner = "JSON"
		}
		return "[" + inner + "]"
	case '{':
		return ""
	}
	if _, ok := readInt(nil, raw); ok {
		return "Int"
	}
	return "Float"
}

// sample describes a value in a few words.
func sample(raw []byte) string {
	const most = 40
	what := map[byte]string{'"': "the string", 't': "the boolean", 'f': "the boolean", 'n': "", '{': "an object", '[': "a list"}
	kind, ok := what[raw[0]]
	if !ok {
		kind = "the number"
	}
	if raw[0] == '{' || raw[0] == '[' {
		return kind
	}
	text := string(raw)
	if len(text) > most {
		runes := []rune(strings.ToValidUTF8(text[:most], ""))
		text = string(runes[:min(len(runes), most/2)]) + "…"
	}
	if kind == "" {
		return text
	}
	return kind + " " + text
}

var kindNames = [...]string{
	KindString: "String", KindID: "ID", KindInt: "Int", KindFloat: "Float", KindBoolean: "Boolean", KindDateTime: "DateTime",
	KindDate: "Date", KindDecimal: "Decimal", KindJSON: "JSON", KindEnum: "String", KindObject: "JSON", KindRef: "ID",
}

// elemName is the GraphQL type of the field without its list.
func (f *Field) elemName() string {
	switch {
	case f.Kind == KindObject && f.Object != nil:
		return f.Object.Name
	case f.Kind == KindRef:
		return f.Ref
	case int(f.Kind) < len(kindNames):
		return kindNames[f.Kind]
	}
	return "?"
}

// typeName is the GraphQL type of the field; without its own non-null mark when
// marks is false.
func (f *Field) typeName(marks bool) string {
	name := f.elemName()
	if f.List {
		if f.ElemNonNull && f.Kind != KindRef {
			name += "!"
		}
		name = "[" + name + "]"
	}
	if f.NonNull && marks {
		name += "!"
	}
	return name
}
