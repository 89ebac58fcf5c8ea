// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"
)

// TestReadsThatTurn: a pod of whose reads every other fails in part, while a report stays open, is
// not read without end.
func TestReadsThatTurn(t *testing.T) {
	cfg := &limits{
		RetryBase:  time.Second,
		RereadBase: time.Millisecond,
		RelistMax:  5 * time.Minute,
	}
	d := demand{}
	now := instant(1)
	for reads := 1; ; reads++ {
		d.backOff(cfg, span{now, now})
		if d.notBefore.sub(now) >= cfg.RetryBase {
			break
		}
		now = d.notBefore
		d.turnsBackOff(cfg)
		if reads > 20 {
			t.Fatalf("%d reads in %v", reads, now.sub(1))
		}
	}
}

// TestBelieveKeepsAChange: the read after one that a false event has outdone is the look at what a
// call has changed, too.
func TestBelieveKeepsAChange(t *testing.T) {
	cfg := &limits{RereadBase: time.Millisecond, RelistMax: time.Minute}
	d := demand{changed: 5}
	d.believe(cfg, span{began: 10, ended: 20}, 1<<40)
	if d.changed != 0 || d.late == 0 || d.late != d.notBefore {
		t.Errorf("changed %d, the look at %d, the next read at %d", d.changed, d.late, d.notBefore)
	}
}
