package transfer

import (
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A document that is no JSON any more is not exported as if it were.
func TestDamagedDocumentsAreNotExported(t *testing.T) {
	for _, data := range []string{`{"a":fXlse}`, "{\"a\":\"\xff\"}", "{\"a\":\x00}"} {
		v := &driver.Version{Collection: "tags", Key: "a", Number: 2, RecordedAt: 1, Op: driver.OpCreate, Author: "x", Data: []byte(data)}
		if line, err := appendLine(nil, v, true); err == nil || !strings.Contains(err.Error(), `version 2 is damaged; asof check finds all that are: tags "a": the data is not `) {
			t.Errorf("%q: %v: %q", data, err, line)
		}
	}
}
