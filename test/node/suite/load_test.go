// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	driver "github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// A load changes pods as fast as the runtime can, and survives all errors of the runtime: it goes
// on when the runtime is back.
type load struct {
	*driver.Driver
	t     *T
	all   sync.WaitGroup
	begun time.Time
}

const (
	// callLimit bounds a call of a load.
	callLimit = 2 * time.Minute
	// flatOut is a rate beyond any runtime: the next change begins at the end of another.
	flatOut = 1000
	// quiet is how long no call has succeeded when the runtime counts as stopped.
	quiet = 4 * time.Second
)

// StartLoad changes so many pods of so many containers until Stop or the scenario's end. Short jobs
// live for about life.
func (t *T) StartLoad(pods, containers int, life time.Duration) *load {
	logs := filepath.Join(t.Dir, "load")
	t.Check(os.MkdirAll(logs, 0o755))
	l := &load{t: t, begun: time.Now(), Driver: driver.New(driver.Config{
		Conn:         t.Conn,
		RunID:        t.Namespace,
		Namespace:    t.Namespace,
		CgroupParent: t.CgroupParent,
		Image:        t.Image,
		HostNetwork:  true,
		Pods:         pods,
		Containers:   containers,
		Rate:         flatOut,
		JobLife:      life,
		LogDirectory: logs,
		Parallel:     pods,
		UnderWay:     pods,
		CallTimeout:  callLimit,
	})}
	t.Check(l.Setup(t.ctx))
	l.all.Go(func() { l.Run(t.ctx, math.MaxInt64) })
	t.Cleanup(l.Stop)
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
	l.t.Eventually("the load pauses", func() error {
		if left := l.Stats().UnderWay; left > 0 {
			return fmt.Errorf("%d changes are under way", left)
		}
		return nil
	})
	f()
}

// took records the durations of the calls since an earlier moment.
func (l *load) took(while string, since driver.Stats) {
	var took []time.Duration
	for _, c := range l.Stats().Calls[len(since.Calls):] {
		took = append(took, c.Took)
	}
	l.t.Figure("calls, "+while, "%s", quantiles(took))
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

// stopped waits until no call has succeeded for a while, or for at most most, and returns the time
// since the last success.
func (l *load) stopped(most time.Duration) time.Duration {
	for began := time.Now(); ; l.t.Sleep(100 * time.Millisecond) {
		if idle := l.idle(); idle > quiet || time.Since(began) > most {
			return idle
		}
	}
}

// progressed waits until a call has succeeded from now on.
func (l *load) progressed(while string) time.Duration {
	began := time.Now()
	return l.t.Eventually("the load goes on, "+while, func() error {
		if idle := l.idle(); idle > time.Since(began) {
			return fmt.Errorf("no call has succeeded for %v", idle)
		}
		return nil
	})
}

// undisturbed lets the load run for a while, records its calls, and fails the scenario if one hung
// or failed.
func (l *load) undisturbed(while string, d time.Duration) {
	failures := func() (count int) {
		for _, n := range l.Stats().Errors {
			count += n
		}
		return count
	}
	before, failed := l.Stats(), failures()
	l.t.Sleep(d)
	l.progressed(while) // a call that hangs has not failed
	l.took(while, before)
	if failures() > failed {
		l.t.Errorf("%s, calls failed: %v with %q", while, l.Stats().Errors, l.Stats().FirstErrors)
	}
}
