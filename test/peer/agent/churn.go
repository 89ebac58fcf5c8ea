// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Churner is a driver with an agent that makes, stops and removes pods itself, as a kubelet does.
// All methods are called from many goroutines.
type Churner interface {
	// Make makes a pod of the UID and name with a container, which runs and ends by itself at the
	// end of its life.
	Make(uid, name string, life time.Duration) (Pod, error)
	// Stop stops the pod after its container's end.
	Stop(Pod) error
	// Remove removes the container, and then the pod.
	Remove(Pod) error
	// Synced is called after a pod worker's action: then a kubelet asks its PLEG to look at the pod.
	Synced(uid string)
	// Await returns when the cache has a status of the pod newer than t.
	Await(uid string, t time.Time) error
}

// Pod is a created pod.
type Pod struct{ UID, Sandbox, Container string }

// Annotations returns the annotations of a pod, and of its container without its lifetime, long
// enough for the list items of other rows: 1.1 and 1.45 KB.
func Annotations() (pod, container map[string]string) {
	return map[string]string{
			"kubernetes.io/config.seen": "2026-11-21T05:00:00.000000000Z", "kubernetes.io/config.source": "api",
			"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("{}", appliedBytes/2),
		}, map[string]string{
			"io.kubernetes.container.hash": "4f2a7c11", "io.kubernetes.container.restartCount": "0", "io.kubernetes.pod.terminationGracePeriod": "30",
			"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.ports": strings.Repeat("{}", portsBytes/2),
		}
}

// How long the longest annotations are.
const (
	appliedBytes = 620
	portsBytes   = 600
)

// ChangesOfALife is the number of a pod's state changes: ready, created, running, exited, not
// ready, removed, removed. All but the exit are made by a call of the agent's.
const ChangesOfALife = 7

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
	stop   chan struct{}
	close  func() // stop, once
	places sync.WaitGroup

	mu        sync.Mutex // owns the fields below
	workers   map[string]chan struct{}
	latencies []int64
	waiting   int // for a newer status, now
	err       error
}

// newChurn makes a pod in each place and returns when all are there. Rate is in changes a second.
func newChurn(d Churner, places, rate int) (*churn, error) {
	c := &churn{
		driver: d, every: time.Duration(places) * ChangesOfALife * time.Second / time.Duration(rate),
		stop: make(chan struct{}), workers: make(map[string]chan struct{}),
	}
	c.close = sync.OnceFunc(func() { close(c.stop) })
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
			case <-c.stop:
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

// calm ends the load, and returns the number of workers still waiting, whom nobody wakes: nothing
// ends a kubelet's wait.
func (c *churn) calm() (waiting int, err error) {
	c.close()
	c.places.Wait()
	c.count(func() { waiting, err = c.waiting, c.err })
	return waiting, err
}
