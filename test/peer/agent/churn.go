// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// changesOfALife is the number of a pod's state changes: ready, created, running, exited, not
// ready, removed, removed. All but the exit are made by a call of the agent's.
const changesOfALife = 7

// The times of a life, as parts of the time between two pods of a place.
const (
	exits   = 0.5
	stops   = 0.65
	removes = 0.8
)

// headroom is the longest time for making one of the first pods.
const headroom = 2 * time.Millisecond

// churn is a node with pods that live, die and are replaced: a number of places, each with its next
// pod at its time, whether or not the PLEG has reported the last pod. A worker for each pod waits
// as a kubelet's does.
type churn struct {
	driver Churner
	every  time.Duration // between two pods of a place
	ended  chan struct{}
	places sync.WaitGroup

	mu        sync.Mutex // owns the fields below
	workers   map[string]chan struct{}
	latencies []int64
	waiting   int // for a newer status, now
	err       error
}

// newChurn makes a pod in each place and returns when all are there. Rate is in changes a second.
// Events of Watch come to the churn from follow on.
func newChurn(d Churner, places, rate int, follow func(*churn)) (*churn, error) {
	c := &churn{
		driver: d, every: time.Duration(places) * changesOfALife * time.Second / time.Duration(rate),
		ended: make(chan struct{}), workers: make(map[string]chan struct{}),
	}
	follow(c)
	first := make([]Pod, places)
	begin := time.Now().Add(time.Duration(places) * headroom)
	// of its second pod
	at := func(i int) time.Time { return begin.Add(c.every * time.Duration(i) / time.Duration(places)) }
	for i := range places {
		left := time.Until(at(i)) - time.Duration((1-exits)*float64(c.every))
		p, err := c.make(fmt.Sprintf("%04d-0", i), max(left, 10*time.Millisecond))
		if err != nil {
			return nil, err
		}
		first[i] = p
	}
	for i, p := range first {
		c.places.Go(func() { c.place(i, p, at(i)) })
	}
	return c, nil
}

// place keeps a place occupied: its pod is removed in time for the next.
func (c *churn) place(i int, p Pod, next time.Time) {
	for n := 1; ; n++ {
		begin := next.Add(-c.every)
		for _, step := range []struct {
			at time.Time
			do func() error
		}{
			{begin.Add(time.Duration(stops * float64(c.every))), func() error { return c.end(p) }},
			{begin.Add(time.Duration(removes * float64(c.every))), func() error { return c.driver.Remove(p) }},
			{next, func() (err error) {
				p, err = c.make(fmt.Sprintf("%04d-%d", i, n), time.Duration(exits*float64(c.every)))
				return err
			}},
		} {
			select {
			case <-c.ended:
				return
			case <-time.After(time.Until(step.at)):
			}
			if err := step.do(); err != nil {
				c.mu.Lock()
				c.err = errors.Join(c.err, err)
				c.mu.Unlock()
				return
			}
		}
		next = next.Add(c.every)
	}
}

// make makes a pod and its worker.
func (c *churn) make(name string, life time.Duration) (Pod, error) {
	p, err := c.driver.Make("churn-"+name, name, life)
	if err != nil {
		return p, err
	}
	c.driver.Synced(p.UID)
	wake := make(chan struct{}, 1)
	c.mu.Lock()
	c.workers[p.UID] = wake
	c.mu.Unlock()
	go c.work(p.UID, wake, time.Now())
	return p, nil
}

// end stops a pod. Its worker waits once more, as before SyncTerminatedPod, and ends.
func (c *churn) end(p Pod) error {
	if err := c.driver.Stop(p); err != nil {
		return err
	}
	c.mu.Lock()
	wake := c.workers[p.UID]
	delete(c.workers, p.UID)
	c.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default:
	}
	close(wake)
	return nil
}

// work is a pod worker: after each event of its pod, it wants a status newer than the end of its
// last sync.
func (c *churn) work(uid string, wake <-chan struct{}, synced time.Time) {
	for range wake {
		begin := time.Now()
		c.count(func() { c.waiting++ })
		err := c.driver.Await(uid, synced)
		synced = time.Now()
		c.count(func() {
			c.waiting--
			c.latencies = append(c.latencies, int64(synced.Sub(begin)))
			c.err = errors.Join(c.err, err)
		})
	}
}

func (c *churn) count(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// told wakes the pod's worker. A kubelet does nothing when a container has been removed.
func (c *churn) told(pod, kind string) {
	if kind == "ContainerRemoved" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if wake, ok := c.workers[pod]; ok {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// waits returns how long the workers have waited since the last time.
func (c *churn) waits() (latencies []int64) {
	c.count(func() { latencies, c.latencies = c.latencies, nil })
	return latencies
}

// stop ends the load.
func (c *churn) stop() {
	close(c.ended)
	c.places.Wait()
}

// blocked returns the number of workers still waiting, whom nobody wakes: nothing ends a kubelet's
// wait.
func (c *churn) blocked() (waiting int, err error) {
	c.count(func() { waiting, err = c.waiting, c.err })
	return waiting, err
}

// span is the measurements of a window of churn.
type span struct {
	cost
	runtime time.Duration // its CPU time
	changes float64
	calls   map[string]uint64
	// delivered and waits are the latencies of Watch and of pod workers, lost the changes without an
	// event on Watch, waiting the workers still waiting in the end.
	delivered, waits []int64
	lost, waiting    int
}

// churning measures the cost of changes on a node with pods that live, die and are replaced all the
// time, with a worker for each pod that waits for newer statuses as a kubelet's does. The cost of
// the agent's own calls, measured before without a PLEG, is subtracted.
func churning(pods, rate int, mode string) func(*testing.B, func() Driver) {
	return func(b *testing.B, driver func() Driver) {
		load := churned(b, driver(), "none", size(pods), rate)
		s := churned(b, driver(), mode, size(pods), rate)
		per := func(s span, d time.Duration) float64 { return float64(d) / s.changes }
		b.ReportMetric(per(s, s.cpu)-per(load, load.cpu), "agent-cpu-ns/op")
		b.ReportMetric(per(s, s.runtime)-per(load, load.runtime), "runtime-cpu-ns/op")
		b.ReportMetric(s.changes/s.wall.Seconds(), "changes/s")
		for _, name := range []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"} {
			b.ReportMetric(float64(s.calls[name])/s.changes, name+"/op")
		}
		b.ReportMetric(100*float64(s.lost)/float64(max(1, s.lost+len(s.delivered))), "not-told-%")
		b.ReportMetric(float64(s.waiting), "waiting")
		n := &node{b: b}
		n.quantiles("watch-", s.delivered)
		n.quantiles("worker-", s.waits)
	}
}

// churned measures a window of churn.
func churned(b *testing.B, d Driver, mode string, pods, rate int) (s span) {
	n := newNode(b, Config{Pods: 1, Containers: 1}) // a kubelet's PLEG is ready after its first pod
	n.start(d, mode, false)
	c, err := newChurn(d.(Churner), pods, rate, n.follow)
	n.must(err)
	time.Sleep(*window * 3 / 10) // two lists of a polling PLEG, and more
	c.waits()
	before := n.do(Request{Op: "usage"})
	s.cost = n.measured(func() { time.Sleep(*window) })
	s.waits = c.waits()
	after := n.do(Request{Op: "usage"})
	c.stop()
	s.runtime, s.changes = after.CPU-before.CPU, float64(after.Changed-before.Changed)
	if s.changes == 0 {
		b.Fatalf("nothing has changed in %v", *window)
	}
	s.calls = make(map[string]uint64)
	for name, calls := range after.Calls {
		s.calls[name] = calls - before.Calls[name]
	}
	changes := n.do(Request{Op: "history", From: before.Changed}).History
	changes = slices.DeleteFunc(changes, func(c Change) bool { return c.Number >= after.Changed-before.Changed })
	if mode == "none" {
		return s
	}
	// changes not delivered by now have as long to come
	var events []told
	for deadline := time.Now().Add(*window * 3 / 10); ; time.Sleep(50 * time.Millisecond) {
		events = append(events, n.watched()...)
		s.waiting, err = c.blocked()
		n.must(err)
		s.delivered, s.lost = match(changes, events)
		if s.lost == 0 && s.waiting == 0 || time.Now().After(deadline) {
			return s
		}
	}
}
