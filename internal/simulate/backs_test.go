// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAPhaseTakenBackIsCountedInTheEnd: while phases are taken back again and again beside claims,
// those of long ago must have been counted all the same.
func TestAPhaseTakenBackIsCountedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle(NewTruth(), nil, &settings{grace: time.Second, base: time.Second})
		for i := range 3 { // each excuse lasts for 3 s
			o.back++
			o.besides = append(o.besides, beside{at: time.Now()})
			o.lookBacks(0)
			if v := o.result(); (v != nil) != (i == 2) {
				t.Fatalf("after %d phases taken back and not counted: %v", i+1, v)
			}
			time.Sleep(2 * time.Second)
		}
		if n := o.excuses[excuseBeside]; n != 2 {
			t.Errorf("the excuse was recorded %d times, want 2", n)
		}
	})
}
