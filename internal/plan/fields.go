package plan

import (
	"context"
	"reflect"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
)

// Plans have no contexts for fields, so that what is registered with AroundFields
// (authorisation, tracing) would not see them. Where something is, nothing is
// planned.

// errIntercepted is why.
const errIntercepted = unplanned("fields have interceptors (AroundFields), which plans would pass by")

// noInterceptor is the code of the function that an executor calls for fields
// where no interceptor is registered.
func noInterceptor(schema graphql.ExecutableSchema) uintptr {
	ctx := graphql.StartOperationTrace(context.Background())
	// There is no operation to be found; the context is made even so.
	oc, _ := executor.New(schema).CreateOperationContext(ctx, &graphql.RawParams{})
	return codeOf(oc.ResolverMiddleware)
}

// codeOf tells functions from each other, not what they hold: the one without
// interceptors holds nothing.
func codeOf(f graphql.FieldMiddleware) uintptr { return reflect.ValueOf(f).Pointer() }
