// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// Broadcaster takes events from its recorders, hands them to watchers, and writes them to the sink as series. It satisfies client-go's
// events.EventBroadcaster. All methods are safe for concurrent use.
type Broadcaster struct {
	opts     Options
	policy   policy
	hostname string
	wakeup   chan struct{} // capacity 1: something is owed
	watching atomic.Int32  // number of watchers

	mu       sync.Mutex // guards everything below; never held over a call of the sink, of a handler or of the caller's code
	tab      table
	gate     gate
	limit    *limiter
	count    counters
	sources  []source
	indexOf  map[source]uint32
	watchers map[*watcher]struct{}
	old      legacy
	inflight int
	busy     map[objectKey]struct{} // objects with a call in flight
	okWrites int64
	askGroup bool // a create was answered as if the server did not know Events
	asking   bool
	lastErr  error     // of the last call that failed, nil after one that did not
	doubt    time.Time // until then a 403 may be that of a server that has not loaded its roles yet

	running   bool          // a Run goes on
	everRan   bool          // there was one
	stopped   bool          // a shutdown began: nothing is taken any more
	abandoned bool          // it is over: answers that come late are not booked
	stop      chan struct{} // closed by the shutdown
	runEnded  chan struct{} // closed when the Run that goes on has ended
	cancel    context.CancelCauseFunc
	shut      chan struct{} // closed when the shutdown is done

	pushMu sync.Mutex // serialises pushMetrics
	pushed map[string]int64
}

var _ clientevents.EventBroadcaster = (*Broadcaster)(nil)

// New makes a broadcaster. It starts nothing: see [Broadcaster.Run] and [Broadcaster.StartRecordingToSinkWithContext]. Events emitted before
// that wait in the table.
func New(opts Options) (*Broadcaster, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil || hostname == "" {
		hostname = "unknown"
	}
	defaultTo(&opts.Host, hostname)
	b := &Broadcaster{
		opts:     opts,
		policy:   policy{threshold: opts.FinishAfter, heartbeat: opts.Heartbeat},
		hostname: hostname,
		wakeup:   make(chan struct{}, 1),
		gate:     gate{base: opts.BackoffBase, limit: opts.BackoffMax},
		limit:    newLimiter(opts.Burst, opts.Refill, 2*opts.MaxSeries),
		count:    newCounters(),
		indexOf:  map[source]uint32{},
		watchers: map[*watcher]struct{}{},
		busy:     map[objectKey]struct{}{},
		stop:     make(chan struct{}),
		shut:     make(chan struct{}),
		pushed:   map[string]int64{},
	}
	for _, n := range opts.EarlyCounts {
		b.policy.early = append(b.policy.early, int64(n))
	}
	b.tab.init(2 * opts.MaxSeries)
	return b, nil
}

// sourceOf interns who reports, so that the key of a series need not hold it.
func (b *Broadcaster) sourceOf(src source) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.indexOf[src]
	if !ok {
		i = uint32(len(b.sources))
		b.sources = append(b.sources, src)
		b.indexOf[src] = i
	}
	return i
}

// NewRecorder returns a recorder for events of the given controller. The scheme is asked for the kind of objects that do not carry it; nil is
// fine if all do, or if only ObjectReferences are passed. A name that the server would not accept is made acceptable.
func (b *Broadcaster) NewRecorder(scheme *runtime.Scheme, reportingController string) clientevents.EventRecorderLogger {
	controller := controllerName(reportingController)
	instance := b.opts.Instance
	if instance == "" {
		instance = fmt.Sprintf("%s-%s", controller, b.hostname)
	}
	return &Recorder{core: &core{
		b:      b,
		kinds:  &kinds{scheme: scheme},
		source: b.sourceOf(source{controller, cut(instance, maxWord), b.opts.Host}),
	}, logger: klog.Background()}
}

// NewLegacyRecorder returns a recorder with client-go's older interface, such as a kubelet's Dependencies.Recorder wants. The controller is
// src.Component, the instance is src.Host, and the action of an event is its reason, because that interface knows none.
func (b *Broadcaster) NewLegacyRecorder(scheme *runtime.Scheme, src corev1.EventSource) record.EventRecorderLogger {
	controller := controllerName(src.Component)
	host := src.Host
	if host == "" {
		host = b.opts.Host
	}
	instance := b.opts.Instance
	if instance == "" {
		instance = host
	}
	return &LegacyRecorder{core: &core{
		b:      b,
		kinds:  &kinds{scheme: scheme},
		source: b.sourceOf(source{controller, cut(instance, maxWord), host}),
	}, logger: klog.Background()}
}

// signal wakes a writer; it never blocks.
func (b *Broadcaster) signal() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}
