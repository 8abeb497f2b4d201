// Code generated from schema.graphqls by internal/codegen; DO NOT EDIT.

// Package resolvers connects the generated executor with the store. A resolver
// is one call into package storage or package dataloader; everything that
// decides something is there.
package resolvers

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/graph"
	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/storage"
)

// SDL is what documents can hold, by schema.graphqls. Its hash is the schema's number.
const SDL = "type Project @versioned(collection: \"software\") {\n" +
	"  name: String!\n" +
	"  description: String!\n" +
	"  websiteUrl: String @stored(as: \"website_url\")\n" +
	"  sourceCodeUrl: String @stored(as: \"source_code_url\")\n" +
	"  demoUrl: String @stored(as: \"demo_url\")\n" +
	"  licenses: [License]! @ref\n" +
	"  platforms: [Platform]! @ref\n" +
	"  tags: [Tag]! @ref\n" +
	"  relatedSoftwareUrl: String @stored(as: \"related_software_url\")\n" +
	"  stars: Int @stored(as: \"stargazers_count\")\n" +
	"  archived: Boolean\n" +
	"  updatedAt: Date @stored(as: \"updated_at\")\n" +
	"  currentRelease: Release @stored(as: \"current_release\")\n" +
	"  commitHistory: JSON @stored(as: \"commit_history\")\n" +
	"}\n" +
	"type Tag @versioned(collection: \"tags\") {\n" +
	"  name: String!\n" +
	"  description: String!\n" +
	"  relatedTags: [Tag] @ref @stored(as: \"related_tags\")\n" +
	"  delegateTo: [Link!] @stored(as: \"delegate_to\")\n" +
	"  externalLinks: [Link!] @stored(as: \"external_links\")\n" +
	"  redirect: [Link!]\n" +
	"}\n" +
	"type License @versioned(collection: \"licenses\") {\n" +
	"  identifier: String!\n" +
	"  name: String\n" +
	"  url: String\n" +
	"}\n" +
	"type Platform @versioned(collection: \"platforms\") {\n" +
	"  name: String!\n" +
	"  description: String!\n" +
	"}\n" +
	"type Release {\n" +
	"  tag: String\n" +
	"  publishedAt: Date @stored(as: \"published_at\")\n" +
	"}\n" +
	"type Link {\n" +
	"  title: String\n" +
	"  url: String\n" +
	"}\n"

// Resolver holds what the resolvers need. Its fields are not exported, as its
// methods have the names of types and root fields.
type Resolver struct {
	store       *storage.Store
	collections collections
}

// root is what the resolvers of each type embed, under a name that no root field
// can have.
type root = Resolver

// NewSchema returns the executable schema of a store's documents. It registers the
// models with the store, so it is called before the store is used.
func NewSchema(store *storage.Store) graphql.ExecutableSchema {
	return graph.NewExecutableSchema(graph.Config{Resolvers: &Resolver{store, newCollections(store)}})
}

// collections are the documents by type.
type collections struct {
	Projects  *storage.Collection[*model.Project]
	Tags      *storage.Collection[*model.Tag]
	Licenses  *storage.Collection[*model.License]
	Platforms *storage.Collection[*model.Platform]
}

func newCollections(s *storage.Store) collections {
	return collections{
		Projects:  storage.NewCollection(s, model.ProjectType, model.NewProject),
		Tags:      storage.NewCollection(s, model.TagType, model.NewTag),
		Licenses:  storage.NewCollection(s, model.LicenseType, model.NewLicense),
		Platforms: storage.NewCollection(s, model.PlatformType, model.NewPlatform),
	}
}
