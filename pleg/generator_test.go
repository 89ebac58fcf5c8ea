// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/evented-pleg/evented-pleg/cache"
)

// bed is a generator under test in a bubble, with its runtime and cache.
type bed struct {
	t     *testing.T
	toy   *toyRuntime
	cache *cache.Cache[status]
	gen   *Generator[status]
	stop  func()
	got   []Event
	log   bytes.Buffer // at default verbosity; the generator's, while it runs
}

// inBubble runs a test of a running generator. Configure may change the configuration.
func inBubble(t *testing.T, configure func(*Config[status], *toyRuntime), test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, toy: newToy()}
		b.cache = cache.New(func(uid cache.UID) *status { return &status{UID: uid} })
		b.start(configure)
		test(b)
		b.stop()
	})
}

// start runs a generator over the bed's runtime and cache.
func (b *bed) start(configure func(*Config[status], *toyRuntime)) {
	cfg := Config[status]{Source: b.toy, Stream: b.toy, Cache: b.cache, Metrics: invariantWatcher{t: b.t}, Jitter: -1, Seed: 1}
	if configure != nil {
		configure(&cfg, b.toy)
	}
	gen, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.gen = gen
	ctx, cancel := context.WithCancel(klog.NewContext(b.t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&b.log)))))
	done := make(chan error, 1)
	go func() { done <- gen.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}
}

// events returns what Watch has told since it was last called.
func (b *bed) events() []string {
	synctest.Wait()
	var got []string
	for {
		select {
		case e, ok := <-b.gen.Watch():
			if !ok {
				return got
			}
			b.got = append(b.got, e)
			got = append(got, fmt.Sprintf("%s %s %s", e.Pod, e.Type, e.ID))
			synctest.Wait()
		default:
			slices.Sort(got)
			return got
		}
	}
}

func (b *bed) want(want ...string) {
	b.t.Helper()
	slices.Sort(want)
	if got := b.events(); !slices.Equal(got, want) {
		b.t.Errorf("events: got %q, want %q", got, want)
	}
}

// shows checks that the cache has the pod as the runtime has it.
func (b *bed) shows(uids ...cache.UID) {
	b.t.Helper()
	synctest.Wait()
	for _, uid := range uids {
		s, err := b.cache.Get(uid)
		if err != nil {
			b.t.Errorf("pod %s: %v", uid, err)
		}
		b.toy.mu.Lock()
		want := (&status{UID: uid, Items: b.toy.pods[uid]}).String()
		b.toy.mu.Unlock()
		if s.String() != want {
			b.t.Errorf("pod %s: cache %v, runtime %v", uid, s, want)
		}
	}
}

func TestLifecycleByClaims(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		time.Sleep(1500 * time.Millisecond)
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		b.toy.set("p", Container, "c", PhaseCreated)
		synctest.Wait()
		b.toy.set("p", Container, "c", PhaseRunning)
		b.want("p ContainerStarted s", "p ContainerStarted c")
		b.shows("p")
		b.toy.set("p", Container, "c", PhaseExited)
		b.want("p ContainerDied c")
		b.toy.set("p", Container, "c", PhaseRemoved)
		b.want("p ContainerRemoved c")
		b.toy.set("p", Sandbox, "s", PhaseExited)
		b.want("p ContainerDied s")
		b.toy.set("p", Sandbox, "s", PhaseRemoved)
		b.want("p ContainerRemoved s")
		b.shows("p")
		if n := b.cache.Len(); n != 0 {
			b.t.Errorf("%d pods left in the cache", n)
		}
		for _, e := range b.got {
			if e.Cause == CauseClaim && !e.Stamp.Equal(e.Seen) {
				b.t.Errorf("%s of %s is stamped %v, want %v", e.Type, e.ID, e.Stamp, e.Seen)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s := b.gen.Stats()
		if s.Missed != 0 || s.Pods != 0 || s.DirtyPods != 0 {
			b.t.Errorf("stats: %+v", s)
		}
	})
}

func TestGenericPollsAtTheBase(t *testing.T) {
	inBubble(t, func(c *Config[status], r *toyRuntime) { c.Stream = nil }, func(b *bed) {
		time.Sleep(500 * time.Millisecond)
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		b.want()
		time.Sleep(600 * time.Millisecond)
		b.want("p ContainerStarted s")
		b.shows("p")
		lists, _, _ := b.toy.counts()
		time.Sleep(300 * time.Second)
		if now, _, _ := b.toy.counts(); now-lists != 300 {
			b.t.Errorf("%d lists in 300 s, want 300", now-lists)
		}
	})
}

func TestIdleEventedHardlyLists(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("delta=%v", delta), func(t *testing.T) {
			inBubble(t, func(c *Config[status], r *toyRuntime) {
				r.delta = delta
				for i := range 500 {
					uid := fmt.Sprintf("p%d", i)
					r.pods[cache.UID(uid)] = []Item{{ID: uid + "s", Kind: Sandbox, Phase: PhaseRunning}, {ID: uid + "c", Kind: Container, Phase: PhaseRunning}}
				}
			}, func(b *bed) {
				time.Sleep(300 * time.Second)
				b.events()
				lists, _, _ := b.toy.counts()
				if lists >= 12 {
					b.t.Errorf("%d lists in 300 s, want fewer than 12", lists)
				}
				b.toy.mu.Lock()
				b.toy.silent = true
				b.toy.mu.Unlock()
				b.toy.set("p7", Container, "p7c", PhaseExited)
				b.toy.mu.Lock()
				b.toy.silent = false
				b.toy.mu.Unlock()
				time.Sleep(300 * time.Second)
				b.want("p7 ContainerDied p7c")
				b.shows("p7")
				time.Sleep(3 * time.Second)
				synctest.Wait()
				s := b.gen.Stats()
				if s.Missed != 1 || s.RelistPeriod > 256*time.Second {
					b.t.Errorf("missed %d, period %v", s.Missed, s.RelistPeriod)
				}
			})
		})
	}
}

func TestGetNewerThanReadsThatPodAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(100 * time.Second)
		_, reads, _ := b.toy.counts()
		start := time.Now()
		s, err := b.cache.GetNewerThan(b.t.Context(), "p", start)
		if err != nil || len(s.Items) != 1 {
			b.t.Errorf("got %v, %v", s, err)
		}
		if d := time.Since(start); d > time.Millisecond {
			b.t.Errorf("took %v", d)
		}
		if s, err := b.cache.GetNewerThan(b.t.Context(), "nobody", start); err != nil || s == nil || s.UID != "nobody" {
			b.t.Errorf("unknown pod: got %v, %v", s, err)
		}
		if _, now, statuses := b.toy.counts(); now-reads != 2 || statuses != 1 {
			b.t.Errorf("%d reads of pods, %d of statuses; want 2, 1", now-reads, statuses)
		}
	})
}

func TestManyWaitersAreServedByOneList(t *testing.T) {
	// The invariants look at every pod after each tick, which takes minutes with so many: smaller
	// tests check them.
	unchecked := func(cfg *Config[status], _ *toyRuntime) { cfg.Metrics = nil }
	inBubble(t, unchecked, func(b *bed) {
		const n = 10000
		b.toy.mu.Lock()
		for i := range n {
			b.toy.pods[cache.UID(fmt.Sprintf("p%d", i))] = []Item{{ID: fmt.Sprintf("s%d", i), Kind: Sandbox, Phase: PhaseRunning}}
		}
		b.toy.delta = true
		b.toy.mu.Unlock()
		time.Sleep(10 * time.Second)
		b.gen.Stats()
		lists, reads, _ := b.toy.counts()
		now := time.Now()
		results := make(chan error, n)
		for i := range n {
			go func() {
				s, err := b.cache.GetNewerThan(b.t.Context(), cache.UID(fmt.Sprintf("p%d", i)), now)
				if err == nil && len(s.Items) != 1 {
					err = errors.New("empty")
				}
				results <- err
			}()
		}
		for range n {
			if err := <-results; err != nil {
				b.t.Fatal(err)
			}
		}
		l, r, _ := b.toy.counts()
		if l-lists > 5 || r-reads > 3*defaultSweepAt {
			b.t.Errorf("%d lists, %d reads of pods", l-lists, r-reads)
		}
	})
}

func TestLostStreamFallsBackAndReconnects(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(200 * time.Second)
		if s := b.gen.Stats(); s.State != StreamConnected || s.RelistPeriod < 64*time.Second {
			b.t.Fatalf("state %v, period %v", s.State, s.RelistPeriod)
		}
		b.toy.mu.Lock()
		b.toy.refuse = errors.New("connection refused")
		b.toy.mu.Unlock()
		b.toy.cutStreams()
		time.Sleep(500 * time.Second)
		if s := b.gen.Stats(); s.State != StreamBackoff || s.RelistPeriod != time.Second {
			b.t.Errorf("state %v, period %v", s.State, s.RelistPeriod)
		}
		b.toy.mu.Lock()
		b.toy.refuse = nil
		b.toy.mu.Unlock()
		b.toy.set("p", Sandbox, "s", PhaseExited)
		time.Sleep(62 * time.Second)
		// The exit was found by polling, and nobody listened: the runtime is not to blame.
		if s := b.gen.Stats(); s.State != StreamConnected || s.Reconnects != 1 || s.Missed != 0 || s.Unheard != 1 {
			b.t.Errorf("stats %+v", s)
		}
		b.events()
	})
}

func TestUnsupportedIsAskedAgain(t *testing.T) {
	inBubble(t, func(c *Config[status], r *toyRuntime) { r.refuse = fmt.Errorf("unknown method: %w", ErrNoEvents) }, func(b *bed) {
		time.Sleep(10 * time.Second)
		if s := b.gen.Stats(); s.State != StreamUnsupported {
			b.t.Errorf("state %v", s.State)
		}
		b.toy.mu.Lock()
		b.toy.refuse = nil
		b.toy.mu.Unlock()
		time.Sleep(60 * time.Second)
		if s := b.gen.Stats(); s.State != StreamConnected {
			b.t.Errorf("state %v", s.State)
		}
	})
}

func TestStalledWatchLosesNothing(t *testing.T) {
	inBubble(t, func(c *Config[status], r *toyRuntime) { c.Capacity = 2 }, func(b *bed) {
		time.Sleep(2 * time.Second)
		for i := range 10 {
			b.toy.set(cache.UID(fmt.Sprintf("p%d", i)), Sandbox, fmt.Sprintf("s%d", i), PhaseRunning)
			time.Sleep(10 * time.Millisecond)
		}
		if err := b.gen.Health(); err != nil {
			b.t.Errorf("health: %v", err)
		}
		got := b.events()
		if len(got) != 10 {
			b.t.Errorf("got %d events %q, want one for each of 10 pods", len(got), got)
		}
	})
}

func TestInspectionErrorKeepsTheLastStatus(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(2 * time.Second)
		b.events()
		b.toy.mu.Lock()
		b.toy.readErr, b.toy.noLoad = errors.New("no disk"), true
		b.toy.mu.Unlock()
		b.toy.set("p", Sandbox, "s", PhaseExited)
		synctest.Wait()
		s, err := b.cache.Get("p")
		if err == nil || len(s.Items) != 1 {
			b.t.Errorf("got %v, %v", s, err)
		}
		b.want()
		b.toy.mu.Lock()
		b.toy.readErr = nil
		b.toy.mu.Unlock()
		time.Sleep(2 * time.Second)
		b.want("p ContainerDied s")
		b.shows("p")
	})
}

func TestReinspectIsAnsweredAndPaced(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(2 * time.Second)
		b.events()
		_, _, before := b.toy.counts()
		b.gen.RequestReinspect("p")
		time.Sleep(time.Millisecond)
		b.want("p PodSync ")
		b.gen.RequestReinspect("p")
		time.Sleep(time.Millisecond)
		b.want()
		time.Sleep(time.Second)
		b.want("p PodSync ")
		b.gen.RequestReinspect("p")
		if _, err := b.cache.GetNewerThan(b.t.Context(), "p", time.Now()); err != nil {
			b.t.Error(err)
		}
		b.want("p PodSync ")
		b.gen.RequestReinspect("nobody")
		time.Sleep(time.Second)
		b.want("nobody PodSync ")
		if _, _, now := b.toy.counts(); now-before != 3 {
			b.t.Errorf("%d reads of statuses, want 3", now-before)
		}
	})
}

// TestClaimsWithoutAPod holds that a claim that does not say whose it is counts: kubernetes#114371.
func TestClaimsWithoutAPod(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		for _, p := range []string{"p", "q"} {
			b.toy.set(cache.UID(p), Sandbox, p+"s", PhaseRunning)
			b.toy.set(cache.UID(p), Container, p+"c", PhaseRunning)
		}
		time.Sleep(60 * time.Second)
		b.events()
		b.toy.mu.Lock()
		b.toy.silent = true
		b.toy.mu.Unlock()
		unowned := func(id string, phase Phase) {
			b.toy.replay(Claim[status]{Item: Item{ID: id, Phase: phase}, CreatedAt: time.Now()})
		}
		b.toy.set("p", Container, "pc", PhaseExited)
		b.toy.set("q", Container, "qc", PhaseExited)
		unowned("pc", PhaseExited)
		unowned("qc", PhaseExited)
		b.want("p ContainerDied pc", "q ContainerDied qc")
		b.toy.set("r", Sandbox, "rs", PhaseRunning)
		unowned("rs", PhaseRunning)
		time.Sleep(time.Second)
		b.want("r ContainerStarted rs")
		time.Sleep(10 * time.Second)
		if s := b.gen.Stats(); s.Missed != 0 {
			b.t.Errorf("%d missed: the stream told of all", s.Missed)
		}
	})
}

// TestTrustGrowsUnderLoad holds that changes which a relist sees a little before the stream tells
// of them do not keep the period down.
func TestTrustGrowsUnderLoad(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		for i := range 600 {
			id := fmt.Sprint("c", i)
			b.toy.mu.Lock()
			b.toy.silent = true
			b.toy.mu.Unlock()
			b.toy.set("p", Container, id, PhaseRunning)
			time.Sleep(100 * time.Millisecond) // the runtime gets round to telling
			b.toy.replay(Claim[status]{Pod: "p", Item: Item{ID: id, Phase: PhaseRunning}})
			b.events()
		}
		if s := b.gen.Stats(); s.RelistPeriod < 16*time.Second || s.Missed != 0 {
			b.t.Errorf("after a minute of late events: period %v, missed %d", s.RelistPeriod, s.Missed)
		}
	})
}

// TestChurnInOnePodIsForgotten holds that what is remembered follows what lives, even in a pod that
// nobody reads for minutes.
func TestChurnInOnePodIsForgotten(t *testing.T) {
	inBubble(t, func(c *Config[status], r *toyRuntime) { r.delta = true }, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(100 * time.Second)
		for i := range 2000 {
			id := fmt.Sprint("c", i)
			b.toy.set("p", Container, id, PhaseRunning)
			synctest.Wait()
			b.toy.set("p", Container, id, PhaseRemoved)
			time.Sleep(20 * time.Millisecond)
			b.events()
		}
		time.Sleep(3 * time.Second)
		b.stop()
		if n := len(b.gen.core.index); n > 1 {
			b.t.Errorf("%d IDs remembered of one that lives", n)
		}
		b.stop = func() {}
	})
}

// TestListEndsAsAReadBeginsAndEnds holds that a list which shows a pod otherwise than a read does
// is followed by another read, if both end in the instant in which the read began.
func TestListEndsAsAReadBeginsAndEnds(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		time.Sleep(100 * time.Second)
		gate := make(chan struct{})
		b.toy.mu.Lock()
		b.toy.silent, b.toy.gate = true, gate
		b.toy.mu.Unlock()
		b.gen.RequestRelist("")
		time.Sleep(time.Millisecond)
		b.gen.RequestRelist("p")
		time.Sleep(time.Nanosecond)
		synctest.Wait() // the read has begun and ended
		b.toy.set("p", Sandbox, "s", PhaseExited)
		close(gate)
		time.Sleep(time.Millisecond)
		b.shows("p")
	})
}

// shortStream is a stream of one claim, which then ends in order.
type shortStream struct{ opened int }

func (s *shortStream) Events(context.Context) iter.Seq2[Claim[status], error] {
	return func(yield func(Claim[status], error) bool) {
		s.opened++
		time.Sleep(10 * time.Millisecond)
		yield(Claim[status]{Pod: "p", Item: Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}, nil)
		yield(Claim[status]{}, io.EOF)
	}
}

// slowSteps is a generator's metrics that slow its loop.
type slowSteps struct{ invariantWatcher }

func (slowSteps) BetweenSteps() { time.Sleep(time.Millisecond) }

// TestLastClaimsOfAStreamComeBeforeItsEnd holds that a stream that brings a claim and ends counts
// as connected, however busy the loop is: a runtime that ends its streams at once has no events.
func TestLastClaimsOfAStreamComeBeforeItsEnd(t *testing.T) {
	stream := &shortStream{}
	inBubble(t, func(c *Config[status], r *toyRuntime) {
		c.Stream, c.Metrics = stream, slowSteps{invariantWatcher{t: t}}
	}, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		for until := time.Now().Add(10 * time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if b.gen.Stats().State == StreamOpening {
				b.gen.RequestRelist("p")
			}
		}
		if s := b.gen.Stats(); s.Connects < stream.opened-1 || stream.opened < 12 {
			b.t.Errorf("%d of %d streams counted as connected", s.Connects, stream.opened)
		}
	})
}

func TestRestartOverTheSameCache(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		b.toy.set("q", Sandbox, "t", PhaseRunning)
		time.Sleep(5 * time.Second)
		b.stop()
		b.toy.set("p", Sandbox, "s", PhaseRemoved)
		got := make(chan int, 1)
		go func() {
			s, _ := b.cache.GetNewerThan(b.t.Context(), "p", time.Now())
			got <- len(s.Items)
		}()
		time.Sleep(time.Second)
		b.start(nil)
		time.Sleep(time.Second)
		if n := <-got; n != 0 {
			b.t.Errorf("waiter got %d items", n)
		}
		b.shows("p", "q")
		if n := b.cache.Len(); n != 1 {
			b.t.Errorf("%d pods in the cache, want 1", n)
		}
	})
}
