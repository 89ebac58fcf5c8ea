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

// Recorder returns a recorder that sends a generator's reports as Events of the node, or of the
// report's pod, through the kubelet's recorder, which must not block. A condition of the node is
// sent at once, and then again after 1, 4, 16 and every 60 minutes, with the number of reports
// since; a condition without a new report is sent then too, with its age. After an hour without a
// report a condition begins anew. With several conditions at once, all but a lost stream may be
// sent later, so that together they stay within client-go's limit: 25 Events and one more every
// five minutes.
func Recorder(recorder record.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	return newRateLimited(recorder, node)
}

// SeriesRecorder is like [Recorder], with a recorder for events.k8s.io/v1, such as that of package
// events: Events have an action, and a lasting condition is a single series with a true count.
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

// subject returns the object of a report, and its event type.
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

// Client-go's recorder lets 25 Events about an object pass and then one in five minutes, whatever
// they say. A runtime that drops its events would use these up within seconds, and the loss of its
// stream would go unreported. So a lasting condition is sent at once and then ever more rarely.
const (
	firstPause  = time.Minute
	pauseFactor = 4
	maxPause    = time.Hour
)

// Pauses alone do not keep within that limit: many reasons at once, or reasons that begin anew
// after an hour, make more Events. So all Events come out of an allowance that grows as client-go's
// does and holds less, because the kubelet's own Events about its node may come out of the same 25.
// The allowance is never overdrawn, however many reasons there are:
//
//   - a repetition is sent if enough is left for the first Events of eight more reasons and the
//     lost streams of an hour;
//   - the first Event of a reason, if enough is left for the lost streams of an hour: four, by the
//     pauses above;
//   - a lost stream, always: the allowance grows by twelve in an hour, enough for all of them.
//
// Suppressed reports are counted. The reason's next report tries again, or a timer does once the
// pause is over and the allowance suffices: a suppressed condition is sent even if never reported
// again.
const (
	maxAllowance         = 20.0
	allowancePeriod      = 5 * time.Minute
	reservedByFirst      = 4.0
	reservedByRepetition = reservedByFirst + 8
)

// rateLimited is a recorder that keeps within client-go's rate limit. Safe for concurrent use.
type rateLimited struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference

	mu        sync.Mutex // owns the fields below
	reasons   map[pleg.Reason]*reasonState
	allowance float64   // Events left to send
	filled    time.Time // when allowance was right
}

// reasonState is the state of a reason about the node.
type reasonState struct {
	next           time.Time     // not sent before
	pause          time.Duration // before next; 0 before the first Event
	seen           time.Time     // time of the last report
	suppressed     int           // reports since the last Event
	lastSuppressed pleg.Report   // the last suppressed report
	scheduled      bool          // a timer will send lastSuppressed
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
	} // else once for each pod in trouble, and every pod has 25 of its own
	s.send(&report)
}

// send sends a report as an Event.
func (s *rateLimited) send(report *pleg.Report) {
	about, kind := subject(report, s.node)
	note := report.Note
	if report.Held > 0 && report.Pod == nil {
		note = fmt.Sprintf("%s (and %d times more since the last Event of this)", note, report.Held)
	}
	s.recorder.Event(about, kind, string(report.Reason), note)
}

// admit reports whether to send a report now, and returns the report with the number of its
// reason's suppressed reports.
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

// sendSuppressed sends a reason's last suppressed report, unless the reason was sent meanwhile.
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
	report.Held = x.sent(now) - 1 // the Event stands for one report
	s.mu.Unlock()
	s.send(&report)
}

// schedule has suppressed reports sent after the wait. The caller holds mu. The timer outlives the
// generator by an hour at most, and then sends the last suppressed report.
func (s *rateLimited) schedule(x *reasonState, reason pleg.Reason, wait time.Duration) {
	if !x.scheduled {
		x.scheduled = true
		time.AfterFunc(wait, func() { s.sendSuppressed(reason) })
	}
}

// sent notes an Event of a reason, and returns the number of suppressed reports.
func (x *reasonState) sent(now time.Time) (held int) {
	held, x.suppressed, x.lastSuppressed = x.suppressed, 0, pleg.Report{}
	x.pause = min(max(firstPause, pauseFactor*x.pause), maxPause)
	x.next = now.Add(x.pause)
	return held
}

// wait returns how long a reason must not be sent: 0 means now, with the Event taken out of the
// allowance. The caller holds mu.
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

// spend takes an Event out of the allowance, if at least reserve is left. The caller holds mu.
func (s *rateLimited) spend(now time.Time, reserve float64) bool {
	s.allowance = min(s.allowance+now.Sub(s.filled).Seconds()/allowancePeriod.Seconds(), maxAllowance)
	s.filled = now
	if s.allowance-1 < reserve {
		return false
	}
	s.allowance--
	return true
}
