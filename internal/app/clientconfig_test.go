package app

import (
	"strings"
	"testing"
)

// What is printed names what has no id, and how lists are told apart. Apps with the clients are
// tested with what is printed for another schema.
func TestClientConfig(t *testing.T) {
	for client, parts := range map[string][]string{
		"apollo": {
			"  Node: [\"License\", \"Platform\", \"Project\", \"Reading\", \"Tag\"],\n", "  VersionInfo: { fields: { erased: elements, tags: elements }, merge: true },\n",
			"      projects: pages([\"where\", \"orderBy\", \"asOf\", \"tag\"]),\n", "      externalLinks: elements,\n",
		},
		"urql":  {"\"Release\"", "deleteTag: remove('deleteTag'),\n", "commit: remove('commit'),\n", "tagChanged: remove('tagChanged'),\n", "  Node: [\"License\", \"Platform\", \"Project\", \"Reading\", \"Tag\"],\n"},
		"relay": {"const others = [\"Actor\", \"ChangeGroup\", \"LicenseDraft\", "},
	} {
		status, stdout, stderr := run(t, "", "client-config", client)
		if status != exitOK || stderr != "" {
			t.Errorf("%s: %d %s", client, status, stderr)
		}
		for _, part := range parts {
			if !strings.Contains(stdout, part) {
				t.Errorf("%s: there is no %q in\n%s", client, part, stdout)
			}
		}
	}
	if status, _, stderr := run(t, "", "client-config", "other"); status != exitUsage || !strings.Contains(stderr, `"apollo","urql","relay"`) {
		t.Errorf("%d %s", status, stderr)
	}
}
