// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Recorder returns a recorder that sends a generator's reports as Events of the node, or of the
// report's pod, through the kubelet's recorder, which must not block. A condition of the node is
// sent when it begins, once more when it lasts, and then once an hour, with the number of reports
// since. So all conditions together stay within the limit of client-go's recorder, whatever the
// runtime does: 25 Events about an object, and one more every five minutes. Of a nil recorder it
// returns nil: the generator then only logs its reports.
func Recorder(recorder record.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	if recorder == nil {
		return nil
	}
	return &rateLimited{recorder: recorder, node: node, reasons: make(map[pleg.Reason]*reasonState)}
}

// subject returns the object of a report, and its event type.
func subject(report *pleg.Report, node *v1.ObjectReference) (about *v1.ObjectReference, kind string) {
	about = node
	kind = v1.EventTypeNormal
	if p := report.Pod; p != nil {
		about = &v1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Namespace:  p.Namespace,
			Name:       p.Name,
			UID:        types.UID(p.UID),
		}
	}
	if report.Warning {
		kind = v1.EventTypeWarning
	}
	return about, kind
}

// Client-go's recorder drops all beyond its limit, whatever the content: a runtime that loses its
// events would use the limit up, and the loss of its stream would go unreported. A generator has
// ten reasons about its node, so each has a tenth of less than the limit. The kubelet's own Events
// about the node have the rest.
const (
	maxBurst    = 2
	minInterval = time.Hour
)

// rateLimited is a recorder that keeps within client-go's rate limit. Safe for concurrent use.
type rateLimited struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference

	mu      sync.Mutex // owns the fields below
	reasons map[pleg.Reason]*reasonState
}

// reasonState is the state of a reason about the node.
type reasonState struct {
	limiter    *rate.Limiter
	suppressed int // reports since the last Event
}

func (s *rateLimited) Record(report pleg.Report) {
	about, kind := subject(&report, s.node)
	note := report.Note
	if report.Pod == nil { // else once for each pod in trouble, and every pod has 25 of its own
		held, ok := s.admit(&report)
		if !ok {
			return
		}
		if held > 0 {
			note = fmt.Sprintf("%s (and %d times more since the last Event of this)", note, held)
		}
	}
	s.recorder.Event(about, kind, string(report.Reason), note)
}

// admit reports whether to send a report now, and returns the number of its reason's reports since
// the last Event.
func (s *rateLimited) admit(report *pleg.Report) (held int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.reasons[report.Reason]
	if x == nil {
		x = &reasonState{limiter: rate.NewLimiter(rate.Every(minInterval), maxBurst)}
		s.reasons[report.Reason] = x
	}
	held = x.suppressed + report.Held
	if !x.limiter.Allow() {
		x.suppressed = held + 1
		return 0, false
	}
	x.suppressed = 0
	return held, true
}
