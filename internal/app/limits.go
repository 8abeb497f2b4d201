package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// largestDocument is the largest --max-document.
const largestDocument = 8 << 20

var errSize = errors.New("want a size in bytes such as 4096, 100KB or 1MB")

func positive(digits string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n <= 0 {
		return 0, errors.New("want a positive number")
	}
	return n, nil
}

// Validate refuses limits that nothing could pass.
func (f limitFlags) Validate() error {
	for name, n := range map[string]int{
		"tokens": f.Tokens, "depth": f.Depth, "fields": f.Fields, "aliases": f.Aliases, "root-fields": f.RootFields,
		"page": f.Page, "cost": f.Cost, "concurrent": f.Concurrent, "sockets": f.Sockets, "per-socket": f.PerSocket, "time": int(f.Time), "execution": int(f.Execution),
	} {
		if n <= 0 {
			return fmt.Errorf("--max-%s must be positive", name)
		}
	}
	switch {
	case f.Slow < 0:
		return errors.New("--max-slow must not be negative")
	case f.Memory != 0 && f.Memory < leastMemory:
		return fmt.Errorf("--max-memory must be at least %d bytes (%dMB)", leastMemory, leastMemory>>20)
	}
	if f.Document > largestDocument {
		return fmt.Errorf("--max-document must be at most %d bytes (8MB)", largestDocument)
	}
	return nil
}
