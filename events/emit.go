// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// emission is one call of a recorder.
type emission struct {
	regarding, related        runtime.Object
	annotations               map[string]string
	eventType, reason, action string
	note                      string
	args                      []any
	literal                   bool // the note is not a format

	key                              seriesKey
	regardingVersion, relatedVersion string
}

// emit counts an occurrence of a series that is known without formatting or allocating anything,
// and begins a new series otherwise.
func (c *core) emit(logger klog.Logger, e *emission) {
	b := c.b
	now := time.Now()
	err := c.identify(e)
	if err == nil && c.from.byNote { // the note is part of the identity
		if !e.literal {
			e.note, e.literal = fmt.Sprintf(e.note, e.args...), true
		}
		e.note = cut(e.note, maxNote)
		e.key.note = cmp.Or(e.note, emptyNote)
	}
	if err != nil {
		b.mu.Lock()
		b.count.Emitted++
		b.count.drop(DropInvalid, 1)
		b.mu.Unlock()
		logger.Error(err, "Event not recorded", "eventType", e.eventType, "reason", e.reason, "action", e.action)
		return
	}
	var built *eventsv1.Event
	if b.watching.Load() > 0 {
		built = c.build(e, now)
	}
	b.mu.Lock()
	b.count.Emitted++
	wake, more := b.take(e, built, now)
	if more { // formatting runs code of the caller: not under our lock
		b.mu.Unlock()
		built = c.build(e, now)
		b.mu.Lock()
		wake, _ = b.take(e, built, now)
	}
	if built != nil && len(b.watchers) > 0 {
		b.distribute(built, e, now)
	}
	b.mu.Unlock()
	if wake {
		b.signal()
	}
}

// identify fills in the key.
func (c *core) identify(e *emission) error {
	if !validType(e.eventType) {
		return fmt.Errorf("events: the type is %q: it must be Normal or Warning", e.eventType)
	}
	var err error
	if e.regardingVersion, err = c.kinds.refer(e.regarding, &e.key.regarding); err != nil {
		return fmt.Errorf("events: no reference to what the event is about: %w", err)
	}
	k := &e.key
	k.source, k.eventType = c.source, e.eventType
	if e.related != nil {
		if e.relatedVersion, err = c.kinds.refer(e.related, &k.related); err != nil {
			k.related = refKey{} // as if there were none
		}
	}
	if c.b.opts.PreferNamespaced && k.regarding.namespace == "" && k.related.namespace != "" {
		k.regarding, k.related = k.related, k.regarding
		e.regardingVersion, e.relatedVersion = e.relatedVersion, e.regardingVersion
	}
	k.reason = word(e.reason, "")
	k.action = word(e.action, k.reason)
	return nil
}

// build makes the template of a series. It runs without the lock.
func (c *core) build(e *emission, now time.Time) *eventsv1.Event {
	note := e.note
	if !e.literal {
		note = fmt.Sprintf(note, e.args...)
	}
	key := e.key.clone()
	e.key = key
	annotations, left := cleanAnnotations(e.annotations)
	if left > 0 {
		c.b.mu.Lock()
		c.b.count.AnnotationsDropped += int64(left)
		c.b.mu.Unlock()
	}
	ev := &eventsv1.Event{
		ReportingController: c.from.controller,
		ReportingInstance:   c.from.instance,
		Action:              cut(key.action, maxWord),
		Reason:              cut(key.reason, maxWord),
		Regarding:           key.regarding.reference(e.regardingVersion),
		Note:                strings.Clone(cut(note, maxNote)),
		Type:                key.eventType,
	}
	ev.Annotations = annotations
	ev.Namespace = ev.Regarding.Namespace
	if ev.Namespace == "" {
		ev.Namespace = c.b.opts.ClusterNamespace
	}
	if key.related != (refKey{}) {
		related := key.related.reference(e.relatedVersion)
		ev.Related = &related
	}
	return ev
}

// take books one occurrence. It reports whether a writer has something new to do, and whether it
// needs the built event first. The lock is held.
func (b *Broadcaster) take(e *emission, built *eventsv1.Event, now time.Time) (wake, more bool) {
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
	pair := e.key.pair()
	switch {
	case b.tab.pending >= b.opts.MaxQueue || b.tab.all-b.tab.pending >= 2*b.opts.MaxSeries:
		b.count.drop(DropQueueFull, 1)
		return false, false
	case b.opts.MaxPerObject > 0 && prev == nil && b.tab.pairs[pair] >= b.opts.MaxPerObject:
		b.count.drop(DropObjectCap, 1)
		return false, false
	case built == nil:
		return false, true
	case !b.limit.allow(bucketKey{pair, e.key.reason}, now):
		b.count.drop(DropRateLimited, 1)
		return false, false
	}
	b.count.Unsent++
	id := e.key.id(b.rosters[e.key.source].src)
	if strings.HasPrefix(e.key.note, combinedMark) {
		combined := *built
		combined.Note = cut(combinedNote+built.Note, maxNote)
		built = &combined
	}
	b.open(prev, &series{key: e.key, object: pair.regarding, template: built, id: id}, now)
	return true, false
}

// current is the series of an event, nil for none. Where notes count, and there are too many of
// them already, the event is counted with others.
func (b *Broadcaster) current(e *emission) *series {
	s := b.tab.byKey[e.key]
	if s != nil || e.key.note == "" || strings.HasPrefix(e.key.note, combinedMark) {
		return s
	}
	if b.tab.notes[e.key.notes()] < b.opts.MaxNotes {
		return nil
	}
	e.key.note = combinedKey(e.note)
	if s = b.tab.byKey[e.key]; s == nil && b.tab.notes[e.key.notes()] >= b.opts.MaxNotes {
		e.key.note = combinedMark
		s = b.tab.byKey[e.key]
	}
	return s
}

// occurred counts one more occurrence of a series; false if it belongs to another one.
func (b *Broadcaster) occurred(s *series, now time.Time) (taken, wake bool) {
	reopen, lost, owes := s.st.occur(now, &b.policy)
	switch {
	case reopen:
		return false, false
	case lost:
		b.count.drop(DropRejected, 1)
		return true, false
	}
	b.count.Unsent++
	if s.st.phase != settling {
		b.tab.touch(s)
	}
	if owes {
		wake = b.tab.enqueue(s, false)
	}
	return true, wake
}

// open puts a new series into the table, behind the previous one of its key if there is one.
func (b *Broadcaster) open(prev, s *series, now time.Time) {
	s.st = begin(now)
	if prev != nil {
		b.step(prev, input{kind: inTick, now: now})
		b.tab.retire(prev)
	}
	if v, ok := b.tab.dormant.Get(s.id); ok && prev == nil {
		b.tab.dormant.Remove(s.id)
		if d := v.(dormant); now.Sub(d.st.last) < b.policy.threshold {
			s.st, s.name = revive(d.st, now), d.name
		}
	}
	if s.name == "" {
		s.name = eventName(s.template.Regarding.Name, s.id, b.birth(now))
	}
	b.tab.add(s)
	b.apply(s, effects{owes: s.st.phase != ongoing, wake: s.st.deadline(&b.policy)})
	b.evict(now)
}
