// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"errors"
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

// reporter is the shared part of a source's recorders.
type reporter struct {
	b      *Broadcaster
	kinds  *kinds
	source uint32 // index of from
	from   source
	bad    error // why nothing can be recorded
}

// Recorder emits events.k8s.io/v1 Events. Its methods never block, start no goroutine, and keep
// copies of strings of their arguments only. They are safe for concurrent use.
type Recorder struct {
	*reporter
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
	r.Record(regarding, related, annotations, eventtype, reason, action, note, args...)
}

// Record is [Recorder.AnnotatedEventf], and tells what has become of the event. Taken: an Event
// counts the event, or is to: without it, the event is in Stats().Dropped. Combined: the Event
// counts different actions of the object and reason together, because of [Options.Burst], and has
// the reason for its action. What is taken may still be dropped later: because a queue is full, or
// because the server refuses the Event.
func (r *Recorder) Record(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any) (taken, combined bool) {
	e := emission{
		regarding: regarding,
		related:   related,
		eventType: eventtype,
		reason:    reason,
		action:    action,
		args:      args,
	}
	e.annotations = annotations
	e.note = note
	r.emit(r.logger, &e)
	return e.taken, e.combined
}

// WithLogger returns a recorder with the given logger for rejected events.
func (r *Recorder) WithLogger(logger klog.Logger) clientevents.EventRecorderLogger {
	return &Recorder{reporter: r.reporter, logger: logger}
}

// LegacyRecorder is a [Recorder] with the interface of client-go's tools/record. Its callers use a
// reason for different things (a kubelet's Failed, Unhealthy, FailedMount), so events with
// different messages are different series, ten at a time under one reason and object. Beyond ten,
// events are counted together if their messages begin alike.
type LegacyRecorder struct {
	*reporter
	logger klog.Logger
}

// Event emits an event with an unformatted message.
func (r *LegacyRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	e := emission{
		regarding: object,
		eventType: eventtype,
		reason:    reason,
		literal:   true,
	}
	e.note = message
	r.emit(r.logger, &e)
}

// Eventf emits an event with a formatted message.
func (r *LegacyRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.AnnotatedEventf(object, nil, eventtype, reason, messageFmt, args...)
}

// AnnotatedEventf is Eventf with annotations; see [Recorder.AnnotatedEventf].
func (r *LegacyRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	e := emission{
		regarding: object,
		eventType: eventtype,
		reason:    reason,
		args:      args,
	}
	e.annotations = annotations
	e.note = messageFmt
	r.emit(r.logger, &e)
}

// WithLogger returns a recorder with the given logger for rejected events.
func (r *LegacyRecorder) WithLogger(logger klog.Logger) record.EventRecorderLogger {
	return &LegacyRecorder{reporter: r.reporter, logger: logger}
}

type emission struct {
	regarding, related        runtime.Object
	eventType, reason, action string
	content
	args    []any
	literal bool // the note is not a format

	key  seriesKey
	hash uint64 // of the key

	taken    bool // by a series
	combined bool // the series counts different events together
}

// emit counts an occurrence of a known series without formatting or allocating anything, and begins
// a new series otherwise.
func (c *reporter) emit(logger klog.Logger, e *emission) {
	b := c.b
	now := time.Now()
	if err := c.identify(e); err != nil {
		c.reject(logger, e, err, now)
		return
	}
	b.mu.Lock()
	if len(b.watchers) > 0 || !b.core.take(e, nil, now) {
		b.mu.Unlock() // formatting runs code of the caller: not under the lock
		built, left := c.build(e)
		b.mu.Lock()
		b.core.count.AnnotationsDropped += left
		b.core.take(e, built, now)
		b.core.count.WatchDropped += b.watchers.distribute(c.from, built, now)
	}
	b.mu.Unlock()
}

// rejection is an error about a part of an event, by one of a few words, which cannot be sent.
type rejection struct {
	part string
	error
}

// reject counts an event that cannot be sent, and logs the first one in a while for each part.
func (c *reporter) reject(logger klog.Logger, e *emission, why error, now time.Time) {
	var by rejection
	errors.As(why, &by)
	c.b.mu.Lock()
	c.b.core.count.Emitted++
	c.b.core.count.drop(DropInvalid, 1)
	told := c.b.core.tells("invalid "+by.part, now)
	c.b.mu.Unlock()
	if !told {
		return
	}
	logger.Error(why, "Event not recorded", "eventType", cut(e.eventType, maxWord),
		"reason", cut(e.reason, maxWord), "action", cut(e.action, maxWord), "nextMessageIn", messageEvery)
}

// identify writes the key of an event. Its error is a rejection.
func (c *reporter) identify(e *emission) (err error) {
	if c.bad != nil {
		return rejection{"controller", c.bad}
	}
	if e.eventType != corev1.EventTypeNormal && e.eventType != corev1.EventTypeWarning {
		err = fmt.Errorf("events: the type is %.100q: it must be Normal or Warning", e.eventType)
		return rejection{"type", err}
	}
	k := &e.key
	e.regardingVersion, err = c.kinds.refer(e.regarding, &k.regarding)
	if err != nil {
		return rejection{"reference", fmt.Errorf("events: no reference to what the event is about: %w", err)}
	}
	if e.related != nil {
		e.relatedVersion, err = c.kinds.refer(e.related, &k.related)
		if err != nil {
			k.related = corev1.ObjectReference{} // as if there were none
		}
	}
	k.source = c.source
	k.eventType = e.eventType
	k.reason = cmp.Or(e.reason, "Unknown")
	k.action = cmp.Or(e.action, k.reason)
	if c.from.byNote { // the note is part of the identity
		e.format()
		k.note = cmp.Or(e.note, emptyNote)
	}
	e.hash = hash(*k)
	return nil
}

// format makes the note literal, and fit for the server.
func (e *emission) format() {
	if !e.literal && (len(e.args) > 0 || strings.Contains(e.note, "%")) {
		e.note = fmt.Sprintf(e.note, e.args...)
	}
	e.literal = true
	e.note = cut(e.note, maxNote)
}

// fit makes the identity fit for the server. Those in the table are, so only an event without a
// series there needs it: checks of each event were an eighth of the cost of a hot one.
func (e *emission) fit() {
	k := &e.key
	before := *k
	fitRef(&k.regarding, &e.regardingVersion)
	fitRef(&k.related, &e.relatedVersion)
	k.reason = cut(k.reason, maxWord)
	k.action = cut(k.action, maxWord)
	if *k != before {
		e.hash = hash(*k)
	}
}

// own copies what a series keeps of the caller's strings, into one string: a part of a longer one
// would hold the memory of all of it.
func (e *emission) own() {
	k := &e.key
	r := &k.regarding
	rel := &k.related
	all := [...]*string{
		&k.eventType, &k.reason, &k.action, &e.note, &e.regardingVersion, &e.relatedVersion,
		&r.Kind, &r.APIVersion, &r.Namespace, &r.Name, (*string)(&r.UID), &r.FieldPath,
		&rel.Kind, &rel.APIVersion, &rel.Namespace, &rel.Name, (*string)(&rel.UID), &rel.FieldPath,
	}
	size := 0
	for _, s := range all {
		size += len(*s)
	}
	var b strings.Builder
	b.Grow(size)
	for _, s := range all {
		b.WriteString(*s)
	}
	rest := b.String()
	for _, s := range all {
		n := len(*s)
		*s = rest[:n]
		rest = rest[n:]
	}
	if k.note != "" { // the note is part of the identity
		k.note = cmp.Or(e.note, emptyNote)
	}
}

// build makes a series of an emission, without a name and state, and returns the number of
// annotations left out. build runs without the lock.
func (c *reporter) build(e *emission) (s *series, left int64) {
	e.fit()
	e.format()
	e.own()
	e.annotations, left = cleanAnnotations(e.annotations)
	e.namespace = cmp.Or(e.key.regarding.Namespace, c.b.opts.ClusterNamespace)
	return newSeries(&e.key, e.hash, c.from, &e.content), left
}

// cleanAnnotations copies the annotations valid for the server and returns the number of the
// others. Keys with this package's prefix are not the caller's.
func cleanAnnotations(in map[string]string) (out map[string]string, left int64) {
	if len(in) == 0 {
		return nil, 0
	}
	room := maxAnnotations
	for _, key := range slices.Sorted(maps.Keys(in)) {
		value := strings.ToValidUTF8(in[key], string(utf8.RuneError)) // it may grow
		size := len(key) + len(value)
		if size > room || !annotationKey(key) {
			left++
			continue
		}
		if out == nil {
			out = make(map[string]string, len(in))
		}
		room -= size
		out[strings.Clone(key)] = strings.Clone(value)
	}
	return out, left
}

// annotationKey reports whether a caller may use a key: the server takes it, and it is none of this
// package's.
func annotationKey(key string) bool {
	own := strings.HasPrefix(key, annotationPrefix)
	return !own && len(validation.IsQualifiedName(strings.ToLower(key))) == 0
}
