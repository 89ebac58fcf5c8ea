// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// waiter is a call of GetNewerThan, or of GetPhasesNewerThan.
type waiter struct {
	w      *world
	pod    cache.UID
	phases bool      // waits for phases only
	t      time.Time // asked for a status newer than this
	begun  time.Time
	quick  bool // everything was at rest at the begin
	cancel context.CancelFunc
	place  place // while no read has begun for the waiter

	mu    sync.Mutex
	done  bool
	items []pleg.Item
	err   error
}

// wish is the request of a waiter.
type wish struct {
	ago   time.Duration // the wanted age: newer than so long ago
	limit time.Duration // gives up after so long; zero: never
	// wall strips the monotonic reading from the requested time.
	wall bool
	// phases asks for phases only.
	phases bool
}

// wait starts a waiter.
func (w *world) wait(pod cache.UID, asks wish) *waiter {
	ctx, cancel := context.WithCancel(w.ctx)
	if asks.limit > 0 {
		ctx, cancel = context.WithTimeout(w.ctx, asks.limit)
	}
	x := &waiter{
		w:      w,
		pod:    pod,
		phases: asks.phases,
		begun:  time.Now(),
		cancel: cancel,
	}
	x.t = x.begun.Add(-asks.ago)
	if asks.wall && asks.ago < 0 {
		x.t = x.begun // such a time is taken for the time of the call
	}
	if w.boundary != nil && w.side.restless() {
		w.boundary.disturb(x.begun)
	}
	x.quick = asks.ago >= 0 && w.system != nil && w.oracle.rests(pod)
	w.waiters = append(w.waiters, x)
	if w.boundary != nil {
		w.boundary.wanted(pod, x.t)
	}
	w.truth.Mention(pod)
	w.children.Go(func() {
		defer cancel()
		asked := x.t
		if !asks.wall {
			asked = monotonic(asked)
		}
		get := w.store.GetNewerThan
		if asks.phases {
			get = w.store.GetPhasesNewerThan
		}
		got, err := get(ctx, pod, asked)
		x.returned(ctx, got, err)
	})
	return x
}

// keepWaiting starts somebody who waits for a pod, and again soon after being served, for a time.
func (w *world) keepWaiting(pod cache.UID, d time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, d)
	w.truth.Mention(pod)
	w.children.Go(func() {
		defer cancel()
		for ctx.Err() == nil {
			x := &waiter{
				w:     w,
				pod:   pod,
				t:     time.Now(),
				begun: time.Now(),
			}
			w.toldMu.Lock()
			if w.boundary != nil {
				w.boundary.wanted(pod, x.t)
			}
			w.toldMu.Unlock()
			got, err := w.store.GetNewerThan(ctx, pod, monotonic(x.t))
			x.returned(ctx, got, err)
			pause := 5 * time.Millisecond
			if err != nil {
				pause = time.Second
			}
			_ = sleep(ctx, pause)
		}
	})
}

// outside is a time with a monotonic reading, which times within a bubble do not have.
var outside = time.Now()

// monotonic returns the same time with a monotonic reading, as times outside of bubbles have:
// without a reading GetNewerThan would take the time of the call. Compared with times of the
// bubble, its wall clock counts, which is as good in a bubble.
func monotonic(t time.Time) time.Time { return outside.Add(t.Sub(outside.Round(0))) }

// returned checks the result of the call.
func (x *waiter) returned(ctx context.Context, got shown, err error) {
	o := x.w.oracle
	x.mu.Lock()
	x.done = true
	x.items = got.Items
	x.err = err
	x.mu.Unlock()
	switch {
	case errors.Is(err, errNil):
		o.fail("nil", "a waiter for pod %s was handed nil", x.pod)
		return
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return // gave up, and reports so
	}
	since := x.t
	if err != nil {
		o.failedSince(x.pod, x.t, err)
		since = time.Time{}
	}
	for _, id := range got.Unread {
		x.w.truth.Unreadable(id)
	}
	if kind, what := x.w.truth.Check(x.pod, got.Items, since); kind != "" {
		o.fail(
			kind+"-read",
			"pod %s: GetNewerThan of %s returned at %s a status that %s",
			x.pod,
			o.when(x.t),
			o.when(time.Now()),
			what,
		)
	}
	if x.phases {
		since = time.Time{} // the content may be older, and was the runtime's
	}
	o.answered(x.pod, got.Fields, since)
}

// failedSince checks that a waiter's error comes from a read begun after t.
func (o *oracle) failedSince(pod cache.UID, t time.Time, err error) {
	o.mu.Lock()
	l := o.boundary
	o.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	failed := l.podFail[pod]
	l.mu.Unlock()
	if !failed.After(t) {
		o.fail(
			"error",
			"pod %s: GetNewerThan of %s returned the error %q, and no read that began after has failed",
			pod,
			o.when(t),
			err,
		)
	}
}

func (x *waiter) ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done
}

// checkWaiters checks that every waiter has had a read, and that waiters begun during a rest are
// served at once, unless the rest has ended.
func (w *world) checkWaiters() {
	kept := w.waiters[:0]
	for _, x := range w.waiters {
		if x.ended() {
			continue
		}
		kept = append(kept, x)
		if w.boundary == nil || w.system == nil {
			x.quick = false
			continue
		}
		w.boundary.lookNeglected(&x.place, x.pod, x.t, x.begun)
		if !x.phases {
			w.boundary.lookStarved(x)
		}
		if !x.quick {
			continue
		}
		w.boundary.mu.Lock()
		w.boundary.changes()
		disturbed := latest(w.boundary.disturbed, w.truth.hangsUntil(x.pod)).After(x.begun)
		cutOff := 2 * w.boundary.cutOff(x.pod) // an item that hangs: of the read under way, and of the next
		w.boundary.mu.Unlock()
		if disturbed {
			x.quick = false
		} else if d := time.Since(x.begun); d > cutOff+w.settings.served()+w.settings.load(len(w.truth.UIDs())) {
			w.oracle.fail("slow-waiter", "a waiter for pod %s still waits after %v of rest", x.pod, d)
		}
	}
	clear(w.waiters[len(kept):])
	w.waiters = kept
}

// starvedAfter is how many reads of all statuses of a pod, each begun after what a waiter asked
// for, may end well while the waiter waits. The first may be overtaken by an event, and so may
// the second; a look that misses an ID, or shows less than an event told, is followed by another.
const starvedAfter = 4

// lookStarved checks that a waiter for statuses is answered, whatever events come meanwhile:
// events may come faster than reads end. Claims of what is still to come, or was taken back, put
// the answer off for a grace each, and so do looks that miss an ID.
func (b *boundary) lookStarved(x *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.pace.on || b.lied() || b.stopping || !b.pace.settings.roomy() { // nor is it noted then what is ahead
		return
	}
	ahead := b.hearsOf(latest(b.prompt.ahead[x.pod], b.prompt.back[x.pod]))
	from := latest(x.t, x.begun, ahead.Add(3*b.pace.settings.grace), b.truth.lastMissed(x.pod))
	n := 0
	for _, begun := range b.wholes[x.pod] {
		if begun.After(from) {
			n++
		}
	}
	if n > starvedAfter {
		b.fail("starved", "a waiter for pod %s still waits, and %d reads begun later have ended well", x.pod, n)
	}
}

// stuckWaiters checks that nobody waits after a long rest.
func (w *world) stuckWaiters() {
	w.boundary.mu.Lock()
	first := w.boundary.listFirst
	w.boundary.mu.Unlock()
	for _, x := range w.waiters {
		if !x.ended() && x.begun.Before(first.Add(-w.settings.base)) &&
			x.t.Before(first.Add(-w.settings.base)) {
			w.oracle.fail(
				"stuck-waiter",
				"a waiter for pod %s still waits, since %s",
				x.pod,
				w.oracle.when(x.begun),
			)
		}
	}
}

// podWorker acts like a kubelet's pod worker. Again and again, it syncs with a status newer than
// the end of the last sync, and starts the pod's container if none runs. Like a kubelet, the worker
// does not wait for a created container, and ends a container of unknown state.
type podWorker struct {
	wake  chan struct{}
	stop  context.CancelFunc
	done  chan struct{}
	cycle int
}

func (p *podWorker) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// containerMaker is a runtime's side on which pod workers can start containers.
type containerMaker interface {
	// keepRunning makes the pod's container if there is a ready sandbox. Doubled: a container was
	// running already.
	keepRunning(pod cache.UID, cycle int) (doubled string)
}

// work starts a pod worker.
func (w *world) work(pod cache.UID) {
	maker, ok := w.side.(containerMaker)
	if !ok || w.workers[pod] != nil {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	p := &podWorker{wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	w.toldMu.Lock()
	w.workers[pod] = p
	w.toldMu.Unlock()
	w.truth.Mention(pod)
	w.children.Go(func() {
		defer close(p.done)
		synced := time.Now()
		for ctx.Err() == nil {
			w.toldMu.Lock()
			if w.boundary != nil {
				w.boundary.wanted(pod, synced)
			}
			w.toldMu.Unlock()
			got, err := w.store.GetNewerThan(ctx, pod, monotonic(synced))
			if err == nil {
				w.sync(maker, p, pod, got.Items)
			}
			synced = time.Now()
			select {
			case <-p.wake:
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		}
	})
}

func (w *world) sync(maker containerMaker, p *podWorker, pod cache.UID, items []pleg.Item) {
	ready := false
	alive := false
	for _, it := range items {
		ready = ready || it.Kind == pleg.Sandbox && it.Phase == pleg.PhaseRunning
		alive = alive ||
			it.Kind == pleg.Container && it.Phase == pleg.PhaseRunning &&
				strings.HasPrefix(w.side.name(it.ID), "w-")
	}
	if !ready || alive || p.cycle > 20 {
		return
	}
	p.cycle++
	if doubled := maker.keepRunning(pod, p.cycle); doubled != "" {
		w.oracle.fail("double-start", "pod %s: its worker starts a container while %s is alive", pod, doubled)
	}
}
