// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package rawgrpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: attempts begin apart, one after a rest at once, and one that is given up is an error.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		begin := time.Now()
		for i := range 5 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(begin), time.Duration(i)*apart; got != want {
				t.Errorf("attempt %d began after %v, want %v", i, got, want)
			}
		}
		time.Sleep(time.Minute)
		begin = time.Now()
		if err := p.wait(t.Context()); err != nil || time.Since(begin) != 0 {
			t.Errorf("after a rest: %v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.wait(ctx); err != context.Canceled || time.Since(begin) != 0 {
			t.Errorf("given up: %v after %v", err, time.Since(begin))
		}
	})
}
