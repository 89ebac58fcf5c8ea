// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
)

// watchBuffer is the number of events buffered per watcher; further events are missed.
const watchBuffer = 1000

// watchers are those to be told. Guarded by the broadcaster's lock, for the order of emission.
type watchers map[*watcher]struct{}

// watcher hands events to a handler, in order, from its own goroutine.
type watcher struct {
	ch   chan *eventsv1.Event // closed by remove, under the broadcaster's lock
	done chan struct{}
}

// StartEventWatcher calls the handler with every event emitted from now on, as a *eventsv1.Event
// without a series, in the order of emission, including events withheld from the server by a limit.
// The handler runs in its own goroutine. A handler more than 1000 events behind misses events;
// missed events are counted. stop ends the watcher after the events emitted before, and does not
// wait.
func (b *Broadcaster) StartEventWatcher(handler func(event runtime.Object)) (stop func(), err error) {
	if handler == nil {
		return nil, errors.New("events: the handler of a watcher is nil")
	}
	w := &watcher{ch: make(chan *eventsv1.Event, watchBuffer), done: make(chan struct{})}
	b.mu.Lock()
	if b.core.stage != stageOpen {
		b.mu.Unlock()
		return nil, ErrShutdown
	}
	b.watchers[w] = struct{}{}
	b.mu.Unlock()
	go func() {
		defer close(w.done)
		for e := range w.ch {
			handler(e)
		}
	}()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.watchers.remove(w)
	}, nil
}

// remove ends a watcher after its buffered events.
func (all watchers) remove(w *watcher) {
	if _, ok := all[w]; ok {
		delete(all, w)
		close(w.ch)
	}
}

// distribute hands an occurrence to the watchers, and returns how many of them miss it.
func (all watchers) distribute(src source, s *series, now time.Time) (missed int64) {
	if len(all) == 0 {
		return 0
	}
	seen := *s
	seen.begins(begin(now), eventName(s.key.regarding.Name, &s.id, now)) // as a series of its own
	event := seen.event(src, call{})
	for w := range all {
		select {
		case w.ch <- event:
		default:
			missed++
		}
	}
	return missed
}

// StartLogging logs every emitted event until stop is called.
func (b *Broadcaster) StartLogging(logger klog.Logger) (stop func(), err error) {
	return b.StartEventWatcher(func(obj runtime.Object) {
		e := obj.(*eventsv1.Event)
		logger.Info("Event occurred",
			"object", klog.KRef(e.Regarding.Namespace, e.Regarding.Name),
			"fieldPath", e.Regarding.FieldPath,
			"kind", e.Regarding.Kind,
			"apiVersion", e.Regarding.APIVersion,
			"type", e.Type,
			"reason", e.Reason,
			"action", e.Action,
			"note", e.Note)
	})
}

// StartStructuredLogging is StartLogging with the global logger at a verbosity.
func (b *Broadcaster) StartStructuredLogging(verbosity klog.Level) (stop func()) {
	logger := klog.Background().V(int(verbosity))
	stop, err := b.StartLogging(logger)
	if err != nil {
		logger.Error(err, "Events are not logged")
		return func() {}
	}
	return stop
}
