// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRunsEnd: a recorder runs once at a time, and again after the end of a Run.
func TestRunsEnd(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for range 3 {
			if err := r.StartRecordingToSinkWithContext(t.Context()); !errors.Is(err, ErrRunning) {
				t.Fatalf("a second Run beside the first says %v", err)
			}
			r.stop()
			synctest.Wait()
			r.start()
		}
	})
}

// TestShutdownTakesNoTime: a shutdown that has made its calls does not wait for the end of its
// context.
func TestShutdownTakesNoTime(t *testing.T) {
	bubble(t, continuing, func(t *testing.T, r *rig) {
		r.pod("a", 3)
		pass(time.Minute)
		begin := time.Now()
		r.end(time.Hour)
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v", took)
		}
		r.wantAbout("a", "Unknown ×3")
	})
}
