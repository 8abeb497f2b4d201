package storage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// BenchmarkTodaysForm reads pages of documents that are in today's form by types that were never otherwise
// (plain) and by types that were (declared), and of documents that are in an earlier form.
func BenchmarkTodaysForm(b *testing.B) {
	text := strings.Repeat("d", 400)
	old := `{"name":"n","description":"` + text + `","tags":"x","plan":"GOLD","tag":"v1","published_at":"2020-01-01","stargazers_count":%d}`
	today := `{"name":"n","description":"` + text + `","tags":["x"],"plan":"PAID","stargazers_count":%d,"current_release":{"tag":"v1","published_at":"2020-01-01"}}`
	for _, bm := range []struct {
		name, data string
		types      []*record.Type
	}{{"plain", today, fixtureTypes()}, {"declared", today, movedTypes()}, {"earlier", old, movedTypes()}} {
		b.Run(bm.name, func(b *testing.B) { benchmarkPages(b, bm.types, bm.data) })
	}
}

func benchmarkPages(b *testing.B, types []*record.Type, data string) {
	store := newBenchStore(b, types, sqlitestore.SyncOff)
	at := driver.InstantOf(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	vs := make([]driver.Version, 1000)
	for i := range vs {
		vs[i] = driver.Version{Collection: "software", Key: fmt.Sprintf("k%04d", i), RecordedAt: at + driver.Instant(i), Data: fmt.Appendf(nil, data, i)}
	}
	if _, err := store.Load(b.Context(), vs); err != nil {
		b.Fatal(err)
	}
	ctx, err := store.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		page, err := store.Page(ctx, types[0], &storage.PageArgs{First: ptr(100), Fields: []string{"name", "tags", "plan", "stargazers_count", "current_release"}})
		if err != nil || len(page.Docs) != 100 {
			b.Fatal(err)
		}
		for _, d := range page.Docs {
			_, err1 := d.String(fName)
			_, err2 := d.RefKeys(fTags)
			_, err3 := d.OptString(fPlan)
			_, err4 := d.OptInt(fStars)
			if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
				b.Fatal(err1, err2, err3, err4)
			}
		}
	}
}
