package drivertest

import (
	"fmt"
	"testing"
	"time"
)

func (s *suite) linearTests() []test {
	return []test{
		{"EachDocumentIsARegister", s.testRegisters},
		{"EachDocumentIsARegisterWhenCallersGiveUp", s.testRegistersGivenUp},
	}
}

// What many clients saw of few documents is what one register for each could
// have answered, and stays so.
func (s *suite) testRegisters(t *testing.T) { s.registers(t, 0) }

// The same, where the outcome of many writes stays unknown to their callers.
func (s *suite) testRegistersGivenUp(t *testing.T) { s.registers(t, 40) }

func (s *suite) registers(t *testing.T, cancel int) {
	f := s.fixture(t)
	// A moving clock: versions and reads are at different times.
	step := func() time.Time { f.clock.move(time.Microsecond); return f.clock.now() }
	if err := f.engine.Close(); err != nil {
		t.Fatal(err)
	}
	f.raw = f.open(t, declared(), step)
	f.engine = Contract(f.raw, func(violation string) { t.Errorf("contract: %s", violation) })
	var total Counts
	for round := range s.scale {
		h := NewHistory()
		clients := &Clients{
			// Not by way of Contract, whose lock would make calls follow each other.
			Engine: f.raw, Collection: collection, History: h, Keys: []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round), fmt.Sprintf("c%d", round)},
			Count: 16, Calls: 60, Seed: s.seed + uint64(round), Name: fmt.Sprintf("r%d.", round), Cancel: cancel,
			Report: func(violation string) { t.Error(violation) },
		}
		clients.Run(f.ctx)
		if err := h.Verify(f.ctx, f.raw, collection, func(violation string) { t.Errorf("seed %d: %s", clients.Seed, violation) }); err != nil {
			t.Fatal(err)
		}
		if _, err := CheckBatches(f.ctx, f.raw, collection, func(violation string) { t.Errorf("seed %d: %s", clients.Seed, violation) }); err != nil {
			t.Fatal(err)
		}
		total = total.Add(h.Counts())
	}
	t.Log(total)
}
