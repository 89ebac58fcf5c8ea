// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
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
	// by is emitted of each pod.
	by map[string]int64
}

func inOverlap(t *testing.T, test func(o *overlap)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &overlap{t: t, server: eventstest.NewServer(), by: map[string]int64{}}
		o.server.SetTTL(100 * time.Hour) // nothing goes by itself
		o.older = newRig(t, o.server, continuing)
		test(o)
	})
}

// run lets time pass, in steps of ten seconds, with an event of each loop in each.
func (o *overlap) run(d time.Duration) {
	for range d / (10 * time.Second) {
		o.emit(o.older, o.olders)
		o.emit(o.newer, o.newers)
		pass(10 * time.Second)
	}
}

// emit emits an event about each of the pods.
func (o *overlap) emit(r *rig, names []string) {
	for _, name := range names {
		r.pod(name, 1)
		o.emitted++
		o.by[name]++
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
		if n := o.rosterCalls(); n > 90 || calls > 400 {
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

// rollout replaces the older process by the newer one, while "both" goes on.
type rollout struct {
	name string
	do   func(o *overlap)
	// old and both are what the objects of the loops "old" and "both" say in the end, before the
	// count: that of the older process alone, and that which both have.
	old, both string
	// lost is how many of each the server has never heard of.
	lost int64
}

var rollouts = []rollout{
	{
		name: "SIGTERM, then the newer one starts",
		do: func(o *overlap) {
			o.older.end(30 * time.Second)
			pass(20 * time.Second)
			o.upgrade()
		},
		old:  "Finished ×",
		both: "Finished ×",
	},
	{
		name: "the newer one starts, then SIGTERM",
		do: func(o *overlap) {
			o.upgrade()
			o.newers = []string{"both"}
			o.run(time.Minute)
			o.older.end(30 * time.Second)
		},
		old:  "Unknown ≥",
		both: "Finished ≥",
	},
	{
		name: "killed, then the newer one starts",
		do: func(o *overlap) {
			o.older.kill()
			o.upgrade()
		},
		old:  "Unknown ≥",
		both: "Finished ≥",
	},
	{
		name: "SIGTERM while nobody listens, and killed at the end of its grace period",
		do: func(o *overlap) {
			o.server.SetFault(always(errAway))
			o.run(10 * time.Second)
			if o.older.shutdown(30*time.Second) == nil {
				o.t.Error("the shutdown has told the server everything: the case proves nothing")
			}
			o.older.kill()
			o.server.SetFault(nil)
			o.upgrade()
		},
		old:  "Unknown ≥",
		both: "Finished ≥",
		lost: 1,
	},
	{
		name: "SIGTERM, and the newer one is killed once and starts again",
		do: func(o *overlap) {
			o.older.end(30 * time.Second)
			o.upgrade()
			o.olders = nil
			o.newers = []string{"both"}
			o.run(time.Minute)
			o.newer.kill()
			o.upgrade()
		},
		old:  "Finished ×",
		both: "Finished ≥",
	},
	{
		name: "the newer one starts, and is taken back",
		do: func(o *overlap) {
			o.upgrade()
			o.newers = []string{"both"}
			o.run(time.Minute)
			o.newer.end(30 * time.Second)
			o.newer = o.older
		},
		old:  "Finished ×",
		both: "Finished ≥",
	},
}

// TestUpgrade: a node agent is upgraded, as a DaemonSet's rollout does it, in the middle of loops.
// The newer process goes on in the older one's objects, with its counts: each occurrence is told
// once, and nothing stays Ongoing. A count is called exact where the older process had ended in
// order before the newer one began: one that finds a loop going on cannot know that its owner
// lives.
func TestUpgrade(t *testing.T) {
	for _, tc := range rollouts {
		t.Run(tc.name, func(t *testing.T) {
			inOverlap(t, func(o *overlap) {
				o.olders = []string{"old", "both"}
				o.run(2 * time.Minute)
				tc.do(o)
				o.olders = nil
				o.newers = []string{"new", "both"}
				o.run(2 * time.Minute)
				o.newers = nil
				pass(20 * time.Minute)
				for name, says := range map[string]string{"old": tc.old, "both": tc.both, "new": "Finished ×"} {
					n := o.by[name]
					if name != "new" {
						n -= tc.lost
					}
					o.newer.wantAbout(name, fmt.Sprint(says, n))
				}
			})
		})
	}
}
