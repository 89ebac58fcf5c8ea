// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package processors_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/processors"
)

// Calls share the processors, and none has more than one.
func TestServe(t *testing.T) {
	for _, tc := range []struct {
		name     string
		n, calls int
		want     time.Duration
	}{
		{"no processors", 0, 3, 0},
		{"fewer than none", -2, 3, 0},
		{"one call", 2, 1, time.Second},
		{"a processor each", 2, 2, time.Second},
		{"shared", 1, 8, 8 * time.Second},
		{"two for three", 2, 3, 1500 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p processors.Processors
				p.Set(tc.n)
				begun := time.Now()
				var calls sync.WaitGroup
				for range tc.calls {
					calls.Go(func() {
						if err := p.Serve(t.Context(), time.Second); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
				if took := time.Since(begun).Round(time.Microsecond); took != tc.want {
					t.Errorf("took %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// A call that is given up leaves its share to the others.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p processors.Processors
		p.Set(1)
		begun := time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := p.Serve(ctx, time.Hour); err != context.DeadlineExceeded {
				t.Errorf("error %v, want that of the context", err)
			}
		})
		calls.Go(func() { _ = p.Serve(t.Context(), time.Second) })
		calls.Wait()
		if took := time.Since(begun).Round(time.Microsecond); took != 1500*time.Millisecond {
			t.Errorf("took %v, want half a second shared and half a second alone", took)
		}
	})
}
