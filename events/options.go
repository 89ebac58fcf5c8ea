// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientevents "k8s.io/client-go/tools/events"
)

// Defaults of [Options]. The times are those of the Events redesign proposal.
const (
	DefaultMaxSeries       = 4096
	DefaultMaxQueue        = 16384
	DefaultMaxPerObject    = 100
	DefaultMaxNotes        = 10
	DefaultBurst           = 25
	DefaultRefill          = 5 * time.Minute
	DefaultFinishAfter     = 6 * time.Minute
	DefaultHeartbeat       = 30 * time.Minute
	DefaultBackoffBase     = time.Second
	DefaultBackoffMax      = 30 * time.Second
	DefaultWriteTimeout    = 30 * time.Second
	DefaultShutdownTimeout = 5 * time.Second
)

// ListFunc returns one page of the stored events of a controller, in all namespaces, and the token
// of the next page, "" for none.
type ListFunc func(ctx context.Context, controller, token string) (page []eventsv1.Event, next string, err error)

// Options configure a [Broadcaster]. The zero value of every field is usable and means the default.
type Options struct {
	// Sink stores events.k8s.io/v1 Events. It must honour the context and must not retry by itself:
	// see [ClientSink]. Nil: there are watchers only, as in a node agent without an API server;
	// nothing is kept, and recording cannot be started.
	Sink clientevents.EventSink
	// List, where the role allows to list events, lets a restart rebuild its series in one go,
	// those that client-go's recorder began included. Nil, or a list that is refused: the names of
	// the series that go on are kept in one Event (the roster, in ClusterNamespace), which a
	// restart reads with an empty patch, and the series after it.
	List ListFunc
	// NoRoster keeps none: a restart begins its series anew where it may not list.
	NoRoster bool
	// Metrics takes what is counted. Nil: nothing does; [Broadcaster.Stats] always works.
	Metrics Metrics

	// Instance is the reportingInstance, at most 128 bytes. It must differ between processes that
	// report about the same objects at the same time and must stay the same over a restart.
	// Default: the reporting controller, a dash and the host name.
	Instance string
	// ClusterNamespace is where events about objects without a namespace go. Only kube-system
	// (default, as the proposal demands) and default (as client-go does) are accepted by the
	// server.
	ClusterNamespace string
	// PreferNamespaced swaps regarding and related when only the latter has a namespace, as the
	// proposal asks of callers. Default false: what the caller says stands.
	PreferNamespaced bool

	// MaxSeries bounds the series that are stored and still counted; the longest idle one is
	// flushed and evicted. Default 4096.
	MaxSeries int
	// MaxQueue bounds the series that wait for their first write; further ones are dropped and
	// counted. Default 16384.
	MaxQueue int
	// MaxPerObject bounds the series of one regarding object, and of each pair of it and a related
	// one. Default 100. Negative: no bound.
	MaxPerObject int
	// MaxNotes bounds, for recorders with the older interface only, how many messages under one
	// reason about one object are told apart at a time. Default 10; twice as many series at most,
	// see [LegacyRecorder].
	MaxNotes int
	// Burst and Refill are a token bucket per regarding object, related object and reason; each new
	// series takes a token. Default 25, and one per five minutes. A negative Burst turns it off.
	Burst  int
	Refill time.Duration
	// EarlyCounts are counts at which a series is updated before its heartbeat is due. Without any,
	// kubectl shows a series as it was at its second occurrence for half an hour: "x2", last seen
	// when it began. Default 10, 100, 1000 and 10000: at most four calls more for a series. Empty,
	// but not nil: none.
	EarlyCounts []int
	// Writers is how many calls may be in flight. Default 1: events reach the server in the order
	// in which they were emitted. With more of them that holds per regarding object only.
	Writers int

	// FinishAfter is the threshold between two occurrences from which on they are two series.
	// Default 6 min.
	FinishAfter time.Duration
	// Heartbeat is the mean time between updates of a series that goes on; each is drawn within
	// ±10 %. Default 30 min. It must be well below the life of events at the server (an hour by
	// default).
	Heartbeat time.Duration
	// BackoffBase and BackoffMax bound the exponential delay after the server was in trouble, for
	// all events together: so long after it has recovered one call finds out. Default 1 s and 30 s.
	// A Retry-After is honoured up to 5 min.
	BackoffBase, BackoffMax time.Duration
	// WriteTimeout bounds one call. Default 30 s.
	WriteTimeout time.Duration
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
	defaultTo(&o.MaxNotes, DefaultMaxNotes)
	defaultTo(&o.Burst, DefaultBurst)
	defaultTo(&o.Refill, DefaultRefill)
	defaultTo(&o.Writers, 1)
	defaultTo(&o.FinishAfter, DefaultFinishAfter)
	defaultTo(&o.Heartbeat, DefaultHeartbeat)
	defaultTo(&o.BackoffBase, DefaultBackoffBase)
	defaultTo(&o.BackoffMax, DefaultBackoffMax)
	defaultTo(&o.WriteTimeout, DefaultWriteTimeout)
	defaultTo(&o.ShutdownTimeout, DefaultShutdownTimeout)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.EarlyCounts == nil {
		o.EarlyCounts = []int{10, 100, 1000, 10_000}
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
	}{{"MaxSeries", o.MaxSeries}, {"MaxQueue", o.MaxQueue}, {"MaxNotes", o.MaxNotes}, {"Writers", o.Writers}} {
		bad(f.n > 0, "%s is %d: it must be positive, or zero for the default", f.name, f.n)
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"Refill", o.Refill}, {"FinishAfter", o.FinishAfter}, {"Heartbeat", o.Heartbeat}, {"BackoffBase", o.BackoffBase}, {"BackoffMax", o.BackoffMax},
		{"WriteTimeout", o.WriteTimeout}, {"ShutdownTimeout", o.ShutdownTimeout},
	} {
		bad(f.d > 0, "%s is %v: it must be positive, or zero for the default", f.name, f.d)
	}
	bad(o.BackoffBase <= o.BackoffMax, "BackoffBase %v exceeds BackoffMax %v", o.BackoffBase, o.BackoffMax)
	for _, n := range o.EarlyCounts {
		bad(n >= 2, "EarlyCounts has %d: a series begins at 2", n)
	}
	return errors.Join(errs...)
}
