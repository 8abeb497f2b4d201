package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What kills leave: in transactions and in single documents either version, whole. Of
// two writes to MongoDB without a transaction readers see the first.
func TestLayoutsKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testKilled(t, sqlSide(t.TempDir()).variants, killSQL, nil) })
	t.Run("mongodb", func(t *testing.T) {
		s := mongoSide(mongotest.URI(t))
		testKilled(t, s.variants, s.killMongo, map[string]string{"the same with a current flag": "version 6 2 times in a page"})
	})
}

// killer ends the process in the middle of an update, after each thing that the update
// writes, and calls look with the place of what is left each time. fill fills a new store.
type killer func(ctx context.Context, v variant, fill, update func(context.Context, layout) error, look func(place string) error) error

// testKilled takes what else is left by a layout's name.
func testKilled(t *testing.T, layouts []variant, kill killer, also map[string]string) {
	for _, v := range layouts {
		t.Run(v.name, func(t *testing.T) {
			left, err := killLayout(t.Context(), v, kill)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"version 5 whole", "version 6 whole"}
			if between, ok := also[v.name]; ok {
				want = slices.Insert(want, 1, between)
			}
			if !slices.Equal(left.before, want) || !slices.Equal(left.after, []string{"6 whole", "7 whole"}) {
				t.Errorf("left %q, then %q", left.before, left.after)
			}
			t.Logf("the next update takes %v", left.took)
		})
	}
}

// leftovers are what readers see of a document after the process was killed in an
// update, each text once: before anything is mended, and after the next update, which took
// so long at most, from opening the store.
type leftovers struct {
	before, after []string
	took          time.Duration
}

// killLayout kills updates of a document in the middle of the first page.
func killLayout(ctx context.Context, v variant, kill killer) (leftovers, error) {
	const versions, victim = 5, pageSize / 2
	var left leftovers
	add := func(to *[]string, text string) {
		if !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	past := history("document-0025", versions+2, mathrand.New(mathrand.NewPCG(2, 0)))
	fill := func(ctx context.Context, l layout) error {
		_, err := fillLayout(ctx, l, victim, versions)
		return errors.Join(err, l.fill(ctx, past[:versions]))
	}
	err := kill(ctx, v, fill, func(ctx context.Context, l layout) error {
		_, err := l.update(ctx, past[versions-1], past[versions])
		return err
	}, func(place string) error {
		began := time.Now()
		l, err := v.open(ctx, place)
		if err != nil {
			return err
		}
		defer func() { _ = l.close() }() // only read from here on
		now, seen, err := inspect(ctx, l, past)
		if err != nil {
			return err
		}
		add(&left.before, seen)
		// What the next writer has read is what it updates.
		made, err := l.update(ctx, now, version{now.key, now.number + 1, now.at + layoutStep, past[now.number].data})
		left.took = max(left.took, time.Since(began))
		if err != nil {
			add(&left.after, err.Error())
			return nil
		}
		now, seen, err = inspect(ctx, l, past)
		if err == nil && now != made {
			seen += ", not current"
		}
		add(&left.after, seen[strings.Index(seen, " ")+1:])
		return err
	})
	return left, err
}

// inspect returns the current version of a document as a reader by key sees it, and in
// words what all readers see: its number, and whatever does not agree with that.
func inspect(ctx context.Context, l layout, past []version) (version, string, error) {
	now, err := l.current(ctx, past[0].key)
	if err != nil {
		return now, "", err
	}
	page, err := l.page(ctx, "")
	if err != nil {
		return now, "", err
	}
	var wrong []string
	page = slices.DeleteFunc(page, func(v version) bool { return v.key != now.key })
	if now.number == 0 || now.data != past[now.number-1].data {
		wrong = append(wrong, "not what was written")
	}
	if len(page) != 1 {
		wrong = append(wrong, strconv.Itoa(len(page))+" times in a page")
	} else if page[0] != now {
		wrong = append(wrong, "another one in pages")
	}
	for number, v := range past[:max(now.number, 1)] {
		at := v.at
		if int64(number) == now.number-1 {
			at = now.at // asof has its own clock
		}
		if then, err := l.then(ctx, v.key, at); err != nil {
			return now, "", err
		} else if then.data != v.data && then.number == int64(number+1) || at == now.at && then != now {
			wrong = append(wrong, fmt.Sprintf("wrong as of version %d", number+1))
		}
	}
	if len(wrong) == 0 {
		wrong = append(wrong, "whole")
	}
	return now, fmt.Sprintf("version %d %s", now.number, strings.Join(wrong, ", ")), nil
}

// killSQL looks at what a kill leaves of an update: SQLite appends all that it writes to its
// log, so that is each beginning of what was appended, here after each page.
func killSQL(ctx context.Context, v variant, fill, update func(context.Context, layout) error, look func(place string) error) error {
	dir, err := os.MkdirTemp("", "asof-killed-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	place := filepath.Join(dir, "store.db")
	if err := v.prepare(ctx, place, fill); err != nil {
		return err
	}
	l, err := v.open(ctx, place)
	if err != nil {
		return err
	}
	file, err1 := os.ReadFile(place)
	before, err2 := os.ReadFile(place + "-wal")
	if err := errors.Join(err1, err2, update(ctx, l)); err != nil {
		return errors.Join(err, l.close())
	}
	after, err := os.ReadFile(place + "-wal")
	if err := errors.Join(err, l.close()); err != nil {
		return err
	}
	const header, page = 32, 24 + 4096 // of the log, and in it
	for size := len(before); size <= len(after); size += page {
		if size == 0 {
			size = header
		}
		left := filepath.Join(dir, rand.Text())
		if err := errors.Join(os.WriteFile(left, file, 0o600), os.WriteFile(left+"-wal", after[:size], 0o600)); err != nil {
			return err
		}
		if err := look(left); err != nil {
			return err
		}
	}
	return nil
}

// killMongo looks at what a kill leaves of an update: the server gets the first of the
// commands that write, more of them each time, and then nothing more.
func (s *side) killMongo(ctx context.Context, v variant, fill, update func(context.Context, layout) error, look func(place string) error) error {
	for sent := int64(0); ; sent++ {
		whole, err := s.killMongoOnce(ctx, v, sent, fill, update, look)
		if err != nil || whole {
			return err
		}
	}
}

// killMongoOnce is one of them; it reports whether the update needed no more writes.
func (s *side) killMongoOnce(ctx context.Context, v variant, sent int64, fill, update func(context.Context, layout) error, look func(place string) error) (whole bool, err error) {
	place, remove, err := s.place()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := v.prepare(ctx, place, fill); err != nil {
		return false, err
	}
	proxy, err := mongotest.StartProxy(ctx, options.Client().ApplyURI(place).Hosts[0])
	if err != nil {
		return false, err
	}
	defer proxy.Down()
	through, err := proxy.URI(place)
	if err != nil {
		return false, err
	}
	l, err := v.open(ctx, through)
	if err != nil {
		return false, err
	}
	updating, cancel := context.WithCancel(ctx)
	defer cancel()
	var writes atomic.Int64
	var dead atomic.Bool
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		switch c.Name {
		case "insert", "update", "delete", "findAndModify":
			if writes.Add(1) > sent {
				dead.Store(true)
				cancel()
			}
		}
		if dead.Load() {
			return mongotest.CutBefore()
		}
		return mongotest.Pass()
	})
	err = update(updating, l)
	whole = !dead.Swap(true)
	if whole && err != nil {
		return false, err
	}
	err = look(place)
	proxy.Set(nil) // so that closing has an end
	return whole, errors.Join(err, l.close())
}
