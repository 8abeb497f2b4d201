package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

// crashesVar says how often TestKilled kills the process.
const crashesVar = "ASOF_CRASHES"

// A process that serves a store to sixteen clients on eight documents is killed
// again and again, at whatever it does, and started again with a clock that is
// anywhere in an hour. What was acknowledged is there, what was not is there as
// a whole or not at all, and once, also when it is sent again; what was read
// at an instant stays; all answers together could be those of one register for
// each document; and the store is sound.
//
// Set ASOF_CRASHES for another number of kills than 200, and
// ASOF_DRIVERTEST_SEED for other ones.
func TestKilled(t *testing.T) {
	kills, seed := number(t, crashesVar, 200), uint64(number(t, "ASOF_DRIVERTEST_SEED", 1))
	killWire()
	k := &killing{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0))}
	const killsOfAFile = 10
	for n := 0; n < kills && !t.Failed(); n += killsOfAFile {
		k.file(n/killsOfAFile, min(killsOfAFile, kills-n))
	}
	t.Logf("seed %d: %d kills, %d writes with an unknown outcome were sent again; %s", seed, k.kills, k.again, k.total)
	if !t.Failed() && kills >= 50 && (k.total.Unknown == 0 || k.total.Found == 0 || k.total.Found == k.total.Unknown || k.again == 0 || k.batches == 0) {
		t.Error("the kills came at harmless moments only")
	}
}

// number reads a whole number from 1 out of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a whole number from 1", name, v)
	}
	return n
}

type killing struct {
	*testing.T
	seed         uint64
	random       *rand.Rand
	kills, again int
	batches      int // that were found whole
	total        drivertest.Counts
}

// file kills processes that serve one file.
func (k *killing) file(n, kills int) {
	path := filepath.Join(k.TempDir(), "asof.db")
	h := drivertest.NewHistory()
	for i := range kills {
		k.kill(path, h, fmt.Sprintf("f%d.%d.", n, i))
		// Now and then a process meets what the kill before it left.
		if i == kills-1 || k.random.IntN(3) > 0 {
			k.verify(path, h)
		}
		if k.Failed() {
			return
		}
	}
	k.total = k.total.Add(h.Counts())
}

// kill starts a process, lets clients use it, and kills it.
func (k *killing) kill(path string, h *drivertest.History, name string) {
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	// Most are killed under load, some when they have just begun.
	replies := 1 + k.random.IntN(3)
	if k.random.IntN(8) > 0 {
		replies += k.random.IntN(500)
	}
	unknown := h.Unknown()
	resend := unknown[:k.random.IntN(len(unknown)+1)]
	r := startRemote(k.T, path, k.skew(), replies, cancel)
	k.kills++
	sent := make(chan int)
	go func() {
		n := 0
		for _, c := range resend {
			v, err := driver.CommitOne(ctx, r, c.Sent())
			c.Returned(v, err)
			if err == nil || driver.CodeOf(err) == driver.CodeConflict {
				n++
			}
		}
		sent <- n
	}()
	(&drivertest.Clients{
		Engine: r, Collection: killCollection, History: h, Keys: []string{"a", "b", "c", "d", "e", "f", "g", "h"}, Count: 16, Calls: 1 << 20,
		Seed: k.random.Uint64(), Name: name, Faults: true, Report: k.wrong,
	}).Run(ctx)
	k.again += <-sent
	r.end(k.T)
}

// skew is how far the clock of the next process is off.
func (k *killing) skew() time.Duration { return -time.Duration(k.random.Int64N(int64(time.Hour))) }

func (k *killing) wrong(violation string) {
	k.Errorf("seed %d, kill %d: %s", k.seed, k.kills, violation)
}

// verify opens the file here and compares it with the history so far.
func (k *killing) verify(path string, h *drivertest.History) {
	s, err := open(k.Context(), path, Options{Collections: killCollections(), Clock: skewed(k.skew())})
	if err != nil {
		k.wrong(err.Error())
		return
	}
	defer func() {
		if err := s.Close(); err != nil {
			k.wrong(err.Error())
		}
	}()
	if err := s.Check(k.Context(), func(problem string) { k.wrong("Check: " + problem) }); err != nil {
		k.wrong(err.Error())
	}
	batches, err := drivertest.CheckBatches(k.Context(), s, killCollection, k.wrong)
	if err != nil {
		k.wrong(err.Error())
	}
	k.batches += batches
	if err := h.Verify(k.Context(), s, killCollection, k.wrong); err != nil {
		k.wrong(err.Error())
	}
}
