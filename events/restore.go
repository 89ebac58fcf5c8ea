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
type roster struct {
	index    uint32 // of the source
	src      source
	off      bool      // there is none
	read     bool      // the names left by an earlier process are known, or never will be
	attempts int       // failures of the first read
	busy     bool      // a call is under way
	exists   bool      // the roster is stored
	version  string    // of the last write by this process
	next     time.Time // of the next call, zero for none
	rest     time.Time // no call before
	shared   uint32    // how often another process's write was found
	last     []*series // at the shutdown: the active series
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

// changed records a new active series.
func (r *roster) changed(now time.Time) { r.want(now.Add(rosterSoon)) }

// kept records an active series named by the stored roster: the roster must not expire.
func (r *roster) kept(now time.Time, heartbeat time.Duration) { r.want(now.Add(heartbeat * 9 / 10)) }

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
		at := r.next.Sub(now)
		switch {
		case r.busy && first:
			return job{}, 0
		case r.busy || r.off || j.roster != nil:
			continue
		case first:
			at = 0
		case r.next.IsZero(), b.stopped && !r.read:
			continue
		case b.stopped: // once, when every name is final
			if b.draining == nil || len(r.last) == 0 || b.inflight > 0 || b.owed() > 0 {
				continue
			}
			at = 0
		}
		if wait = min(wait, at); at <= 0 {
			j.roster, r.busy = r, true
		}
	}
	return j, wait
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
		r.next, r.rest = time.Time{}, time.Now().Add(rosterEvery)
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
	if v.verdict == verdictRefused && v.reason == string(metav1.StatusReasonForbidden) && now.Before(b.doubt) {
		v.verdict = verdictTrouble
	}
	reading := !r.read
	switch v.verdict {
	case verdictTrouble, verdictFault, verdictStopped:
		r.next, r.rest = now, now
		if v.reason != "Unreachable" && v.verdict != verdictStopped { // else nothing gets through
			r.attempts++
			r.rest = now.Add(rosterEvery)
			r.next = r.rest
		}
		switch {
		case r.attempts <= restoreTries:
			b.failed(ctx, nil, scope{}, v, err, now)
		case b.stopped:
			r.next = time.Time{}
		case reading && r.attempts >= maxFaults:
			r.read = true
		}
		return
	}
	r.attempts = 0
	b.openGate(ctx)
	switch {
	case reading:
		r.read, r.exists, r.next = true, err == nil, time.Time{}
		if len(b.goingOn(r)) > 0 { // begun after so many failures
			r.changed(now)
		}
		for _, name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			b.tab.addLeft(r.index, namespace, name)
			r.kept(now, b.opts.Heartbeat)
		}
	case err != nil:
		r.exists, r.version, r.rest = false, "", now.Add(rosterEvery)
		if v.verdict != verdictConflict { // another process's roster, otherwise
			r.rest = now.Add(b.opts.Heartbeat)
			klog.FromContext(ctx).Info("Event series will not be continued after a restart: their roster cannot be stored", "err", err)
		}
		if !b.stopped {
			r.want(now)
		}
	default:
		r.exists = true
		if stored != nil {
			r.version = stored.ResourceVersion
		}
		if len(names) > 0 && !b.stopped {
			r.kept(now, b.opts.Heartbeat)
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
		if l.key.source == r.index {
			add(l.content.namespace, l.name)
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

// rebuild takes a stored event into the table. If its series was abandoned in the middle, a final
// write records the end. The lock is held.
func (b *Broadcaster) rebuild(e *eventsv1.Event, r *roster, now time.Time) {
	f := look(e)
	goOn, _ := b.policy.continues(f, now)
	annotations, _ := cleanAnnotations(e.Annotations)
	s := &series{name: e.Name, seen: r.shared, content: content{
		namespace: e.Namespace, note: e.Note, annotations: annotations, regardingVersion: e.Regarding.ResourceVersion,
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
