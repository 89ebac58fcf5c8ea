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

// Client-go's recorder lets 25 Events about one object through and then one in five minutes, whatever they say. A runtime that drops its events would use
// them up within seconds, and nobody would be told that its stream is lost. So what goes on is told at once and then ever more rarely: seven
// reasons about a node, all of them without end, make fewer Events than that.
const (
	firstPause  = time.Minute
	pauseFactor = 4
	longestRest = time.Hour
)

// sparing is a recorder that spares what client-go's has. It is safe for concurrent use.
type sparing struct {
	recorder record.EventRecorder
	node     *v1.ObjectReference

	mu   sync.Mutex // owns told
	told map[pleg.Reason]*telling
}

// telling is how a reason about the node is being told.
type telling struct {
	next  time.Time     // not told before that
	pause time.Duration // after that
	seen  time.Time     // when it last came up
	held  int           // times it has come up since it was last told
}

func (s *sparing) Record(report pleg.Report) {
	about, kind := subject(&report, s.node)
	note := report.Note
	if report.Pod == nil {
		held, ok := s.due(report.Reason, time.Now())
		if !ok {
			return
		}
		if held > 0 {
			note = fmt.Sprintf("%s (and %d times more since the last Event of this)", note, held)
		}
	} // else it comes once for each pod in trouble, and every pod has 25 of its own
	s.recorder.Event(about, kind, string(report.Reason), note)
}

// due says whether a reason is to be told now, and how often it has come up untold.
func (s *sparing) due(reason pleg.Reason, now time.Time) (held int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.told[reason]
	if x == nil || now.Sub(x.seen) >= longestRest {
		s.told[reason] = &telling{next: now.Add(firstPause), pause: firstPause, seen: now}
		return 0, true
	}
	x.seen = now
	if now.Before(x.next) {
		x.held++
		return 0, false
	}
	held, x.held = x.held, 0
	x.pause = min(pauseFactor*x.pause, longestRest)
	x.next = now.Add(x.pause)
	return held, true
}
