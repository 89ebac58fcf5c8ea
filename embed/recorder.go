// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Recorder returns a recorder that tells a generator's reports as Events of the node, or of the pod
// that a report names, through the kubelet's recorder, which must not block. What goes on about the
// node is told at once, and then again after 1, 4, 16 and every 60 minutes, with how often it came
// up; what has not come up again is told then too, with its age. What has rested for an hour begins
// anew. Where several things go on at once, all but a lost
// stream may be told later than that, so that together they stay within the 25 Events and one in
// five minutes that client-go's recorder lets through.
func Recorder(recorder record.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	return newRateLimited(recorder, node)
}

// SeriesRecorder does what [Recorder] does through a recorder for events.k8s.io/v1, such as the one
// of package events: with an action, and as one series, with a true count, for what goes on for
// long.
func SeriesRecorder(recorder clientevents.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	return recorderFunc(func(report *pleg.Report) {
		about, kind := subject(report, node)
		for range 1 + report.Held { // the series counts
			recorder.Eventf(about, nil, kind, string(report.Reason), report.Action, "%s", report.Note)
		}
	})
}

type recorderFunc func(*pleg.Report)

func (r recorderFunc) Record(report pleg.Report) { r(&report) }

// subject returns what a report is about, and its event type.
func subject(report *pleg.Report, node *v1.ObjectReference) (about *v1.ObjectReference, kind string) {
	about, kind = node, v1.EventTypeNormal
	if p := report.Pod; p != nil {
		about = &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	}
	if report.Warning {
		kind = v1.EventTypeWarning
	}
	return about, kind
}

// Client-go's recorder lets 25 Events about one object through and then one in five minutes,
// whatever they say. A runtime that drops its events would use them up within seconds, and nobody
// would be told that its stream is lost. So what goes on is told at once and then ever more rarely.
const (
	firstPause  = time.Minute
	pauseFactor = 4
	maxPause    = time.Hour
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
// What is not sent is counted. The reason's next report tries again, or a timer does once the pause
// is over and the allowance suffices: what is held back is told though it does not come up again.
const (
	maxAllowance         = 20.0
	allowancePeriod      = 5 * time.Minute
	reservedByFirst      = 4.0
	reservedByRepetition = reservedByFirst + 8
)

// rateLimited is a recorder that spares what client-go's has. It is safe for concurrent use.
type rateLimited struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference

	mu        sync.Mutex // owns what follows
	reasons   map[pleg.Reason]*reasonState
	allowance float64   // Events that may be sent
	filled    time.Time // when allowance was right
}

// reasonState is how a reason about the node is being told.
type reasonState struct {
	next           time.Time     // not told before that
	pause          time.Duration // before next; 0 if not told yet
	seen           time.Time     // when it last came up
	suppressed     int           // times it has come up since it was last told
	lastSuppressed pleg.Report   // the last that was held
	scheduled      bool          // one is set, to tell what is held
}

func newRateLimited(recorder record.EventRecorder, node *v1.ObjectReference) *rateLimited {
	return &rateLimited{recorder: recorder, node: node, reasons: make(map[pleg.Reason]*reasonState), allowance: maxAllowance}
}

func (s *rateLimited) Record(report pleg.Report) {
	if report.Pod == nil {
		var ok bool
		if report, ok = s.admit(report, time.Now()); !ok {
			return
		}
	} // else it comes once for each pod in trouble, and every pod has 25 of its own
	s.send(&report)
}

// send sends what is to be told.
func (s *rateLimited) send(report *pleg.Report) {
	about, kind := subject(report, s.node)
	note := report.Note
	if report.Held > 0 && report.Pod == nil {
		note = fmt.Sprintf("%s (and %d times more since the last Event of this)", note, report.Held)
	}
	s.recorder.Event(about, kind, string(report.Reason), note)
}

// admit says whether a report is to be told now, and returns it with how often its reason has come up
// untold.
func (s *rateLimited) admit(report pleg.Report, now time.Time) (pleg.Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.reasons[report.Reason]
	switch {
	case x == nil:
		x = &reasonState{next: now}
		s.reasons[report.Reason] = x
	case now.Sub(x.seen) >= maxPause:
		x.next, x.pause = now, 0
	}
	x.seen = now
	x.suppressed += report.Held
	if wait := s.wait(x, report.Reason, now); wait > 0 {
		x.suppressed++
		x.lastSuppressed = report
		s.schedule(x, report.Reason, wait)
		return report, false
	}
	report.Held = x.sent(now)
	return report, true
}

// sendSuppressed tells what is held of a reason, unless it was told meanwhile.
func (s *rateLimited) sendSuppressed(reason pleg.Reason) {
	s.mu.Lock()
	now, x := time.Now(), s.reasons[reason]
	x.scheduled = false
	if x.suppressed == 0 {
		s.mu.Unlock()
		return
	}
	if wait := s.wait(x, reason, now); wait > 0 {
		s.schedule(x, reason, wait)
		s.mu.Unlock()
		return
	}
	report := x.lastSuppressed
	if age := now.Sub(x.seen).Round(time.Second); age > 0 {
		report.Note += fmt.Sprintf(" (%v ago)", age)
	}
	report.Held = x.sent(now) - 1 // the Event stands for one of them
	s.mu.Unlock()
	s.send(&report)
}

// schedule has what is held told when the wait is over. The caller holds mu. The timer outlives the
// generator by an hour at most, and then tells what there is to tell.
func (s *rateLimited) schedule(x *reasonState, reason pleg.Reason, wait time.Duration) {
	if !x.scheduled {
		x.scheduled = true
		time.AfterFunc(wait, func() { s.sendSuppressed(reason) })
	}
}

// sent notes that a reason is told, and returns how many reports were held back.
func (x *reasonState) sent(now time.Time) (held int) {
	held, x.suppressed, x.lastSuppressed = x.suppressed, 0, pleg.Report{}
	x.pause = min(max(firstPause, pauseFactor*x.pause), maxPause)
	x.next = now.Add(x.pause)
	return held
}

// wait returns for how long a reason must not be told: 0 says that it may be, and that its Event is
// taken out of the allowance. The caller holds mu.
func (s *rateLimited) wait(x *reasonState, reason pleg.Reason, now time.Time) time.Duration {
	if now.Before(x.next) {
		return x.next.Sub(now)
	}
	reserve := reservedByRepetition
	switch {
	case reason == pleg.ReasonStreamLost:
		reserve = 0
	case x.pause == 0:
		reserve = reservedByFirst
	}
	if !s.spend(now, reserve) {
		return time.Duration((reserve+1-s.allowance)*float64(allowancePeriod)) + time.Millisecond
	}
	return 0
}

// spend takes one Event out of the allowance, if that leaves at least so much. The caller holds mu.
func (s *rateLimited) spend(now time.Time, reserve float64) bool {
	s.allowance = min(s.allowance+now.Sub(s.filled).Seconds()/allowancePeriod.Seconds(), maxAllowance)
	s.filled = now
	if s.allowance-1 < reserve {
		return false
	}
	s.allowance--
	return true
}
