package driver

// Query selects documents of one collection at an instant.
type Query struct {
	Collection string
	At         Instant
	Filter     Filter // nil: all
	// Order sorts by these fields, then by Key ascending (bytewise), so that
	// the order is total. Null and missing values, and values that are not of
	// the field's kind, come first ascending and last descending.
	Order []Order
	// After and Before are exclusive bounds in that order.
	After, Before *Position
	// Backward takes the last Limit documents of the range instead of the
	// first; they are still returned in the query's order.
	Backward bool
	Limit    int // 0: no limit
	// Fields are the stored top-level names that the caller will look at; nil
	// means all. An engine may return more of the data, never less.
	Fields []string
	// Keys says that the caller will look at nothing but the keys. An engine may leave out the rest.
	Keys bool
	// Bytes is of how much the caller refuses the page, as Version.Size counts it; 0: of nothing.
	// An engine may leave out what follows where it has read more.
	Bytes int64
}

// Exceeds reports whether a page with so many bytes is refused.
func (q *Query) Exceeds(bytes int64) bool { return q.Bytes > 0 && bytes > q.Bytes }

// Order is one sort field.
type Order struct {
	Field Field
	Desc  bool
}

// Position is a place in a query's order: one value for each Order (nil for
// null), then the key. Nothing has to be at the place, but where an Order is by
// MetaKey, its value is Key, and the values behind it are those of the document
// with that key, if there is one: an engine need not look at them.
type Position struct {
	Values []Value
	Key    string
}

// Field is what a condition or an order looks at: a value inside the document
// (Path), or one that the version carries (Meta).
type Field struct {
	Meta Meta
	// Path is made of stored member names, from the document's root or, inside
	// an Any, from the element (empty: the element itself). A step into
	// something that is not an object leads to a missing value: lists are
	// entered by Any only. Names may be any string, also with dots or quotes.
	Path []string
	// Kind may be left out in Present, and is not looked at in Any. With Meta it
	// is the kind given there.
	Kind Kind
}

// Meta names the values that every version carries.
type Meta uint8

// The values that every version carries, with the Kind of each. They are
// always there: an empty message is an empty string, not null. Present and
// conditions inside an Any are not about them.
const (
	MetaNone       Meta = iota // the value is in the document
	MetaKey                    // KindString
	MetaNumber                 // KindInt
	MetaRecordedAt             // KindInstant
	MetaAuthor                 // KindString
	MetaOp                     // KindInt
	MetaMessage                // KindString
	MetaGroup                  // KindString
)

// Kind is how a value compares. A stored value that is not of the kind counts
// as null in filters and orders.
type Kind uint8

// The kinds, the JSON that they are stored as, and the Go type of a Value.
const (
	KindString  Kind = iota + 1 // string; bytewise; string
	KindInt                     // number without fraction, in int64; int64
	KindFloat                   // number; rounded to float64; float64, finite
	KindBool                    // boolean; false before true; bool
	KindInstant                 // RFC 3339 string (as time.Time.UnmarshalText reads it); chronological, cut to µs; Instant
	KindDate                    // "2006-01-02" string, a day that exists; string
	KindDecimal                 // number, or string in the grammar of one; numerical, exact; string
	KindObject                  // object; for Present only: objects are not compared
)

// Value is a string, int64, float64, bool or Instant, as the Kind says.
type Value any

// Filter is a condition on one version of a document. It is two-valued: a
// comparison with a null or missing value is false, and Not negates that.
type Filter interface{ filter() }

// And holds where all hold; empty: always.
type And []Filter

// Or holds where any holds; empty: never.
type Or []Filter

// Not holds where its filter does not.
type Not struct{ Filter Filter }

// Compare holds where the field has a value of its kind that relates so.
type Compare struct {
	Field Field
	Op    CompareOp
	Value Value
}

// CompareOp is an order relation.
type CompareOp uint8

// The order relations.
const (
	Eq CompareOp = iota + 1
	Lt
	Le
	Gt
	Ge
)

// In holds where the field equals one of the values; empty: never.
type In struct {
	Field  Field
	Values []Value
}

// Text holds where a string field matches.
type Text struct {
	Field Field // of KindString
	Op    TextOp
	Value string
	// Fold ignores case: both sides are compared after strings.ToLower.
	Fold bool
}

// TextOp is how Text matches.
type TextOp uint8

// The text matches.
const (
	Contains TextOp = iota + 1
	HasPrefix
	HasSuffix
	Equals // useful with Fold
)

// Present holds where the field has a value of its Kind; without a Kind, where it
// is there and not null.
type Present struct{ Field Field }

// Any holds where the field is a list with an element that satisfies Filter,
// whose paths start at the element. A nil Filter: the list is not empty.
type Any struct {
	Field  Field
	Filter Filter
}

// Fields returns the fields that a filter looks at, and not those of elements of lists. The
// filter may be nil.
func Fields(f Filter) []Field {
	all := func(list []Filter) (fields []Field) {
		for _, f := range list {
			fields = append(fields, Fields(f)...)
		}
		return fields
	}
	switch f := f.(type) {
	case And:
		return all(f)
	case Or:
		return all(f)
	case Not:
		return Fields(f.Filter)
	case Compare:
		return []Field{f.Field}
	case In:
		return []Field{f.Field}
	case Text:
		return []Field{f.Field}
	case Present:
		return []Field{f.Field}
	case Any:
		return []Field{f.Field}
	}
	return nil
}

func (And) filter()     {}
func (Or) filter()      {}
func (Not) filter()     {}
func (Compare) filter() {}
func (In) filter()      {}
func (Text) filter()    {}
func (Present) filter() {}
func (Any) filter()     {}
