// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// AnnotatedEventRecorder is client-go's interface of the same name, new in v0.37.
type AnnotatedEventRecorder interface {
	AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any)
}

var (
	_ clientevents.EventRecorderLogger = (*Recorder)(nil)
	_ AnnotatedEventRecorder           = (*Recorder)(nil)
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
	e := emission{regarding: regarding, related: related, eventType: eventtype, reason: reason, action: action, note: note, args: args}
	r.emit(r.logger, &e)
}

// AnnotatedEventf is Eventf with annotations for the object. Like the note, the annotations of the
// first event of a series are stored. The map is copied. At most 8 KiB are kept, with keys valid
// for the server.
func (r *Recorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any) {
	e := emission{regarding: regarding, related: related, annotations: annotations, eventType: eventtype, reason: reason, action: action, note: note, args: args}
	r.emit(r.logger, &e)
}

// WithLogger returns a recorder with the given logger for rejected events.
func (r *Recorder) WithLogger(logger klog.Logger) clientevents.EventRecorderLogger {
	return &Recorder{core: r.core, logger: logger}
}

// LegacyRecorder is a [Recorder] with the interface of client-go's tools/record. Its callers use a
// reason for different things (a kubelet's Failed, Unhealthy, FailedMount), so events with
// different messages are different series, up to Options.MaxNotes. Beyond MaxNotes, events are
// counted together if their messages begin alike.
type LegacyRecorder struct {
	*core
	logger klog.Logger
}

// Event emits an event with an unformatted message.
func (r *LegacyRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	e := emission{regarding: object, eventType: eventtype, reason: reason, note: message, literal: true}
	r.emit(r.logger, &e)
}

// Eventf emits an event with a formatted message.
func (r *LegacyRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	e := emission{regarding: object, eventType: eventtype, reason: reason, note: messageFmt, args: args}
	r.emit(r.logger, &e)
}

// AnnotatedEventf is Eventf with annotations; see [Recorder.AnnotatedEventf].
func (r *LegacyRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	e := emission{regarding: object, annotations: annotations, eventType: eventtype, reason: reason, note: messageFmt, args: args}
	r.emit(r.logger, &e)
}

// WithLogger returns a recorder with the given logger for rejected events.
func (r *LegacyRecorder) WithLogger(logger klog.Logger) record.EventRecorderLogger {
	return &LegacyRecorder{core: r.core, logger: logger}
}

// emission is a call of a recorder.
type emission struct {
	regarding, related        runtime.Object
	annotations               map[string]string
	eventType, reason, action string
	note                      string
	args                      []any
	literal                   bool // the note is not a format

	key                              seriesKey
	hash                             uint64 // of the key
	regardingVersion, relatedVersion string
}

// emit counts an occurrence of a known series without formatting or allocating anything, and begins
// a new series otherwise.
func (c *core) emit(logger klog.Logger, e *emission) {
	b := c.b
	now := time.Now()
	if err := c.identify(e); err != nil {
		b.mu.Lock()
		b.count.Emitted++
		b.count.drop(DropInvalid, 1)
		b.mu.Unlock()
		logger.Error(err, "Event not recorded", "eventType", e.eventType, "reason", e.reason, "action", e.action)
		return
	}
	var built *series
	if b.watching.Load() > 0 {
		built = c.build(e)
	}
	b.mu.Lock()
	b.count.Emitted++
	wake, more := b.take(e, built, now)
	if more { // formatting runs code of the caller: not under our lock
		b.mu.Unlock()
		built = c.build(e)
		b.mu.Lock()
		wake, _ = b.take(e, built, now)
	}
	if built != nil && len(b.watchers) > 0 {
		b.distribute(c.from, built, now)
	}
	b.mu.Unlock()
	if wake {
		b.signal()
	}
}

// identify fills in the key.
func (c *core) identify(e *emission) error {
	if c.bad != nil {
		return c.bad
	}
	if e.eventType != corev1.EventTypeNormal && e.eventType != corev1.EventTypeWarning {
		return fmt.Errorf("events: the type is %q: it must be Normal or Warning", e.eventType)
	}
	var err error
	k := &e.key
	if e.regardingVersion, err = c.kinds.refer(e.regarding, &k.regarding); err != nil {
		return fmt.Errorf("events: no reference to what the event is about: %w", err)
	}
	if e.related != nil {
		if e.relatedVersion, err = c.kinds.refer(e.related, &k.related); err != nil {
			k.related = refKey{} // as if there were none
		}
	}
	k.source, k.eventType = c.source, e.eventType
	k.reason = word(e.reason, "")
	k.action = word(e.action, k.reason)
	if c.from.byNote { // the note is part of the identity
		if !e.literal {
			e.note, e.literal = fmt.Sprintf(e.note, e.args...), true
		}
		e.note = cut(e.note, maxNote)
		k.note = cmp.Or(e.note, emptyNote)
	}
	e.hash = k.hash()
	return nil
}

// build makes a series of an emission, without a name and state. build runs without the lock.
func (c *core) build(e *emission) *series {
	note := e.note
	if !e.literal {
		note = fmt.Sprintf(note, e.args...)
	}
	annotations, left := cleanAnnotations(e.annotations)
	if left > 0 {
		c.b.mu.Lock()
		c.b.count.AnnotationsDropped += int64(left)
		c.b.mu.Unlock()
	}
	s := &series{content: content{
		namespace: cmp.Or(cut(e.key.regarding.namespace, maxRefField), c.b.opts.ClusterNamespace), annotations: annotations,
		note: cut(note, maxNote), regardingVersion: e.regardingVersion, relatedVersion: e.relatedVersion,
	}}
	s.identify(e.key, c.from)
	return s
}

// take books an occurrence. wake reports whether a writer has something new to do, more whether
// take needs the built series first. The lock is held.
func (b *Broadcaster) take(e *emission, built *series, now time.Time) (wake, more bool) {
	switch {
	case b.stopped:
		b.count.drop(DropShutdown, 1)
		return false, false
	case b.opts.Sink == nil:
		b.count.drop(DropNoSink, 1)
		return false, false
	}
	prev := b.current(e)
	if prev != nil {
		if taken, wake := b.occurred(prev, now); taken {
			return wake, false
		}
	}
	switch {
	case b.tab.pending >= b.opts.MaxQueue:
		b.count.drop(DropQueueFull, 1)
	case b.tab.all-b.tab.pending >= 2*b.opts.MaxSeries: // as many are on their way out
		b.count.drop(DropTableFull, 1)
	case built == nil:
		return false, true
	case b.opts.MaxPerObject > 0 && prev == nil && b.tab.pairs[built.pair] >= b.opts.MaxPerObject:
		b.count.drop(DropObjectCap, 1)
	case !b.tab.known(built) && !b.limit.allow(maphash.Comparable(seed, bucketKey{built.pair, e.key.reason}), now):
		b.count.drop(DropRateLimited, 1)
	default:
		b.count.Unsent++
		if prev != nil {
			b.retire(prev, now)
		}
		if strings.HasPrefix(e.key.note, combinedMark) {
			s := *built
			built = &s
			built.identify(e.key, b.rosters[e.key.source].src)
			built.content.note = cut(combinedNote+e.note, maxNote)
		}
		b.open(built, now)
		return true, false
	}
	return false, false
}

// bucketKey identifies a token bucket for new series: a pair of objects and a reason.
type bucketKey struct {
	pair   uint64
	reason string
}

// current is the series of an event, nil for none. Where notes count, and there are too many of
// them already, the event is counted with others.
func (b *Broadcaster) current(e *emission) *series {
	s := b.tab.find(&e.key, e.hash)
	if s != nil || e.key.note == "" {
		return s
	}
	for _, combined := range []func(note string) string{combinedKey, anyNote} {
		if s == nil && b.tab.notes[e.key.notes()] >= b.opts.MaxNotes {
			e.key.note = combined(e.note)
			e.hash = e.key.hash()
			s = b.tab.find(&e.key, e.hash)
		}
	}
	return s
}

// occurred counts an occurrence of a series; false if the occurrence belongs to another series.
func (b *Broadcaster) occurred(s *series, now time.Time) (taken, wake bool) {
	before := now.Sub(s.st.last)
	switch {
	case s.st.phase == phaseResting && !s.st.silent(now, &b.policy):
		b.count.drop(DropRejected, 1)
		return true, false
	case !s.st.occur(now, &b.policy):
		return false, false
	}
	b.count.Unsent++
	if s.age != nil || s.st.phase == phaseStored {
		b.tab.touch(s)
	}
	// Slow loops are written as often as by client-go's recorder.
	if before >= slowLoop && now.Before(s.st.due) && b.limit.has(maphash.Comparable(seed, s.key.regarding.object()), now) {
		s.st.due = now
	}
	return true, s.st.owes(now) && b.tab.enqueue(s)
}

// open puts a new series into the table. An evicted series is continued.
func (b *Broadcaster) open(s *series, now time.Time) {
	s.st, s.name = begin(now), b.newName(s, now)
	if g, ok := b.tab.gone[s.id]; ok {
		if delete(b.tab.gone, s.id); now.Sub(g.last) < b.policy.threshold {
			s.st, s.name = revived(&g, now), g.name
		}
	}
	b.tab.byKey[s.hash] = s
	b.tab.count(s, 1)
	b.settle(s, now)
	b.evict(now)
}

// inherit gives a series without an object the object of an earlier process to read.
func (b *Broadcaster) inherit(s *series) {
	l := b.tab.left[s.id.hint()]
	if l == nil || l.content.namespace != s.content.namespace || s.st.phase != phaseAbsent || s.st.stored+s.st.sent > 0 {
		return
	}
	s.st.phase, s.name = phaseUnread, l.name
	b.tab.dropLeft(l)
}

// newName returns a name for the object of a series.
func (b *Broadcaster) newName(s *series, now time.Time) string {
	return eventName(cut(s.key.regarding.name, maxRefField), &s.id, b.birth(now))
}
