// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// Broadcaster takes events from its recorders, hands them to watchers, and writes them to the sink
// as series. Broadcaster implements client-go's events.EventBroadcaster. All methods are safe for
// concurrent use.
type Broadcaster struct {
	opts   Options
	wakeup chan struct{} // capacity 1: something is owed

	mu        sync.Mutex // guards everything below; never held over a call of the sink, of a handler or of the caller's code
	tab       table
	gates     map[scope]*gate // the closed ones
	heldUntil time.Time       // the next time at which a series behind a gate may be free
	granted   map[scope]bool  // calls known to be allowed by the role
	limit     limiter
	count     Stats
	rosters   []*roster // by the source's index
	watchers  map[*watcher]struct{}
	inflight  int
	busy      map[objectKey]time.Time // objects with a call in flight, or with trouble: until when they wait
	okCalls   int64
	lastErr   error                // of the last failed call, nil after a success
	birth     time.Time            // the latest time in a name
	silent    map[string]time.Time // by reason of refusal: no further message before

	running   bool            // a Run goes on
	stopped   bool            // a shutdown began: nothing is taken any more
	abandoned bool            // the shutdown is over: late answers are not booked
	draining  context.Context // of the shutdown, once the rest is being sent
	runEnded  chan struct{}   // closed when the last Run has ended, nil before the first
	cancel    context.CancelCauseFunc
	shut      chan struct{} // closed when the shutdown is done
}

var (
	_ clientevents.EventBroadcaster = (*Broadcaster)(nil)
	//lint:ignore SA1019 kube-scheduler still takes this type, so it is adapted to on purpose
	_ clientevents.EventBroadcasterAdapter = adapter{}
	_ record.EventBroadcaster              = recordFace{}
)

// New returns a broadcaster and starts nothing: see [Broadcaster.Run] and
// [Broadcaster.StartRecordingToSinkWithContext]. Events emitted before the start wait in the table.
func New(opts Options) (*Broadcaster, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	return &Broadcaster{
		opts:    opts,
		wakeup:  make(chan struct{}, 1),
		tab:     newTable(),
		gates:   map[scope]*gate{},
		granted: map[scope]bool{},
		limit:   limiter{burst: opts.Burst, size: 4 * opts.MaxSeries, full: map[uint64]time.Time{}},
		count: Stats{
			Dropped: map[string]int64{}, Calls: map[string]int64{}, Retries: map[string]int64{},
			Rejected: map[string]int64{}, Transitions: map[string]int64{},
		},
		watchers: map[*watcher]struct{}{},
		busy:     map[objectKey]time.Time{},
		shut:     make(chan struct{}),
		silent:   map[string]time.Time{},
	}, nil
}

// newCore interns the source: keys of series hold only its index.
func (b *Broadcaster) newCore(scheme *runtime.Scheme, controller, instance string, byNote bool) *core {
	c := &core{b: b, kinds: &kinds{scheme: scheme}, from: source{controller, instance, byNote}}
	invalid := validation.IsQualifiedName(controller)
	c.bad = check(len(invalid) == 0, "the API server does not take the controller %q: %s", controller, strings.Join(invalid, "; "))
	if c.bad != nil {
		klog.Background().Error(c.bad, "No event of this recorder will be recorded")
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.rosters, func(r *roster) bool { return r.src == c.from })
	if i < 0 {
		i = len(b.rosters)
		b.rosters = append(b.rosters, &roster{index: uint32(i), src: c.from, phase: phaseUnread})
		b.signal()
	}
	c.source = uint32(i)
	return c
}

// NewRecorder returns a recorder for events of the given controller. The scheme supplies the kind
// of objects without one; nil is valid if all objects have a kind or are ObjectReferences. A
// controller name invalid for the API server is logged. Each event of such a recorder counts as
// invalid.
func (b *Broadcaster) NewRecorder(scheme *runtime.Scheme, reportingController string) clientevents.EventRecorderLogger {
	return b.NewSeriesRecorder(scheme, reportingController)
}

// NewSeriesRecorder is NewRecorder with the recorder's own type, for interfaces of other packages.
func (b *Broadcaster) NewSeriesRecorder(scheme *runtime.Scheme, reportingController string) *Recorder {
	instance := cmp.Or(b.opts.Instance, cut(reportingController+"-"+hostname(), maxWord))
	return &Recorder{core: b.newCore(scheme, reportingController, instance, false), logger: klog.Background()}
}

// NewLegacyRecorder returns a recorder with client-go's older interface, as in a kubelet's
// Dependencies.Recorder. The controller is src.Component. The instance is Options.Instance, or the
// first 128 bytes of src.Host or the host name. The action of an event is its reason: the older
// interface has no action. See [LegacyRecorder] for the series.
func (b *Broadcaster) NewLegacyRecorder(scheme *runtime.Scheme, src corev1.EventSource) record.EventRecorderLogger {
	instance := cmp.Or(b.opts.Instance, cut(cmp.Or(src.Host, hostname()), maxWord))
	return &LegacyRecorder{core: b.newCore(scheme, src.Component, instance, true), logger: klog.Background()}
}

func hostname() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "unknown")
}

// signal wakes a writer without blocking.
func (b *Broadcaster) signal() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}

// watchBuffer is the number of events buffered per watcher; further events are missed.
const watchBuffer = 1000

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
	if b.stopped {
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
		b.removeWatcher(w)
	}, nil
}

// removeWatcher ends a watcher after its buffered events. The lock is held.
func (b *Broadcaster) removeWatcher(w *watcher) {
	if _, ok := b.watchers[w]; ok {
		delete(b.watchers, w)
		close(w.ch)
	}
}

// distribute hands an occurrence to the watchers. The lock is held, for the order of emission.
func (b *Broadcaster) distribute(src source, s *series, now time.Time) {
	if len(b.watchers) == 0 {
		return
	}
	seen := *s
	seen.st, seen.name = begin(now), eventName(s.key.regarding.Name, &s.id, now)
	event := seen.event(src, call{})
	for w := range b.watchers {
		select {
		case w.ch <- event:
		default:
			b.count.WatchDropped++
		}
	}
}

// StartLogging logs every emitted event until stop is called.
func (b *Broadcaster) StartLogging(logger klog.Logger) (stop func(), err error) {
	return b.StartEventWatcher(func(obj runtime.Object) {
		e := obj.(*eventsv1.Event)
		logger.Info("Event occurred", "object", klog.KRef(e.Regarding.Namespace, e.Regarding.Name), "fieldPath", e.Regarding.FieldPath,
			"kind", e.Regarding.Kind, "apiVersion", e.Regarding.APIVersion, "type", e.Type, "reason", e.Reason, "action", e.Action, "note", e.Note)
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
	stop, err := f.Broadcaster.StartEventWatcher(func(obj runtime.Object) { handler(coreEvent(obj.(*eventsv1.Event))) })
	if err != nil {
		klog.Background().Error(err, "Events are not watched")
		stop = func() {}
	}
	return stopper(stop)
}

func (f recordFace) StartLogging(logf func(format string, args ...any)) watch.Interface {
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
