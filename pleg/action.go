// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// actionKind is what an action does.
type actionKind uint8

const (
	actOpen       actionKind = iota // open the stream
	actCut                          // end the stream
	actList                         // list everything
	actInspect                      // read one pod
	actInterrupt                    // end the read of one pod
	actStore                        // Set a status in the cache
	actFail                         // Set the error of a read in the cache
	actDelete                       // Delete a pod from the cache
	actObserve                      // Observe the next n pods of todo.observed
	actAdvance                      // Advance the cache's global time
	actPrune                        // Prune the cache's tombstones
	actTell                         // tell Watch the next event of todo.events
	actForgive                      // give up what Watch is owed of pods that are gone, beyond n pods
	actReport                       // log and record a report
	actInterval                     // time the interval between two lists
	actListLasted                   // time a list
)

// action is one thing that the core has done to the world: it calls nothing itself. Actions refer
// to no state of the core, so that they can be compared, kept and carried out at any time.
type action[S any] struct {
	kind     actionKind
	replaces bool // actStore: the cache has a status of the pod, which Merge is given
	n        int32
	uid      cache.UID
	at       instant       // when the read began that it is about
	took     time.Duration // actInterval, actListLasted
	since    Revision      // actList
	status   *S            // actStore
	err      error         // actFail
	read     *podRead      // actInspect
	report   *Report       // actReport
}

// podRead is a read of one pod that is to be made. Nobody changes it.
type podRead struct {
	asked  instant // when the inspection started: later than the action's time if it builds on a list
	ref    Pod     // what to read; Items is the listing if it is known
	listed bool    // ref.Items is the listing: no ListPod needed, and the statuses are wanted
	builds bool    // the status in the cache may be built upon; else all statuses must be read
	byIDs  bool    // ref.Items is what is known, and no listing
	have   []Item  // what that status shows, so that an unchanged pod needs no statuses
}

// todo is what the core wants done, in order. It belongs to the core until an executor carries it
// out, which happens before the core's next input. Its memory is used again: what is common, and
// bulky in lists of everything, lies in slices of its own.
type todo[S any] struct {
	actions  []action[S]
	events   []Event     // what actTell tells, in order
	observed []cache.UID // what actObserve observes, in order
}

func (t *todo[S]) do(a action[S]) { t.actions = append(t.actions, a) }

// tell has Watch told of an event.
func (t *todo[S]) tell(e Event) {
	t.events = append(t.events, e)
	t.actions = append(t.actions, action[S]{kind: actTell})
}

// report has a report logged and recorded.
func (t *todo[S]) report(r Report) {
	t.actions = append(t.actions, action[S]{kind: actReport, report: &r})
}

// observe says that a read begun at that time found the pod as the cache has it. Pods that follow
// each other, as all of a list do, are one action.
func (t *todo[S]) observe(uid cache.UID, at instant) {
	t.observed = append(t.observed, uid)
	if n := len(t.actions); n > 0 && t.actions[n-1].kind == actObserve && t.actions[n-1].at == at {
		t.actions[n-1].n++
		return
	}
	t.actions = append(t.actions, action[S]{kind: actObserve, n: 1, at: at})
}

// maxKept bounds the memory that is kept for use again, in entries of each slice.
const maxKept = 4096

// reset forgets what has been carried out.
func (t *todo[S]) reset() {
	t.actions, t.events, t.observed = emptied(t.actions), emptied(t.events), emptied(t.observed)
}

// emptied returns the slice with nothing in it, and nothing kept alive behind its end.
func emptied[T any](s []T) []T {
	if cap(s) > maxKept {
		return nil
	}
	clear(s)
	return s[:0]
}
