package driver

import (
	"math"
	"time"
)

// Instant is a point in time: microseconds since the Unix epoch, UTC.
type Instant int64

// Forever is after every instant: the end of an interval that is still open.
const Forever Instant = math.MaxInt64

// InstantOf converts a time, cutting what is finer than a microsecond.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time converts back, in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// String formats as RFC 3339 in UTC, with as many digits of the second as
// there are, at most six.
func (i Instant) String() string { return i.Time().Format(time.RFC3339Nano) }
