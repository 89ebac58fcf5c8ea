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
	"encoding/json"
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
	rosterEvery    = 10 * time.Second // the least time between two writes of a roster
	maxNames       = 1 << 20          // bytes of the names in a roster
	maxRoster      = 240 << 10        // bytes of a packed roster: annotations may have 256 KiB
	restoreTimeout = 5 * time.Second  // of a call for a roster
	restoreTries   = 3                // after so many failed first reads, events do not wait
)

// roster lets a source find the series of its earlier processes. A roster is a single Event with a
// constant name, and holds the names of the active series. A node may write a roster and read a
// roster with an empty patch, but may neither list nor get Events. Guarded by the broadcaster's
// lock.
type roster struct {
	index    uint32 // of the source
	src      source
	off      bool      // there is none
	read     bool      // the names left by an earlier process are known, or never will be
	attempts int       // failures of the first read
	busy     bool      // a call is under way
	exists   bool      // the roster is stored
	version  string    // of the last write by this process
	due      bool      // the active series have changed since the last write
	next     time.Time // no call before next
	refresh  time.Time // time of a rewrite against expiry; zero for never
	last     []*series // at the shutdown: the active series
}

// changed records a new active series.
func (r *roster) changed(now time.Time) {
	if !r.due && r.next.Before(now) {
		r.next = now
	}
	r.due = true
}

// kept records an active series already named by the stored roster: the roster must not expire, and
// needs no write.
func (r *roster) kept(now time.Time, heartbeat time.Duration) {
	if r.refresh.IsZero() {
		r.refresh = now.Add(heartbeat * 9 / 10)
	}
}

func (r *roster) name() string {
	id := (&seriesKey{}).id(r.src)
	suffix := ".roster-" + hex.EncodeToString(id[:8])
	_, base, _ := strings.Cut(r.src.controller, "/")
	return subdomain(cmp.Or(base, r.src.controller), validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// reports is true of events of the roster's source.
func (r *roster) reports(e *eventsv1.Event) bool {
	return e.ReportingController == r.src.controller && e.ReportingInstance == r.src.instance && e.Annotations[AnnotationRoster] == ""
}

// nextRoster returns the call of a roster. Without a call, wait is the time until the next, or 0 if
// an answer under way must come first. The lock is held.
func (b *Broadcaster) nextRoster(now time.Time) (j job, wait time.Duration) {
	wait = forever
	for _, r := range b.rosters {
		first := !r.read && r.attempts < restoreTries
		switch {
		case r.busy && first:
			return job{}, 0
		case r.busy || r.off:
		case first, !r.read && !b.stopped && !r.next.After(now), b.rosterDue(r, now):
			if j.roster == nil {
				j.roster = r
			}
		case b.stopped:
		case !r.read, r.due:
			wait = min(wait, max(r.next.Sub(now), 1))
		case !r.refresh.IsZero():
			wait = min(wait, r.refresh.Sub(now))
		}
	}
	if j.roster != nil {
		j.roster.busy = true
	}
	return j, wait
}

// rosterDue reports whether the names are to be written.
func (b *Broadcaster) rosterDue(r *roster, now time.Time) bool {
	switch {
	case !r.read || r.off:
		return false
	case b.stopped: // once, when every name is final
		return b.draining != nil && r.due && len(r.last) > 0 && b.inflight == 0 && b.owed() == 0
	case r.due:
		return !r.next.After(now)
	}
	return !r.refresh.IsZero() && !r.refresh.After(now)
}

// rosterOwed reports whether a roster is to be written before the end.
func (b *Broadcaster) rosterOwed() bool {
	for _, r := range b.rosters {
		if b.rosterDue(r, time.Now()) {
			return true
		}
	}
	return false
}

// performRoster reads or writes a roster and books the answer.
func (b *Broadcaster) performRoster(ctx, call context.Context, r *roster) {
	b.mu.Lock()
	reading := !r.read
	var names []string
	if reading {
		b.count.Calls["read"]++
	} else {
		b.count.Calls["roster"]++
		names = b.names(r)
		r.due, r.refresh, r.next = false, time.Time{}, time.Now().Add(rosterEvery)
	}
	exists, version := r.exists, r.version
	b.mu.Unlock()

	var stored *eventsv1.Event
	var err error
	if reading {
		if stored, err = b.readEvent(call, b.opts.RosterNamespace, r.name()); err == nil && stored != nil && stored.ReportingInstance == r.src.instance {
			_, packed, _ := strings.Cut(stored.Annotations[AnnotationRoster], " ")
			names = unpackRoster(packed)
		}
	} else {
		stored, err = b.writeRoster(call, r, names, exists, version)
	}
	b.rosterAnswered(ctx, r, names, stored, err)
}

// rosterAnswered books the answer to a read or write of a roster, and the names read.
func (b *Broadcaster) rosterAnswered(ctx context.Context, r *roster, names []string, stored *eventsv1.Event, err error) {
	now, v := time.Now(), judge(ctx, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.signal()
	if b.abandoned {
		return
	}
	b.inflight--
	r.busy = false
	b.doubted(&v, now)
	reading := !r.read
	switch v.verdict {
	case verdictTrouble, verdictFault, verdictStopped:
		r.due = !reading
		if r.next = now.Add(rosterEvery); v.verdict == verdictTrouble && v.reason == "Unreachable" || v.verdict == verdictStopped {
			r.next = now // nothing gets through, or will be tried
		} else if r.attempts++; reading && r.attempts >= maxFaults {
			r.read = true
		}
		if r.attempts <= restoreTries {
			b.failed(ctx, nil, scope{}, v, err, now)
		}
		return
	}
	r.attempts = 0
	b.openGate(ctx)
	switch {
	case reading:
		r.read, r.exists = true, err == nil
		for _, name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			if h, ok := hintOf(name); ok {
				b.tab.left[h] = &leaving{namespace: namespace, name: name, source: r.index}
				r.kept(now, b.opts.Heartbeat)
			}
		}
	case err != nil:
		r.exists, r.version, r.due, r.next = false, "", !b.stopped, now.Add(rosterEvery)
		if v.verdict != verdictConflict { // another process's roster, otherwise
			r.next = now.Add(b.opts.Heartbeat)
			klog.FromContext(ctx).Info("Event series will not be continued after a restart: their roster cannot be stored", "err", err)
		}
	default:
		r.exists = true
		if stored != nil {
			r.version = stored.ResourceVersion
		}
		if len(names) > 0 {
			r.refresh = now.Add(b.opts.Heartbeat * 9 / 10)
		}
	}
}

// names returns the names under which series of a source are stored, as namespace/name, the latest
// first. The lock is held.
func (b *Broadcaster) names(r *roster) (names []string) {
	size := 0
	add := func(namespace, name string) {
		if size += len(namespace) + len(name) + 2; size <= maxNames {
			names = append(names, namespace+"/"+name)
		}
	}
	goingOn := r.last
	if !b.stopped {
		goingOn = b.goingOn(r)
	}
	for _, s := range goingOn {
		if s.st.phase != phaseResting {
			add(s.content.namespace, s.name)
		}
	}
	for _, l := range b.tab.left {
		if l.source == r.index {
			add(l.namespace, l.name)
		}
	}
	return names
}

// goingOn returns the stored series of a source for a restart to continue, the latest first. The
// lock is held.
func (b *Broadcaster) goingOn(r *roster) (out []*series) {
	for el := b.tab.aged.Back(); el != nil; el = el.Prev() {
		if s := el.Value.(*series); s.key.source == r.index && s.st.end != finished {
			out = append(out, s)
		}
	}
	return out
}

// writeRoster stores the names, without the lock. The patch comes first if the roster is believed
// to exist, else the create: nearly always a single call.
func (b *Broadcaster) writeRoster(ctx context.Context, r *roster, names []string, exists bool, version string) (stored *eventsv1.Event, err error) {
	now := time.Now()
	packed := packRoster(names)
	for len(packed) > maxRoster {
		names = names[:len(names)*3/4]
		packed = packRoster(names)
	}
	// The time makes each write a change: a patch without a change does not prolong the object's
	// life.
	packed = now.UTC().Format(time.RFC3339) + " " + packed
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.opts.RosterNamespace, Name: r.name(), Annotations: map[string]string{AnnotationRoster: packed},
		},
		EventTime: metav1.NewMicroTime(now), Type: corev1.EventTypeNormal, Reason: "EventSeriesKept", Action: "Record",
		ReportingController: r.src.controller, ReportingInstance: r.src.instance,
		Regarding: corev1.ObjectReference{Kind: "EventRecorder", Name: cut(r.src.instance, maxRefField)},
		Note:      fmt.Sprintf("%s notes here which of its event series a restart continues", r.src.controller),
	}
	if ns := b.opts.RosterNamespace; ns != metav1.NamespaceSystem && ns != metav1.NamespaceDefault {
		e.Regarding.Namespace = ns
	}
	meta := map[string]any{"annotations": e.Annotations}
	if version != "" {
		meta["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, err
	}
	for range 2 {
		if exists {
			stored, err = b.opts.Sink.Patch(ctx, e, patch)
		} else {
			stored, err = b.opts.Sink.Create(ctx, e)
		}
		if v := judge(ctx, err).verdict; v != verdictMissing && v != verdictExists {
			break
		}
		exists = !exists
	}
	return stored, err
}

// nextLeft returns a read of an object left by an earlier process and without a new occurrence.
// Otherwise the object would say Ongoing for ever.
func (b *Broadcaster) nextLeft(now time.Time) (j job, wait time.Duration) {
	wait = forever
	if b.stopped {
		return j, wait
	}
	for _, l := range b.tab.left {
		switch {
		case l.busy:
		case l.retryAt.After(now):
			wait = min(wait, l.retryAt.Sub(now))
		default:
			l.busy = true
			b.count.Calls["read"]++
			return job{left: l}, 0
		}
	}
	return j, wait
}

// leftRead books the answer to such a read.
func (b *Broadcaster) leftRead(ctx context.Context, l *leaving, e *eventsv1.Event, err error) {
	now, v := time.Now(), judge(ctx, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.signal()
	if b.abandoned {
		return
	}
	b.inflight--
	l.busy = false
	h, _ := hintOf(l.name)
	current := b.tab.left[h] == l // nothing has occurred meanwhile
	switch v.verdict {
	case verdictTrouble:
		b.failed(ctx, nil, scope{}, v, err, now)
		return
	case verdictStopped:
		return
	case verdictFault, verdictHeld, verdictRefused:
		if l.attempts++; l.attempts < restoreTries {
			l.retryAt = now.Add(rosterEvery << l.attempts)
			return
		}
	case verdictOK:
		b.okCalls++
		if r := b.rosters[l.source]; current && e != nil && r.reports(e) {
			delete(b.tab.left, h)
			b.rebuild(e, r, now)
			b.evict(now)
		}
	}
	b.openGate(ctx)
	if b.tab.left[h] == l {
		delete(b.tab.left, h)
	}
}

// doubted takes a 403 within the grace for trouble.
func (b *Broadcaster) doubted(v *judged, now time.Time) {
	if v.verdict == verdictRefused && v.reason == string(metav1.StatusReasonForbidden) && now.Before(b.doubt) {
		v.verdict = verdictTrouble
	}
}

// rebuild takes a stored event into the table. If its series was abandoned in the middle, a final
// write records the end. The lock is held.
func (b *Broadcaster) rebuild(e *eventsv1.Event, r *roster, now time.Time) {
	f := look(e)
	goOn, _ := b.policy.continues(f, now)
	s := &series{name: e.Name, content: content{
		namespace: e.Namespace, note: e.Note, annotations: ownAnnotations(e), regardingVersion: e.Regarding.ResourceVersion,
	}}
	s.identify(keyOf(e, r), r.src)
	if e.Related != nil {
		s.content.relatedVersion = e.Related.ResourceVersion
	}
	switch other := b.tab.find(&s.key, s.hash); {
	case goOn && other != nil && !other.inflight && other.st.phase == phaseAbsent && other.st.stored+other.st.sent == 0:
		other.name = e.Name
		other.st.adopt(f, now, &b.policy)
		b.count.Transitions["adopted"]++
		b.settle(other, now)
		return
	case goOn && other == nil && b.tab.aged.Len() < b.opts.MaxSeries:
		s.st.adopt(f, now, &b.policy)
		b.tab.byKey[s.hash] = s
		b.count.Transitions["adopted"]++
		r.kept(now, b.opts.Heartbeat)
	case f.state == stateOngoing:
		s.st = state{phase: phaseStored, end: evicted, count: f.count, stored: f.count, begun: f.begun, last: f.last, loose: true, version: f.version}
		b.count.Transitions["abandoned"]++
	default:
		return
	}
	b.tab.count(s, 1)
	b.settle(s, now)
}

// ownAnnotations returns the caller's annotations of a stored event.
func ownAnnotations(e *eventsv1.Event) map[string]string {
	out, _ := cleanAnnotations(e.Annotations)
	return out
}

// keyOf is the key of a stored event.
func keyOf(e *eventsv1.Event, r *roster) seriesKey {
	ref := func(o *corev1.ObjectReference) refKey {
		group, version := splitVersion(o.APIVersion)
		return refKey{o.Kind, group, version, o.Namespace, o.Name, string(o.UID), o.FieldPath}
	}
	key := seriesKey{source: r.index, eventType: e.Type, reason: e.Reason, action: e.Action, regarding: ref(&e.Regarding)}
	if e.Related != nil {
		key.related = ref(e.Related)
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
	_, _ = w.Write([]byte(strings.Join(names, "\n"))) // a buffer takes everything
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// unpackRoster returns the well-formed names, nil for input not made by packRoster.
func unpackRoster(packed string) (names []string) {
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
