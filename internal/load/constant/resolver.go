package constant

import (
	"context"
	"fmt"
	"net/http"

	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/ast"
)

// Resolver holds the documents that every request gets.
type Resolver struct {
	one  *Project
	page *ProjectConnection
}

// NewResolver makes one document and a page of 50, of the size of a catalogue
// entry.
func NewResolver() *Resolver {
	r := &Resolver{page: &ProjectConnection{}}
	for i := range 50 {
		site := fmt.Sprintf("https://project-%d.example.org/", i)
		source := fmt.Sprintf("https://code.example.org/project-%d", i)
		stars, archived, updated := 1000+i, false, "2025-08-05"
		r.page.Nodes = append(r.page.Nodes, &Project{
			ID: fmt.Sprintf("Project:project-%d", i), Key: fmt.Sprintf("project-%d", i), Version: 54,
			Name:        fmt.Sprintf("Project %d", i),
			Description: "Minimalist JSON storage service with synchronisation and sharing abilities.",
			WebsiteURL:  &site, SourceCodeURL: &source, Stars: &stars, Archived: &archived, UpdatedAt: &updated,
		})
	}
	r.one = r.page.Nodes[0]
	return r
}

// Handler is the stock server: POST and a query cache, nothing else.
func Handler() http.Handler {
	s := handler.New(NewExecutableSchema(Config{Resolvers: NewResolver()}))
	s.AddTransport(transport.POST{})
	s.SetQueryCache(lru.New[*ast.QueryDocument](1000))
	return s
}

// Query implements ResolverRoot.
func (r *Resolver) Query() QueryResolver { return r }

// Project returns the same document for every key.
func (r *Resolver) Project(context.Context, string) (*Project, error) { return r.one, nil }

// Projects returns the same page for every filter.
func (r *Resolver) Projects(context.Context, *ProjectWhere, []*ProjectOrder, *int) (*ProjectConnection, error) {
	return r.page, nil
}
