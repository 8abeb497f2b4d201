package drivertest

import (
	"bytes"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/asof/asof/storage/driver"
)

// same compares two versions, without a difference between no names and nil.
func same(a, b *driver.Version) bool {
	return a == nil && b == nil || sameButEnd(a, b) && a.SupersededAt == b.SupersededAt
}

// difference describes how versions, or what holds them, differ: all but what
// readers of them have noted, and seals, which are checked as the contract. Data is compared as a whole: byte by byte, that is most
// of what a test of long histories does.
func difference(want, got any) string {
	return cmp.Diff(want, got, cmpopts.IgnoreFields(driver.Version{}, "Notes", "Seal"), cmp.Comparer(sameData))
}

func sameData(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// sameButEnd leaves out when the versions were superseded.
func sameButEnd(a, b *driver.Version) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Collection == b.Collection && a.Key == b.Key && a.Number == b.Number && a.RecordedAt == b.RecordedAt &&
		a.Op == b.Op && a.Deleted == b.Deleted && a.Author == b.Author && a.Message == b.Message && a.Group == b.Group &&
		slices.Equal(a.Changed, b.Changed) && sameData(a.Data, b.Data) &&
		(a.Seal == nil || b.Seal == nil || bytes.Equal(a.Seal, b.Seal)) // what a test makes up has none
}
