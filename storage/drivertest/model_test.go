package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// TestModelLoadUndo checks what no comparison with another engine shows: that
// a refused load leaves no trace in the oracle.
func TestModelLoadUndo(t *testing.T) {
	clock := func() time.Time { return time.UnixMicro(1000) }
	m := NewModel(clock, []driver.Collection{{Name: "c"}})
	ctx := context.Background()
	v := func(key string, at driver.Instant, data string) driver.Version {
		return driver.Version{Collection: "c", Key: key, RecordedAt: at, Op: driver.OpImport, Data: []byte(data)}
	}
	if _, err := m.Load(ctx, []driver.Version{v("a", 10, `{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	_, err := m.Load(ctx, []driver.Version{v("a", 20, `{"n":2}`), v("b", 30, `{}`), v("a", 20, `{"n":3}`)})
	if driver.CodeOf(err) != driver.CodeInvalid {
		t.Fatalf("a load of two versions of one time: got %v, want CodeInvalid", err)
	}
	got, err := m.Get(ctx, "c", []driver.Ref{{Key: "a", At: driver.Forever}, {Key: "b", At: driver.Forever}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Number != 1 || !got[0].Current() || got[1] != nil {
		t.Errorf("after a refused load: a is at %+v, b at %+v; want a's only version, and no b", got[0], got[1])
	}
	stats, err := m.Stats(ctx)
	if err != nil || stats.Documents != 1 || stats.Versions != 1 {
		t.Errorf("Stats() = %+v, %v; want one document of one version", stats, err)
	}
}
