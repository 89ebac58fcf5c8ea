// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"time"
)

// waiter is a blocked GetNewerThan, owned by the cache's mutex until ready is closed, and by its
// caller afterwards.
type waiter[S any] struct {
	t      time.Time
	phases bool // waits for a look at the phases, not for a read of the statuses
	index  int  // in the pod's list; -1 once taken out
	ready  chan struct{}
	status *S
	err    error
}

// Demand is the reads of a pod that its waiters ask for. A zero time asks for none.
type Demand struct {
	// Content is the time after which a read of all statuses must begin.
	Content time.Time
	// Phases is the time after which a read must begin that shows the pod's phases at least.
	Phases time.Time
}

// merge adds the demand of a waiter.
func (d Demand) merge(t time.Time, phases bool) Demand {
	if phases {
		d.Phases = later(d.Phases, t)
	} else {
		d.Content = later(d.Content, t)
	}
	return d
}

// GetNewerThan returns the pod's status, and the error of its last read, once they are newer than
// t: once a read of all statuses of the pod begun after t was applied. Every part of the status is
// then from after t: limits, reasons and addresses as well as phases. Waiting is a demand for such
// a read. When ctx ends first, GetNewerThan returns the last known status and an error that wraps
// the cause, and leaves nothing behind.
//
// A read that fails ends the wait, too, with its error: what it could not read of the status may be
// older than t. A pod that is gone, or never was, has an empty status and no error.
//
// Without a generator nobody reads: the wait lasts until one runs over the cache, or ctx ends. So
// ctx should end with that of the generator's Run.
//
// T must come from time.Now of this process. A time in the future demands nothing until it has
// come, and makes no other wait longer. The zero time asks for any read. Any other time without a
// monotonic reading counts as the time of the call: the answer may be newer than asked for, but
// never older, whatever the wall clock did.
func (c *Cache[S]) GetNewerThan(ctx context.Context, uid UID, t time.Time) (*S, error) {
	return c.await(ctx, uid, t, false)
}

// GetPhasesNewerThan is GetNewerThan for phases: it returns once a read begun after t has shown the
// IDs of the pod and their phases as in the status. The other parts of the status may be older. A
// list of everything serves any number of such waiters, and a pod without a change costs no read of
// its statuses. The kubelet's own cache promises as much.
func (c *Cache[S]) GetPhasesNewerThan(ctx context.Context, uid UID, t time.Time) (*S, error) {
	return c.await(ctx, uid, t, true)
}

// await waits for a read begun after t, of the phases or of all statuses.
func (c *Cache[S]) await(ctx context.Context, uid UID, t time.Time, phases bool) (*S, error) {
	if t == t.Round(0) && !t.IsZero() {
		t = time.Now() // no monotonic reading: not comparable across a step of the wall clock
	}
	c.mu.Lock()
	if !c.newer(uid, t, phases) {
		now := time.Now() // time.Until would compare monotonic readings alone, which times of a test's bubble do not have
		if ahead := t.Sub(now); ahead > 0 {
			c.mu.Unlock()
			pause(ctx, ahead)
			c.mu.Lock()
		}
	}
	if c.newer(uid, t, phases) {
		defer c.mu.Unlock()
		return c.answer(uid, t, phases)
	}
	if ctx.Err() != nil {
		defer c.mu.Unlock()
		return c.tooOld(ctx, uid)
	}
	w := &waiter[S]{
		t:      t,
		phases: phases,
		index:  len(c.waiters[uid]),
		ready:  make(chan struct{}),
	}
	c.waiters[uid] = append(c.waiters[uid], w)
	c.waiting++
	c.want(uid, t, phases)
	c.mu.Unlock()

	select {
	case <-w.ready:
		return w.status, w.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.index < 0 {
		return w.status, w.err // woken at the same time
	}
	c.takeOut(uid, w)
	if len(c.waiters[uid]) == 0 {
		delete(c.demand, uid)
	}
	return c.tooOld(ctx, uid)
}

// pause returns after a time, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// tooOld answers a waiter whose ctx has ended, and says what else it knows of why nobody has read.
func (c *Cache[S]) tooOld(ctx context.Context, uid UID) (*S, error) {
	status, failed := c.get(uid)
	err := fmt.Errorf("cache: no newer read of pod %q: %w", uid, context.Cause(ctx))
	if failed != nil {
		err = fmt.Errorf("%w (its last read failed: %w)", err, failed)
	}
	if !c.owned {
		err = fmt.Errorf("%w (no generator runs over this cache)", err)
	}
	return status, err
}

// takeOut removes the waiter from its pod's list.
func (c *Cache[S]) takeOut(uid UID, w *waiter[S]) {
	list := c.waiters[uid]
	last := len(list) - 1
	list[w.index] = list[last]
	list[w.index].index = w.index
	list[last] = nil
	w.index = -1
	c.waiting--
	if last == 0 {
		delete(c.waiters, uid)
		return
	}
	c.waiters[uid] = list[:last]
}

// wakePod hands the pod's status to its waiters for which the status is new enough.
func (c *Cache[S]) wakePod(uid UID) {
	list := c.waiters[uid]
	if len(list) == 0 {
		return
	}
	asOf := c.asOf(uid)
	readAt := c.readAt(uid)
	for i := len(list) - 1; i >= 0; i-- {
		w := list[i]
		at := readAt
		if w.phases {
			at = asOf
		}
		if !at.After(w.t) {
			continue
		}
		w.status, w.err = c.answer(uid, w.t, w.phases)
		c.takeOut(uid, w)
		close(w.ready)
	}
}

// want records the demand of a waiter and announces it.
func (c *Cache[S]) want(uid UID, t time.Time, phases bool) {
	if t.IsZero() {
		t = time.Unix(0, 0) // any read will do, and one must be made
	}
	c.demand[uid] = c.demand[uid].merge(t, phases)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Demand returns the channel that wakes the generator when there is demand to take. One generator
// listens at a time: see [Cache.Own].
func (c *Cache[S]) Demand() <-chan struct{} { return c.wake }

// TakeDemand returns the pods with new waiters since the last call, each with the reads that serve
// them all; nil if none.
func (c *Cache[S]) TakeDemand() map[UID]Demand {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.demand) == 0 {
		return nil
	}
	taken := c.demand
	c.demand = make(map[UID]Demand)
	return taken
}

// RenewDemand makes every present waiter a demand again, for a generator that takes over from
// another.
func (c *Cache[S]) RenewDemand() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, list := range c.waiters {
		for _, w := range list {
			c.want(uid, w.t, w.phases)
		}
	}
}

// Waiting returns the number of blocked GetNewerThan calls.
func (c *Cache[S]) Waiting() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.waiting
}

// Wanted returns the pods with waiters now, each with the latest time asked for.
func (c *Cache[S]) Wanted() map[UID]time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	wanted := make(map[UID]time.Time, len(c.waiters))
	for uid, list := range c.waiters {
		for _, w := range list {
			wanted[uid] = later(wanted[uid], w.t)
		}
	}
	return wanted
}
