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
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
)

const (
	maxPages    = 40               // of a list: enough for what a table can hold
	rosterEvery = 10 * time.Second // the least time between two writes of a roster
	maxRoster   = 128 << 10        // bytes of a roster before it is packed, and of what one is unpacked to
)

// roster is how one source finds the series of its earlier processes: by a list, where the role
// allows one; else by one Event with a name that is always the same, which holds the names of the
// series that go on, and by reading these with empty patches. A node may do that, while it may
// neither list nor get events. Guarded by the broadcaster's lock; the writer that set busy owns
// reads.
type roster struct {
	index    uint32 // of the source
	src      source
	restored bool      // what an earlier process left is known
	listing  bool      // by a list
	read     bool      // the roster itself has been read; reads is left
	reads    []string  // namespace/name of stored series still to be read
	busy     bool      // a call is under way
	exists   bool      // the roster is stored
	refused  bool      // the role does not allow to write it
	due      bool      // the series that go on have changed since the last write
	next     time.Time // not before that
	refresh  time.Time // when it is written again, so that it does not expire; zero for never
	attempts int       // failures in a row that may be the fault of what was read
	last     []*series // at the shutdown: what goes on
}

// changed notes that a series has begun to go on.
func (r *roster) changed(now time.Time) {
	if !r.due && r.next.Before(now) {
		r.next = now
	}
	r.due = true
}

// kept notes that a series goes on which the stored roster names already: it must not expire, and
// need not be written.
func (b *Broadcaster) kept(r *roster, now time.Time) {
	if r.refresh.IsZero() {
		r.refresh = now.Add(b.opts.Heartbeat * 9 / 10)
	}
}

func (r *roster) name() string {
	id := (&seriesKey{}).id(r.src)
	suffix := ".roster-" + hex.EncodeToString(id[:8])
	_, base, _ := strings.Cut(r.src.controller, "/")
	return subdomain(cmp.Or(base, r.src.controller), validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// nextRoster is a roster that has a call to make. If none has, it says when one will, or 0 if
// nothing may be sent before the answer that one waits for. The lock is held.
func (b *Broadcaster) nextRoster(now time.Time) (*roster, time.Duration) {
	wait := forever
	for _, r := range b.rosters {
		switch {
		case !r.restored && r.busy:
			return nil, 0
		case !r.restored:
			return r, 0
		case r.busy || r.listing || r.refused || b.stopped || !r.due && r.refresh.IsZero():
		case r.due && !r.next.After(now), !r.due && !r.refresh.After(now):
			return r, 0
		case r.due:
			wait = min(wait, r.next.Sub(now))
		default:
			wait = min(wait, r.refresh.Sub(now))
		}
	}
	return nil, wait
}

// performRoster makes the next call of a roster and books the answer.
func (b *Broadcaster) performRoster(ctx, call context.Context, r *roster) {
	b.mu.Lock()
	var step func() (func(), error) // the call, and what follows from it under the lock
	switch {
	case r.restored:
		goingOn := r.last
		if !b.stopped {
			goingOn = b.goingOn(r)
		}
		step = b.writeRoster(call, r, rosterOf(goingOn))
	case r.listing:
		step = b.listSeries(call, r)
	case !r.read:
		step = b.readRoster(call, r)
	default:
		step = b.readSeries(call, r)
	}
	b.mu.Unlock()
	then, err := step()
	now := time.Now()
	v := judge(ctx, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned {
		return
	}
	b.inflight--
	r.busy = false
	switch v = b.doubted(v, now); v.verdict {
	case verdictTrouble, verdictFault, verdictConflict, verdictStopped:
		if v.verdict != verdictStopped {
			b.failed(ctx, v, err, now)
		}
		r.due = r.restored
		if v.verdict == verdictFault && !r.restored {
			b.unreadable(r)
		}
		return
	}
	r.attempts = 0
	b.openGate(ctx)
	if then != nil {
		then()
	}
	b.evict(now)
	b.signal()
}

// unreadable books that a read failed, perhaps through the fault of what is read: the others come
// first, and what fails again and again is given up.
func (b *Broadcaster) unreadable(r *roster) {
	r.attempts++
	switch {
	case r.attempts >= maxFaults && len(r.reads) <= 1:
		r.reads, r.restored = nil, true
	case r.attempts%ownFaults == 0 && len(r.reads) > 1:
		r.reads = append(r.reads[1:], r.reads[0])
	}
}

// listSeries finds the series of a source by a list of its controller's events.
func (b *Broadcaster) listSeries(ctx context.Context, r *roster) func() (func(), error) {
	b.count.Calls["list"]++
	return func() (func(), error) {
		var all []eventsv1.Event
		var err error
		token := ""
		for range maxPages {
			var page []eventsv1.Event
			if page, token, err = b.opts.List(ctx, r.src.controller, token); err != nil {
				break
			}
			all = append(all, slices.DeleteFunc(page, func(e eventsv1.Event) bool { return !r.listed(&e) })...)
			if token == "" {
				break
			}
		}
		if err != nil {
			return func() {
				klog.FromContext(ctx).V(2).Info("Event series not listed, looking for the roster", "controller", r.src.controller, "err", err)
				r.listing = false
			}, err
		}
		slices.SortStableFunc(all, func(x, y eventsv1.Event) int { return look(&y).last.Compare(look(&x).last) })
		return func() {
			r.restored = true
			for i := range all {
				b.rebuild(&all[i], r, time.Now())
			}
		}, nil
	}
}

// reports is true of events of the roster's source.
func (r *roster) reports(e *eventsv1.Event) bool {
	return e.ReportingController == r.src.controller && e.ReportingInstance == r.src.instance && e.Annotations[AnnotationRoster] == ""
}

// listed is true of those of a list. One instance may have recorders of either kind, and an object
// must have one owner: those of the older interface have the reason as their action.
func (r *roster) listed(e *eventsv1.Event) bool {
	return r.reports(e) && r.src.byNote == (e.Action == e.Reason)
}

// readRoster reads the names of the series that an earlier process left.
func (b *Broadcaster) readRoster(ctx context.Context, r *roster) func() (func(), error) {
	b.count.Calls["read"]++
	e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: b.opts.ClusterNamespace, Name: r.name()}}
	return func() (func(), error) {
		stored, err := b.opts.Sink.Patch(ctx, e, []byte("{}"))
		return func() {
			r.read, r.exists = true, err == nil
			if err == nil && stored != nil && stored.ReportingInstance == r.src.instance {
				_, packed, _ := strings.Cut(stored.Annotations[AnnotationRoster], " ")
				r.reads = unpackRoster(packed)
			}
			r.restored = len(r.reads) == 0
		}, err
	}
}

// readSeries reads one of them.
func (b *Broadcaster) readSeries(ctx context.Context, r *roster) func() (func(), error) {
	b.count.Calls["read"]++
	namespace, name, _ := strings.Cut(r.reads[0], "/")
	e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return func() (func(), error) {
		stored, err := b.opts.Sink.Patch(ctx, e, []byte("{}"))
		return func() {
			r.reads = r.reads[1:]
			r.restored = len(r.reads) == 0
			if err == nil && stored != nil && r.reports(stored) {
				b.rebuild(stored, r, time.Now())
			}
		}, err
	}
}

// rebuild takes one stored event into the table, or, if its series was abandoned in the middle, has
// that written. The lock is held.
func (b *Broadcaster) rebuild(e *eventsv1.Event, r *roster, now time.Time) {
	key := keyOf(e, r)
	s := b.tab.byKey[key]
	waiting := s != nil && s.st.phase == settling && !s.inflight && !s.st.retried
	if b.tab.aged.Len() >= b.opts.MaxSeries {
		return
	}
	var st state
	if waiting {
		st = s.st
	}
	f := look(e)
	st, continues, abandoned := b.policy.adopt(st, f, now, rand.Float64())
	if continues && s != nil && !waiting { // an older one of the same key: the latest has been taken over already
		continues, abandoned = false, f.state == stateOngoing
	}
	if !continues && !abandoned {
		return
	}
	if continues && waiting {
		s.name, s.st = e.Name, st
		b.count.Transitions["adopted"]++
		b.tab.written(s)
		b.kept(r, now)
		b.apply(s, effects{owes: true, wake: st.deadline(&b.policy)})
		return
	}
	template := e.DeepCopy()
	template.ObjectMeta.Reset()
	template.Namespace, template.Series = e.Namespace, nil
	n := &series{key: key, id: key.id(r.src), object: key.regarding.object(), template: template, name: e.Name, st: st, heapIndex: -1}
	if continues {
		b.count.Transitions["adopted"]++
		b.tab.add(n)
		b.kept(r, now)
		b.apply(n, effects{wake: st.deadline(&b.policy)})
		return
	}
	b.count.Transitions["abandoned"]++
	n.st = state{phase: ongoing, count: f.count, stored: f.count, eventTime: f.eventTime, last: f.last, loose: true}
	b.tab.count(n, 1)
	b.step(n, input{kind: inClose, closing: evicted, now: now})
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

// goingOn is the stored series of a source that a restart would continue, the latest first. The
// lock is held.
func (b *Broadcaster) goingOn(r *roster) (out []*series) {
	for el := b.tab.aged.Back(); el != nil; el = el.Prev() {
		if s := el.Value.(*series); s.key.source == r.index && s.st.closing != finished {
			out = append(out, s)
		}
	}
	return out
}

// rosterOf is the names under which series are stored, as namespace/name: as many as fit.
func rosterOf(all []*series) (names []string) {
	size := 0
	for _, s := range all {
		if s.st.phase == rejected {
			continue
		}
		if size += len(s.template.Namespace) + len(s.name) + 2; size > maxRoster {
			break
		}
		names = append(names, s.template.Namespace+"/"+s.name)
	}
	return names
}

// writeRoster stores the names.
func (b *Broadcaster) writeRoster(ctx context.Context, r *roster, names []string) func() (func(), error) {
	b.count.Calls["roster"]++
	now := time.Now()
	r.due, r.refresh = false, time.Time{}
	r.next = now.Add(rosterEvery)
	// The time makes each write a change: a patch that changes nothing does not prolong the
	// object's life.
	packed := now.UTC().Format(time.RFC3339) + " " + packRoster(names)
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.opts.ClusterNamespace, Name: r.name(), Annotations: map[string]string{AnnotationRoster: packed},
		},
		EventTime: metav1.NewMicroTime(now), Type: corev1.EventTypeNormal, Reason: "EventSeriesKept", Action: "Record",
		ReportingController: r.src.controller, ReportingInstance: r.src.instance,
		Regarding: corev1.ObjectReference{Kind: "EventRecorder", Name: cut(r.src.instance, maxRefField)},
		Note:      fmt.Sprintf("%s notes here which of its event series a restart continues", r.src.controller),
	}
	patch := []byte(`{"metadata":{"annotations":{"` + AnnotationRoster + `":` + strconv.Quote(packed) + `}}}`)
	exists := r.exists
	return func() (func(), error) {
		// The patch first if the object was there when it was last seen, the create first if not:
		// one call nearly always.
		var err error
		for try, create := 0, !exists; try < 2; try, create = try+1, !create {
			if create {
				_, err = b.opts.Sink.Create(ctx, e)
			} else {
				_, err = b.opts.Sink.Patch(ctx, e, patch)
			}
			if v := judge(ctx, err).verdict; v != verdictMissing && v != verdictExists {
				break
			}
		}
		return func() {
			r.exists = err == nil
			if len(names) > 0 {
				r.refresh = now.Add(b.opts.Heartbeat * 9 / 10)
			}
			if r.refused = err != nil; r.refused {
				klog.FromContext(ctx).Info("Event series will not be continued after a restart: their roster cannot be stored", "err", err)
			}
		}, err
	}
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

// unpackRoster returns nil for what packRoster did not make.
func unpackRoster(packed string) (names []string) {
	data, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxRoster))
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
