package plan

// An answer's data may be longer than whoever sends it allows (WithMaxAnswer).
// It is written to its end even so, but no more is kept of it than one byte too
// many: what lies behind can still be taken away, where a non-null field has no
// value, and what remains is an answer if it is short enough. Places in the data
// that are recorded are right where they are within what is allowed, and beyond
// it where they are not.

// bound drops what is too long. It is called after each field, so that not more
// than one is held in excess.
func (r *run) bound() {
	if len(r.out)-r.most > 1 {
		r.out = r.out[:r.most+1]
	}
}

// back takes away what was written since the data was n bytes long.
func (r *run) back(n int) { r.out = r.out[:min(n, len(r.out))] }
