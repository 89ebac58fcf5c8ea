// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	driver "github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// A load changes pods as fast as the runtime can, and survives all errors of the runtime: it goes
// on when the runtime is back.
type load struct {
	*driver.Driver
	n     *Node
	all   sync.WaitGroup
	begun time.Time
}

const (
	// callLimit bounds a call of a load.
	callLimit = 2 * time.Minute
	// flatOut is a rate beyond any runtime: the next change begins at the end of another.
	flatOut = 1000
)

// StartLoad changes so many pods of so many containers until Stop or the scenario's end. Short jobs
// live for about life.
func (n *Node) StartLoad(pods, containers int, life time.Duration) *load {
	logs := filepath.Join(n.t.Dir, "load")
	n.t.Check(os.MkdirAll(logs, 0o755))
	l := &load{n: n, begun: time.Now(), Driver: driver.New(driver.Config{
		Conn: n.Conn, RunID: n.Namespace, Namespace: n.Namespace, CgroupParent: n.CgroupParent, Image: n.Image, HostNetwork: true,
		Pods: pods, Containers: containers, Rate: flatOut, JobLife: life, LogDirectory: logs,
		Parallel: pods, UnderWay: pods, CallTimeout: callLimit,
	})}
	n.t.Check(l.Setup(n.t.ctx))
	l.all.Go(func() { l.Run(n.t.ctx, math.MaxInt64) })
	n.t.Cleanup(l.Stop)
	return l
}

// Stop ends the load after the changes under way; pods are left.
func (l *load) Stop() {
	l.Finish()
	l.all.Wait()
}

// Paused runs f while no change of the load is under way.
func (l *load) Paused(f func()) {
	l.SetRate(0)
	defer l.SetRate(flatOut)
	l.n.t.Eventually(settle, "the load pauses", func() error {
		if left := l.Stats().UnderWay; left > 0 {
			return fmt.Errorf("%d changes are under way", left)
		}
		return nil
	})
	f()
}

// errorsIn returns the number of failed calls.
func errorsIn(s driver.Stats) (count int) {
	for _, n := range s.Errors {
		count += n
	}
	return count
}

// tookSince returns the durations of the calls since an earlier moment.
func (l *load) tookSince(s driver.Stats) (took []time.Duration) {
	for _, c := range l.Stats().Calls[len(s.Calls):] {
		took = append(took, c.Took)
	}
	return took
}

// idle returns the time since a call has succeeded.
func (l *load) idle() time.Duration {
	calls := l.Stats().Calls
	if len(calls) == 0 {
		return time.Since(l.begun)
	}
	last := calls[len(calls)-1]
	return time.Duration(bench.Now()-last.At) - last.Took
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
