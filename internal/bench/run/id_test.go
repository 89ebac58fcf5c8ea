// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"regexp"
	"testing"
	"testing/synctest"
)

// TestRunsOfOneMoment: runs that begin in the same millisecond do not take each other's pods for
// their own. The form is what a label and a pod's UID take.
func TestRunsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		form := regexp.MustCompile(`^[a-z0-9]{9,16}$`)
		seen := make(map[string]bool)
		for range 50 {
			id := newRunID()
			if !form.MatchString(id) {
				t.Errorf("a run with the ID %q", id)
			}
			seen[id] = true
		}
		if len(seen) < 48 { // of a million and a half that are possible
			t.Errorf("50 runs have %d IDs", len(seen))
		}
	})
}
