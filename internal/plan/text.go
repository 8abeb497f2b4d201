package plan

import (
	"strconv"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// What follows appends values that are not stored as JSON in the form in which
// the wrapped schema writes them; true is for use as a writer's result.

func (r *run) int(n int) bool {
	r.out = strconv.AppendInt(r.out, int64(n), 10)
	return true
}

func (r *run) bool(b bool) bool {
	r.out = strconv.AppendBool(r.out, b)
	return true
}

func (r *run) string(s string) bool {
	r.out = rawjson.AppendString(r.out, s)
	return true
}

// optional appends a string; false for nil.
func (r *run) optional(s *string) bool { return s != nil && r.string(*s) }

func (r *run) instant(at driver.Instant) bool {
	r.out = at.Time().AppendFormat(append(r.out, '"'), "2006-01-02T15:04:05.999999Z")
	r.out = append(r.out, '"')
	return true
}

// cursor appends a cursor, whose text needs no escapes.
func (r *run) cursor(p *storage.Page, place int) bool {
	r.out = append(p.AppendCursor(append(r.out, '"'), place), '"')
	return true
}
