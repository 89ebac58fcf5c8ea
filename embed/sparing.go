// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Client-go's recorder lets 25 Events about one object through and then one in five minutes,
// whatever they say. A runtime that drops its events would use them up within seconds, and nobody
// would be told that its stream is lost. So what goes on is told at once and then ever more rarely.
const (
	firstPause  = time.Minute
	pauseFactor = 4
	longestRest = time.Hour
)

// The pauses alone do not keep within that: many reasons at once, or reasons that rest for an hour
// and begin anew, make more Events. So all of them come out of an allowance that grows as
// client-go's does and holds less, because the kubelet's own Events about its node may come out of
// the same 25. It is never overdrawn, however many reasons there are:
//
//   - a repetition is sent if it leaves what the first Events of eight more reasons and the lost
//     streams of an hour take;
//   - the first Event of a reason, if it leaves what the lost streams of an hour take: four, by the
//     pauses above;
//   - a lost stream, always: the allowance grows by twelve in an hour, so there is one for it.
//
// What is not sent is counted, and the reason's next report tries again.
const (
	allowanceMost    = 20.0
	allowanceEvery   = 5 * time.Minute
	leftByFirst      = 4.0
	leftByRepetition = leftByFirst + 8
)

// sparing is a recorder that spares what client-go's has. It is safe for concurrent use.
type sparing struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference

	mu        sync.Mutex // owns what follows
	told      map[pleg.Reason]*telling
	allowance float64   // Events that may be sent
	filled    time.Time // when allowance was right
}

// telling is how a reason about the node is being told.
type telling struct {
	next  time.Time     // not told before that
	pause time.Duration // before next; 0 if not told yet
	seen  time.Time     // when it last came up
	held  int           // times it has come up since it was last told
}

func newSparing(recorder record.EventRecorder, node *v1.ObjectReference) *sparing {
	return &sparing{recorder: recorder, node: node, told: make(map[pleg.Reason]*telling), allowance: allowanceMost}
}

func (s *sparing) Record(report pleg.Report) {
	about, kind := subject(&report, s.node)
	note := report.Note
	if report.Pod == nil {
		held, ok := s.due(report.Reason, report.Held, time.Now())
		if !ok {
			return
		}
		if held > 0 {
			note = fmt.Sprintf("%s (and %d times more since the last Event of this)", note, held)
		}
	} // else it comes once for each pod in trouble, and every pod has 25 of its own
	s.recorder.Event(about, kind, string(report.Reason), note)
}

// due says whether a reason is to be told now, and how often it has come up untold; before says how
// often it came up for which the generator made no report.
func (s *sparing) due(reason pleg.Reason, before int, now time.Time) (held int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.told[reason]
	if x == nil || now.Sub(x.seen) >= longestRest {
		x = &telling{next: now}
		s.told[reason] = x
	}
	x.seen = now
	x.held += before
	leave := leftByRepetition
	switch {
	case reason == pleg.ReasonStreamLost:
		leave = 0
	case x.pause == 0:
		leave = leftByFirst
	}
	if now.Before(x.next) || !s.spend(now, leave) {
		x.held++
		return 0, false
	}
	held, x.held = x.held, 0
	x.pause = min(max(firstPause, pauseFactor*x.pause), longestRest)
	x.next = now.Add(x.pause)
	return held, true
}

// spend takes one Event out of the allowance, if that leaves at least so much. The caller holds mu.
func (s *sparing) spend(now time.Time, leave float64) bool {
	s.allowance = min(s.allowance+now.Sub(s.filled).Seconds()/allowanceEvery.Seconds(), allowanceMost)
	s.filled = now
	if s.allowance-1 < leave {
		return false
	}
	s.allowance--
	return true
}
