// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
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

// stoppingSteps is a generator's metrics that call stop at a step, and wait for what follows.
type stoppingSteps struct {
	invariantWatcher
	steps int // until stop; 0: never
	stop  func()
}

func (s *stoppingSteps) BetweenSteps() {
	if s.steps--; s.steps == 0 {
		go s.stop()
		time.Sleep(time.Millisecond)
	}
}

// TestEndOfRunIsNoFailure ends Run within a turn, while the stream is up and a list and a read are
// under way: their errors are neither reported, logged nor stored.
func TestEndOfRunIsNoFailure(t *testing.T) {
	for i := range 60 { // the loop chooses at random between the end and what has failed with it
		reports, steps := &reportLog{}, &stoppingSteps{invariantWatcher: invariantWatcher{t: t}}
		inBubble(t, func(c *Config[status], _ *toyRuntime) { c.Recorder, c.Metrics = reports, steps }, func(b *bed) {
			b.toy.set("p", Sandbox, "s", PhaseRunning)
			time.Sleep(time.Minute)
			synctest.Wait()
			b.toy.delay = time.Hour
			b.gen.RequestReinspect("p")
			time.Sleep(time.Second)
			b.gen.RequestRelist("")
			time.Sleep(time.Second)
			synctest.Wait()
			if s := b.gen.Stats(); s.Inspecting != 1 || s.State != StreamConnected {
				t.Fatalf("%d reads under way, and the stream is %v", s.Inspecting, s.State)
			}
			stop, ended := b.stop, make(chan struct{})
			b.stop = func() { <-ended }
			steps.steps, steps.stop = 1+i%3, func() { stop(); close(ended) }
			b.gen.RequestRelist("nobody")
			b.stop()
			if _, err := b.cache.Get("p"); err != nil || len(reports.of("")) > 0 || bytes.Contains(b.log.Bytes(), []byte("cancel")) {
				t.Errorf("the cache holds the error %v; reports %v; log %s", err, reports.of(""), b.log.String())
			}
		})
	}
}

// TestDefect17InstancesDoNotKnowOfEachOther runs an evented and a polling generator over one
// runtime: both end in a cache of the runtime's state, and the end of one changes nothing for the
// other (invariants 7 and 8).
func TestDefect17InstancesDoNotKnowOfEachOther(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, nil, func(b *bed) {
			polling := &bed{t: b.t, toy: b.toy, cache: cache.New(func(uid cache.UID) *status { return &status{UID: uid} })}
			polling.start(func(c *Config[status], _ *toyRuntime) { c.Stream = nil })
			rng, phases := rand.New(rand.NewPCG(seed, 5)), make(map[int]Phase)
			change := func() {
				for range 100 {
					n := rng.IntN(40)
					if phases[n]++; phases[n] <= PhaseRemoved {
						b.toy.set(cache.UID(fmt.Sprint("p", n%3)), Container, fmt.Sprint("c", n), phases[n])
					}
					time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
				}
				time.Sleep(3 * time.Second)
			}
			change()
			b.shows("p0", "p1", "p2")
			polling.shows("p0", "p1", "p2")
			polling.stop()
			change()
			b.shows("p0", "p1", "p2")
		})
	}
}

// TestOwnCallsAreBounded reports calls about IDs that nobody knows, beside a waiter for no pod, and
// calls without an end.
func TestOwnCallsAreBounded(t *testing.T) {
	unchecked := func(cfg *Config[status], _ *toyRuntime) { cfg.Metrics = nil }
	inBubble(t, unchecked, func(b *bed) {
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Second)
		defer cancel()
		go func() { _, _ = b.cache.GetNewerThan(ctx, "", time.Now()) }()
		synctest.Wait()
		for i := range 10 {
			returned := b.gen.Calling(OwnCall{ID: fmt.Sprint("c", i)})
			time.Sleep(time.Millisecond)
			returned(nil, Item{ID: fmt.Sprint("c", i), Phase: PhaseRemoved})
		}
		time.Sleep(30 * time.Second)
		if n := b.gen.Stats().Pods; n != 0 {
			b.t.Errorf("%d pods are remembered of a runtime that has none", n)
		}
		const calls = 20_000
		for i := range calls {
			b.gen.Calling(OwnCall{Pod: PodRef{UID: cache.UID(fmt.Sprint("u", i))}})
			if i%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(30 * time.Second)
		if s := b.gen.Stats(); s.Pods > calls/2 || s.DiscardedAcks == 0 {
			b.t.Errorf("%d calls without an end keep %d pods, and %d calls were discarded", calls, s.Pods, s.DiscardedAcks)
		}
	})
}
