// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// AnnotatedEventRecorder is the interface of that name of client-go v0.37 and later; older ones do
// not have it.
type AnnotatedEventRecorder interface {
	AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any)
}

var (
	_ clientevents.EventRecorderLogger = (*Recorder)(nil)
	_ AnnotatedEventRecorder           = (*Recorder)(nil)
	_ record.EventRecorderLogger       = (*LegacyRecorder)(nil)
)

// core is what recorders of one source share.
type core struct {
	b      *Broadcaster
	kinds  *kinds
	source uint32 // index of from
	from   source
}

// Recorder emits events.k8s.io/v1 Events. Its methods never block, start no goroutine, and keep
// nothing of what they are given. They are safe for concurrent use.
type Recorder struct {
	*core
	logger klog.Logger
}

// Eventf emits an event about regarding, which may be any API object or an ObjectReference; related
// may be nil. Events that agree in everything but the note are one series; only the note of the
// first one is formatted and stored, cut to 1024 bytes.
func (r *Recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	e := emission{regarding: regarding, related: related, eventType: eventtype, reason: reason, action: action, note: note, args: args}
	r.emit(r.logger, &e)
}

// AnnotatedEventf is Eventf with annotations for the object. Like the note, those of the first
// event of a series are stored. The map is copied. At most 8 KiB are kept, of keys that the server
// accepts.
func (r *Recorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any) {
	e := emission{regarding: regarding, related: related, annotations: annotations, eventType: eventtype, reason: reason, action: action, note: note, args: args}
	r.emit(r.logger, &e)
}

// WithLogger returns a recorder that tells of events it cannot take through the given logger.
func (r *Recorder) WithLogger(logger klog.Logger) clientevents.EventRecorderLogger {
	return &Recorder{core: r.core, logger: logger}
}

// LegacyRecorder is a [Recorder] with the interface of client-go's tools/record. Its callers use
// one reason for different things (a kubelet's Failed, Unhealthy, FailedMount), so events that
// differ in their message are different series: Options.MaxNotes of them, and beyond that those
// whose messages begin alike are counted together.
type LegacyRecorder struct {
	*core
	logger klog.Logger
}

// Event emits an event whose message is taken as it is.
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

// WithLogger returns a recorder that tells of events it cannot take through the given logger.
func (r *LegacyRecorder) WithLogger(logger klog.Logger) record.EventRecorderLogger {
	return &LegacyRecorder{core: r.core, logger: logger}
}
