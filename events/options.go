// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientevents "k8s.io/client-go/tools/events"
)

// Defaults of [Options]. The times are those of the Events redesign proposal.
const (
	DefaultMaxSeries       = 4096
	DefaultMaxQueue        = 16384
	DefaultMaxPerObject    = 100
	DefaultBurst           = 25
	DefaultRefill          = 5 * time.Minute
	DefaultFinishAfter     = 6 * time.Minute
	DefaultHeartbeat       = 30 * time.Minute
	DefaultBackoffBase     = time.Second
	DefaultBackoffMax      = 5 * time.Minute
	DefaultWriteTimeout    = 30 * time.Second
	DefaultProbeEvery      = 5 * time.Minute
	DefaultShutdownTimeout = 5 * time.Second
)

// LegacySink stores core/v1 Events, for servers that do not serve events.k8s.io/v1. Implementations must honour the context and must not
// retry by themselves.
type LegacySink interface {
	Create(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	Patch(ctx context.Context, event *corev1.Event, data []byte) (*corev1.Event, error)
}

// ListFunc returns one page of the stored events of a controller, in all namespaces, and the token of the next page, "" for none.
type ListFunc func(ctx context.Context, controller, token string) (page []eventsv1.Event, next string, err error)

// Options configure a [Broadcaster]. The zero value of every field is usable and means the default.
type Options struct {
	// Sink stores events.k8s.io/v1 Events. It must honour the context and must not retry by itself: see [ClientSink]. Nil: there are watchers only, as in a
	// node agent without an API server; nothing is kept, and recording cannot be started.
	Sink clientevents.EventSink
	// Legacy takes over while the server does not serve events.k8s.io/v1. Nil: such events wait in the table instead.
	Legacy LegacySink
	// Probe asks whether the server serves events.k8s.io/v1; an error means that it could not be asked. It is called only when a create was
	// answered with 404, and every ProbeEvery while Legacy is in use. Nil: a 404 without an API status counts as "not served".
	Probe func(ctx context.Context) (served bool, err error)
	// List, where the role allows to list events, lets a restart rebuild its series in one go, those that client-go's recorder began included.
	// Nil, or a list that is refused: they are found one by one by their names.
	List ListFunc
	// Metrics takes what is counted. Nil: nothing does; [Broadcaster.Stats] always works.
	Metrics Metrics

	// Instance is the reportingInstance, at most 128 bytes. It must differ between processes that report about the same objects at the same time and
	// must stay the same over a restart. Default: the reporting controller, a dash and the host name.
	Instance string
	// Host is the source.host of legacy events. Default: the host name.
	Host string
	// ClusterNamespace is where events about objects without a namespace go. Only kube-system (default, as the proposal demands) and default
	// (as client-go does) are accepted by the server.
	ClusterNamespace string
	// PreferNamespaced swaps regarding and related when only the latter has a namespace, as the proposal asks of callers. Default false: what the
	// caller says stands.
	PreferNamespaced bool

	// MaxSeries bounds the series that are stored and still counted; the longest idle one is flushed and evicted. Default 4096.
	MaxSeries int
	// MaxQueue bounds the series that wait for their first write; further ones are dropped and counted. Default 16384.
	MaxQueue int
	// MaxPerObject bounds the series of one regarding object. Default 100. Negative: no bound.
	MaxPerObject int
	// Burst and Refill are a token bucket per regarding object and reason; each new series takes a token. Default 25, and one per five minutes.
	// A negative Burst turns it off.
	Burst  int
	Refill time.Duration
	// EarlyCounts are counts at which a series is updated before its heartbeat is due, such as 10, 100, 1000. Default none.
	EarlyCounts []int
	// Writers is how many calls may be in flight. Default 1: events reach the server in the order in which they were emitted. With more of them
	// that holds per regarding object only.
	Writers int

	// FinishAfter is the threshold between two occurrences from which on they are two series. Default 6 min.
	FinishAfter time.Duration
	// Heartbeat is the mean time between updates of a series that goes on; each is drawn within ±10 %. Default 30 min. It must be well below the
	// life of events at the server (an hour by default).
	Heartbeat time.Duration
	// BackoffBase and BackoffMax bound the exponential delay after the server was in trouble, for all events together; a Retry-After is honoured up
	// to BackoffMax. Default 1 s and 5 min.
	BackoffBase, BackoffMax time.Duration
	// WriteTimeout bounds one call. Default 30 s.
	WriteTimeout time.Duration
	// ProbeEvery is how often a server without events.k8s.io/v1 is asked again. Default 5 min.
	ProbeEvery time.Duration
	// ShutdownTimeout bounds [Broadcaster.Shutdown]. Default 5 s.
	ShutdownTimeout time.Duration
}

func defaultTo[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// complete fills in the defaults and names every value that makes no sense.
func (o *Options) complete() error {
	defaultTo(&o.ClusterNamespace, metav1.NamespaceSystem)
	defaultTo(&o.MaxSeries, DefaultMaxSeries)
	defaultTo(&o.MaxQueue, DefaultMaxQueue)
	defaultTo(&o.MaxPerObject, DefaultMaxPerObject)
	defaultTo(&o.Burst, DefaultBurst)
	defaultTo(&o.Refill, DefaultRefill)
	defaultTo(&o.Writers, 1)
	defaultTo(&o.FinishAfter, DefaultFinishAfter)
	defaultTo(&o.Heartbeat, DefaultHeartbeat)
	defaultTo(&o.BackoffBase, DefaultBackoffBase)
	defaultTo(&o.BackoffMax, DefaultBackoffMax)
	defaultTo(&o.WriteTimeout, DefaultWriteTimeout)
	defaultTo(&o.ProbeEvery, DefaultProbeEvery)
	defaultTo(&o.ShutdownTimeout, DefaultShutdownTimeout)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	o.EarlyCounts = slices.Clone(o.EarlyCounts)
	slices.Sort(o.EarlyCounts)

	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("events: "+format, args...))
		}
	}
	bad(o.ClusterNamespace == metav1.NamespaceSystem || o.ClusterNamespace == metav1.NamespaceDefault,
		"ClusterNamespace %q: the API server takes events about cluster-scoped objects in %q or %q only", o.ClusterNamespace, metav1.NamespaceSystem, metav1.NamespaceDefault)
	bad(len(o.Instance) <= maxWord, "Instance has %d bytes: at most %d are accepted", len(o.Instance), maxWord)
	for _, f := range []struct {
		name string
		n    int
	}{{"MaxSeries", o.MaxSeries}, {"MaxQueue", o.MaxQueue}, {"Writers", o.Writers}} {
		bad(f.n > 0, "%s is %d: it must be positive, or zero for the default", f.name, f.n)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"Refill", o.Refill}, {"FinishAfter", o.FinishAfter}, {"Heartbeat", o.Heartbeat}, {"BackoffBase", o.BackoffBase}, {"BackoffMax", o.BackoffMax},
		{"WriteTimeout", o.WriteTimeout}, {"ProbeEvery", o.ProbeEvery}, {"ShutdownTimeout", o.ShutdownTimeout},
	} {
		bad(f.d > 0, "%s is %v: it must be positive, or zero for the default", f.name, f.d)
	}
	bad(o.BackoffBase <= o.BackoffMax, "BackoffBase %v exceeds BackoffMax %v", o.BackoffBase, o.BackoffMax)
	for _, n := range o.EarlyCounts {
		bad(n >= 2, "EarlyCounts has %d: a series begins at 2", n)
	}
	return errors.Join(errs...)
}
