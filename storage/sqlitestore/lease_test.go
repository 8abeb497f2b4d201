package sqlitestore

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage/clock"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

// leaseClock is moved by hand.
type leaseClock struct{ t time.Time }

func (c *leaseClock) now() time.Time { return c.t }

// killed copies what a kill would leave of a store that is open.
func killed(t *testing.T, path string) string {
	t.Helper()
	left := filepath.Join(t.TempDir(), "left.db")
	for _, suffix := range []string{"", "-wal", ".lock"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left+suffix, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return left
}

func openAt(t *testing.T, path string, c *leaseClock) *Store {
	t.Helper()
	s, err := open(t.Context(), path, Options{Collections: formatDeclared(), Clock: c.now, Elapsed: drivertest.Elapsed(c.now)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// An instant that was only read at stays as it was, though the process is
// killed and the clock set back by two days.
func TestKillAndAClockSetBack(t *testing.T) {
	start := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		read func(t *testing.T, s *Store, c *leaseClock) driver.Instant
	}{
		{"Now", func(t *testing.T, s *Store, _ *leaseClock) driver.Instant {
			now, err := s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now
		}},
		{"Now, again and again", func(t *testing.T, s *Store, c *leaseClock) (now driver.Instant) {
			for range 50 {
				c.t = c.t.Add(300 * time.Millisecond)
				var err error
				if now, err = s.Now(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return now
		}},
		{"Settle", func(t *testing.T, s *Store, c *leaseClock) driver.Instant {
			at := driver.InstantOf(c.t)
			if err := s.Settle(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			return at
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, at := filepath.Join(t.TempDir(), "asof.db"), &leaseClock{start}
			s := openAt(t, path, at)
			w := &driver.Write{ID: "1", Collection: "things", Key: "a", Op: driver.OpCreate, Data: []byte(`{"n":1}`)}
			if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
				t.Fatal(err)
			}
			at.t = at.t.Add(time.Hour)
			pinned := c.read(t, s, at)

			latest := driver.InstantOf(at.t.Add(clock.Bound))
			for kill := range 5 {
				// Each time the clock is further back.
				at.t = at.t.Add(-48 * time.Hour)
				s = openAt(t, killed(t, s.path), at)
				now, err := s.Now(t.Context())
				if err != nil || now < pinned || now > latest+driver.Instant(kill) {
					t.Errorf("after kill %d Now is %s, %v; want from %s to %s", kill, now, err, pinned, latest)
				}
				next := &driver.Write{
					ID: time.Duration(kill).String(), Collection: "things", Key: "a", Expected: int64(kill) + 1, Op: driver.OpUpdate, Data: []byte(`{"n":2}`),
				}
				v, err := driver.CommitOne(t.Context(), s, next)
				if err != nil || v.RecordedAt <= now || v.RecordedAt > latest+driver.Instant(kill)+1 {
					t.Fatalf("after kill %d a commit: %+v, %v; want later than %s, at most a little after %s", kill, v, err, now, latest)
				}
				vs, err := s.Get(t.Context(), "things", []driver.Ref{{Key: "a", At: pinned}}, nil)
				if err != nil || vs[0] == nil || vs[0].Number != 1 {
					t.Errorf("after kill %d, at %s: %v, %v; want version 1", kill, pinned, vs, err)
				}
			}
		})
	}
}

// A store that was closed leaves no lease: it does not run ahead of the clock.
func TestNoLeaseAfterClosing(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "asof.db"), &leaseClock{formatClock()}
	s := openAt(t, path, at)
	before, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if now, err := openAt(t, path, at).Now(t.Context()); err != nil || now != before {
		t.Errorf("opened again, Now is %s, %v; want %s", now, err, before)
	}
}

// A lock file that holds something else than a lease is none.
func TestForeignLease(t *testing.T) {
	for _, content := range []string{"", "short", strings.Repeat("\x00", leaseBytes), strings.Repeat("x", 100)} {
		path, at := filepath.Join(t.TempDir(), "asof.db"), &leaseClock{formatClock()}
		if err := os.WriteFile(path+".lock", []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if now, err := openAt(t, path, at).Now(t.Context()); err != nil || now != driver.InstantOf(at.t) {
			t.Errorf("%q: Now is %s, %v; want %s", content, now, err, at.t)
		}
	}
}

type brokenDisk struct{ writes int }

func (d *brokenDisk) WriteAt([]byte, int64) (int, error) {
	d.writes++
	return 0, errors.New("input/output error")
}

// Reads go on where the lease cannot be noted, and it is said once.
func TestLeaseThatCannotBeNoted(t *testing.T) {
	var log strings.Builder
	disk, now := new(brokenDisk), &leaseClock{formatClock()}
	l := lease{file: disk, log: slog.New(slog.NewTextHandler(io.Writer(&log), nil))}
	c := clock.New(clock.Options{Now: now.now, Elapsed: drivertest.Elapsed(now.now), Cover: l.extend})
	for range 3 {
		now.t = now.t.Add(time.Minute)
		if at := c.Now(); at != driver.InstantOf(now.t) {
			t.Errorf("Now is %s, want %s", at, now.t)
		}
	}
	if disk.writes != 3 || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("%d attempts, log:\n%s", disk.writes, log.String())
	}
}
