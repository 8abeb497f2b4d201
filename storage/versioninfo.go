package storage

import "github.com/asof/asof/storage/driver"

// VersionInfo describes a version as it was seen from an instant: what happened
// later does not show.
type VersionInfo struct {
	typ  *Type
	v    *driver.Version
	seen driver.Instant
}

// Number counts the document's versions from 1.
func (i *VersionInfo) Number() int { return int(i.v.Number) }

// RecordedAt is when the version was committed.
func (i *VersionInfo) RecordedAt() driver.Instant { return i.v.RecordedAt }

// SupersededAt is when the next version was committed; nil while there is none.
func (i *VersionInfo) SupersededAt() *driver.Instant {
	if i.IsCurrent() {
		return nil
	}
	at := i.v.SupersededAt
	return &at
}

// Author is who wrote the version.
func (i *VersionInfo) Author() *Actor { return &Actor{ID: i.v.Author} }

// Message is what the writer said about it; nil for nothing.
func (i *VersionInfo) Message() *string { return optional(i.v.Message) }

// Operation is what made the version.
func (i *VersionInfo) Operation() Operation { return operationOf(i.v.Op) }

// ChangeGroup is shared by versions that were written together; nil for none.
func (i *VersionInfo) ChangeGroup() *string { return optional(i.v.Group) }

// IsCurrent says that no later version was there at the instant of reading.
func (i *VersionInfo) IsCurrent() bool { return i.v.SupersededAt > i.seen }

// ChangedFields are the GraphQL names of the top-level fields in which the
// version differs from the one before, in the order of the schema.
func (i *VersionInfo) ChangedFields() []string {
	names := make([]string, 0, len(i.v.Changed))
	changed := make(map[string]bool, len(i.v.Changed))
	for _, stored := range i.v.Changed {
		changed[stored] = true
	}
	for f := range i.typ.object.Fields {
		if changed[i.typ.object.Fields[f].Stored] {
			names = append(names, i.typ.object.Fields[f].Name)
		}
	}
	return names
}

var operations = [...]Operation{
	driver.OpCreate: OperationCreate, driver.OpUpdate: OperationUpdate, driver.OpDelete: OperationDelete,
	driver.OpRestore: OperationRestore, driver.OpImport: OperationImport,
}

func operationOf(op driver.Op) Operation {
	if int(op) < len(operations) {
		return operations[op]
	}
	return ""
}

func opOf(o Operation) (driver.Op, bool) {
	for op, name := range operations {
		if name == o && name != "" {
			return driver.Op(op), true
		}
	}
	return 0, false
}
