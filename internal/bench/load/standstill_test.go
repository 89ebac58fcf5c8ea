// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// TestStandstill stops the loading process in the middle of calls, while it awaits the end of jobs,
// and in the middle of the removal, for longer than a call may take. No call fails, no job is given
// up, and the removal succeeds.
func TestStandstill(t *testing.T) {
	const long = 3 * time.Minute
	slowly := fakeruntime.Config{Faults: fakeruntime.Faults{SlowWrite: 300 * time.Millisecond}}
	late := fakeruntime.Profiles()[0]
	late.ExitLag = long + 2*time.Second
	type scene struct {
		runtime fakeruntime.Config
		at      time.Duration // when the stop begins
		load    time.Duration // how long the load begins actions
		removal bool          // there is one
	}
	scenes := map[string]scene{
		"while jobs end":       {fakeruntime.Config{Profile: late}, time.Second, 900 * time.Millisecond, false},
		"in the first removal": {slowly, 6 * time.Second, time.Second, true},
	}
	for at := 50 * time.Millisecond; at < 4*time.Second; at += 450 * time.Millisecond {
		scenes[fmt.Sprint("after ", at)] = scene{slowly, at, 5 * time.Second, true}
	}
	for name, s := range scenes {
		synctest.Test(t, func(t *testing.T) {
			rt := testkit.Must(fakeruntime.New(s.runtime))(t)
			stop := onfake.StopAfter(s.at, long)
			conn := onfake.Connect(t, stop.Through(onfake.Memory(t, rt)))
			d, _ := newDriver(t, conn, func(c *load.Config) {
				c.Meter = stop.Meter(t)
				c.Rate = 20
				c.JobsOnly = !s.removal
			})
			time.AfterFunc(s.load, d.Finish)
			testkit.Check(t, d.Setup(t.Context()))
			d.Run(t.Context(), time.Hour)
			stats := d.Stats()
			if stats.Broken > 0 || len(stats.Errors) > 0 {
				t.Errorf("stopped %s: %d broken of %d, %v", name, stats.Broken, stats.Broken+stats.Actions, stats.FirstErrors)
			}
			if !s.removal {
				return
			}
			time.Sleep(time.Until(stop.From.Add(-100 * time.Millisecond))) // if it has not been yet
			if err := d.Cleanup(t.Context()); err != nil {
				t.Errorf("stopped %s: %v", name, err)
			}
		})
	}
}
