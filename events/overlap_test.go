// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// overlap is an upgrade in which the older process of an instance runs on beside the newer one.
type overlap struct {
	t            *testing.T
	server       *eventstest.Server
	older, newer *rig
	// olders and newers are the pods about which each of them emits an event each ten seconds.
	olders, newers []string
	emitted        int64
}

func inOverlap(t *testing.T, test func(o *overlap)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &overlap{t: t, server: eventstest.NewServer()}
		o.server.SetTTL(100 * time.Hour) // nothing goes by itself
		o.older = newRig(t, o.server, continuing)
		test(o)
	})
}

// run lets time pass, in steps of ten seconds, with an event of each loop in each.
func (o *overlap) run(d time.Duration) {
	for range d / (10 * time.Second) {
		for _, name := range o.olders {
			o.older.pod(name, 1)
			o.emitted++
		}
		for _, name := range o.newers {
			o.newer.pod(name, 1)
			o.emitted++
		}
		pass(10 * time.Second)
	}
}

func (o *overlap) upgrade() { o.newer = newRig(o.t, o.server, continuing) }

// rosterCalls is how many writes of a roster came in.
func (o *overlap) rosterCalls() (n int) {
	for _, c := range o.server.Calls() {
		if strings.Contains(c.Name, ".roster-") {
			n++
		}
	}
	return n
}

// wantTotal checks that the objects, so many, have every occurrence once.
func (o *overlap) wantTotal(objects int) {
	o.t.Helper()
	all := o.server.Events()
	count, ongoing := stored(o.server)
	if count != o.emitted || ongoing > 0 || len(all) != objects+1 { // and the roster
		o.t.Errorf("emitted %d, stored %d, %d are Ongoing: %s", o.emitted, count, ongoing, brief(all))
	}
}

// TestOverlap: the older process ends and hands its roster over, which has none of the newer one's
// series. When that is killed minutes later, the next one ends them all the same.
func TestOverlap(t *testing.T) {
	inOverlap(t, func(o *overlap) {
		o.olders = []string{"both"}
		o.run(2 * time.Minute)
		o.upgrade()
		o.newers = []string{"new", "both"}
		o.run(3 * time.Minute)
		o.older.end(time.Minute)
		o.olders = nil
		o.run(5 * time.Minute)
		o.newer.wantAbout("new", "Ongoing ×32") // the rest was to be written
		o.emitted = 0
		for _, e := range o.server.Events() {
			if e.Annotations[AnnotationRoster] == "" {
				o.emitted += look(&e).count
			}
		}
		o.newer.kill()
		o.newers = nil
		o.upgrade()
		o.run(30 * time.Minute)
		o.wantTotal(2)
	})
}

// TestLongOverlap: two processes of an instance for an hour, as a controller has them whose older
// process does not go. They share each series' object and its count, and do not fight over the
// roster. What the newer one takes for abandoned after six minutes goes on.
func TestLongOverlap(t *testing.T) {
	inOverlap(t, func(o *overlap) {
		o.olders = []string{"old", "both"}
		o.run(2 * time.Minute)
		o.upgrade()
		o.newers = []string{"new", "both"}
		o.run(time.Hour)
		calls, _ := o.server.Count()
		if n := o.rosterCalls(); n > 70 || calls > 400 {
			t.Errorf("%d calls in an hour, %d of them of the roster", calls, n)
		}
		o.older.end(time.Minute)
		o.newer.end(time.Minute)
		o.wantTotal(3)
	})
}

// TestOverlapThatIsKilled: the older process is killed beside the newer one, which ends the
// series that it has found in the roster.
func TestOverlapThatIsKilled(t *testing.T) {
	inOverlap(t, func(o *overlap) {
		o.olders = []string{"old", "both"}
		o.run(2 * time.Minute)
		o.upgrade()
		o.newers = []string{"new", "both"}
		o.run(time.Minute)
		o.older.kill()
		o.olders = nil
		o.run(20 * time.Minute)
		o.newer.end(time.Minute)
		o.newer.wantAbout("old", "Unknown ≥18")
		if _, ongoing := stored(o.server); ongoing > 0 {
			t.Errorf("%d are Ongoing", ongoing)
		}
	})
}
