// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// slowReads is a generator with a pod whose status takes a while to be read.
type slowReads struct {
	statuses *cache.Cache[Pod]
	watch    chan pleg.Event
	reads    sync.WaitGroup
	next     *Pod      // what a read shows
	halted   time.Time // no read that begins before then ends before, nor soon after
}

func (g *slowReads) Watch() <-chan pleg.Event { return g.watch }

func (g *slowReads) HasSynced() bool { return true }

// RequestReinspect stores the status 300 ms later, as read then; no answer is taken while the
// process does not run.
func (g *slowReads) RequestReinspect(uid cache.UID) {
	g.reads.Go(func() {
		time.Sleep(300 * time.Millisecond)
		if left := time.Until(g.halted); left > 0 {
			time.Sleep(left + 300*time.Millisecond)
		}
		g.statuses.Set(uid, g.next, nil, time.Now())
	})
}

// reasons is a recorder that keeps the reasons of Events.
type reasons struct{ all []string }

func (r *reasons) AnnotatedEventf(_, _ runtime.Object, _ map[string]string, _, reason, _, _ string, _ ...any) {
	r.all = append(r.all, reason)
}

// TestTheReasonIsReadAfterTheSettleTime: an end is reported from a status read after the settle
// time, not from the status in the cache by then.
func TestTheReasonIsReadAfterTheSettleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
		recorder := &reasons{}
		r := must(New(Config[Pod]{
			Generator: g,
			Statuses:  g.statuses,
			View:      func(p *Pod) Pod { return *p },
			Recorder:  recorder,
		}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		time.Sleep(time.Second)
		shown := func(reason string) *Pod {
			return &Pod{
				Ref: Ref{UID: "u", Namespace: "ns", Name: "p"},
				Containers: []Container{{
					ID:         "c",
					Name:       "app",
					Phase:      pleg.PhaseExited,
					ExitCode:   137,
					Reason:     reason,
					CreatedAt:  time.Now(),
					StartedAt:  time.Now(),
					FinishedAt: time.Now(),
				}},
			}
		}
		g.next = shown("OOMKilled")
		g.statuses.Set("u", shown("Error"), nil, time.Now())
		g.watch <- pleg.Event{Pod: "u", Type: pleg.ContainerDied, ID: "c", Seen: time.Now()}
		time.Sleep(5 * time.Second)
		cancel()
		running.Wait()
		g.reads.Wait()
		if len(recorder.all) != 1 || recorder.all[0] != string(OOMKilled) {
			t.Errorf("reported %v, want %s once", recorder.all, OOMKilled)
		}
	})
}

// TestTheReasonMayComeUntilTheSettleTime: a reason that the runtime sets within the settle time is
// that of the report. A later reason changes nothing: each end is reported once.
func TestTheReasonMayComeUntilTheSettleTime(t *testing.T) {
	const settle = 500 * time.Millisecond
	for _, profile := range fakeruntime.Profiles() {
		for _, test := range []struct {
			late time.Duration
			want Kind
		}{
			{0, OOMKilled},
			{time.Millisecond, OOMKilled},
			{100 * time.Millisecond, OOMKilled},
			{settle - time.Millisecond, OOMKilled},
			{5 * time.Second, Killed},
		} {
			t.Run(fmt.Sprint(profile.Name, "/", test.late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, fakeruntime.Config{Profile: profile, Seed: 46})
					a := w.start(func(c *Config[cri.PodStatus]) { c.Settle = settle })
					time.Sleep(time.Second)
					pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
					id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
					check(t, w.runtime.Start(id))
					time.Sleep(10 * time.Second)
					check(t, w.runtime.OOMKill(id, test.late))
					time.Sleep(time.Minute)
					reports := a.stop()
					if len(reports) != 1 || reports[0].Kind != test.want || !reports[0].Settled {
						t.Errorf("reported %+v, want one settled %s", reports, test.want)
					}
				})
			})
		}
	}
}

// TestAStopIsNotHeldAgainstTheRuntime: the process is stopped for longer than GiveUp, in the middle
// of the read that decides on an end. The end is reported from a read made afterwards.
func TestAStopIsNotHeldAgainstTheRuntime(t *testing.T) {
	const stop = 40 * time.Second
	synctest.Test(t, func(t *testing.T) {
		g := &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
		var ends []End
		r := must(New(Config[Pod]{
			Generator: g,
			Statuses:  g.statuses,
			View: func(p *Pod) Pod {
				if p.Name == "halt" { // all of the process, and this is its loop
					time.Sleep(stop)
				}
				return *p
			},
			Recorder: &reasons{},
			Observe:  func(e End, _ Outcome) { ends = append(ends, e) },
		}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		time.Sleep(time.Second)
		shown := func(reason string) *Pod {
			c := Container{ID: "c", Name: "app", Phase: pleg.PhaseExited, ExitCode: 137, Reason: reason}
			c.CreatedAt = time.Now()
			return &Pod{Ref: Ref{UID: "u", Namespace: "ns", Name: "p"}, Containers: []Container{c}}
		}
		g.next = shown("OOMKilled")
		g.statuses.Set("u", shown("Error"), nil, time.Now())
		g.statuses.Set("v", &Pod{Ref: Ref{UID: "v", Namespace: "ns", Name: "halt"}}, nil, time.Now())
		const before = 600 * time.Millisecond // in the read, which begins after 500 ms
		g.halted = time.Now().Add(before + stop)
		g.watch <- pleg.Event{Pod: "u", Type: pleg.ContainerDied, ID: "c", Seen: time.Now()}
		time.Sleep(before)
		g.watch <- pleg.Event{Pod: "v", Type: pleg.PodSync, Seen: time.Now()}
		time.Sleep(stop + 5*time.Second)
		cancel()
		running.Wait()
		g.reads.Wait()
		if len(ends) != 1 || ends[0].Kind != OOMKilled || !ends[0].Settled {
			t.Errorf("reported %+v, want one settled %s", ends, OOMKilled)
		}
	})
}

// idleRun is a run without ends, and without anything to be tried again.
func idleRun(t *testing.T) *run[Pod] {
	t.Helper()
	g := &slowReads{statuses: cache.New[Pod](nil)}
	r := must(New(Config[Pod]{
		Generator: g,
		Statuses:  g.statuses,
		View:      func(p *Pod) Pod { return *p },
		Recorder:  &reasons{},
	}))(t)
	w := newRun(t.Context(), r, found(t, r))
	w.retryAt = time.Time{}
	return w
}

// TestTheLoopRunsWhileAnEndSettles: by its next turn the loop notices that it did not run. So a
// turn is planned also while all readers are at work, and nothing else is to be done.
func TestTheLoopRunsWhileAnEndSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleRun(t)
		defer w.cancel()
		w.core.syncedAt = time.Now()
		w.reading = w.config.Readers
		if w.timer(time.Now()) != nil || !w.wakes.IsZero() {
			t.Errorf("a turn is planned for %v, with nothing to do", w.wakes)
		}
		w.core.see(time.Now(), sighting{
			pod:   Pod{Ref: Ref{UID: "u"}, Containers: []Container{exited("c", 1, "Error")}},
			event: pleg.Event{Pod: "u", Type: pleg.ContainerDied, ID: "c"},
		})
		if w.timer(time.Now()) == nil || time.Until(w.wakes) > tick {
			t.Errorf("while an end settles the next turn is in %v", time.Until(w.wakes))
		}
	})
}

// TestStandstillForgetsNothingEarlier: what an earlier process reported is forgotten after an hour
// in which this one ran, and not after a standstill of two: the end would be reported again.
func TestStandstillForgetsNothingEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleRun(t)
		defer w.cancel()
		w.core.earlier = map[string]time.Time{"c": time.Now()}
		turn := func() {
			w.woke(time.Now())
			w.tick(time.Now())
		}
		turn()
		if w.core.syncedAt.IsZero() {
			t.Fatal("the cache is not synced")
		}
		w.timer(time.Now())
		time.Sleep(2 * time.Hour) // and nothing runs
		turn()
		if len(w.core.earlier) == 0 {
			t.Error("forgotten after a standstill")
		}
		from := time.Now()
		for len(w.core.earlier) > 0 && w.timer(time.Now()) != nil {
			time.Sleep(time.Until(w.wakes))
			turn()
		}
		if ran := time.Since(from); len(w.core.earlier) > 0 || ran < earlierFor-2*earlierBeat || ran > earlierFor+2*earlierBeat {
			t.Errorf("%v after %v more, want to be forgotten after %v", w.core.earlier, ran, earlierFor)
		}
	})
}

// TestTheReasonInASiblingsEvent: the runtime corrects the reason, shows it in the event of another
// container's end, and the container is removed before the read that settles its end: the report
// has the reason that the client knows.
func TestTheReasonInASiblingsEvent(t *testing.T) {
	for _, profile := range fakeruntime.Profiles() {
		for _, sibling := range []time.Duration{55 * time.Millisecond, 400 * time.Millisecond} {
			t.Run(fmt.Sprint(profile.Name, "/", sibling), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, fakeruntime.Config{Profile: profile, Seed: 46})
					a := w.start(nil)
					time.Sleep(time.Second)
					pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
					id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
					other := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "other"}))(t)
					check(t, w.runtime.Start(id))
					check(t, w.runtime.Start(other))
					time.Sleep(10 * time.Second)
					check(t, w.runtime.OOMKill(id, 50*time.Millisecond))
					time.Sleep(sibling)
					check(t, w.runtime.Exit(other, 0))
					time.Sleep(3 * time.Millisecond)
					check(t, w.runtime.Remove(id))
					time.Sleep(time.Minute)
					_, reason, _ := a.client.Exit(id)
					for _, r := range a.stop() {
						if r.Container == "app" && r.Reason != reason {
							t.Errorf("told %s (%s), and the client knows %s", r.Kind, r.Reason, reason)
						}
					}
				})
			})
		}
	}
}
