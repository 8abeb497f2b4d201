// Package plan answers common queries straight from stored bytes.
//
// It wraps an executable schema. An operation whose every field is of a kind
// that it knows is compiled once to a plan, which is kept by the parsed
// operation; every other operation goes to the wrapped schema, whole. An
// execution of a plan reads first and writes then:
//
//	bytes ─▶ operation (httpapi/exchange.go: parsed, validated, limited)
//	      ─▶ plan, arguments (plan.go)
//	           read   store.Page / Document ─▶ documents   (roots.go)
//	                  references, level by level, one call of the store for each (load.go)
//	           write  stored bytes ─▶ appended to one buffer ─▶ graphql.Response.Data (write.go)
//	      ─▶ bytes (httpapi/exchange.go)
//
// That is the way of a request. How a plan is made is in compile.go, and the kinds
// of fields in fields.go, but for references (load.go) and root fields (roots.go).
// Plans are kept by package plancache, and package args reads what fields are given.
//
// Invariants:
//
//   - The answer is the wrapped schema's, byte for byte: data, errors and their
//     order within a root field, null where a non-null field has no value. Only
//     what is refused while it is executed, as it follows too many references or
//     its time is over, may be refused elsewhere.
//   - What versions and instants mean is decided in package storage; nothing here
//     compares times.
//   - An operation is planned whole or not at all, and that is decided before
//     anything is read. Arguments that cannot be read are left to the wrapped
//     schema, which words the errors.
//   - A plan is never changed once it is made, and holds nothing of a request but
//     the values of variables in @skip and @include, of which it depends.
//   - A plan reads the same things in the same order as it writes them: what was
//     read waits in queues, one for each field that reads (load.go).
//   - Fields have no contexts: interceptors of operations, responses and root
//     fields see planned operations, those of fields would not: there are none.
package plan
