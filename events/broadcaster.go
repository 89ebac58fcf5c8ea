// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
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

	// mu guards everything below. It is never held over a call of the sink, of a handler, of a
	// logger or of the caller's code.
	mu       sync.Mutex
	core     core
	watchers watchers

	running  bool          // a Run goes on
	runEnded chan struct{} // closed when the last Run has ended, nil before the first
	cancel   context.CancelCauseFunc
	shut     chan struct{} // closed when the shutdown is done
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
	b := &Broadcaster{
		opts:     opts,
		wakeup:   make(chan struct{}, 1),
		watchers: watchers{},
		shut:     make(chan struct{}),
	}
	b.core = newCore(&b.opts, b.signal)
	return b, nil
}

// newReporter interns the source: keys of series hold only its index.
func (b *Broadcaster) newReporter(scheme *runtime.Scheme, from source) *reporter {
	c := &reporter{b: b, kinds: &kinds{scheme: scheme}, from: from}
	invalid := validation.IsQualifiedName(from.controller)
	c.bad = check(len(invalid) == 0, "the API server does not take the controller %.200q: %s",
		from.controller, strings.Join(invalid, "; "))
	if c.bad != nil {
		klog.Background().Error(c.bad, "No event of this recorder will be recorded")
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	rosters := &b.core.rosters
	i := slices.IndexFunc(*rosters, func(r *roster) bool { return r.src == from })
	if i < 0 {
		i = len(*rosters)
		*rosters = append(*rosters, newRoster(uint32(i), from))
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
	from := source{reportingController, instance, false}
	return &Recorder{reporter: b.newReporter(scheme, from), logger: klog.Background()}
}

// NewLegacyRecorder returns a recorder with client-go's older interface, as in a kubelet's
// Dependencies.Recorder. The controller is src.Component. The instance is Options.Instance, or the
// first 128 bytes of src.Host or the host name. The action of an event is its reason: the older
// interface has no action. See [LegacyRecorder] for the series.
func (b *Broadcaster) NewLegacyRecorder(scheme *runtime.Scheme, src corev1.EventSource) record.EventRecorderLogger {
	instance := cmp.Or(b.opts.Instance, cut(cmp.Or(src.Host, hostname()), maxWord))
	from := source{src.Component, instance, true}
	return &LegacyRecorder{reporter: b.newReporter(scheme, from), logger: klog.Background()}
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
