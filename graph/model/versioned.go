// Code generated from schema.graphqls by internal/codegen; DO NOT EDIT.

// Package model holds the documents of the schema: views over stored bytes
// that decode nothing until a field is asked for, and the metadata from which
// package record knows their fields.
package model

import (
	"encoding/json"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// What the models embed, under names that no field of the schema can have.
type (
	document = storage.Document
	element  = storage.Object
)

// What is imported is used, whatever kinds of fields there are.
var (
	_ driver.Instant
	_ json.RawMessage
)

// Types are all types of documents, in the order of the schema.
var Types = []*record.Type{ProjectType, TagType, LicenseType, PlatformType}

// Result is the outcome of a write: a *storage.Success or a *storage.Conflict
// of the document's model, or what storage.Commit returns.
type Result any

// CommitInput changes several documents.
type CommitInput = storage.CommitInput[*ChangeInput]

// ChangeInput is what a commit does to one document.
type ChangeInput struct {
	CreateProject        *storage.CreateInput
	UpdateProject        *storage.UpdateInput
	DeleteProject        *storage.DeleteInput
	RestoreProject       *storage.RestoreInput
	ApproveProjectDraft  *storage.ApproveDraftInput
	CreateTag            *storage.CreateInput
	UpdateTag            *storage.UpdateInput
	DeleteTag            *storage.DeleteInput
	RestoreTag           *storage.RestoreInput
	ApproveTagDraft      *storage.ApproveDraftInput
	CreateLicense        *storage.CreateInput
	UpdateLicense        *storage.UpdateInput
	DeleteLicense        *storage.DeleteInput
	RestoreLicense       *storage.RestoreInput
	ApproveLicenseDraft  *storage.ApproveDraftInput
	CreatePlatform       *storage.CreateInput
	UpdatePlatform       *storage.UpdateInput
	DeletePlatform       *storage.DeleteInput
	RestorePlatform      *storage.RestoreInput
	ApprovePlatformDraft *storage.ApproveDraftInput
}

// Given returns the changes that are given, which should be one.
func (c *ChangeInput) Given() (given []storage.Change) {
	if in := c.CreateProject; in != nil {
		given = append(given, storage.Change{Type: ProjectType, Field: "createProject", Input: in})
	}
	if in := c.UpdateProject; in != nil {
		given = append(given, storage.Change{Type: ProjectType, Field: "updateProject", Input: in})
	}
	if in := c.DeleteProject; in != nil {
		given = append(given, storage.Change{Type: ProjectType, Field: "deleteProject", Input: in})
	}
	if in := c.RestoreProject; in != nil {
		given = append(given, storage.Change{Type: ProjectType, Field: "restoreProject", Input: in})
	}
	if in := c.ApproveProjectDraft; in != nil {
		given = append(given, storage.Change{Type: ProjectType, Field: "approveProjectDraft", Input: in})
	}
	if in := c.CreateTag; in != nil {
		given = append(given, storage.Change{Type: TagType, Field: "createTag", Input: in})
	}
	if in := c.UpdateTag; in != nil {
		given = append(given, storage.Change{Type: TagType, Field: "updateTag", Input: in})
	}
	if in := c.DeleteTag; in != nil {
		given = append(given, storage.Change{Type: TagType, Field: "deleteTag", Input: in})
	}
	if in := c.RestoreTag; in != nil {
		given = append(given, storage.Change{Type: TagType, Field: "restoreTag", Input: in})
	}
	if in := c.ApproveTagDraft; in != nil {
		given = append(given, storage.Change{Type: TagType, Field: "approveTagDraft", Input: in})
	}
	if in := c.CreateLicense; in != nil {
		given = append(given, storage.Change{Type: LicenseType, Field: "createLicense", Input: in})
	}
	if in := c.UpdateLicense; in != nil {
		given = append(given, storage.Change{Type: LicenseType, Field: "updateLicense", Input: in})
	}
	if in := c.DeleteLicense; in != nil {
		given = append(given, storage.Change{Type: LicenseType, Field: "deleteLicense", Input: in})
	}
	if in := c.RestoreLicense; in != nil {
		given = append(given, storage.Change{Type: LicenseType, Field: "restoreLicense", Input: in})
	}
	if in := c.ApproveLicenseDraft; in != nil {
		given = append(given, storage.Change{Type: LicenseType, Field: "approveLicenseDraft", Input: in})
	}
	if in := c.CreatePlatform; in != nil {
		given = append(given, storage.Change{Type: PlatformType, Field: "createPlatform", Input: in})
	}
	if in := c.UpdatePlatform; in != nil {
		given = append(given, storage.Change{Type: PlatformType, Field: "updatePlatform", Input: in})
	}
	if in := c.DeletePlatform; in != nil {
		given = append(given, storage.Change{Type: PlatformType, Field: "deletePlatform", Input: in})
	}
	if in := c.RestorePlatform; in != nil {
		given = append(given, storage.Change{Type: PlatformType, Field: "restorePlatform", Input: in})
	}
	if in := c.ApprovePlatformDraft; in != nil {
		given = append(given, storage.Change{Type: PlatformType, Field: "approvePlatformDraft", Input: in})
	}
	return given
}

// The places of the fields in ProjectType.
const (
	ProjectFieldName = iota
	ProjectFieldDescription
	ProjectFieldWebsiteUrl
	ProjectFieldSourceCodeUrl
	ProjectFieldDemoUrl
	ProjectFieldLicenses
	ProjectFieldPlatforms
	ProjectFieldTags
	ProjectFieldRelatedSoftwareUrl
	ProjectFieldStars
	ProjectFieldArchived
	ProjectFieldUpdatedAt
	ProjectFieldCurrentRelease
	ProjectFieldCommitHistory
)

// ProjectType describes Project.
var ProjectType = &record.Type{
	Name: "Project", Singular: "project", Plural: "projects", Collection: "software",
	Fields: []record.Field{
		ProjectFieldName:               {Name: "name", Stored: "name", Kind: record.KindString, NonNull: true, Indexed: true},
		ProjectFieldDescription:        {Name: "description", Stored: "description", Kind: record.KindString, NonNull: true},
		ProjectFieldWebsiteUrl:         {Name: "websiteUrl", Stored: "website_url", Kind: record.KindString},
		ProjectFieldSourceCodeUrl:      {Name: "sourceCodeUrl", Stored: "source_code_url", Kind: record.KindString},
		ProjectFieldDemoUrl:            {Name: "demoUrl", Stored: "demo_url", Kind: record.KindString},
		ProjectFieldLicenses:           {Name: "licenses", Stored: "licenses", Kind: record.KindRef, List: true, NonNull: true, Ref: "License", Keys: "licenseKeys"},
		ProjectFieldPlatforms:          {Name: "platforms", Stored: "platforms", Kind: record.KindRef, List: true, NonNull: true, Ref: "Platform", Keys: "platformKeys"},
		ProjectFieldTags:               {Name: "tags", Stored: "tags", Kind: record.KindRef, List: true, NonNull: true, Indexed: true, Ref: "Tag", Keys: "tagKeys"},
		ProjectFieldRelatedSoftwareUrl: {Name: "relatedSoftwareUrl", Stored: "related_software_url", Kind: record.KindString},
		ProjectFieldStars:              {Name: "stars", Stored: "stargazers_count", Kind: record.KindInt, Indexed: true},
		ProjectFieldArchived:           {Name: "archived", Stored: "archived", Kind: record.KindBoolean},
		ProjectFieldUpdatedAt:          {Name: "updatedAt", Stored: "updated_at", Kind: record.KindDate, Indexed: true},
		ProjectFieldCurrentRelease:     {Name: "currentRelease", Stored: "current_release", Kind: record.KindObject, Object: ReleaseType},
		ProjectFieldCommitHistory:      {Name: "commitHistory", Stored: "commit_history", Kind: record.KindJSON},
	},
}

// Project is a version of a document.
type Project struct{ *document }

// NewProject wraps a document of ProjectType.
func NewProject(d *storage.Document) *Project { return &Project{d} }

// Name reads name.
func (v *Project) Name() (string, error) { return v.document.Object.String(ProjectFieldName) }

// Description reads description.
func (v *Project) Description() (string, error) {
	return v.document.Object.String(ProjectFieldDescription)
}

// WebsiteUrl reads websiteUrl.
func (v *Project) WebsiteUrl() (*string, error) {
	return v.document.Object.OptString(ProjectFieldWebsiteUrl)
}

// SourceCodeUrl reads sourceCodeUrl.
func (v *Project) SourceCodeUrl() (*string, error) {
	return v.document.Object.OptString(ProjectFieldSourceCodeUrl)
}

// DemoUrl reads demoUrl.
func (v *Project) DemoUrl() (*string, error) { return v.document.Object.OptString(ProjectFieldDemoUrl) }

// LicenseKeys reads licenses: the keys that it refers to.
func (v *Project) LicenseKeys() ([]string, error) {
	return v.document.Object.RefKeys(ProjectFieldLicenses)
}

// PlatformKeys reads platforms: the keys that it refers to.
func (v *Project) PlatformKeys() ([]string, error) {
	return v.document.Object.RefKeys(ProjectFieldPlatforms)
}

// TagKeys reads tags: the keys that it refers to.
func (v *Project) TagKeys() ([]string, error) { return v.document.Object.RefKeys(ProjectFieldTags) }

// RelatedSoftwareUrl reads relatedSoftwareUrl.
func (v *Project) RelatedSoftwareUrl() (*string, error) {
	return v.document.Object.OptString(ProjectFieldRelatedSoftwareUrl)
}

// Stars reads stars.
func (v *Project) Stars() (*int, error) { return v.document.Object.OptInt(ProjectFieldStars) }

// Archived reads archived.
func (v *Project) Archived() (*bool, error) { return v.document.Object.OptBool(ProjectFieldArchived) }

// UpdatedAt reads updatedAt.
func (v *Project) UpdatedAt() (*string, error) {
	return v.document.Object.OptString(ProjectFieldUpdatedAt)
}

// CurrentRelease reads currentRelease.
func (v *Project) CurrentRelease() (*Release, error) {
	return object[Release](v.document.Object.Object(ProjectFieldCurrentRelease))
}

// CommitHistory reads commitHistory.
func (v *Project) CommitHistory() (json.RawMessage, error) {
	return v.document.Object.JSON(ProjectFieldCommitHistory)
}

// What is made of Project by package storage.
type (
	ProjectConnection        = storage.Connection[*Project]
	ProjectEdge              = storage.Edge[*Project]
	ProjectVersionConnection = storage.VersionConnection[*Project]
	ProjectVersionEdge       = storage.VersionEdge[*Project]
	ProjectHistory           = storage.History[*Project]
	ProjectEvent             = storage.DocumentEvent[*Project]
	ProjectSuccess           = storage.Success[*Project]
	ProjectConflict          = storage.Conflict[*Project]
	ProjectDraft             = storage.Draft[*Project]
	ProjectDraftConnection   = storage.Connection[*storage.Draft[*Project]]
	ProjectDraftEdge         = storage.Edge[*storage.Draft[*Project]]
	ProjectDraftSuccess      = storage.DraftSuccess[*Project]
	ProjectDraftConflict     = storage.DraftConflict[*Project]
)

// The places of the fields in TagType.
const (
	TagFieldName = iota
	TagFieldDescription
	TagFieldRelatedTags
	TagFieldDelegateTo
	TagFieldExternalLinks
	TagFieldRedirect
)

// TagType describes Tag.
var TagType = &record.Type{
	Name: "Tag", Singular: "tag", Plural: "tags", Collection: "tags",
	Fields: []record.Field{
		TagFieldName:          {Name: "name", Stored: "name", Kind: record.KindString, NonNull: true, Indexed: true},
		TagFieldDescription:   {Name: "description", Stored: "description", Kind: record.KindString, NonNull: true},
		TagFieldRelatedTags:   {Name: "relatedTags", Stored: "related_tags", Kind: record.KindRef, List: true, Ref: "Tag", Keys: "relatedTagKeys"},
		TagFieldDelegateTo:    {Name: "delegateTo", Stored: "delegate_to", Kind: record.KindObject, List: true, ElemNonNull: true, Object: LinkType},
		TagFieldExternalLinks: {Name: "externalLinks", Stored: "external_links", Kind: record.KindObject, List: true, ElemNonNull: true, Object: LinkType},
		TagFieldRedirect:      {Name: "redirect", Stored: "redirect", Kind: record.KindObject, List: true, ElemNonNull: true, Object: LinkType},
	},
}

// Tag is a version of a document.
type Tag struct{ *document }

// NewTag wraps a document of TagType.
func NewTag(d *storage.Document) *Tag { return &Tag{d} }

// Name reads name.
func (v *Tag) Name() (string, error) { return v.document.Object.String(TagFieldName) }

// Description reads description.
func (v *Tag) Description() (string, error) { return v.document.Object.String(TagFieldDescription) }

// RelatedTagKeys reads relatedTags: the keys that it refers to.
func (v *Tag) RelatedTagKeys() ([]string, error) {
	return v.document.Object.RefKeys(TagFieldRelatedTags)
}

// DelegateTo reads delegateTo.
func (v *Tag) DelegateTo() ([]*Link, error) {
	return objects[Link](v.document.Object.Objects(TagFieldDelegateTo))
}

// ExternalLinks reads externalLinks.
func (v *Tag) ExternalLinks() ([]*Link, error) {
	return objects[Link](v.document.Object.Objects(TagFieldExternalLinks))
}

// Redirect reads redirect.
func (v *Tag) Redirect() ([]*Link, error) {
	return objects[Link](v.document.Object.Objects(TagFieldRedirect))
}

// What is made of Tag by package storage.
type (
	TagConnection        = storage.Connection[*Tag]
	TagEdge              = storage.Edge[*Tag]
	TagVersionConnection = storage.VersionConnection[*Tag]
	TagVersionEdge       = storage.VersionEdge[*Tag]
	TagHistory           = storage.History[*Tag]
	TagEvent             = storage.DocumentEvent[*Tag]
	TagSuccess           = storage.Success[*Tag]
	TagConflict          = storage.Conflict[*Tag]
	TagDraft             = storage.Draft[*Tag]
	TagDraftConnection   = storage.Connection[*storage.Draft[*Tag]]
	TagDraftEdge         = storage.Edge[*storage.Draft[*Tag]]
	TagDraftSuccess      = storage.DraftSuccess[*Tag]
	TagDraftConflict     = storage.DraftConflict[*Tag]
)

// The places of the fields in LicenseType.
const (
	LicenseFieldIdentifier = iota
	LicenseFieldName
	LicenseFieldUrl
)

// LicenseType describes License.
var LicenseType = &record.Type{
	Name: "License", Singular: "license", Plural: "licenses", Collection: "licenses",
	Fields: []record.Field{
		LicenseFieldIdentifier: {Name: "identifier", Stored: "identifier", Kind: record.KindString, NonNull: true, Indexed: true},
		LicenseFieldName:       {Name: "name", Stored: "name", Kind: record.KindString},
		LicenseFieldUrl:        {Name: "url", Stored: "url", Kind: record.KindString},
	},
}

// License is a version of a document.
type License struct{ *document }

// NewLicense wraps a document of LicenseType.
func NewLicense(d *storage.Document) *License { return &License{d} }

// Identifier reads identifier.
func (v *License) Identifier() (string, error) {
	return v.document.Object.String(LicenseFieldIdentifier)
}

// Name reads name.
func (v *License) Name() (*string, error) { return v.document.Object.OptString(LicenseFieldName) }

// Url reads url.
func (v *License) Url() (*string, error) { return v.document.Object.OptString(LicenseFieldUrl) }

// What is made of License by package storage.
type (
	LicenseConnection        = storage.Connection[*License]
	LicenseEdge              = storage.Edge[*License]
	LicenseVersionConnection = storage.VersionConnection[*License]
	LicenseVersionEdge       = storage.VersionEdge[*License]
	LicenseHistory           = storage.History[*License]
	LicenseEvent             = storage.DocumentEvent[*License]
	LicenseSuccess           = storage.Success[*License]
	LicenseConflict          = storage.Conflict[*License]
	LicenseDraft             = storage.Draft[*License]
	LicenseDraftConnection   = storage.Connection[*storage.Draft[*License]]
	LicenseDraftEdge         = storage.Edge[*storage.Draft[*License]]
	LicenseDraftSuccess      = storage.DraftSuccess[*License]
	LicenseDraftConflict     = storage.DraftConflict[*License]
)

// The places of the fields in PlatformType.
const (
	PlatformFieldName = iota
	PlatformFieldDescription
)

// PlatformType describes Platform.
var PlatformType = &record.Type{
	Name: "Platform", Singular: "platform", Plural: "platforms", Collection: "platforms",
	Fields: []record.Field{
		PlatformFieldName:        {Name: "name", Stored: "name", Kind: record.KindString, NonNull: true, Indexed: true},
		PlatformFieldDescription: {Name: "description", Stored: "description", Kind: record.KindString, NonNull: true},
	},
}

// Platform is a version of a document.
type Platform struct{ *document }

// NewPlatform wraps a document of PlatformType.
func NewPlatform(d *storage.Document) *Platform { return &Platform{d} }

// Name reads name.
func (v *Platform) Name() (string, error) { return v.document.Object.String(PlatformFieldName) }

// Description reads description.
func (v *Platform) Description() (string, error) {
	return v.document.Object.String(PlatformFieldDescription)
}

// What is made of Platform by package storage.
type (
	PlatformConnection        = storage.Connection[*Platform]
	PlatformEdge              = storage.Edge[*Platform]
	PlatformVersionConnection = storage.VersionConnection[*Platform]
	PlatformVersionEdge       = storage.VersionEdge[*Platform]
	PlatformHistory           = storage.History[*Platform]
	PlatformEvent             = storage.DocumentEvent[*Platform]
	PlatformSuccess           = storage.Success[*Platform]
	PlatformConflict          = storage.Conflict[*Platform]
	PlatformDraft             = storage.Draft[*Platform]
	PlatformDraftConnection   = storage.Connection[*storage.Draft[*Platform]]
	PlatformDraftEdge         = storage.Edge[*storage.Draft[*Platform]]
	PlatformDraftSuccess      = storage.DraftSuccess[*Platform]
	PlatformDraftConflict     = storage.DraftConflict[*Platform]
)

// The places of the fields in ReleaseType.
const (
	ReleaseFieldTag = iota
	ReleaseFieldPublishedAt
)

// ReleaseType describes Release.
var ReleaseType = &record.ObjectType{
	Name: "Release",
	Fields: []record.Field{
		ReleaseFieldTag:         {Name: "tag", Stored: "tag", Kind: record.KindString},
		ReleaseFieldPublishedAt: {Name: "publishedAt", Stored: "published_at", Kind: record.KindDate},
	},
}

// Release is an object inside a document.
type Release struct{ *element }

// Tag reads tag.
func (v *Release) Tag() (*string, error) { return v.element.OptString(ReleaseFieldTag) }

// PublishedAt reads publishedAt.
func (v *Release) PublishedAt() (*string, error) { return v.element.OptString(ReleaseFieldPublishedAt) }

// The places of the fields in LinkType.
const (
	LinkFieldTitle = iota
	LinkFieldUrl
)

// LinkType describes Link.
var LinkType = &record.ObjectType{
	Name: "Link",
	Fields: []record.Field{
		LinkFieldTitle: {Name: "title", Stored: "title", Kind: record.KindString},
		LinkFieldUrl:   {Name: "url", Stored: "url", Kind: record.KindString},
	},
}

// Link is an object inside a document.
type Link struct{ *element }

// Title reads title.
func (v *Link) Title() (*string, error) { return v.element.OptString(LinkFieldTitle) }

// Url reads url.
func (v *Link) Url() (*string, error) { return v.element.OptString(LinkFieldUrl) }

// object wraps a nested object; nil stays nil.
func object[T ~struct{ *element }](o *storage.Object, err error) (*T, error) {
	if o == nil || err != nil {
		return nil, err
	}
	return &T{o}, nil
}

// objects wraps a list of nested objects; nil stays nil.
func objects[T ~struct{ *element }](list []*storage.Object, err error) ([]*T, error) {
	if list == nil || err != nil {
		return nil, err
	}
	out := make([]*T, len(list))
	for i, o := range list {
		if o != nil {
			out[i] = &T{o}
		}
	}
	return out, nil
}
