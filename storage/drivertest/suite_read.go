package drivertest

import (
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) readTests() []test {
	return []test{
		{"EverythingThatWasWrittenIsRead", s.testRoundTrip},
	}
}

func (s *suite) testRoundTrip(t *testing.T) {
	f := s.fixture(t)
	w := &driver.Write{
		ID: "0f5e7a3c-0000-4000-8000-123456789abc", Collection: collection, Key: "ключ/1", Op: driver.OpRestore,
		Author: "Ann O'Neill <ann@example.org>", Message: "a \"message\"\nof two lines — 🎉", Group: "group;1",
		Changed: []string{"", "a.b", "ключ", "z"},
		Data:    []byte(`{"z":1,"a.b":[null,true,1.5,"\u0000\n\u001f\"\\/<>&é🎉"],"ключ":{"":{}},"":-12345678901234567890.5}`),
	}
	made := f.commit(w)
	want := &driver.Version{
		Collection: collection, Key: w.Key, Number: 1, RecordedAt: driver.InstantOf(f.clock.now()), SupersededAt: driver.Forever,
		Op: w.Op, Author: w.Author, Message: w.Message, Group: w.Group, Changed: w.Changed, Data: w.Data,
	}
	if made.RecordedAt < want.RecordedAt {
		t.Errorf("recorded at %d, before the clock, %d", made.RecordedAt, want.RecordedAt)
	}
	want.RecordedAt = made.RecordedAt
	f.reopen()
	for name, got := range map[string]*driver.Version{
		"Commit":        made,
		"Get at":        f.get(driver.Ref{Key: w.Key, At: made.RecordedAt}),
		"Get of number": f.get(driver.Ref{Key: w.Key, Number: 1}),
		"Query":         f.query(&driver.Query{At: made.RecordedAt})[0],
		"Log":           f.log(&driver.LogQuery{})[0],
	} {
		if diff := difference(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	f.clock.move(time.Second)
	f.put(w.Key, `{"after":true}`)
	want.SupersededAt = f.get(driver.Ref{Key: w.Key, Number: 2}).RecordedAt
	if diff := difference(want, f.get(driver.Ref{Key: w.Key, Number: 1})); diff != "" {
		t.Errorf("superseded (-want +got):\n%s", diff)
	}
}
