// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Calls that take work, items that cannot be read, lists that show nothing, and changes that are
// made long after their call.

// processorsOf is the number of processors under some faults, 0 if work takes no time.
func processorsOf(f *Faults) int {
	if f.Work == 0 {
		return 0
	}
	return max(f.Processors, 1)
}

// work waits until the processors have done the work of a call.
func (rt *Runtime) work(ctx context.Context, life <-chan struct{}, d time.Duration) error {
	if d == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- rt.cpu.Serve(ctx, d) }()
	select {
	case err := <-done:
		if err != nil {
			return status.FromContextError(err).Err()
		}
		return nil
	case <-life:
		cancel()
		<-done
		return status.Error(codes.Unavailable, brokenStream)
	}
}

// sharePeriod is the period in which Linux counts a group's share of the processors.
const sharePeriod = 100 * time.Millisecond

// throttled returns how long a call waits because the runtime has used up its share of the
// processors: until the next period, or the one after. N is the number of the call among those of
// its method. The caller holds the mutex.
func (rt *Runtime) throttled(method string, n uint64) time.Duration {
	if !rt.roll(rollThrottle, rt.faults.Throttle, method, n) {
		return 0
	}
	wait := sharePeriod - time.Since(rt.begun)%sharePeriod
	if rt.roll(rollThrottle, 0.5, method, n, 1) {
		wait += sharePeriod
	}
	return wait
}

// unreadable reports whether the status of a container cannot be read. The caller holds the mutex.
func (rt *Runtime) unreadable(id string) bool {
	return rt.roll(rollFailItem, rt.faults.FailItem, id) || rt.roll(rollHangItem, rt.faults.HangItem, id)
}

// suffer lets the status of an unreadable container fail or hang. A container that is gone is not
// found. An ID in any form that the profile knows is of the same container.
func (rt *Runtime) suffer(ctx context.Context, id string) error {
	rt.lock()
	c, gone := rt.containerByID(id)
	fails := gone == nil && rt.roll(rollFailItem, rt.faults.FailItem, c.id)
	hangs := gone == nil && rt.roll(rollHangItem, rt.faults.HangItem, c.id)
	code := cmp.Or(codes.Code(rt.faults.FailCode), codes.Unknown)
	life := rt.incarnation
	rt.mu.Unlock()
	switch {
	case hangs:
		return until[struct{}](ctx, life, nil)
	case fails:
		return status.Errorf(code, "virtual failure of the status of container %q", id)
	}
	return nil
}

// showsNothing reports whether a list is empty whatever its items are, and counts the list if that
// leaves any of them out.
func (rt *Runtime) showsNothing(method string, call uint64, items int) bool {
	rt.lock()
	defer rt.mu.Unlock()
	first := rt.fresh != nil && !rt.fresh[method]
	if first {
		rt.fresh[method] = true
	}
	empty := rt.roll(rollEmptyList, rt.faults.EmptyList, method, call) ||
		first && rt.roll(rollEmptyStart, rt.faults.EmptyStart, method, uint64(rt.restarts))
	if empty && items > 0 {
		rt.emptyLists++
	}
	return empty
}

// maxLeftovers bounds the removed containers that lists still show.
const maxLeftovers = 1000

// keepListed has lists go on showing a container that was just removed, if the fault is in force.
// The caller holds the mutex.
func (rt *Runtime) keepListed(c *container) {
	if len(rt.leftovers) < maxLeftovers && rt.roll(rollStaysListed, rt.faults.StaysListed, c.id) {
		rt.leftovers = append(rt.leftovers, c)
	}
}

// late returns how much later than its call a change is made, 0 if it is made at once.
func (rt *Runtime) late(method string, call uint64) time.Duration {
	rt.lock()
	defer rt.mu.Unlock()
	if callKinds[method] != callWrite || !rt.roll(rollLateWrite, rt.faults.LateWrite, method, call) {
		return 0
	}
	return cmp.Or(rt.faults.LateWriteBy, 5*time.Minute)
}

// postpone makes a change later, whether or not its caller still waits; no answer comes.
func (s *service) postpone(ctx context.Context, by time.Duration, change func(context.Context)) error {
	s.rt.lock()
	life := s.rt.incarnation
	s.rt.mu.Unlock()
	s.late.Go(func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			late, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			defer context.AfterFunc(s.serving, cancel)()
			change(late)
		case <-life:
		case <-s.serving.Done():
		}
	})
	return until[struct{}](ctx, life, nil)
}
