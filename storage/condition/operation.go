package condition

import (
	"slices"

	"github.com/asof/asof/storage/driver"
)

// operations are what clients call them; "" for what is not shown.
var operations = [...]string{
	driver.OpCreate: "CREATE", driver.OpUpdate: "UPDATE", driver.OpDelete: "DELETE",
	driver.OpRestore: "RESTORE", driver.OpImport: "IMPORT", driver.OpErase: "ERASE", driver.OpPruned: "",
}

// OperationName returns what clients call an operation.
func OperationName(op driver.Op) string {
	if int(op) >= len(operations) {
		return ""
	}
	return operations[op]
}

// OpOf is the inverse of OperationName; false for what is no name.
func OpOf(name string) (driver.Op, bool) {
	i := slices.Index(operations[:], name)
	return driver.Op(i), i > 0 && name != ""
}
