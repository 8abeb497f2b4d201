package scalar

import (
	"fmt"
	"strings"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage"
)

// enum reads one of an enum's values. gqlparser has looked at it, but takes
// values in variables in any case.
func enum[T ~string](name string, v any, values ...T) (T, error) {
	s, ok := v.(string)
	for _, value := range values {
		if ok && s == string(value) {
			return value, nil
		}
	}
	names := make([]string, len(values))
	for i, value := range values {
		names[i] = string(value)
	}
	return "", fmt.Errorf("%s cannot be %s; it is one of %s", name, literal.Show(v), strings.Join(names, ", "))
}

// MarshalOrderDirection writes a direction.
func MarshalOrderDirection(d storage.OrderDirection) graphql.Marshaler {
	return graphql.MarshalString(string(d))
}

// UnmarshalOrderDirection reads a direction.
func UnmarshalOrderDirection(v any) (storage.OrderDirection, error) {
	return enum("OrderDirection", v, storage.Asc, storage.Desc)
}

// MarshalConflictPolicy writes a policy.
func MarshalConflictPolicy(p storage.ConflictPolicy) graphql.Marshaler {
	return graphql.MarshalString(string(p))
}

// UnmarshalConflictPolicy reads a policy.
func UnmarshalConflictPolicy(v any) (storage.ConflictPolicy, error) {
	return enum("ConflictPolicy", v, storage.Reject, storage.Merge)
}

// MarshalOperation writes what made a version.
func MarshalOperation(o storage.Operation) graphql.Marshaler {
	return graphql.MarshalString(string(o))
}

// UnmarshalOperation reads what made a version.
func UnmarshalOperation(v any) (storage.Operation, error) {
	return enum("Operation", v,
		storage.OperationCreate, storage.OperationUpdate, storage.OperationDelete, storage.OperationRestore, storage.OperationImport)
}
