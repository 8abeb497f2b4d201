package httpapi

import (
	"context"
	"fmt"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// answerLimit refuses answers whose data is too long, whatever executed the
// operation: instead of data and errors there is one error. No other limit knows
// how long an answer gets: a document is read once, and may be asked for under
// many aliases.
type answerLimit struct {
	most int // bytes
}

var _ interface {
	graphql.HandlerExtension
	graphql.ResponseInterceptor
} = answerLimit{}

func (answerLimit) ExtensionName() string { return "AnswerLimit" }

func (answerLimit) Validate(graphql.ExecutableSchema) error { return nil }

func (l answerLimit) InterceptResponse(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
	response := next(ctx)
	if response == nil || len(response.Data) <= l.most {
		return response
	}
	message := fmt.Sprintf("the answer is longer than %d bytes, the limit of this server: "+
		"ask for fewer documents, a smaller page or fewer fields and aliases", l.most)
	if graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation {
		message += "; the mutation was executed, do not repeat it"
	}
	response.Data = nil
	response.Errors = gqlerror.List{{Message: message, Extensions: map[string]any{"code": CodeTooComplex}}}
	return response
}
