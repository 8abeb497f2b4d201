// Package httpapi serves a GraphQL schema over HTTP: requests in JSON by POST
// and GET, server-sent events, and WebSockets (graphql-transport-ws).
//
// Invariants:
//
//   - It knows no store and no generated code: it gets a
//     [graphql.ExecutableSchema] and small functions ([Config]).
//   - Whatever arrives is refused or answered, never a panic, and what one
//     request may cost is bounded before it is paid: bytes before they are
//     read, tokens before they are parsed, shape before the document is
//     validated, steps while it is, cost before it is executed, time and fields
//     while it is.
//   - A mutation is executed only for a POST with a JSON body, or over a
//     WebSocket whose origin was checked, so that no other site can make a
//     browser send one.
//   - Every error has extensions.code. Status codes and media types follow
//     GraphQL over HTTP.
//   - What was accepted is finished before [Handler.Drain] returns.
//
// The exchange reads a request, executes it on gqlgen's executor, and writes the
// answer: status codes, media types, the errors' words and codes, and the
// encoding are decided there. gqlgen's transports read requests by GET, and speak
// the protocol of WebSockets.
package httpapi
