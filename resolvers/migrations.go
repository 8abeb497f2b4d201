// Package resolvers answers for the documents of schema.graphqls. This file is written by hand.
package resolvers

import "github.com/asof/asof/storage"

// Migrations are, by the names of their types, how documents that were written under earlier schemas become what
// they are today, where @was cannot say it.
// "asof schema list" has the numbers of those schemas. A migration must
// return the same for the same arguments, and is called again and again: it is slow to ask others there.
func Migrations() map[string]storage.Migration { return nil }
