// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// quiet waits until the generator has nothing more to read, and returns what it has read since.
func (b *bed) quiet() (reads, statuses int) {
	b.t.Helper()
	_, r, s := b.toy.counts()
	time.Sleep(500 * time.Millisecond) // before the next list
	_, reads, statuses = b.toy.counts()
	return reads - r, statuses - s
}

// calls makes an own call that takes a moment. The runtime tells of it as the call is under way,
// or, if late, after it has returned.
func (b *bed) calls(call OwnCall, it Item, late bool) {
	returned := b.gen.Calling(call)
	if late {
		b.toy.silent = true
	}
	b.toy.set("p", it.Kind, it.ID, it.Phase)
	b.toy.silent = false
	time.Sleep(time.Millisecond)
	returned(nil, it)
	if late {
		time.Sleep(time.Millisecond)
		b.toy.replay(b.toy.claim("p", it))
	}
}

var (
	ackPod       = OwnCall{Pod: PodRef{UID: "p", Name: "web", Namespace: "shop"}}
	ackSandbox   = Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}
	ackContainer = Item{ID: "c", Kind: Container, Phase: PhaseCreated, Name: "main"}
)

// phased is an item in another phase.
func phased(it Item, p Phase) Item {
	it.Phase = p
	return it
}

// TestOwnCallsAreReadOnce: the calls that start a pod are followed by one read, whenever the
// runtime tells of them; those that stop one by one; and who removes what he has stopped is not
// looked after.
func TestOwnCallsAreReadOnce(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("events after the answers: %t", late), func(t *testing.T) {
			inBubble(t, func(_ *Config[status], r *toyRuntime) { r.noLoad = true }, func(b *bed) {
				time.Sleep(1500 * time.Millisecond)
				b.calls(ackPod, ackSandbox, late)
				b.calls(ackPod, ackContainer, late)
				b.calls(OwnCall{ID: "c"}, phased(ackContainer, PhaseRunning), late)
				if reads, statuses := b.quiet(); reads != 1 || statuses != 1 {
					t.Errorf("the start of a pod was read %d times, its statuses %d times; want once", reads, statuses)
				}
				b.want("p ContainerStarted s", "p ContainerStarted c")
				b.shows("p")
				if e := b.got[0]; e.PodName == "" || e.Cause != CauseAck && e.Cause != CauseClaim {
					t.Errorf("the event %+v", e)
				}
				b.calls(OwnCall{ID: "c"}, phased(ackContainer, PhaseExited), late)
				b.calls(OwnCall{ID: "s"}, phased(ackSandbox, PhaseExited), late)
				if reads, statuses := b.quiet(); reads != 1 || statuses != 1 {
					t.Errorf("the end of a pod was read %d times, its statuses %d times; want once", reads, statuses)
				}
				b.want("p ContainerDied s", "p ContainerDied c")
				if reads, _ := b.quiet(); reads != 0 {
					t.Errorf("what the agent has stopped was looked after %d times", reads)
				}
				b.calls(OwnCall{ID: "c"}, phased(ackContainer, PhaseRemoved), late)
				b.calls(OwnCall{ID: "s"}, phased(ackSandbox, PhaseRemoved), late)
				if reads, statuses := b.quiet(); reads != 1 || statuses != 0 {
					t.Errorf("the removal of a pod was read %d times, its statuses %d times", reads, statuses)
				}
				b.want("p ContainerRemoved s", "p ContainerRemoved c")
				if n := b.gen.Stats().MissedCreations + b.gen.Stats().MissedRemovals; n > 0 || b.cache.Len() > 0 {
					t.Errorf("%d events are said to be missed, %d pods are left", n, b.cache.Len())
				}
			})
		})
	}
}

// TestAnAckIsNoRead: what an ack tells is not fresh, and a waiter does not wait for calls to
// settle.
func TestAnAckIsNoRead(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		time.Sleep(1500 * time.Millisecond)
		b.toy.silent = true
		returned := b.gen.Calling(ackPod)
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		asked := time.Now()
		time.Sleep(time.Microsecond)
		returned(nil, ackSandbox)
		synctest.Wait()
		if s, _ := b.cache.Get("p"); len(s.Items) != 0 || b.cache.AsOf("p").After(asked) {
			t.Errorf("an ack alone has the cache show %v as of %v", s, b.cache.AsOf("p"))
		}
		if s, err := b.cache.GetNewerThan(b.t.Context(), "p", asked); err != nil || len(s.Items) != 1 {
			t.Errorf("a waiter got %v, %v", s, err)
		}
		if took := time.Since(asked); took > 2*time.Microsecond {
			t.Errorf("the waiter waited for %v", took)
		}
		b.want("p ContainerStarted s")
		if b.got[0].Cause != CauseAck {
			t.Errorf("the event is by a %v, want by an ack", b.got[0].Cause)
		}
	})
}

// TestACallThatFailsMayHaveWorked: the pod is read, whether the call names it or an ID of it, and
// its sandbox is looked after from then on.
func TestACallThatFailsMayHaveWorked(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.silent = true
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(1500 * time.Millisecond)
		returned := b.gen.Calling(ackPod)
		b.toy.set("p", Container, "c", PhaseCreated)
		returned(errors.New("deadline exceeded"))
		if reads, statuses := b.quiet(); reads != 1 || statuses != 1 {
			t.Errorf("%d reads and %d of statuses after a call that timed out", reads, statuses)
		}
		b.shows("p")
		returned = b.gen.Calling(OwnCall{ID: "s"})
		b.toy.set("p", Sandbox, "s", PhaseExited)
		returned(errors.New("deadline exceeded"))
		b.quiet()
		b.shows("p")
		b.toy.set("p", Sandbox, "s", PhaseRemoved)
		b.toy.set("p", Container, "c", PhaseRemoved)
		time.Sleep(500 * time.Millisecond)
		b.shows("p")
		if b.cache.Len() != 0 {
			t.Error("what a call that timed out has stopped was not looked after")
		}
	})
}

// TestAStopEndsWhatRan: a StopContainer that is answered has ended what ran when it began, and need
// not have ended what was started meanwhile, or never.
func TestAStopEndsWhatRan(t *testing.T) {
	w := newMoving()
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseCreated}
	w.list(Pod{UID: "p", Items: []Item{s, c}})
	w.read("p", s, c)
	early := ownCall{OwnCall: OwnCall{ID: "c"}, serial: 9, began: w.now}
	w.core.takeAcks([]ack{{call: early, at: w.now}, {call: early, at: w.now + 1, returned: true, items: []Item{phased(c, PhaseExited)}}}, false, w.now+1)
	if x := w.core.index["c"]; x.phase != PhaseCreated || x.pod.want != w.now+1 {
		t.Errorf("what never ran is %v, and to be read after %d, now %d", x.phase, x.pod.want, w.now+1)
	}
	w.now += 10
	stop := ownCall{OwnCall: OwnCall{ID: "c"}, serial: 1, began: w.now}
	w.core.takeAcks([]ack{{call: stop, at: w.now}}, false, w.now)
	w.now += 10
	start := ownCall{OwnCall: OwnCall{ID: "c"}, serial: 2, began: w.now}
	w.core.takeAcks([]ack{{call: start, at: w.now}, {call: start, at: w.now + 1, returned: true, items: []Item{phased(c, PhaseRunning)}}}, false, w.now+1)
	w.now += 10
	w.core.takeAcks([]ack{{call: stop, at: w.now, returned: true, items: []Item{phased(c, PhaseExited)}}}, false, w.now)
	x := w.core.index["c"]
	if x.phase != PhaseRunning || x.pod.want != w.now {
		t.Errorf("it is %v, and to be read after %d, now %d: a stop that began before the start may not have ended it", x.phase, x.pod.want, w.now)
	}
	again := ownCall{OwnCall: OwnCall{ID: "c"}, serial: 3, began: w.now}
	w.core.takeAcks([]ack{{call: again, at: w.now}, {call: again, at: w.now + 1, returned: true, items: []Item{phased(c, PhaseExited)}}}, false, w.now+1)
	if x.phase != PhaseExited || x.byClaim {
		t.Errorf("it is %v, by a claim: %t", x.phase, x.byClaim)
	}
}

// TestAReadFromBeforeAnAck: a read that began before a call returned neither takes back what the
// call did nor takes away what it made; one that began after it does.
func TestAReadFromBeforeAnAck(t *testing.T) {
	w := newMoving()
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseCreated}
	w.list(Pod{UID: "p", Items: []Item{s}})
	w.read("p", s)
	call := func(id string, it Item) {
		w.now += 10
		o := ownCall{OwnCall: OwnCall{Pod: PodRef{UID: "p"}, ID: id}, serial: uint64(w.now), began: w.now}
		w.core.takeAcks([]ack{{call: o, at: w.now}, {call: o, at: w.now + 1, returned: true, items: []Item{it}}}, false, w.now+1)
		w.now += 10
	}
	old := w.now + 5
	call("", c)
	apply := func(began instant, items ...Item) {
		w.now += 10
		w.core.onListed(&listedAll{began: began, listing: Listing{Pods: []Pod{{UID: "p", Items: items}}}}, w.now)
	}
	apply(old, s)
	if x := w.core.index["c"]; x == nil || x.phase != PhaseCreated {
		t.Fatalf("a list from before the call has taken it away: %+v", x)
	}
	old = w.now + 5
	w.now += 10
	w.core.onClaims(&batch[status]{claims: 1, pods: []*podClaims[status]{{pod: "p", claims: 1, latest: []latestClaim{{item: phased(c, PhaseRunning)}}}}}, w.now)
	call("c", phased(c, PhaseRunning))
	if x := w.core.index["c"]; x.byClaim {
		t.Errorf("what was claimed and acknowledged is still a claim")
	}
	apply(old, s, c)
	if x := w.core.index["c"]; x.phase != PhaseRunning || w.core.count.regressions != 0 {
		t.Errorf("a list from before the start has taken it back to %v, %d regressions", x.phase, w.core.count.regressions)
	}
	w.now += 10
	apply(w.now, s)
	if x := w.core.index["c"]; x != nil && x.phase != PhaseRemoved {
		t.Errorf("a list from after the call does not show it, and it is %v", x.phase)
	}
}

// TestAcksThatFindNoRoom: what does not fit is lost call by call, and listed. Each call is about a
// pod of its own, so that no read of another one shows what it made.
func TestAcksThatFindNoRoom(t *testing.T) {
	inBubble(t, func(c *Config[status], _ *toyRuntime) { c.MailboxMax = 2 }, func(b *bed) {
		time.Sleep(40 * time.Second) // lists are rare by now: the next one is 20 s away
		b.toy.silent = true
		var ends []func(error, ...Item)
		for i := range 4 { // before the loop takes any
			uid := cache.UID(fmt.Sprint("p", i))
			ends = append(ends, b.gen.Calling(OwnCall{Pod: PodRef{UID: uid, Name: string(uid)}}))
			b.toy.set(uid, Sandbox, fmt.Sprint("s", i), PhaseRunning)
		}
		for i, end := range ends {
			end(nil, Item{ID: fmt.Sprint("s", i), Kind: Sandbox, Phase: PhaseRunning})
		}
		time.Sleep(1500 * time.Millisecond)
		for i := range ends {
			b.shows(cache.UID(fmt.Sprint("p", i)))
		}
		s := b.gen.Stats()
		if s.Acks+s.DiscardedAcks < 3 || s.DiscardedAcks == 0 || s.DirtyPods != 0 {
			t.Errorf("%d calls were told of, %d times there was no room, %d pods are still to be read", s.Acks, s.DiscardedAcks, s.DirtyPods)
		}
	})
}

// TestAClaimFromBeforeAnAck: what the stream has told of an ID before the call that made it has
// returned is how far the ID is, from the claim on, and not only once a read shows it.
func TestAClaimFromBeforeAnAck(t *testing.T) {
	w := newMoving()
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseCreated}
	w.list(Pod{UID: "p", Items: []Item{s}})
	w.read("p", s)
	w.now += 10
	create := ownCall{OwnCall: OwnCall{Pod: PodRef{UID: "p"}}, serial: 1, began: w.now}
	w.core.takeAcks([]ack{{call: create, at: w.now}}, false, w.now)
	w.now += 10
	claimed := w.now
	w.core.onClaims(&batch[status]{claims: 1, pods: []*podClaims[status]{{pod: "p", claims: 1, latest: []latestClaim{{item: phased(c, PhaseExited)}}}}}, w.now)
	w.now += 10
	w.core.takeAcks([]ack{{call: create, at: claimed - 1, returned: true, items: []Item{c}}}, false, w.now)
	x := w.core.index["c"]
	if x == nil || x.phase != PhaseExited || !x.byClaim || x.cause != CauseClaim || x.since != claimed {
		t.Errorf("after a claim at %d that it has ended, and the answer that it is created: %+v", claimed, x)
	}
	if n := len(w.core.pods["p"].unconfirmed); n != 0 || w.core.unconfirmed != 0 {
		t.Errorf("%d unconfirmed IDs, %d counted: the ID is known", n, w.core.unconfirmed)
	}
}

// TestNobodyIsReadByIDsAfterACallWasLost: a call that found no room may have made what nobody
// knows, so that whoever waits for its pod is shown what a list shows, and not the IDs that are
// known.
func TestNobodyIsReadByIDsAfterACallWasLost(t *testing.T) {
	inBubble(t, func(c *Config[status], _ *toyRuntime) { c.MailboxMax, c.TellsCalls = 1, true }, func(b *bed) {
		time.Sleep(1500 * time.Millisecond)
		b.calls(ackPod, ackSandbox, false)
		time.Sleep(40 * time.Second)
		b.gen.RequestRelist("") // what is lost is listed a second later
		if listed := b.asks("p"); listed != 0 {
			t.Errorf("the pod was listed %d times for a waiter before anything was lost", listed)
		}
		b.hush(true)
		kept, lost := b.gen.Calling(ackPod), b.gen.Calling(ackPod) // before the loop takes any
		b.toy.set("p", Container, "c1", PhaseCreated)
		kept(nil, Item{ID: "c1", Kind: Container, Phase: PhaseCreated})
		b.toy.set("p", Container, "c2", PhaseCreated)
		lost(nil, Item{ID: "c2", Kind: Container, Phase: PhaseCreated})
		synctest.Wait()
		if s := b.gen.Stats(); s.DiscardedAcks == 0 {
			t.Fatalf("no call was lost: %+v", s)
		}
		b.asks("p")
		b.shows("p")
	})
}
