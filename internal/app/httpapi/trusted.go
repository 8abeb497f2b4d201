package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// trustedDocument is one of the documents that are executed where no others are.
type trustedDocument struct {
	text   string
	parsed *ast.QueryDocument
}

// apolloManifest is the format that Apollo's manifests of operations name.
const apolloManifest = "apollo-persisted-query-manifest"

// ReadTrusted reads the documents in a file that the build of a client has written, by their ids:
// a map from ids to documents (graphql-codegen's client preset, Relay's compiler), or a manifest
// of operations (Apollo's generate-persisted-query-manifest).
func ReadTrusted(text []byte) (map[string]string, error) {
	var members map[string]jsontext.Value
	if err := strictjson.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("want a JSON object with the texts of documents by their ids, or a manifest of Apollo's: %w", err)
	}
	documents := map[string]string{}
	if string(members["format"]) == `"`+apolloManifest+`"` {
		var manifest struct {
			Version    int
			Operations []struct{ ID, Body string }
		}
		if err := strictjson.Unmarshal(text, &manifest, strictjson.MatchCaseInsensitiveNames(true)); err != nil {
			return nil, fmt.Errorf("reading the manifest of operations: %w", err)
		}
		if manifest.Version != 1 {
			return nil, fmt.Errorf("the manifest has the version %d; only version 1 is known", manifest.Version)
		}
		for _, operation := range manifest.Operations {
			if other, ok := documents[operation.ID]; ok && other != operation.Body {
				return nil, fmt.Errorf("two documents have the id %q", shorten(operation.ID))
			}
			documents[operation.ID] = operation.Body
		}
	} else {
		for id, value := range members {
			var document string
			if err := strictjson.Unmarshal(value, &document); err != nil {
				return nil, fmt.Errorf("the value of %q is not a string: want the text of a document", shorten(id))
			}
			documents[id] = document
		}
	}
	if len(documents) == 0 {
		return nil, errors.New("there are no documents in it")
	}
	return documents, nil
}

// plainID returns an id without the prefix that says how it was made (GraphQL over HTTP).
func plainID(id string) string { return strings.TrimPrefix(id, "sha256:") }

// trust reads the trusted documents, if there are some. They are found by their ids and by the
// SHA-256 of their texts. All that are not valid are named in the error.
func (d *documents) trust(texts map[string]string) error {
	if texts == nil {
		return nil
	}
	d.trusted = make(map[string]*trustedDocument, 2*len(texts))
	var wrong []error
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		text := texts[id]
		doc, list := d.read(context.Background(), text)
		if list != nil {
			wrong = append(wrong, fmt.Errorf("the document %q (%s): %s", shorten(id), shorten(strings.Join(strings.Fields(text), " ")), strings.TrimSpace(list.Error())))
			continue
		}
		trusted := &trustedDocument{text, doc.parsed}
		d.trusted[plainID(id)], d.trusted[hashOf(text)] = trusted, trusted
	}
	return errors.Join(wrong...)
}

// findTrusted makes the trusted document that a request names, or whose text it has, that of its
// operation.
func (d *documents) findTrusted(op *operation, params *graphql.RawParams, id string) gqlerror.List {
	if params.Query != "" {
		id = hashOf(params.Query)
	}
	doc := d.trusted[id]
	if doc == nil {
		return gqlerror.List{refuse(CodeForbidden, "this server executes no documents but those of a list (--trusted-documents), and this is none of them: "+
			"build the list again with the client that sends it")}
	}
	op.document, params.Query = doc.parsed, doc.text
	return nil
}
