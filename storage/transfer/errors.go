package transfer

import (
	"errors"
	"fmt"
)

// LineError says which line of an import could not be kept, and why.
type LineError struct {
	Line int64 // counted from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// ErrTruncated is wrapped by the errors that report an import file that ends
// too early.
var ErrTruncated = errors.New("the file is cut off")

// ErrCorrupt is wrapped by the errors that report compressed data that does
// not decompress.
var ErrCorrupt = errors.New("the compressed data is damaged")
