package httpapi

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// What the caches of documents hold at most. What is parsed takes about tokenBytes for
// each token, at most, and its text.
const (
	documentEntries = 1_000
	documentBytes   = 32 << 20
	tokenBytes      = 300
	persistedCount  = 1_000
	persistedBytes  = 16 << 20
)

// documents reads the documents of requests, each of which is parsed once, and keeps
// the valid ones: these are the only ones that are executed.
type documents struct {
	limits     *Limits
	validation *validation
	hints      bool // errors may name what the schema has
	known      *lru[document]
	persisted  persistedQueries
}

// document is a valid document.
type document struct {
	parsed *ast.QueryDocument
	tokens int
}

func newDocuments(cfg *Config) *documents {
	return &documents{
		limits:     &cfg.Limits,
		validation: newValidation(cfg.Schema.Schema(), &cfg.Limits),
		hints:      cfg.Introspection,
		known: newLRU(documentEntries, documentBytes, func(text string, d document) int {
			return len(text) + tokenBytes*d.tokens
		}),
		persisted: persistedQueries{newLRU(persistedCount, persistedBytes, func(hash, text string) int {
			return len(hash) + len(text)
		})},
	}
}

// find makes the document of a request that of its operation, if it was read before, and
// reports whether it was.
func (d *documents) find(ctx context.Context, op *operation, params *graphql.RawParams) bool {
	doc, ok := d.known.Get(ctx, params.Query)
	op.document = doc.parsed
	return ok
}

// of makes the document of a request, whose text it puts in the place of a hash, that of the
// context's operation.
func (d *documents) of(ctx context.Context, params *graphql.RawParams) gqlerror.List {
	hash, refused := d.persisted.find(ctx, params)
	if refused != nil {
		return gqlerror.List{refused}
	}
	op := operationOf(ctx)
	if op.document == nil && !d.find(ctx, op, params) {
		doc, list := d.read(ctx, params.Query)
		if list != nil {
			return list
		}
		op.document = doc.parsed
		d.known.Add(ctx, params.Query, doc)
	}
	if hash != "" {
		d.persisted.documents.Add(ctx, hash, params.Query)
	}
	return nil
}

// read parses a document, and refuses what is too large or not valid: first by what
// costs the least to know.
func (d *documents) read(ctx context.Context, text string) (document, gqlerror.List) {
	if len(text) > d.limits.Query {
		return document{}, gqlerror.List{refuse(CodeTooComplex, "the query has %d bytes; at most %d are allowed (--max-query): send values as variables, or several operations", len(text), d.limits.Query)}
	}
	doc, tokens, longest, refused := parse(text, d.limits.Tokens)
	if refused == nil {
		refused = checkShape(doc, d.limits)
	}
	if refused != nil {
		return document{}, gqlerror.List{refused}
	}
	if list := d.validation.check(ctx, doc, d.hints && longest <= longestHint); list != nil {
		return document{}, list
	}
	return document{doc, tokens}, nil
}

// validDocument is gqlgen's cache of documents: it has the one of the context's operation,
// whatever the text, so that gqlgen does not parse or validate.
type validDocument struct{}

func (validDocument) Get(ctx context.Context, _ string) (*ast.QueryDocument, bool) {
	return operationOf(ctx).document, true
}

func (validDocument) Add(context.Context, string, *ast.QueryDocument) {}
