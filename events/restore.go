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
	"fmt"
	"io"
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
	maxNames       = 1 << 20          // bytes of the names in a roster
	maxRoster      = 240 << 10        // bytes of a packed roster: annotations may have 256 KiB
	restoreTimeout = 5 * time.Second  // of a call for what an earlier process has left
	restoreTries   = 3                // after so many failed first reads, events do not wait
)

// roster lets a source find the series of its earlier processes. A roster is a single Event with a
// constant name, and holds the names of the active series. A node may write a roster and read a
// roster with an empty patch, but may neither list nor get Events. Guarded by the broadcaster's
// lock.
//
// The phases of a roster are those of a series: read first (phaseUnread), then written by creates
// (phaseAbsent) or patches (phaseStored). There is none in phaseDone.
type roster struct {
	index    uint32 // of the source
	src      source
	phase    phase
	attempts int       // failures since the last answer
	busy     bool      // a call is under way
	version  string    // of the last write by this process
	next     time.Time // of the next call, zero for none
	rest     time.Time // no call before
	shared   uint32    // how often another process's write was found
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

// reports is true of events of the roster's source.
func (r *roster) reports(e *eventsv1.Event) bool {
	return e.ReportingController == r.src.controller && e.ReportingInstance == r.src.instance && e.Annotations[AnnotationRoster] == ""
}

// renewal returns when a roster with names is written again, lest it expire.
func (b *Broadcaster) renewal(now time.Time) time.Time { return now.Add(b.opts.Heartbeat * 9 / 10) }

// nextRoster returns the call of a roster. Without a call, wait is the time until the next, or 0 if
// an answer under way must come first. The lock is held.
func (b *Broadcaster) nextRoster(now time.Time) (j job, wait time.Duration) {
	wait = forever
	for _, r := range b.rosters {
		first := r.phase == phaseUnread && r.attempts < restoreTries
		final := b.draining != nil && b.inflight == 0 && b.tab.queue.Len() == 0 // every name is
		switch at := r.next.Sub(now); {
		case r.busy && first:
			wait = 0
		case r.busy || r.phase == phaseDone:
		case first || final && !r.next.IsZero() && r.phase != phaseUnread && len(b.goingOn(r)) > 0:
			return b.rosterJob(r, now), 0
		case b.stopped || r.next.IsZero():
		case at <= 0:
			return b.rosterJob(r, now), 0
		default:
			wait = min(wait, at)
		}
	}
	return j, wait
}

func (b *Broadcaster) rosterJob(r *roster, now time.Time) job {
	j := job{roster: r, event: b.rosterEvent(r, now), call: call{version: r.version}}
	r.busy, r.next = true, time.Time{}
	switch r.phase {
	case phaseUnread:
		j.call.kind = callRead
		b.count.Calls["read"]++
		return j
	case phaseAbsent:
		j.call.kind = callCreate
	default:
		j.call.kind = callPatch
	}
	j.names, r.rest = b.names(r), now.Add(rosterEvery)
	b.count.Calls["roster"]++
	return j
}

// rosterEvent returns a roster without its names.
func (b *Broadcaster) rosterEvent(r *roster, now time.Time) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.opts.RosterNamespace, Name: r.name()},
		EventTime:  metav1.NewMicroTime(now), Type: corev1.EventTypeNormal, Reason: "EventSeriesKept", Action: "Record",
		ReportingController: r.src.controller, ReportingInstance: r.src.instance,
		Regarding: corev1.ObjectReference{Kind: "EventRecorder", Name: r.src.instance},
		Note:      fmt.Sprintf("%s notes here which of its event series a restart continues", r.src.controller),
	}
	if ns := b.opts.RosterNamespace; ns != metav1.NamespaceSystem && ns != metav1.NamespaceDefault {
		e.Regarding.Namespace = ns
	}
	return e
}

// rosterBody packs the names into the event of a job, and returns the body of a patch.
func rosterBody(j *job) []byte {
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
	return patchBody(j.call.version, j.event.Annotations, nil)
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
		if stored != nil && stored.ReportingInstance == r.src.instance {
			b.addLeft(r, unpackRoster(stored.Annotations[AnnotationRoster]), now)
		}
	case err == nil:
		if r.phase = phaseStored; stored != nil {
			r.version = stored.ResourceVersion
		}
		r.rest = now.Add(rosterEvery)
		if len(j.names) > 0 && !b.stopped {
			r.want(b.renewal(now))
		}
	case v.verdict == verdictExists && r.phase == phaseAbsent:
		r.phase = phaseStored
		r.want(now)
	case v.verdict == verdictMissing && r.phase == phaseStored:
		r.phase, r.version = phaseAbsent, ""
		r.want(now)
	default:
		r.phase, r.version, r.rest = phaseAbsent, "", now.Add(rosterEvery)
		if v.verdict != verdictConflict { // another process's roster, otherwise
			r.rest = now.Add(b.opts.Heartbeat)
			klog.FromContext(ctx).Info("Event series will not be continued after a restart: their roster cannot be stored", "err", err)
		}
		if !b.stopped {
			r.want(now)
		}
	}
}

// addLeft takes in the objects left by an earlier process, by their names.
func (b *Broadcaster) addLeft(r *roster, names []string, now time.Time) {
	for _, name := range names {
		namespace, name, _ := strings.Cut(name, "/")
		s := &series{left: true, name: name, key: seriesKey{source: r.index, regarding: refKey{name: name}}, content: content{namespace: namespace}}
		s.st.phase = phaseUnread
		if n, err := hex.Decode(s.id[:], []byte(name[max(len(name)-8, 0):])); err != nil || n != len(hint{}) || b.tab.left[s.id.hint()] != nil {
			continue
		}
		b.tab.left[s.id.hint()] = s
		r.want(b.renewal(now))
	}
}

// names returns the names under which series of a source are stored, as namespace/name, the latest
// first. The lock is held.
func (b *Broadcaster) names(r *roster) (names []string) {
	all, size := b.goingOn(r), 0
	for _, l := range b.tab.left {
		if l.key.source == r.index {
			all = append(all, l)
		}
	}
	for _, s := range all {
		if size += len(s.content.namespace) + len(s.name) + 2; size <= maxNames {
			names = append(names, s.content.namespace+"/"+s.name)
		}
	}
	return names
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

// rebuild takes a stored event into the table. If its series was abandoned in the middle, a final
// write records the end. The lock is held.
func (b *Broadcaster) rebuild(e *eventsv1.Event, r *roster, now time.Time) {
	if !r.reports(e) {
		return
	}
	annotations, _ := cleanAnnotations(e.Annotations)
	c := content{namespace: e.Namespace, note: e.Note, annotations: annotations, regardingVersion: e.Regarding.ResourceVersion}
	if e.Related != nil {
		c.relatedVersion = e.Related.ResourceVersion
	}
	s := newSeries(keyOf(e, r), r.src, c)
	s.name, s.seen = e.Name, r.shared
	f, at, other := look(e), now, b.tab.find(&s.key, s.hash)
	if other != nil {
		at = other.st.begun
	}
	goOn, _ := f.continues(at, &b.opts)
	switch {
	case goOn && other != nil && !other.inflight && other.st.unwritten():
		other.name = e.Name
		b.adopt(other, f, now)
		b.settle(other, now)
		return
	case goOn && other == nil && b.tab.aged.Len() < b.opts.MaxSeries:
		b.adopt(s, f, now)
		b.tab.add(s)
	case f.state == stateOngoing:
		s.st = state{phase: phaseStored, end: evicted, count: f.count, stored: f.count, begun: f.begun, last: f.last, loose: true, version: f.version}
		b.count.Transitions["abandoned"]++
		b.tab.count(s, 1)
	default:
		return
	}
	b.settle(s, now)
}

// adopt continues an earlier process's object by a series of this process.
func (b *Broadcaster) adopt(s *series, f found, now time.Time) {
	r := b.rosters[s.key.source]
	s.st.adopt(f, now, &b.opts)
	s.seen = r.shared
	b.count.Transitions["adopted"]++
	r.want(b.renewal(now))
}

func keyOf(e *eventsv1.Event, r *roster) seriesKey {
	key := seriesKey{source: r.index, eventType: e.Type, reason: e.Reason, action: e.Action, regarding: refKeyOf(&e.Regarding)}
	if e.Related != nil {
		key.related = refKeyOf(e.Related)
	}
	if r.src.byNote {
		key.note = cmp.Or(e.Note, emptyNote)
		if rest, combined := strings.CutPrefix(e.Note, combinedNote); combined {
			key.note = combinedKey(rest)
		}
	}
	return key
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
