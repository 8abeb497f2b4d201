package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// persistedVersion is the version of the protocol of automatic persisted queries
// that is spoken, the only one there is.
const persistedVersion = "1"

// persistedQueries keeps the valid documents that clients have sent with their hashes,
// so that the hash alone can be sent from then on (automatic persisted queries, as
// Apollo's clients have them). gqlgen's extension does the same with errors that
// do not say what to do, and with documents of any kind.
type persistedQueries struct{ documents *lru[string] } // by hash

// find puts the document in the place of its hash. It returns the hash of a document
// that was sent with it, to be kept; "": there is nothing to keep.
func (p persistedQueries) find(ctx context.Context, params *graphql.RawParams) (keep string, refused *gqlerror.Error) {
	given := params.Extensions["persistedQuery"]
	if given == nil {
		return "", nil
	}
	object, _ := given.(map[string]any)
	hash, isText := object["sha256Hash"].(string)
	version, isNumber := object["version"].(json.Number)
	switch {
	case !isText || !isNumber:
		return "", refuse(CodeBadInput, `extensions.persistedQuery must be an object with "version": %s, a number, `+
			`and "sha256Hash", the SHA-256 of the query in hexadecimal`, persistedVersion)
	case version != persistedVersion:
		return "", refuse(CodeBadInput, "extensions.persistedQuery has the version %s; this server knows version %s only", version, persistedVersion)
	case params.Query == "":
		known, ok := p.documents.Get(ctx, hash)
		if !ok {
			// Clients look for these words, and send the query as well.
			return "", refuse(CodeNotPersisted, "PersistedQueryNotFound")
		}
		params.Query = known
		return "", nil
	case hashOf(params.Query) != hash:
		return "", refuse(CodeBadInput, `extensions.persistedQuery.sha256Hash does not match "query": `+
			"send the SHA-256 of exactly the text that is sent, in lower-case hexadecimal")
	default:
		return hash, nil
	}
}

// hashOf is how clients name a document.
func hashOf(query string) string {
	sum := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:])
}
