// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

var (
	_ clientevents.EventRecorderLogger = (*Recorder)(nil)
	_ record.EventRecorderLogger       = (*LegacyRecorder)(nil)
)

// core is the shared part of a source's recorders.
type core struct {
	b      *Broadcaster
	kinds  *kinds
	source uint32 // index of from
	from   source
	bad    error // why nothing can be recorded
}

// Recorder emits events.k8s.io/v1 Events. Its methods never block, start no goroutine, and keep
// strings of their arguments only. They are safe for concurrent use.
type Recorder struct {
	*core
	logger klog.Logger
}

// Eventf emits an event about regarding, any API object or an ObjectReference; related may be nil.
// Events different in the note only are the same series. Only the first note is formatted and
// stored, cut to 1024 bytes.
func (r *Recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	r.AnnotatedEventf(regarding, related, nil, eventtype, reason, action, note, args...)
}

// AnnotatedEventf is Eventf with annotations for the object. Like the note, the annotations of the
// first event of a series are stored. The map is copied. At most 8 KiB are kept, with keys valid
// for the server.
func (r *Recorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any) {
	e := emission{regarding: regarding, related: related, eventType: eventtype, reason: reason, action: action, args: args}
	e.annotations, e.note = annotations, note
	r.emit(r.logger, &e)
}

// WithLogger returns a recorder with the given logger for rejected events.
func (r *Recorder) WithLogger(logger klog.Logger) clientevents.EventRecorderLogger {
	return &Recorder{core: r.core, logger: logger}
}

// LegacyRecorder is a [Recorder] with the interface of client-go's tools/record. Its callers use a
// reason for different things (a kubelet's Failed, Unhealthy, FailedMount), so events with
// different messages are different series, ten at a time under one reason and object. Beyond ten,
// events are counted together if their messages begin alike.
type LegacyRecorder struct {
	*core
	logger klog.Logger
}

// Event emits an event with an unformatted message.
func (r *LegacyRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	e := emission{regarding: object, eventType: eventtype, reason: reason, literal: true}
	e.note = message
	r.emit(r.logger, &e)
}

// Eventf emits an event with a formatted message.
func (r *LegacyRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.AnnotatedEventf(object, nil, eventtype, reason, messageFmt, args...)
}

// AnnotatedEventf is Eventf with annotations; see [Recorder.AnnotatedEventf].
func (r *LegacyRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	e := emission{regarding: object, eventType: eventtype, reason: reason, args: args}
	e.annotations, e.note = annotations, messageFmt
	r.emit(r.logger, &e)
}

// WithLogger returns a recorder with the given logger for rejected events.
func (r *LegacyRecorder) WithLogger(logger klog.Logger) record.EventRecorderLogger {
	return &LegacyRecorder{core: r.core, logger: logger}
}

type emission struct {
	regarding, related        runtime.Object
	eventType, reason, action string
	content
	args    []any
	literal bool // the note is not a format

	key  seriesKey
	hash uint64 // of the key
}

// emit counts an occurrence of a known series without formatting or allocating anything, and begins
// a new series otherwise.
func (c *core) emit(logger klog.Logger, e *emission) {
	b, now := c.b, time.Now()
	if err := c.identify(e); err != nil {
		b.mu.Lock()
		b.count.Emitted++
		b.count.drop(DropInvalid, 1)
		b.mu.Unlock()
		logger.Error(err, "Event not recorded", "eventType", e.eventType, "reason", e.reason, "action", e.action)
		return
	}
	b.mu.Lock()
	b.count.Emitted++
	if len(b.watchers) > 0 || !b.take(e, nil, now) {
		b.mu.Unlock() // formatting runs code of the caller: not under the lock
		built, left := c.build(e)
		b.mu.Lock()
		b.count.AnnotationsDropped += left
		b.take(e, built, now)
		b.distribute(c.from, built, now)
	}
	b.mu.Unlock()
}

// take books an occurrence. It returns false if it needs the built series. The lock is held.
func (b *Broadcaster) take(e *emission, built *series, now time.Time) bool {
	switch {
	case b.stopped:
		b.count.drop(DropShutdown, 1)
		return true
	case b.opts.Sink == nil:
		b.count.drop(DropNoSink, 1)
		return true
	}
	taken := b.occur(e, now)
	if !taken && built != nil {
		b.begin(e, built, now)
	}
	return taken || built != nil
}

func (c *core) identify(e *emission) (err error) {
	if c.bad != nil {
		return c.bad
	}
	if e.eventType != corev1.EventTypeNormal && e.eventType != corev1.EventTypeWarning {
		return fmt.Errorf("events: the type is %q: it must be Normal or Warning", e.eventType)
	}
	k := &e.key
	if e.regardingVersion, err = c.kinds.refer(e.regarding, &k.regarding); err != nil {
		return fmt.Errorf("events: no reference to what the event is about: %w", err)
	}
	if e.related != nil {
		if e.relatedVersion, err = c.kinds.refer(e.related, &k.related); err != nil {
			k.related = corev1.ObjectReference{} // as if there were none
		}
	}
	k.source, k.eventType = c.source, e.eventType
	k.reason = cut(cmp.Or(e.reason, "Unknown"), maxWord)
	k.action = cut(cmp.Or(e.action, k.reason), maxWord)
	if c.from.byNote { // the note is part of the identity
		e.format()
		k.note = cmp.Or(e.note, emptyNote)
	}
	e.hash = hash(*k)
	return nil
}

// format makes the note literal, and fit for the server.
func (e *emission) format() {
	if !e.literal {
		e.note, e.literal = fmt.Sprintf(e.note, e.args...), true
	}
	e.note = cut(e.note, maxNote)
}

// build makes a series of an emission, without a name and state, and returns the number of
// annotations left out. build runs without the lock.
func (c *core) build(e *emission) (s *series, left int64) {
	e.format()
	e.annotations, left = cleanAnnotations(e.annotations)
	e.namespace = cmp.Or(e.key.regarding.Namespace, c.b.opts.ClusterNamespace)
	return newSeries(e.key, c.from, e.content), left
}

// occur counts an occurrence of a series in the table. It returns false if the occurrence begins a
// series.
func (b *Broadcaster) occur(e *emission, now time.Time) bool {
	s := b.current(e)
	if s == nil {
		return false
	}
	pause := now.Sub(s.st.last)
	switch {
	case s.st.phase == phaseResting && !s.st.silent(now, &b.opts):
		b.count.drop(DropRejected, 1)
		return true
	case !s.st.occur(now, &b.opts):
		return false
	}
	b.count.Unsent++
	if s.age != nil || s.st.phase == phaseStored {
		b.tab.touch(s)
	}
	// Slow loops are written as often as by client-go's recorder.
	if pause >= slowLoop && now.Before(s.st.due) && b.limit.has(hash(s.object()), now) {
		s.st.due = now
	}
	b.enqueue(s, now)
	return true
}

// current is the series of an event, nil for none. Where notes count, and there are too many of
// them already, the event is counted with others.
func (b *Broadcaster) current(e *emission) *series {
	s := b.tab.find(&e.key, e.hash)
	if s != nil || e.key.note == "" {
		return s
	}
	for _, combined := range []func(note string) string{combinedKey, anyNote} {
		if s != nil || b.tab.counts[e.key.notes()] < maxNotes {
			break
		}
		e.key.note = combined(e.note)
		e.hash = hash(e.key)
		s = b.tab.find(&e.key, e.hash)
	}
	return s
}

// begin puts a new series into the table, or drops the event by a limit. An evicted series is
// continued. The lock is held.
func (b *Broadcaster) begin(e *emission, built *series, now time.Time) {
	s := built
	if strings.HasPrefix(e.key.note, combinedMark) {
		s = newSeries(e.key, b.rosters[e.key.source].src, built.content)
		s.content.note = cut(combinedNote+e.note, maxNote)
	}
	prev := b.tab.byKey[s.hash] // its time is over, or its key has the same hash by chance
	g, revived := b.tab.gone[s.id]
	r := b.rosters[s.key.source]
	switch {
	case b.tab.all-b.tab.known >= b.opts.MaxQueue:
		b.count.drop(DropQueueFull, 1)
		return
	case b.tab.known >= 2*b.opts.MaxSeries: // as many are on their way out
		b.count.drop(DropTableFull, 1)
		return
	case b.opts.MaxPerObject > 0 && prev == nil && b.tab.counts[s.pair] >= b.opts.MaxPerObject:
		b.count.drop(DropObjectCap, 1)
		return
	case !revived && r.left[s.id.hint()] == "" && !b.limit.allow(hash(bucketKey{s.pair, s.key.reason}), now):
		b.count.drop(DropRateLimited, 1)
		return
	}
	b.count.Unsent++
	if prev != nil {
		if prev.st.tick(now, &b.opts); prev.st.end == going {
			prev.st.end = evicted
		}
		b.tab.retire(prev)
		b.settle(prev, now)
	}
	s.st, s.name = begin(now), b.newName(s, now)
	if delete(b.tab.gone, s.id); revived && now.Sub(g.st.last) < b.opts.FinishAfter {
		s.st, s.name = g.st.revived(now), g.name
	} else {
		r.claim(s)
	}
	b.tab.add(s)
	b.settle(s, now)
	b.evict(now)
}

// bucketKey identifies a token bucket for new series: a pair of objects and a reason.
type bucketKey struct {
	pair   uint64
	reason string
}

// newName returns a name for the object of a series. The time in a name is later than all earlier
// ones, even if the clock is set back or two events share a clock reading. The lock is held.
func (b *Broadcaster) newName(s *series, now time.Time) string {
	if now.UnixNano() <= b.birth.UnixNano() {
		now = b.birth.Add(1)
	}
	b.birth = now
	return eventName(s.key.regarding.Name, &s.id, now)
}

// cleanAnnotations copies the annotations valid for the server and returns the number of the
// others. Keys with this package's prefix are not the caller's.
func cleanAnnotations(in map[string]string) (out map[string]string, left int64) {
	if len(in) == 0 {
		return nil, 0
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(in)) {
		v := in[k]
		if size+len(k)+len(v) > maxAnnotations || strings.HasPrefix(k, annotationPrefix) || len(validation.IsQualifiedName(strings.ToLower(k))) > 0 {
			left++
			continue
		}
		if out == nil {
			out = make(map[string]string, len(in))
		}
		size += len(k) + len(v)
		out[k] = strings.ToValidUTF8(v, string(utf8.RuneError))
	}
	return out, left
}
