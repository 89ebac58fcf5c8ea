// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// The promises of package pleg in trouble, one by one, for those who change the core and run only
// its own tests. The simulation holds them in histories.

// twoPodsIn puts two pods of a container each into the toy.
func twoPodsIn(r *toyRuntime) {
	for _, uid := range []cache.UID{"p", "q"} {
		r.pods[uid] = []Item{
			{ID: "s-" + string(uid), Kind: Sandbox, Phase: PhaseRunning},
			{ID: "c-" + string(uid), Kind: Container, Phase: PhaseRunning, Name: "app"},
		}
	}
}

// hang has lists of everything and of pods hang until the returned function is called.
func (b *bed) hang() (release func()) {
	b.toy.mu.Lock()
	defer b.toy.mu.Unlock()
	gate := make(chan struct{})
	b.toy.gate = gate
	b.toy.podGate = gate
	return func() {
		b.toy.mu.Lock()
		defer b.toy.mu.Unlock()
		b.toy.gate = nil
		b.toy.podGate = nil
		close(gate)
	}
}

// within waits for events of Watch, among others perhaps, for so long.
func (b *bed) within(d time.Duration, want ...string) {
	b.t.Helper()
	time.Sleep(d)
	got := b.events()
	for _, w := range want {
		if !slices.Contains(got, w) {
			b.t.Errorf("within %v Watch has told %q, want %q", d, got, w)
		}
	}
}

// TestListsHang: lists of everything and of pods hang, and single statuses answer. An end that an
// event tells is shown at once, one that nobody tells with the next round of looks.
func TestListsHang(t *testing.T) {
	inBubble(t, func(_ *Config[status], r *toyRuntime) { r.noLoad = true; twoPodsIn(r) }, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.events()
		release := b.hang()
		b.gen.RequestRelist("")
		time.Sleep(10 * time.Second)
		b.toy.set("p", Container, "c-p", PhaseExited)
		b.within(3*time.Second, "p ContainerDied c-p")
		b.shows("p")
		b.hush(true)
		b.toy.set("q", Container, "c-q", PhaseExited)
		b.within(25*time.Second, "q ContainerDied c-q")
		b.toy.set("p", Container, "c-p", PhaseRemoved)
		b.within(30*time.Second, "p ContainerRemoved c-p")
		if n := b.gen.Stats().Peeks; n == 0 {
			b.t.Error("no peek is counted")
		}
		b.hush(false)
		release()
		time.Sleep(2 * time.Minute)
		b.shows("p", "q")
		if err := b.gen.Health(); err != nil {
			b.t.Errorf("lists answer again: %v", err)
		}
	})
}

// TestABadItemHidesNoOther: the status of a container cannot be read. The end of the other is told
// and shown beside the error, and the bad one's end as lists prove it.
func TestABadItemHidesNoOther(t *testing.T) {
	inBubble(t, func(_ *Config[status], r *toyRuntime) { r.noLoad = true; twoPodsIn(r) }, func(b *bed) {
		b.toy.set("p", Container, "c2", PhaseRunning)
		time.Sleep(10 * time.Second)
		b.events()
		b.toy.mu.Lock()
		b.toy.bad = "c-p"
		b.toy.mu.Unlock()
		b.toy.set("p", Container, "c2", PhaseExited)
		b.within(time.Second, "p ContainerDied c2")
		s, err := b.cache.Get("p")
		if err == nil || len(s.Items) != 2 {
			b.t.Errorf("the cache has %v, error %v, want the two that can be read, and the error", s, err)
		}
		b.toy.set("p", Container, "c-p", PhaseExited)
		b.within(3*time.Second, "p ContainerDied c-p")
		if s := b.gen.Stats(); s.UnreadPods != 1 || s.UnreadItems != 1 {
			b.t.Errorf("%d pods and %d items count as unread, want 1 and 1", s.UnreadPods, s.UnreadItems)
		}
		b.toy.mu.Lock()
		b.toy.bad = ""
		b.toy.mu.Unlock()
		b.within(10*time.Second, "p PodSync ")
		b.shows("p", "q")
	})
}

// TestContentChanges: a status changes beside its phases, and no event tells of it. The slow round
// finds the change, which is counted and costs trust; Watch gets a PodSync.
func TestContentChanges(t *testing.T) {
	configure := func(c *Config[status], r *toyRuntime) {
		c.Reread = time.Minute
		c.Same = func(a, b *status) bool { return a.Content == b.Content }
		twoPodsIn(r)
	}
	inBubble(t, configure, func(b *bed) {
		time.Sleep(5 * time.Minute)
		b.events()
		before := b.gen.Stats().RelistPeriod
		b.toy.mu.Lock()
		b.toy.content++
		b.toy.mu.Unlock()
		b.within(3*time.Minute, "p PodSync ", "q PodSync ")
		s := b.gen.Stats()
		if s.ContentChanges != 2 || s.RelistPeriod >= before {
			b.t.Errorf("%d changes are counted, and the period is %v; it was %v", s.ContentChanges, s.RelistPeriod, before)
		}
		got, err := b.cache.Get("p")
		if err != nil || got.Content != 1 {
			b.t.Errorf("the cache has content %d, error %v", got.Content, err)
		}
	})
}

// TestOneLookWithoutAnID: a look that misses a living container is not believed, two are; its
// return is counted, and told by a PodSync.
func TestOneLookWithoutAnID(t *testing.T) {
	inBubble(t, func(_ *Config[status], r *toyRuntime) { twoPodsIn(r) }, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.events()
		miss := func(looks int) {
			b.toy.mu.Lock()
			b.toy.misses = looks
			b.toy.mu.Unlock()
			b.gen.RequestReinspect("p")
		}
		miss(1)
		time.Sleep(2 * time.Second)
		if got := b.events(); !slices.Equal(got, []string{"p PodSync "}) { // as for each reinspection
			b.t.Errorf("after one look without a container Watch has told %q", got)
		}
		b.shows("p")
		miss(2)
		b.within(5*time.Second, "p ContainerDied c-p", "p ContainerRemoved c-p", "p PodSync ")
		if s := b.gen.Stats(); s.Regressions != 1 {
			b.t.Errorf("%d regressions are counted, want 1", s.Regressions)
		}
		b.shows("p")
	})
}

// TestOwnCallsAreReadByID: an agent that tells its calls makes, stops and removes a container. No
// list of the pod is made, and the removal causes no read at all.
func TestOwnCallsAreReadByID(t *testing.T) {
	configure := func(c *Config[status], r *toyRuntime) {
		c.TellsCalls = true
		c.Without = func(s *status, id string) *status {
			left := *s
			left.Items = slices.DeleteFunc(slices.Clone(s.Items), func(it Item) bool { return it.ID == id })
			return &left
		}
		r.noLoad = true
		twoPodsIn(r)
	}
	inBubble(t, configure, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.events()
		call := func(id string, phase Phase) {
			returned := b.gen.Calling(OwnCall{Pod: PodRef{UID: "p"}, ID: id})
			b.toy.set("p", Container, id, phase)
			returned(nil, Item{ID: id, Kind: Container, Phase: phase, Name: "mine"})
			time.Sleep(5 * time.Second)
		}
		release := b.hang() // who lists the pod waits
		call("c2", PhaseCreated)
		call("c2", PhaseRunning)
		call("c2", PhaseExited)
		b.within(time.Second, "p ContainerStarted c2", "p ContainerDied c2")
		release()
		time.Sleep(time.Minute)
		before := b.gen.Stats().Inspections
		call("c2", PhaseRemoved)
		b.within(time.Second, "p ContainerRemoved c2")
		b.shows("p")
		if n := b.gen.Stats().Inspections; n != before {
			b.t.Errorf("%d reads for a removal, want none", n-before)
		}
	})
}

// TestAnotherWriterIsNotOverwritten: the cache has an entry that is newer than what the generator
// reads. The write is refused, and the pod is read again, later than the entry.
func TestAnotherWriterIsNotOverwritten(t *testing.T) {
	configure := func(c *Config[status], r *toyRuntime) {
		c.Metrics = nil // the invariants are of a cache with one writer
		twoPodsIn(r)
	}
	inBubble(t, configure, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.cache.Set("p", &status{UID: "p"}, nil, time.Now().Add(3*time.Second))
		b.toy.set("p", Container, "c-p", PhaseExited)
		time.Sleep(20 * time.Second)
		b.shows("p")
		b.events()
	})
}

// TestAFailedCallExplainsNothing: a call about a container fails without an effect, and reads show
// the container running. Its end a minute later without an event is missed; so is that of a
// sandbox.
func TestAFailedCallExplainsNothing(t *testing.T) {
	inBubble(t, func(_ *Config[status], r *toyRuntime) { twoPodsIn(r) }, func(b *bed) {
		time.Sleep(10 * time.Second)
		for _, call := range []OwnCall{{Pod: PodRef{UID: "p"}, ID: "c-p"}, {Pod: PodRef{UID: "q"}, ID: "s-q"}} {
			b.gen.Calling(call)(errors.New("no"))
		}
		time.Sleep(time.Minute)
		b.hush(true)
		b.toy.set("p", Container, "c-p", PhaseExited)
		b.toy.set("q", Sandbox, "s-q", PhaseExited)
		b.within(2*time.Minute, "p ContainerDied c-p", "q ContainerDied s-q")
		if n := b.gen.Stats().MissedExits; n != 2 {
			b.t.Errorf("%d ends are missed, want 2", n)
		}
	})
}

// TestARuntimeWithoutEvents is polled each second, and is reported once.
func TestARuntimeWithoutEvents(t *testing.T) {
	var reports reportLog
	configure := func(c *Config[status], r *toyRuntime) {
		c.Recorder = &reports
		r.refuse = ErrNoEvents
		twoPodsIn(r)
	}
	inBubble(t, configure, func(b *bed) {
		time.Sleep(time.Minute)
		b.events()
		b.toy.set("p", Container, "c-p", PhaseExited)
		b.within(1100*time.Millisecond, "p ContainerDied c-p")
		if n := len(reports.of(ReasonStreamUnsupported)); n != 1 {
			b.t.Errorf("%d reports of a runtime without events, want 1", n)
		}
	})
}

// TestNobodyReadsWatch: as many pods as OwedMax are remembered that are gone and owed a PodSync,
// and the others are counted as discarded.
func TestNobodyReadsWatch(t *testing.T) {
	const owed = 3
	configure := func(c *Config[status], r *toyRuntime) { c.Capacity, c.OwedMax = 1, owed }
	inBubble(t, configure, func(b *bed) {
		for i := range 10 {
			uid := cache.UID(fmt.Sprint("p", i))
			b.toy.set(uid, Sandbox, "s-"+string(uid), PhaseRunning)
			time.Sleep(5 * time.Second)
			b.toy.set(uid, Sandbox, "s-"+string(uid), PhaseRemoved)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(10 * time.Minute) // the last pod is forgotten, and a list has come since
		if s := b.gen.Stats(); s.OwedPods != owed || s.DiscardedEvents == 0 {
			b.t.Errorf("%d pods are owed a PodSync, want %d, and %d events are discarded", s.OwedPods, owed, s.DiscardedEvents)
		}
		if got := b.events(); len(got) != owed+1 {
			b.t.Errorf("Watch has told %q, want the first event and %d PodSyncs", got, owed)
		}
	})
}

// TestTheLivingLeaveNoRoomForDebts: pods that live, and are owed nothing, do not raise the number
// of gone pods that are owed a PodSync.
func TestTheLivingLeaveNoRoomForDebts(t *testing.T) {
	const owed = 3
	configure := func(c *Config[status], r *toyRuntime) {
		c.Capacity = 20
		c.OwedMax = owed
		twoPodsIn(r)
	}
	inBubble(t, configure, func(b *bed) {
		time.Sleep(time.Minute)
		b.events()
		for i := range 30 {
			uid := cache.UID(fmt.Sprint("gone-", i))
			b.toy.set(uid, Sandbox, "s-"+string(uid), PhaseRunning)
			time.Sleep(5 * time.Second)
			b.toy.set(uid, Sandbox, "s-"+string(uid), PhaseRemoved)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(10 * time.Minute) // the last pod is forgotten, and a list has come since
		if s := b.gen.Stats(); s.Pods != 2 || s.OwedPods != owed {
			b.t.Errorf("%d pods live, and %d are owed a PodSync, want %d", s.Pods, s.OwedPods, owed)
		}
	})
}

// standingSteps has the generator stand still between two steps, once.
type standingSteps struct {
	invariantWatcher
	once *atomic.Int64 // for so long
}

// BetweenSteps implements stepObserver.
func (s standingSteps) BetweenSteps() { time.Sleep(time.Duration(s.once.Swap(0))) }

// TestAStandstillAccusesNobody: the generator has no processor for a minute, while a list is under
// way, and the event of a change that a list has found comes. Nothing hangs, and nothing was
// missed.
func TestAStandstillAccusesNobody(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(b *bed) // after it the generator stands still
	}{
		{"list", func(b *bed) {
			b.gen.RequestRelist("")
			b.gen.RequestReinspect("q")
		}},
		{"event", func(b *bed) {
			b.hush(true)
			b.toy.set("p", Container, "c-p", PhaseExited)
			b.gen.RequestRelist("")
			time.Sleep(500 * time.Millisecond)
			b.hush(false)
			ended := Claim[status]{Pod: "p", Item: Item{ID: "c-p", Kind: Container, Phase: PhaseExited}}
			time.AfterFunc(30*time.Second, func() { b.toy.replay(ended) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stands atomic.Int64
			var reports reportLog
			configure := func(c *Config[status], r *toyRuntime) {
				c.Metrics = standingSteps{invariantWatcher: invariantWatcher{t: t}, once: &stands}
				c.Recorder = &reports
				r.delay = 100 * time.Millisecond
				twoPodsIn(r)
			}
			inBubble(t, configure, func(b *bed) {
				time.Sleep(10 * time.Second)
				tt.before(b)
				time.Sleep(10 * time.Millisecond)
				stands.Store(int64(time.Minute))
				b.toy.set("q", Container, "c-q", PhaseExited) // has the loop take a step
				b.within(70*time.Second, "q ContainerDied c-q")
				b.shows("p", "q")
				if s := b.gen.Stats(); s.Missed != 0 || s.InspectionErrors != 0 {
					b.t.Errorf("%d changes count as missed, and %d reads as failed", s.Missed, s.InspectionErrors)
				}
				for _, r := range reports.all {
					if r.Warning {
						b.t.Errorf("a warning about a runtime that answers: %s", r.Note)
					}
				}
			})
		})
	}
}
