package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func newGate(fast, slow int) *Gate {
	return NewGate(Config{Fast: fast, Slow: slow, Write: 10, Long: 10 * time.Millisecond, Wait: time.Second, WaitSlow: 10 * time.Second, Now: time.Now})
}

// enter enters, and says what the operation is.
func enter(t *testing.T, g *Gate, client, text string, mayBeLong bool) *Place {
	t.Helper()
	p, err := g.Enter(t.Context(), client, false)
	if err == nil {
		err = p.Operation(t.Context(), "", text, mayBeLong, false)
	}
	if err != nil {
		t.Fatalf("%s, %s: %v", client, text, err)
	}
	return p
}

// execute executes an operation that takes so long.
func execute(t *testing.T, g *Gate, client, text string, took time.Duration) *Place {
	t.Helper()
	p := enter(t, g, client, text, false)
	time.Sleep(took)
	p.Leave(true)
	return p
}

// What took long is slow from then on; one quick execution makes it fast again, and one
// that was delayed a little does not make it slow.
func TestLaneFollowsFromTheLastTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		steps := []struct {
			took time.Duration
			lane int
		}{
			{time.Millisecond, fast},
			{15 * time.Millisecond, fast}, // raised to 3.75 ms
			{15 * time.Millisecond, fast}, // 7.5 ms
			{time.Millisecond, fast},
			{time.Second, fast}, // 250 ms
			{time.Second, slow},
			{time.Millisecond, slow},
			{time.Millisecond, fast},
		}
		for i, step := range steps {
			if p := execute(t, g, "a", "{x}", step.took); p.lane != step.lane {
				t.Errorf("step %d: lane %d, want %d", i, p.lane, step.lane)
			}
		}
		execute(t, g, "a", "{slow}", time.Second)
		if p := enter(t, g, "b", "{slow}", false); p.lane != slow {
			t.Error("what took long for one client is not expected to for another")
		}
		if p := enter(t, g, "b", "{new}", true); p.lane != slow {
			t.Error("what is not known and may be long is fast")
		}
	})
}

// What may be long, and was quick, does not keep places from what cannot be long: with other
// variables it may take all the time that there is.
func TestListsKeepNoFastPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1)
		p := enter(t, g, "a", "{list}", true)
		if p.lane != slow {
			t.Errorf("lane %d of a list that is not known", p.lane)
		}
		p.Leave(true)
		trained := enter(t, g, "a", "{list}", true)
		began := time.Now()
		short := enter(t, g, "b", "{x}", false)
		if trained.lane != lists || short.lane != fast || time.Since(began) > 0 {
			t.Errorf("lanes %d, %d after %v", trained.lane, short.lane, time.Since(began))
		}
	})
}

// Who sends many operations does not make those of others forgotten.
func TestOthersTimesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		const clients = 20
		for c := range clients {
			enter(t, g, fmt.Sprint(c), "{list}", true).Leave(true)
		}
		for i := range 3 * remembered {
			execute(t, g, "flood", fmt.Sprint(i), 0)
		}
		forgotten := 0
		for c := range clients {
			p := enter(t, g, fmt.Sprint(c), "{list}", true)
			if p.lane == slow {
				forgotten++
			}
			p.Leave(true)
		}
		if forgotten > clients/2 {
			t.Errorf("the operations of %d in %d clients are not known any more", forgotten, clients)
		}
	})
}

// One client cannot make slow what is fast for another.
func TestTimesAreOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		execute(t, g, "a", "{x}", time.Millisecond)
		for range 5 {
			execute(t, g, "b", "{x}", time.Second)
		}
		if p := enter(t, g, "a", "{x}", false); p.lane != fast {
			t.Error("what another client asked for made it slow")
		}
	})
}

// Who has used much may only do quickly what is known to be quick, until a while later.
func TestMuchUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		execute(t, g, "a", "{known}", time.Millisecond)
		var lanes string
		for i := range 8 {
			lanes += fmt.Sprint(execute(t, g, "a", fmt.Sprintf("{x%d}", i), 300*time.Millisecond).lane)
		}
		if lanes != "00001111" {
			t.Errorf("lanes %s", lanes)
		}
		if p := enter(t, g, "a", "{known}", false); p.lane != fast {
			t.Error("what is known to be quick is slow")
		}
		time.Sleep(5 * halfLife)
		if p := enter(t, g, "a", "{later}", false); p.lane != fast {
			t.Error("what was used long ago still counts")
		}
	})
}

// A place goes to the client that has used the least.
func TestPlacesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 1)
		order := make(chan string, 100)
		begin := func(client string) {
			go func() {
				p, err := g.Enter(t.Context(), client, true)
				if err != nil {
					order <- err.Error()
					return
				}
				order <- client
				time.Sleep(300 * time.Millisecond)
				p.Leave(true)
			}()
			synctest.Wait()
		}
		for range 4 {
			begin("a")
		}
		begin("b")
		begin("b")
		time.Sleep(time.Minute)
		got := ""
		for range 6 {
			got += <-order
		}
		if got != "abbaaa" && got != "ababaa" {
			t.Errorf("order %s", got)
		}
	})
}

// Waiting has an end, also by the context; no place is lost by it.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1)
		held := enter(t, g, "a", "{x}", false)
		began := time.Now()
		if _, err := g.Enter(t.Context(), "b", false); !errors.Is(err, errBusy) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Enter(ctx, "b", false); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		slowly, err := g.Enter(t.Context(), "a", true)
		if err != nil {
			t.Fatal(err)
		}
		held.Leave(true)
		slowly.Leave(true)
		if g.InFlight() != 0 || g.lanes[fast].free != 1 || g.lanes[slow].free != 1 {
			t.Errorf("%d operations, lanes %+v", g.InFlight(), g.lanes)
		}
		for name, c := range g.clients {
			if c.refs != 0 {
				t.Errorf("client %s: %d operations", name, c.refs)
			}
		}
	})
}

// What is known of clients is bounded.
func TestClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		for i := range 3 * evictAt {
			execute(t, g, fmt.Sprint(i), "{x}", time.Second/10)
		}
		if len(g.clients) > evictAt {
			t.Errorf("%d clients", len(g.clients))
		}
	})
}

// Operations that write have places of their own: they wait for the disk, and not for each
// other.
func TestWritesHaveALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1)
		for i := range 10 {
			p, err := g.Enter(t.Context(), "a", false)
			if err == nil {
				err = p.Operation(t.Context(), "", fmt.Sprint(i), true, true)
			}
			if err != nil || p.lane != write {
				t.Fatalf("%v, %+v", err, p)
			}
		}
		if g.InFlight() != 10 {
			t.Errorf("%d operations", g.InFlight())
		}
	})
}

// Who has used much reads what is not known beside the others.
func TestUnknownAfterMuchUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 1)
		read := func() *Place {
			p, err := g.Enter(t.Context(), "a", false)
			if err == nil {
				err = p.ReadFirstTime(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			p.Leave(true)
			return p
		}
		if first, second := read(), read(); first.lane != fast || second.lane != slow {
			t.Errorf("lanes %d, %d", first.lane, second.lane)
		}
	})
}

// What was broken off is not known as quick: it may take long.
func TestBrokenOffIsNotQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		again := func(text string) int { return enter(t, g, "b", text, true).lane }
		enter(t, g, "a", "{unknown}", true).Leave(false)
		if again("{unknown}") != slow {
			t.Error("an operation that was broken off at once is known as quick")
		}
		execute(t, g, "a", "{slow}", time.Second)
		enter(t, g, "a", "{slow}", true).Leave(false)
		if again("{slow}") != slow {
			t.Error("an operation that is slow was broken off, and is known as quick")
		}
		p := enter(t, g, "a", "{slowly}", false)
		time.Sleep(time.Second)
		p.Leave(false)
		if again("{slowly}") != slow {
			t.Error("an operation that was broken off after long is not slow")
		}
	})
}

// Use counts in both lanes, of an operation that moves.
func TestReadingIsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 10)
		p, err := g.Enter(t.Context(), "a", false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // reading it
		if err := p.Operation(t.Context(), "", "{x}", true, false); err != nil {
			t.Fatal(err)
		}
		p.Leave(true)
		if used := g.clients["a"].used; used != float64(time.Second) {
			t.Errorf("use of %v", time.Duration(used))
		}
	})
}

// While another client is active, one does not fill all places.
func TestPerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Config{Fast: 2, Slow: 1, Write: 2, Long: time.Second, Wait: time.Minute, WaitSlow: time.Minute, PerClient: 1, Now: time.Now})
		alone := []*Place{enter(t, g, "a", "{1}", false), enter(t, g, "a", "{2}", false)}
		for _, p := range alone {
			p.Leave(true)
		}
		enter(t, g, "b", "{1}", false).Leave(true)
		first, second := enter(t, g, "a", "{1}", false), make(chan *Place)
		go func() { second <- enter(t, g, "a", "{2}", false) }()
		synctest.Wait()
		enter(t, g, "b", "{1}", false).Leave(true) // the other place is free for it
		select {
		case <-second:
			t.Fatal("a client has two places beside an active one")
		default:
		}
		first.Leave(true)
		(<-second).Leave(true)
		time.Sleep(active)
		alone = []*Place{enter(t, g, "a", "{1}", false), enter(t, g, "a", "{2}", false)}
		for _, p := range alone {
			p.Leave(true)
		}
	})
}

// While another client is active, one does not fill all places to write; its writes wait for as
// long as slow operations.
func TestPerClientWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Config{Fast: 4, Slow: 1, Write: 4, Long: time.Second, Wait: time.Second, WaitSlow: time.Minute, PerClientWrite: 2, Now: time.Now})
		write := func(client string) *Place {
			p, err := g.Enter(t.Context(), client, false)
			if err == nil {
				err = p.Operation(t.Context(), "", "mutation", false, true)
			}
			if err != nil {
				t.Error(err)
			}
			return p
		}
		write("b").Leave(true)
		has, third := []*Place{write("a"), write("a")}, make(chan *Place)
		go func() { third <- write("a") }()
		synctest.Wait()
		write("b").Leave(true) // the other places are free for it
		time.Sleep(10 * time.Second)
		write("b").Leave(true)
		select {
		case <-third:
			t.Fatal("a client writes three times at once beside an active one")
		default:
		}
		has[0].Leave(true)
		(<-third).Leave(true)
		time.Sleep(active)
		has = append(has[1:], write("a"), write("a"))
		for _, p := range has {
			p.Leave(true)
		}
	})
}

// An operation that takes long keeps neither the short ones nor the writes of its client from
// their turns, also while another client is active.
func TestShortOperationsBesideSlowOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Config{Fast: 2, Slow: 2, Write: 2, Long: 10 * time.Millisecond, Wait: time.Second, WaitSlow: time.Second, PerClient: 1, Now: time.Now})
		enter(t, g, "a", "{list}", true).Leave(true) // known to be short from now on
		enter(t, g, "b", "{1}", false).Leave(true)
		long := enter(t, g, "a", "{slow}", true)
		enter(t, g, "a", "{short}", false).Leave(true)
		enter(t, g, "a", "{list}", true).Leave(true)
		writing, err := g.Enter(t.Context(), "a", false)
		if err == nil {
			err = writing.Operation(t.Context(), "", "mutation {m}", false, true)
		}
		if err != nil || long.lane != slow {
			t.Fatalf("%v, lane %d", err, long.lane)
		}
		short := enter(t, g, "a", "{short}", false)
		for _, slowly := range []bool{false, true} {
			enter(t, g, "b", "{1}", false).Leave(true)
			if _, err := g.Enter(t.Context(), "a", slowly); !errors.Is(err, errBusy) {
				t.Errorf("a second one, slow %t: %v", slowly, err)
			}
		}
		for _, p := range []*Place{short, writing, long} {
			p.Leave(true)
		}
		if c := g.clients["a"]; c.reads != 0 || c.slow != 0 || g.InFlight() != 0 {
			t.Errorf("%+v, %d in flight", c, g.InFlight())
		}
	})
}

// What an operation has waited for others, beside what it is known to take, is no use of its client:
// else who asks for little would come last where others keep the processors busy.
func TestDelayIsLittleUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1)
		execute(t, g, "little", "{x}", time.Millisecond)
		for range 2 { // noted as 2.25 and 4.5 ms
			execute(t, g, "little", "{x}", 9*time.Millisecond)
		}
		execute(t, g, "much", "{y}", 10*time.Millisecond)
		place := enter(t, g, "other", "{z}", false)
		var first []string
		done := make(chan struct{}, 2)
		for _, client := range []string{"much", "little"} {
			go func() {
				p, err := g.Enter(t.Context(), client, false)
				if err != nil {
					t.Error(err)
				} else {
					first = append(first, client)
					p.Leave(true)
				}
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		place.Leave(true)
		<-done
		<-done
		if first[0] != "little" {
			t.Errorf("%v: who has used more was first", first)
		}
	})
}
