package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/internal/scalar/literal"
)

// What the cache of documents holds at most. What is parsed takes about tokenBytes for each
// token, at most, and its text.
const (
	documentBytes = 20 << 20
	tokenBytes    = 300
)

// documents reads the documents of requests, each of which is parsed once, and keeps
// the valid ones: these are the only ones that are executed.
type documents struct {
	limits     *Limits
	validation *validation
	hints      bool                 // errors may name what the schema has
	trusted    map[string]*document // by id; nil: any document is executed

	mu    sync.Mutex
	known *lru.Cache[string, *document] // by text, and by hash where a client has sent that
}

// document is a valid document.
type document struct {
	text   string
	parsed *ast.QueryDocument
	tokens int
}

func newDocuments(cfg *Config) *documents {
	return &documents{
		limits:     &cfg.Limits,
		validation: newValidation(cfg.Schema.Schema(), &cfg.Limits),
		hints:      cfg.Introspection,
		known:      lru.New[string, *document](documentBytes),
	}
}

// get returns the document that was kept under a text or a hash; nil: none is.
func (d *documents) get(key string) *document {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, _ := d.known.Get(key)
	return doc
}

// keep keeps a document, unless it would fill more than a quarter of the cache.
func (d *documents) keep(key string, doc *document) {
	if size := doc.bytes(); size <= documentBytes/4 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.known.Add(key, doc, size)
	}
}

// bytes is about what a document takes.
func (d *document) bytes() int { return len(d.text) + tokenBytes*d.tokens }

// DocumentBytes is about what the parsed document of the context's operation takes.
func DocumentBytes(ctx context.Context) int {
	if op := operationOf(ctx); op != nil && op.document != nil {
		return op.document.bytes()
	}
	return 0
}

// find makes the document of a request that of its operation, if it was read before. It reports
// whether there is nothing to read.
func (d *documents) find(op *operation, params *graphql.RawParams) bool {
	if d.trusted != nil {
		return true
	}
	op.document = d.get(params.Query)
	return op.document != nil
}

// of makes the document of a request that of its operation, and replaces a hash by its text.
func (d *documents) of(ctx context.Context, op *operation, params *graphql.RawParams) gqlerror.List {
	hash, refused := persistedHash(op, params)
	switch {
	case refused != nil:
	case d.trusted != nil:
		return d.findTrusted(op, params, hash)
	case params.Query == "":
		if op.document = d.get(hash); op.document == nil {
			// Clients look for these words, and send the query as well.
			return gqlerror.List{refuse(codeNotPersisted, "PersistedQueryNotFound")}
		}
		params.Query = op.document.text
		return nil
	case hash != "" && hash != hashOf(params.Query):
		refused = refuse(codeBadInput, `extensions.persistedQuery.sha256Hash does not match "query": `+
			"send the SHA-256 of exactly the text that is sent, in lower-case hexadecimal")
	}
	if refused != nil {
		return gqlerror.List{refused}
	}
	if op.document == nil && !d.find(op, params) {
		doc, list := d.read(ctx, params.Query)
		if list != nil {
			return list
		}
		op.document = doc
		d.keep(params.Query, doc)
	}
	if hash != "" {
		d.keep(hash, op.document)
	}
	return nil
}

// read parses a document, and refuses one that is too large or not valid: the cheapest checks
// come first.
func (d *documents) read(ctx context.Context, text string) (*document, gqlerror.List) {
	if len(text) > d.limits.Query {
		return nil, gqlerror.List{refuse(codeTooComplex, "the query has %d bytes; at most %d are allowed (--max-query): send values as variables, or several operations", len(text), d.limits.Query)}
	}
	doc, tokens, longest, refused := parse(text, d.limits.Tokens)
	if refused != nil {
		return nil, gqlerror.List{refused}
	}
	if list := d.validation.check(ctx, doc, d.hints && longest <= longestHint); list != nil {
		return nil, list
	}
	return &document{text: text, parsed: doc, tokens: tokens}, nil
}

// persistedVersion is the version of the protocol of automatic persisted queries
// that is spoken, the only one there is.
const persistedVersion = "1"

// persistedHash returns how a request names its document: by extensions.persistedQuery (automatic
// persisted queries, as Apollo's clients have them), or, where it has no text, by a documentId
// (persisted documents of GraphQL over HTTP); "" if it does not. gqlgen's extension does the same
// with errors that do not say what to do, and keeps documents of any kind.
func persistedHash(op *operation, params *graphql.RawParams) (string, *gqlerror.Error) {
	given := params.Extensions["persistedQuery"]
	if op.documentID != "" && params.Query == "" {
		return plainID(op.documentID), nil
	}
	if given == nil {
		return "", nil
	}
	object, _ := given.(map[string]any)
	hash, isText := object["sha256Hash"].(string)
	version, isNumber := object["version"].(json.Number)
	switch {
	case !isText || !isNumber:
		return "", refuse(codeBadInput, `extensions.persistedQuery must be an object with "version": %s, a number, `+
			`and "sha256Hash", the SHA-256 of the query in hexadecimal`, persistedVersion)
	case version != persistedVersion:
		return "", refuse(codeBadInput, "extensions.persistedQuery has the version %s; this server knows version %s only", version, persistedVersion)
	}
	return hash, nil
}

// hashOf is how clients name a document.
func hashOf(query string) string {
	sum := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:])
}

// parse parses a document of at most a number of tokens. It returns their number, and the
// bytes of the longest. An error is for the client.
func parse(text string, most int) (doc *ast.QueryDocument, tokens, longest int, refused *gqlerror.Error) {
	source := &ast.Source{Input: text}
	if tokens, longest, refused = readTokens(source, most); refused != nil {
		return nil, 0, 0, refused
	}
	doc, err := parser.ParseQuery(source)
	given, ok := errors.AsType[*gqlerror.Error](err)
	switch {
	case err == nil && len(doc.Operations) == 0:
		refused = refuse(codeBadInput, "no operation provided")
	case err == nil:
		return doc, tokens, longest, nil
	case ok && given.Message == fmt.Sprintf("exceeded maximum nesting depth of %d", parser.MaxNestingDepth):
		refused = refuse(codeTooComplex, "the query nests more than %d levels deep (selections, lists and objects together), the limit of this server", parser.MaxNestingDepth)
		refused.Locations = given.Locations
	case ok:
		refused = given
	default:
		refused = refuse(codeBadInput, "%v", err)
	}
	return nil, 0, 0, refused
}

// readTokens counts the tokens of a document, and measures the longest, without
// comments. It refuses what is no token (the parser, which looks one ahead, says only
// that one is invalid), and tokens that a parser would change without a word.
func readTokens(source *ast.Source, most int) (tokens, longest int, refused *gqlerror.Error) {
	var text []rune // where it is needed
	for reader := lexer.New(source); ; tokens++ {
		token, err := reader.ReadToken()
		switch {
		case err != nil:
			refused = refuse(codeBadInput, "%s", strings.ToValidUTF8(plainMessage(err), "…"))
		case token.Kind == lexer.EOF:
			return tokens, longest, nil
		case tokens == most:
			return 0, 0, refuse(codeTooComplex, "the query has more than %d tokens (names, values and punctuators), the limit of this server (--max-tokens): send values as variables, or several operations", most)
		case token.Kind == lexer.Int || token.Kind == lexer.Float:
			refused = hugeNumber(token)
		case token.Kind == lexer.String && strings.ContainsRune(token.Value, utf8.RuneError):
			if text == nil {
				text = []rune(source.Input)
			}
			refused = halfPair(string(text[token.Pos.Start:token.Pos.End]))
		default:
		}
		if refused != nil {
			refused.Locations = []gqlerror.Location{{Line: token.Pos.Line, Column: token.Pos.Column}}
			return 0, 0, refused
		}
		if token.Kind != lexer.Comment {
			longest = max(longest, len(token.Value))
		}
	}
}

// plainMessage returns the message of an error, without its position.
func plainMessage(err error) string {
	if given, ok := errors.AsType[*gqlerror.Error](err); ok {
		return given.Message
	}
	return err.Error()
}

// hugeNumber refuses a number that only a variable can have: an executor reads an
// integer into 64 bits before it knows what for.
func hugeNumber(token lexer.Token) *gqlerror.Error {
	var err error
	if token.Kind == lexer.Int {
		_, err = strconv.ParseInt(token.Value, 10, 64)
	} else {
		_, err = literal.Float(json.Number(token.Value))
	}
	if err == nil {
		return nil
	}
	return refuse(codeBadInput, "the number %s is too large, or too close to 0, for the text of a query; "+
		"write it in quotes (ID, Decimal) or send it in a variable", shorten(token.Value))
}

// unlikeJSON matches what a string of GraphQL may have and one of JSON may not, and a backslash
// that escapes another one.
var unlikeJSON = regexp.MustCompile(`\\\\|\\u\{[0-9A-Fa-f]+\}|\t`)

// halfPair refuses a string, as it is written, with an escape for half of a surrogate pair, which
// the lexer replaces by U+FFFD.
func halfPair(written string) *gqlerror.Error {
	if !strings.Contains(written, `\u`) || jsontext.Value(unlikeJSON.ReplaceAllString(written, "x")).IsValid() {
		return nil
	}
	return refuse(codeBadInput, "a string has half of a surrogate pair, which is no character; write both halves, or the character itself: %s", shorten(written))
}

// variableError adds the place to gqlparser's error about a variable's value, which has it as a
// path ("variable", its name, and the way into it). It leaves out what that says of the value: Go's
// kinds, of which numbers are strings here. It returns err where that is about something else.
func variableError(operation *ast.OperationDefinition, err *gqlerror.Error) *gqlerror.Error {
	if len(err.Path) < 2 {
		return err
	}
	name := fmt.Sprint(err.Path[1])
	variable := operation.VariableDefinitions.ForName(name)
	if variable == nil {
		return err
	}
	wrong := err.Message
	if _, typ, ok := strings.Cut(wrong, " as "); ok && strings.HasPrefix(wrong, "cannot use ") {
		wrong = "this is not a valid " + typ
	} else if rest, ok := strings.CutPrefix(wrong, "must be a "); ok {
		typ, _, _ := strings.Cut(rest, ",")
		wrong = "this is not a valid " + typ
	}
	said := *err
	said.Path = nil // in an answer it would name a field of the data
	said.Locations = []gqlerror.Location{{Line: variable.Position.Line, Column: variable.Position.Column}}
	said.Message = fmt.Sprintf("variable %q%s of type %q: %s", "$"+name, append(ast.Path{ast.PathName("")}, err.Path[2:]...), variable.Type, wrong)
	return &said
}

// plainLists makes every list in the values of variables a []any, and returns the value.
// Validating them leaves others where one value stands for a list.
func plainLists(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = plainLists(member)
		}
	case []any:
		for i := range v {
			v[i] = plainLists(v[i])
		}
	default:
		list := reflect.ValueOf(value)
		if list.Kind() != reflect.Slice {
			break
		}
		plain := make([]any, list.Len())
		for i := range plain {
			plain[i] = plainLists(list.Index(i).Interface())
		}
		return plain
	}
	return value
}

// shorten keeps the first hundred characters of a text that has more of them.
func shorten(text string) string {
	most := 100
	for i := range text {
		if most == 0 {
			return text[:i] + "…"
		}
		most--
	}
	return text
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
	d.trusted = make(map[string]*document, 2*len(texts))
	var wrong []error
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		text := texts[id]
		doc, list := d.read(context.Background(), text)
		if list != nil {
			wrong = append(wrong, fmt.Errorf("the document %q (%s): %s", shorten(id), shorten(strings.Join(strings.Fields(text), " ")), strings.TrimSpace(list.Error())))
			continue
		}
		d.trusted[plainID(id)], d.trusted[hashOf(text)] = doc, doc
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
	op.document, params.Query = doc, doc.text
	return nil
}

// jsonText describes a text that has to be a JSON object, for errors.
type jsonText struct {
	what string // "the request body"
	like string // a good one
	list string // what to do instead of a list
}

// numbers has numbers of any size decoded as they are written.
var numbers = strictjson.WithUnmarshalers(strictjson.UnmarshalFromFunc(func(from *jsontext.Decoder, to *any) error {
	if from.PeekKind() != '0' {
		return errors.ErrUnsupported // which leaves it to the library
	}
	digits, err := from.ReadValue()
	*to = json.Number(digits)
	return err
}))

// read decodes the text, which must be one JSON object in valid UTF-8: no member
// of any object in it is there twice, and no string has half of a surrogate pair.
// Members that the destination does not know are passed over.
func (is jsonText) read(text []byte, to any) *problem {
	bad := func(format string, args ...any) *problem {
		return &problem{http.StatusBadRequest, codeBadInput, is.what + " " + fmt.Sprintf(format, args...)}
	}
	start := bytes.TrimLeft(text, " \t\r\n")
	switch {
	case len(start) == 0:
		return bad("is empty; send a JSON object such as %s", is.like)
	case start[0] == '[':
		return bad("is a list: %s", is.list)
	case start[0] != '{':
		return bad("must be a JSON object such as %s", is.like)
	}
	err := strictjson.Unmarshal(text, to, numbers)
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*strictjson.SemanticError](err); ok {
		want := "an object"
		if wrong.GoType.Kind().String() == "string" {
			want = "a string"
		}
		return bad("has a member %q that is not %s", shorten(string(wrong.JSONPointer)), want)
	}
	broken, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok:
		return bad("could not be decoded: %v", err)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return bad("has the member %q more than once; send it once", shorten(string(broken.JSONPointer)))
	default:
		return bad("is not valid JSON: %s (at byte %d)", shorten(broken.Err.Error()), broken.ByteOffset)
	}
}

// parameters are those of a URL, which it may have once.
var parameters = []string{"query", "variables", "operationName", "extensions", "documentId", "id"}

// readURL reads the parameters of a request by GET.
func readURL(r *http.Request, params *params) *problem {
	bad := func(format string, args ...any) *problem {
		return &problem{http.StatusBadRequest, codeBadInput, fmt.Sprintf(format, args...)}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query string could not be decoded: %v", err)
	}
	for name, list := range values {
		if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(list, "")) {
			return bad("the query string is not valid UTF-8")
		}
		if len(list) > 1 && slices.Contains(parameters, name) {
			return bad("the parameter %q was given %d times", name, len(list))
		}
	}
	params.Query, params.OperationName = values.Get("query"), values.Get("operationName")
	params.DocumentID, params.ID = values.Get("documentId"), values.Get("id")
	for name, object := range map[string]struct {
		to   *map[string]any
		like string
	}{
		"variables":  {&params.Variables, `{"key": "hearth"}`},
		"extensions": {&params.Extensions, `{"persistedQuery": {"version": 1, "sha256Hash": "…"}}`},
	} {
		text := values.Get(name)
		if text == "" || text == "null" {
			continue
		}
		is := jsonText{what: fmt.Sprintf("the parameter %q", name), like: object.like, list: "it must be an object such as " + object.like}
		if p := is.read([]byte(text), object.to); p != nil {
			return p
		}
	}
	return nil
}
