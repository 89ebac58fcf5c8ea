// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// A load makes pods, runs containers in them to their end and removes all of it, over and over, and
// survives all errors of the runtime: it goes on when the runtime is back. Pause stops the load
// between two pods' lives, so that runtime and cache can be compared.
type load struct {
	n      *Node
	cancel context.CancelFunc
	all    sync.WaitGroup
	pause  sync.RWMutex // held for reading while a call is made
	made   atomic.Int64 // containers started

	mu    sync.Mutex // guards the fields below
	calls calls
	since time.Time // of the last call that succeeded
}

// calls are the outcomes of a load's calls.
type calls struct {
	took   []time.Duration // of those that succeeded
	hung   int
	failed []string // the first errors
}

// StartLoad starts workers that go on until Stop or the scenario's end. Each pod gets the given
// number of containers, which exit after up to life.
func (n *Node) StartLoad(workers, containers int, life time.Duration) *load {
	ctx, cancel := context.WithCancel(n.t.ctx)
	l := &load{n: n, cancel: cancel, since: time.Now()}
	for w := range workers {
		l.all.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				l.life(ctx, fmt.Sprintf("load%d-%d", w, round), containers, life)
			}
		})
	}
	n.t.Cleanup(l.Stop)
	return l
}

// Stop ends the load after the calls under way; pods may be left. An abandoned call would leave the
// runtime at work.
func (l *load) Stop() {
	l.cancel()
	l.all.Wait()
}

// Paused runs f while no call of the load is under way.
func (l *load) Paused(f func()) {
	l.pause.Lock()
	defer l.pause.Unlock()
	f()
}

// life is a pod's life. Failures are tried again until done or ctx ends.
func (l *load) life(ctx context.Context, name string, containers int, life time.Duration) {
	var pod *crikit.Pod
	l.try(ctx, func(ctx context.Context, attempt int) (err error) {
		// A failed try may have left its name taken.
		pod, err = l.n.RunPod(ctx, l.n.UID(name), name, uint32(attempt))
		return err
	})
	if pod == nil {
		return
	}
	for c := range containers {
		l.try(ctx, func(ctx context.Context, attempt int) error {
			if attempt > 20 {
				return nil // the sandbox may have died with the runtime
			}
			_, err := l.n.CreateAndStart(ctx, pod, crikit.Spec{
				Name: fmt.Sprintf("c%d", c), Attempt: uint32(attempt), Args: []string{"sleep", rand.N(life).String(), "0"},
			})
			if err == nil {
				l.made.Add(1)
			}
			return err
		})
	}
	select {
	case <-time.After(rand.N(life)):
	case <-ctx.Done():
		return
	}
	l.try(ctx, func(ctx context.Context, _ int) error {
		err := l.n.Delete(ctx, pod.SandboxID)
		if crikit.Gone(err) {
			return nil
		}
		return err
	})
}

// callLimit is when a call of a load counts as hung.
const callLimit = 2 * time.Minute

// try calls f until success or the end of ctx. A pause waits for the call only.
func (l *load) try(ctx context.Context, f func(ctx context.Context, attempt int) error) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		l.pause.RLock()
		limited, cancel := context.WithTimeout(l.n.t.ctx, callLimit)
		began := time.Now()
		err := f(limited, attempt)
		l.note(time.Since(began), err, limited.Err() != nil)
		cancel()
		l.pause.RUnlock()
		if err == nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// note records the outcome of a call.
func (l *load) note(took time.Duration, err error, hung bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.calls.took = append(l.calls.took, took)
		l.since = time.Now()
	case hung:
		l.calls.hung++
	case len(l.calls.failed) < 10:
		l.calls.failed = append(l.calls.failed, err.Error())
	}
}

// take returns and forgets the outcomes.
func (l *load) take() calls {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls
	l.calls = calls{}
	return c
}

// idle returns the time since a call has succeeded.
func (l *load) idle() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.since)
}

// progressed waits until a call has succeeded from now on.
func (l *load) progressed() time.Duration {
	began := time.Now()
	return l.n.t.Eventually(settle, "the load goes on", func() error {
		if idle := l.idle(); idle > time.Since(began) {
			return fmt.Errorf("no call has succeeded for %v", idle)
		}
		return nil
	})
}

// Burst runs the containers of each pod to their end, all pods at once, each pod's containers by
// the given number of makers at once. It returns the IDs by pod.
func (n *Node) Burst(pods []*crikit.Pod, containers, makers int, prefix string, args ...string) map[string][]string {
	var mu sync.Mutex // owns made
	made := map[string][]string{}
	var all errgroup.Group
	for _, pod := range pods {
		all.Go(func() error {
			var own errgroup.Group
			own.SetLimit(makers)
			for c := range containers {
				own.Go(func() error {
					id, err := n.CreateAndStart(n.t.ctx, pod, crikit.Spec{Name: fmt.Sprintf("%s%d", prefix, c), Args: args})
					if err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					made[pod.UID] = append(made[pod.UID], id)
					return nil
				})
			}
			return own.Wait()
		})
	}
	n.t.Check(all.Wait())
	return made
}

// each runs f for every item, on a few goroutines at once, and ends the scenario
// at an error once all have run.
func each[V any](n *Node, items []V, f func(context.Context, V) error) {
	var all errgroup.Group
	all.SetLimit(8)
	for _, item := range items {
		all.Go(func() error { return f(n.t.ctx, item) })
	}
	n.t.Check(all.Wait())
}
