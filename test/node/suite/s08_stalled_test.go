// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// callLimit is when a create or remove counts as hung; quiet is how long none
// has ended well when the runtime counts as stopped.
const (
	callLimit = 10 * time.Second
	quiet     = 4 * time.Second
)

// churn creates and removes containers in a pod until stopped and keeps the duration of each call.
// mu guards the fields below.
type churn struct {
	n      *Node
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	took  []time.Duration
	since time.Time // of the last successful call
	hung  int
	errs  []string
}

func (n *Node) startChurn(pod *crikit.Pod, makers int) *churn {
	ctx, cancel := context.WithCancel(n.t.ctx)
	c := &churn{n: n, cancel: cancel, since: time.Now()}
	for m := range makers {
		c.all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c.once(ctx, pod, fmt.Sprintf("churn%d-%d", m, i))
			}
		})
	}
	n.t.Cleanup(c.stop)
	return c
}

func (c *churn) stop() {
	c.cancel()
	c.all.Wait()
}

func (c *churn) once(ctx context.Context, pod *crikit.Pod, name string) {
	var id string
	err := c.timed(ctx, func(ctx context.Context) (err error) {
		id, err = c.n.Create(ctx, pod, crikit.Spec{Name: name, Args: []string{"pause"}})
		return err
	})
	for err == nil && ctx.Err() == nil {
		// A hung remove is tried again, so that nothing is left.
		if err := c.timed(ctx, func(ctx context.Context) error { return c.n.Remove(ctx, id) }); err == nil {
			return
		}
	}
}

func (c *churn) timed(ctx context.Context, f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	began := time.Now()
	err := f(limited)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		c.took = append(c.took, time.Since(began))
		c.since = time.Now()
	case limited.Err() != nil:
		c.hung++
	case len(c.errs) < 10:
		c.errs = append(c.errs, err.Error())
	}
	return err
}

// take returns and forgets the measurements.
func (c *churn) take() (took []time.Duration, hung int, errs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took, hung, errs = c.took, c.hung, c.errs
	c.took, c.hung, c.errs = nil, 0, nil
	return took, hung, errs
}

// progressed waits until a call begun after now has succeeded.
func (c *churn) progressed() time.Duration {
	began := time.Now()
	return c.n.t.Eventually(settle, "creating and removing goes on", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.since.After(began) {
			return fmt.Errorf("the last call that ended well did %v before", began.Sub(c.since).Round(time.Millisecond))
		}
		return nil
	})
}

// stopped waits until no call has succeeded for a while, or for at most most, and returns the time
// since the last success.
func (c *churn) stopped(most time.Duration) time.Duration {
	for began := time.Now(); ; c.n.t.Sleep(100 * time.Millisecond) {
		c.mu.Lock()
		idle := time.Since(c.since)
		c.mu.Unlock()
		if idle > quiet || time.Since(began) > most {
			return idle
		}
	}
}

// stalled stops the agent's process, and then only its consumer, while another client creates and
// removes containers. A stopped process stops this runtime: the test measures the stop and its end.
// An idle consumer must cost the runtime nothing.
func stalled(t *T) {
	n := t.NewNode()
	// Straight to the runtime: the proxy would take up part of the stall.
	a := n.NewAgent("--endpoint", n.Endpoint, "--truth", "", "--capacity", "16")
	a.WaitConnected()
	pod := n.Pod("pod")
	c := n.startChurn(pod, 4)
	t.Sleep(time.Duration(t.Size(10, 4)) * time.Second)
	took, hung, errs := c.take()
	t.Figure("calls, undisturbed", "%s", quantiles(took))
	if hung > 0 || len(errs) > 0 {
		t.Errorf("with an agent that reads, %d calls hung and failed with %q", hung, errs)
	}

	// The consumer stops reading: Watch is full after 16 events.
	t.Check(a.Consume(t.ctx, false))
	before := a.MustStats().Generator
	t.Sleep(time.Duration(t.Size(30, 8)) * time.Second)
	took, hung, errs = c.take()
	during := a.MustStats().Generator
	t.Figure("calls, Watch not read", "%s", quantiles(took))
	t.Figure("events meanwhile", "%d", during.Claims-before.Claims)
	if hung > 0 || len(errs) > 0 {
		t.Errorf("with a consumer that does not read, %d calls hung and failed with %q", hung, errs)
	}
	if during.Owed == before.Owed {
		t.Errorf("Watch of size 16 was never full: %d claims came", during.Claims-before.Claims)
	}
	if err := a.Health(t.ctx); err != nil {
		t.Errorf("a Watch that is not read makes the agent unhealthy: %v", err)
	}
	t.Check(a.Consume(t.ctx, true))
	t.Eventually(settle, "the debt is paid", func() error {
		if s := a.MustStats().Generator; s.OwedPods > 0 {
			return fmt.Errorf("%d pods are owed", s.OwedPods)
		}
		return nil
	})

	// The process stops: only the kernel's and grpc's buffers take events now.
	c.take()
	stop := time.Now()
	a.Signal(syscall.SIGSTOP)
	most := settle
	if n.Traits.StalledSubscriber != runtimes.Blocks {
		most = time.Duration(t.Size(30, 10)) * time.Second
	}
	idle := c.stopped(most)
	took, _, _ = c.take()
	t.Figure("calls, agent stopped", "%s", quantiles(took))
	if idle > quiet {
		t.Figure("stopped→runtime hangs", "%.1fs", (time.Since(stop) - idle).Seconds())
	} else {
		t.Figure("stopped→runtime hangs", "not within %v", most)
		if n.Traits.StalledSubscriber == runtimes.Blocks {
			t.Errorf("the runtime did not hang on a subscriber that does not read for %v: its trait is no longer true", most)
		}
	}
	t.Sleep(max(0, time.Duration(t.Size(30, 5))*time.Second-time.Since(stop)))
	a.Signal(syscall.SIGCONT)
	t.Figure("continued→runtime goes on", "%dms", c.progressed().Milliseconds())
	t.Sleep(callLimit) // calls hung before the end of the stop are over
	c.take()
	t.Sleep(time.Duration(t.Size(10, 4)) * time.Second)
	took, hung, errs = c.take()
	t.Figure("calls, after it", "%s", quantiles(took))
	if hung > 0 || len(errs) > 0 {
		t.Errorf("after the agent went on, %d calls hung and failed with %q", hung, errs)
	}

	// Stopped again, and killed: the dropped stream frees the runtime.
	a.Signal(syscall.SIGSTOP)
	c.stopped(most)
	a.Kill()
	t.Figure("killed→runtime goes on", "%dms", c.progressed().Milliseconds())
	c.stop()

	again := n.NewAgent()
	again.Converge()
	id := n.Container(pod, "after", "exit", "4")
	again.WaitEvent(pleg.ContainerDied, id)
	again.Converge()
}
