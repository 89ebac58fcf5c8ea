// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"
)

// TestBackOffThatChanges: the delays between reads begin anew, as reads come to fail or to succeed,
// once they have become long, and not before.
func TestBackOffThatChanges(t *testing.T) {
	cfg := &limits{
		RetryBase:  time.Second,
		RetryMax:   time.Minute,
		RereadBase: time.Millisecond,
		RelistMax:  5 * time.Minute,
	}
	for _, step := range []time.Duration{0, cfg.RereadBase, cfg.RetryBase - 1, cfg.RetryBase, cfg.RetryMax} {
		d := demand{retry: ladder{step: step, end: 1}}
		d.changesBackOff(cfg)
		want := step
		if step >= cfg.RetryBase {
			want = 0
		}
		if d.retry.step != want {
			t.Errorf("a delay of %v has become %v, want %v", step, d.retry.step, want)
		}
	}

	d := demand{}
	now := instant(1)
	for reads := 1; ; reads++ { // of an open report, every other of which fails in part
		d.backOff(cfg, span{now, now})
		if d.notBefore.sub(now) >= cfg.RetryBase {
			break
		}
		now = d.notBefore
		d.changesBackOff(cfg)
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
