// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
)

const (
	rosterSoon     = time.Second / 4  // from a change to the write: other series may change too
	rosterEvery    = 10 * time.Second // the least time between two writes of a roster
	maxNames       = 4 << 20          // bytes of the names read from a roster
	maxRoster      = 240 << 10        // bytes of a packed roster: annotations may have 256 KiB
	restoreTimeout = 5 * time.Second  // of a call for what an earlier process has left
	restoreTries   = 3                // after so many failed first reads, events do not wait
)

// roster lets a source find the series of its earlier processes. A roster is a single Event with a
// constant name, and holds the names of the active series. A node may write a roster and read a
// roster with an empty patch, but may neither list nor get Events. Guarded by the broadcaster's
// lock.
//
// The phases are those of a series: read first (phaseUnread), then written by a create
// (phaseAbsent) or patches (phaseStored).
type roster struct {
	index    uint32 // of the source
	src      source
	phase    phase
	attempts int       // failures since the last answer
	busy     bool      // a call is under way
	next     time.Time // of the next call, zero for none
	rest     time.Time // no call before
	shared   uint32    // how often another process's write was found

	left   map[hint]string // objects left by an earlier process and not continued, as namespace/name
	readAt time.Time       // when their names were read
}

// want asks for a call at the given time, or as soon after as allowed.
func (r *roster) want(at time.Time) {
	if at.Before(r.rest) {
		at = r.rest
	}
	if r.next.IsZero() || at.Before(r.next) {
		r.next = at
	}
}

func (r *roster) name() string {
	id := (&seriesKey{}).id(r.src)
	_, base, _ := strings.Cut(r.src.controller, "/")
	return nameFor(strings.ToLower(cmp.Or(base, r.src.controller)), ".roster-", id[:8])
}

// renewal returns when a roster with names is written again, lest it expire.
func (b *Broadcaster) renewal(now time.Time) time.Time { return now.Add(b.opts.Heartbeat * 9 / 10) }

// nextRoster returns the call of a roster. Without a call, wait is the time until the next, or 0 if
// an answer under way must come first. The lock is held.
func (b *Broadcaster) nextRoster(now time.Time) (j job, wait time.Duration) {
	wait = forever
	for _, r := range b.rosters {
		first := r.phase == phaseUnread && r.attempts < restoreTries
		final := b.draining != nil && b.inflight == 0 && b.tab.queued() == 0 // every name is
		at := r.next.Sub(now)
		switch {
		case b.opts.NoRoster:
		case r.busy && first:
			wait = 0
		case r.busy || !first && r.next.IsZero():
		case first, final && r.phase != phaseUnread && len(b.goingOn(r)) > 0, !b.stopped && at <= 0:
			return b.rosterJob(r, now), 0
		case !b.stopped:
			wait = min(wait, at)
		}
	}
	return j, wait
}

// rosterJob returns the call of a roster: its first read, or a write of the names.
func (b *Broadcaster) rosterJob(r *roster, now time.Time) job {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.opts.RosterNamespace, Name: r.name()},
		EventTime:  metav1.NewMicroTime(now), Type: corev1.EventTypeNormal, Reason: "EventSeriesKept", Action: "Record",
		ReportingController: r.src.controller, ReportingInstance: r.src.instance,
		Regarding: corev1.ObjectReference{Kind: "EventRecorder", Namespace: b.opts.RosterNamespace, Name: r.src.instance},
		Note:      r.src.controller + " notes here which of its event series a restart continues",
	}
	j := job{roster: r, event: e, call: call{kind: callPatch}}
	r.busy, r.next = true, time.Time{}
	switch r.phase {
	case phaseUnread:
		j.call.kind = callRead
		b.count.Calls["read"]++
		return j
	case phaseAbsent:
		j.call.kind = callCreate
	}
	j.names, r.rest = b.names(r), now.Add(rosterEvery)
	b.count.Calls["roster"]++
	return j
}

// writeNames packs the names of a job into its event.
func (j *job) writeNames() {
	names := j.names
	packed := packRoster(names)
	for len(packed) > maxRoster {
		names = names[:len(names)*3/4]
		packed = packRoster(names)
	}
	// The time makes each write a change: a patch without a change does not prolong the object's
	// life.
	packed = j.event.EventTime.UTC().Format(time.RFC3339) + " " + packed
	j.event.Annotations = map[string]string{AnnotationRoster: packed}
}

// rosterAnswered books the answer to a read or write of a roster, and the names read.
func (b *Broadcaster) rosterAnswered(ctx context.Context, j job, stored *eventsv1.Event, v judged, err error, now time.Time) {
	defer b.signal()
	r, reading := j.roster, j.call.kind == callRead
	r.busy, r.rest = false, now
	if v.reason == string(metav1.StatusReasonForbidden) && b.gates[scope{}] != nil {
		v.verdict = verdictTrouble
	}
	switch v.verdict {
	case verdictTrouble, verdictFault, verdictStopped:
		if v.reason != "Unreachable" && v.verdict != verdictStopped { // else nothing gets through
			r.attempts++
			r.rest = now.Add(rosterEvery)
		}
		switch {
		case r.attempts <= restoreTries:
			b.failed(ctx, nil, scope{}, v, err, now)
		case b.stopped:
			return
		case reading && r.attempts >= maxFaults:
			r.phase = phaseStored
		}
		r.want(now)
		return
	}
	r.attempts = 0
	b.openGate(ctx)
	switch {
	case reading:
		if r.phase = phaseStored; err != nil {
			r.phase = phaseAbsent
		}
		if len(b.goingOn(r)) > 0 { // begun after so many failures
			r.want(now.Add(rosterSoon))
		}
		if stored.ReportingInstance == r.src.instance {
			b.addLeft(r, unpackRoster(stored.Annotations[AnnotationRoster]), now)
		}
	case err == nil:
		r.phase, r.rest = phaseStored, now.Add(rosterEvery)
		if len(j.names) > 0 && !b.stopped {
			r.want(b.renewal(now))
		}
	case v.verdict == verdictConflict && r.phase == phaseAbsent:
		r.phase = phaseStored
		r.want(now)
	case v.verdict == verdictMissing && r.phase == phaseStored:
		r.phase = phaseAbsent
		r.want(now)
	default:
		r.phase, r.rest = phaseAbsent, now.Add(b.opts.Heartbeat)
		klog.FromContext(ctx).Info("Event series will not be continued after a restart: their roster cannot be stored", "err", err)
		if !b.stopped {
			r.want(now)
		}
	}
}

// addLeft takes in the names of the objects left by an earlier process. Series wait for their first
// write meanwhile.
func (b *Broadcaster) addLeft(r *roster, names []string, now time.Time) {
	r.left, r.readAt = make(map[hint]string, len(names)), now
	for _, name := range names {
		var h hint
		if n, err := hex.Decode(h[:], []byte(name[max(len(name)-2*len(h), 0):])); err == nil && n == len(h) {
			r.left[h] = name
		}
	}
	if len(r.left) > 0 {
		r.want(b.renewal(now)) // with those that go on
	}
	for e := b.tab.queue.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*series); s.key.source == r.index {
			r.claim(s)
		}
	}
}

// claim lets a new series continue the object of an earlier process, if there is one: a read comes
// first.
func (r *roster) claim(s *series) {
	if namespace, name, _ := strings.Cut(r.left[s.id.hint()], "/"); name != "" && namespace == s.content.namespace && s.st.unwritten() {
		s.name, s.st.phase = name, phaseUnread
		delete(r.left, s.id.hint())
	}
}

// closeLeft takes an object into the table that no series has continued within the threshold, and
// returns the time until then. A read of the object comes first. The lock is held.
func (b *Broadcaster) closeLeft(now time.Time) (wait time.Duration) {
	wait = forever
	for _, r := range b.rosters {
		if d := r.readAt.Add(b.opts.FinishAfter).Sub(now); len(r.left) > 0 && d > 0 {
			wait = min(wait, d)
			continue
		}
		for h, left := range r.left {
			delete(r.left, h)
			b.close(r, left, state{phase: phaseUnread, end: finished, begun: r.readAt}, now)
			return 0
		}
	}
	return wait
}

// close takes an object into the table for the calls that end its series.
func (b *Broadcaster) close(r *roster, left string, st state, now time.Time) {
	s := &series{key: seriesKey{source: r.index}, st: st, seen: r.shared}
	s.content.namespace, s.name, _ = strings.Cut(left, "/")
	s.key.regarding.Name = left // stands in for the object, which nothing here knows
	b.tab.count(s, 1)
	b.settle(s, now)
}

// names returns the names under which series of a source are stored, as namespace/name, the latest
// first. The lock is held.
func (b *Broadcaster) names(r *roster) (names []string) {
	for _, s := range b.goingOn(r) {
		names = append(names, s.path())
	}
	return slices.AppendSeq(names, maps.Values(r.left))
}

// goingOn returns the stored series of a source for a restart to continue, the latest first. The
// lock is held.
func (b *Broadcaster) goingOn(r *roster) (out []*series) {
	for el := b.tab.aged.Back(); el != nil; el = el.Prev() {
		if s := el.Value.(*series); s.key.source == r.index && s.st.end != finished && s.st.phase != phaseResting {
			out = append(out, s)
		}
	}
	return out
}

// restored books the first read of an object of an earlier process: its series goes on, or ends.
// The lock is held.
func (b *Broadcaster) restored(s *series, f found, now time.Time) {
	r := b.rosters[s.key.source]
	goOn, killed := f.continues(s.st.begun, &b.opts)
	if killed && !(goOn && s.st.count > 0) {
		b.count.Transitions["abandoned"]++
	}
	switch s.seen = r.shared; {
	case s.st.count == 0:
		s.st = f.closed(goOn, killed, now)
	case goOn:
		s.st.adopt(f, killed, now)
		b.count.Transitions["adopted"]++
	default:
		b.close(r, s.path(), f.closed(goOn, killed, now), now)
		b.rename(s, now)
	}
}

// rename lets a series begin an object of its own: that of its name is another's, or gone. The lock
// is held.
func (b *Broadcaster) rename(s *series, now time.Time) {
	if s.st.missing(); s.key.reason == "" {
		s.st.phase = phaseDone
	} else {
		s.name = b.newName(s, now)
	}
}

// same reports whether a stored event is that of a series.
func (r *roster) same(e *eventsv1.Event, s *series) bool {
	regarding := e.Regarding
	regarding.ResourceVersion = ""
	return e.ReportingController == r.src.controller && e.ReportingInstance == r.src.instance && e.Annotations[AnnotationRoster] == "" &&
		(s.st.count == 0 || regarding == s.key.regarding && e.Reason == s.key.reason && e.Type == s.key.eventType)
}

func packRoster(names []string) string {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	_, _ = io.WriteString(w, strings.Join(names, "\n")) // a buffer takes everything
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// unpackRoster returns the well-formed names in an annotation, nil for any not made by packRoster.
func unpackRoster(annotation string) (names []string) {
	_, packed, _ := strings.Cut(annotation, " ")
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed))), maxNames))
	if err != nil {
		return nil
	}
	for name := range strings.SplitSeq(string(text), "\n") {
		if ns, n, ok := strings.Cut(name, "/"); ok && ns != "" && len(validation.IsDNS1123Subdomain(n)) == 0 {
			names = append(names, name)
		}
	}
	return names
}
