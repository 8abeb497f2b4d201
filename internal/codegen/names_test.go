package codegen

import "testing"

func TestNames(t *testing.T) {
	tests := []struct {
		what     string
		f        func(string) string
		in, want string
	}{
		{"plural", plural, "project", "projects"},
		{"plural", plural, "city", "cities"},
		{"plural", plural, "person", "people"},
		{"plural", plural, "status", "statuses"},
		{"plural", plural, "gameServer", "gameServers"},
		{"plural", plural, "salesPerson", "salesPeople"},
		{"plural", plural, "file_box", "file_boxes"},
		{"singular", singular, "tags", "tag"},
		{"singular", singular, "licenses", "license"},
		{"singular", singular, "relatedTags", "relatedTag"},
		{"singular", singular, "categories", "category"},
		{"singular", singular, "relatedPeople", "relatedPerson"},
		{"singular", singular, "news", "news"},
		{"singular", singular, "team", "team"},
		{"lowerFirst", lowerFirst, "Project", "project"},
		{"lowerFirst", lowerFirst, "GameServer", "gameServer"},
		{"lowerFirst", lowerFirst, "URLMap", "urlMap"},
		{"lowerFirst", lowerFirst, "DNS", "dns"},
		{"lowerFirst", lowerFirst, "A", "a"},
		{"goName", goName, "websiteUrl", "WebsiteUrl"},
		{"goName", goName, "source_code", "SourceCode"},
		{"goName", goName, "document", "Document"},
		{"goName", goName, "raw_field", "RawField_"},
		{"goName", goName, "string", "String_"},
		{"goName", goName, "isNode", "IsNode_"},
		{"article", article, "Order", "an Order"},
		{"article", article, "Project", "a Project"},
	}
	for _, test := range tests {
		if got := test.f(test.in); got != test.want {
			t.Errorf("%s(%q) = %q, want %q", test.what, test.in, got, test.want)
		}
	}
	if got := keyName("tags", true); got != "tagKeys" {
		t.Errorf("the keys of tags are called %q", got)
	}
	if got := keyName("license", false); got != "licenseKey" {
		t.Errorf("the key of license is called %q", got)
	}
}
