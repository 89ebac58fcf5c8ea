// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// adapter is the broadcaster as client-go's events.EventBroadcasterAdapter.
type adapter struct{ *Broadcaster }

// Adapter returns the broadcaster as the adapter of client-go's tools/events, which kube-scheduler
// takes. Its recorders know the kinds of client-go's own scheme.
//
//lint:ignore SA1019 kube-scheduler still takes this type, so it is adapted to on purpose
func (b *Broadcaster) Adapter() clientevents.EventBroadcasterAdapter { return adapter{b} }

func (a adapter) NewRecorder(name string) clientevents.EventRecorderLogger {
	return a.Broadcaster.NewRecorder(scheme.Scheme, name)
}

func (a adapter) DeprecatedNewLegacyRecorder(name string) record.EventRecorderLogger {
	return a.NewLegacyRecorder(scheme.Scheme, corev1.EventSource{Component: name})
}

// recordFace is the broadcaster as client-go's record.EventBroadcaster.
type recordFace struct{ *Broadcaster }

// Record returns the broadcaster as client-go's older record.EventBroadcaster, for
// controller-runtime's manager. StartRecordingToSink starts the recording to the broadcaster's own
// sink, once, however often called, and ignores the given core/v1 sink: series need
// events.k8s.io/v1. Watchers get core/v1 Events.
func (b *Broadcaster) Record() record.EventBroadcaster { return recordFace{b} }

// stopper is a watch.Interface for its Stop only, without results.
type stopper func()

func (s stopper) Stop() { s() }

func (s stopper) ResultChan() <-chan watch.Event { return watch.NewEmptyWatch().ResultChan() }

// StartRecordingToSink returns a Stop without effect: others may record by the same broadcaster.
func (f recordFace) StartRecordingToSink(record.EventSink) watch.Interface {
	if err := f.StartRecordingToSinkWithContext(context.Background()); err != nil && !errors.Is(err, ErrRunning) {
		klog.Background().Error(err, "Events are not recorded")
	}
	return stopper(func() {})
}

func (f recordFace) StartEventWatcher(handler func(*corev1.Event)) watch.Interface {
	var newer func(runtime.Object)
	if handler != nil {
		newer = func(obj runtime.Object) { handler(coreEvent(obj.(*eventsv1.Event))) }
	}
	stop, err := f.Broadcaster.StartEventWatcher(newer)
	if err != nil {
		klog.Background().Error(err, "Events are not watched")
		stop = func() {}
	}
	return stopper(stop)
}

func (f recordFace) StartLogging(logf func(format string, args ...any)) watch.Interface {
	if logf == nil {
		return f.StartEventWatcher(nil)
	}
	return f.StartEventWatcher(func(e *corev1.Event) {
		logf("Event(%#v): type: '%v' reason: '%v' %v", e.InvolvedObject, e.Type, e.Reason, e.Message)
	})
}

func (f recordFace) StartStructuredLogging(verbosity klog.Level) watch.Interface {
	return stopper(f.Broadcaster.StartStructuredLogging(verbosity))
}

func (f recordFace) NewRecorder(scheme *runtime.Scheme, source corev1.EventSource) record.EventRecorderLogger {
	return f.NewLegacyRecorder(scheme, source)
}
