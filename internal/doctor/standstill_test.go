// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// slowly has each call take a while, so that there is something to be stopped in.
func slowly(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	time.Sleep(300 * time.Millisecond)
	return handle(ctx, request)
}

// TestStandstill stops the examining process at any time of an examination, for longer than a
// call may take. A runtime that is well stays well, and the stop is told.
func TestStandstill(t *testing.T) {
	t.Parallel()
	for name, well := range map[string]sickness{
		"changes": {population: ten, churn: true},
		"slow":    {server: &crowd{containers: 20}, intercept: slowly},
	} {
		t.Run(name, func(t *testing.T) {
			const long = 5 * time.Second
			for at := -long + 50*time.Millisecond; at < 10*time.Second; at += 250 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					r := examineStopped(t, well, at, long)
					told := fmt.Sprint(r.Findings)
					if r.Worth != Well {
						t.Errorf("stopped after %v: %s: %s", at, r.Worth, told)
					}
					for _, c := range r.Calls {
						if c.Method == "ListContainers" && c.Count != 2 {
							t.Errorf("stopped after %v: %d lists, want 2", at, c.Count)
						}
					}
					if at > 0 && at < 6*time.Second && !strings.Contains(told, "this program did not run for ") {
						t.Errorf("stopped after %v, and not told: %s", at, told)
					}
				})
			}
		})
	}
}

// examineStopped examines a runtime by a process that does not run for a time of the
// examination.
func examineStopped(t *testing.T, runtime sickness, at, long time.Duration) Report {
	runtime.stopped = long
	runtime.options = func(o *Options) {
		stop := onfake.StopAfter(at, long)
		o.Dial = stop.Through(o.Dial)
		o.Meter = stop.Meter(t)
	}
	return examine(t, runtime)
}
