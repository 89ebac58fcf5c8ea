// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// updater is a runtime whose statuses can be brought up to date. It notes how it was asked.
type updater struct {
	*toyRuntime
	asked []string
}

func (u *updater) Inspect(ctx context.Context, pod Pod) (Inspection[status], error) {
	u.mu.Lock()
	u.asked = append(u.asked, "all")
	u.mu.Unlock()
	return u.toyRuntime.Inspect(ctx, pod)
}

func (u *updater) Update(ctx context.Context, pod Pod, prev *status) (Inspection[status], error) {
	u.mu.Lock()
	u.asked = append(u.asked, "from "+fmt.Sprint(prev))
	u.mu.Unlock()
	return u.toyRuntime.Inspect(ctx, pod)
}

// TestUpdater: statuses are read anew the first time, after a failure, and when a reinspection is
// asked for; else they are brought up to date from what the cache shows.
func TestUpdater(t *testing.T) {
	var u *updater
	configure := func(c *Config[status], toy *toyRuntime) {
		u = &updater{toyRuntime: toy}
		toy.noLoad = true // else payloads would do
		toy.set("p", Container, "c", PhaseCreated)
		c.Source = u
	}
	inBubble(t, configure, func(b *bed) {
		asked := func(want ...string) {
			t.Helper()
			time.Sleep(1500 * time.Millisecond)
			b.shows("p")
			u.mu.Lock()
			defer u.mu.Unlock()
			if !slices.Equal(u.asked, want) {
				t.Errorf("asked for %q, want %q", u.asked, want)
			}
			u.asked = nil
		}
		asked("all")
		u.set("p", Container, "c", PhaseRunning)
		asked("from p[{c container Created }]")
		b.gen.RequestReinspect("p")
		asked("all")
		u.mu.Lock()
		u.readErr = errors.New("not now")
		u.mu.Unlock()
		u.set("p", Container, "c", PhaseExited)
		time.Sleep(100 * time.Millisecond)
		u.mu.Lock()
		u.readErr = nil
		u.mu.Unlock()
		asked("from p[{c container Running }]", "all")
	})
}
