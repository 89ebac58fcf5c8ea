// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestDeadMount has a look at the socket that does not return: it is left, and is the only one.
func TestDeadMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, err := os.Stat(".")
		if err != nil {
			t.Fatal(err)
		}
		s := NewSupervisor("socket")
		release := make(chan struct{})
		var looks atomic.Int32
		s.stat = func(string) (os.FileInfo, error) {
			looks.Add(1)
			<-release
			return before, nil
		}
		for range 3 {
			if s.replaced(before) {
				t.Error("a socket that cannot be seen counts as replaced")
			}
		}
		if n := looks.Load(); n != 1 {
			t.Errorf("%d looks wait, want 1", n)
		}
		close(release)
		synctest.Wait()
		if s.look() == nil {
			t.Error("the mount answers again, and is not looked at")
		}
	})
}
