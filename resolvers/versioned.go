// Code generated from schema.graphqls by internal/codegen; DO NOT EDIT.

package resolvers

import (
	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/storage"
)

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
