// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clientevents "k8s.io/client-go/tools/events"
)

const (
	defaultMaxSeries    = 4096
	defaultMaxPerObject = 100
	defaultMaxQueue     = 16384
	defaultBurst        = 25
	defaultWriters      = 4
	defaultFinishAfter  = 6 * time.Minute
	defaultHeartbeat    = 30 * time.Minute
	defaultBackoffBase  = time.Second
	defaultBackoffMax   = 30 * time.Second
)

// The largest values of the options. What is computed from them fits its type: four times as many
// series, eleven times as many years, and the refill of all tokens of a bucket.
const (
	mostSeries  = 1 << 24 // at 1 KiB each
	mostBurst   = 1 << 20
	mostWriters = 256
	mostTime    = 365 * 24 * time.Hour
)

// Options configure a [Broadcaster]. The zero value of every field is usable and means the default.
// Each number and time has a largest value that counts; a larger one, as math.MaxInt for "no
// bound", is taken for that one: 2^24 for MaxSeries, MaxQueue and MaxPerObject, 2^20 for Burst, 256
// for Writers, and 365 days for each time.
type Options struct {
	// Sink stores events.k8s.io/v1 Events. Sink must honour the context and must not retry: see
	// [ClientSink]. Nil: there are watchers only, as in a node agent without an API server; nothing
	// is kept, and recording cannot be started.
	Sink clientevents.EventSink
	// NoRoster keeps no roster: the single Event with the names of the active series, by which a
	// restart continues them. The roster needs create and patch of Events only.
	NoRoster bool
	// RosterNamespace is where the roster goes. Default: ClusterNamespace. A controller with a
	// namespaced role names its own.
	RosterNamespace string

	// Instance is the reportingInstance, at most 128 bytes. Processes reporting about the same
	// objects at the same time need different instances. A restart must keep the instance. Default:
	// the reporting controller, a dash and the host name.
	Instance string
	// ClusterNamespace is where events about objects without a namespace go. Only kube-system
	// (default, as the proposal demands) and default (as client-go does) are accepted by the
	// server.
	ClusterNamespace string

	// MaxSeries bounds the series stored and still counted; beyond, the longest idle series, of the
	// namespaces with an equal share or more, is flushed and evicted. As many may wait for their
	// last write; beyond, one of the namespace with the most is dropped. Default 4096.
	MaxSeries int
	// MaxQueue bounds the series waiting for their first write; beyond, one of the namespace with
	// the most is dropped and counted. Default 16384.
	MaxQueue int
	// MaxPerObject bounds the series of each pair of a regarding and a related object, or of a
	// regarding object alone. Default 100. Negative: no bound.
	MaxPerObject int
	// Burst is the size of a token bucket per regarding object, related object and reason, for new
	// series. A bucket gets a token every five minutes. An event without a token is counted in a
	// combined series. Another bucket per regarding object paces the writes of loops. Default 25.
	// Negative: no bound.
	Burst int
	// Writers is the number of calls allowed in flight, beside those that hang and those that try a
	// closed scope again: of these there may be twice as many. Default 4: events about the same
	// object reach the server in the order of emission; with 1 all do, while no call fails or
	// hangs.
	Writers int

	// FinishAfter is the threshold between two occurrences from which on they are two series.
	// Default 6 min.
	FinishAfter time.Duration
	// Heartbeat is the mean time between updates of an active series; each is drawn within ±10 %.
	// Default 30 min. Heartbeat must be well below the life of events at the server (an hour by
	// default).
	Heartbeat time.Duration
	// BackoffBase and BackoffMax bound the exponential delay after trouble, of the server, a
	// namespace or an object; a single call then tries that scope again. Default 1 s and 30 s.
	// After a dozen failures in a row a namespace or an object waits up to ten times as long. A
	// Retry-After is honoured up to 5 min by what was asked; beyond BackoffMax, others do not wait.
	BackoffBase, BackoffMax time.Duration
}

// complete fills in the defaults and the largest values, and returns an error for each invalid
// value.
func (o *Options) complete() error {
	o.ClusterNamespace = cmp.Or(o.ClusterNamespace, metav1.NamespaceSystem)
	o.RosterNamespace = cmp.Or(o.RosterNamespace, o.ClusterNamespace)
	o.MaxSeries = cmp.Or(o.MaxSeries, defaultMaxSeries)
	o.MaxQueue = cmp.Or(o.MaxQueue, defaultMaxQueue)
	o.MaxPerObject = cmp.Or(o.MaxPerObject, defaultMaxPerObject)
	o.Burst = cmp.Or(o.Burst, defaultBurst)
	o.Writers = cmp.Or(o.Writers, defaultWriters)
	o.FinishAfter = cmp.Or(o.FinishAfter, defaultFinishAfter)
	o.Heartbeat = cmp.Or(o.Heartbeat, defaultHeartbeat)
	o.BackoffBase = cmp.Or(o.BackoffBase, defaultBackoffBase)
	o.BackoffMax = cmp.Or(o.BackoffMax, defaultBackoffMax)
	err := o.check() // before the bounds: an error has the value that was given
	o.bound()
	return err
}

// bound takes each value that is larger than the largest for that one.
func (o *Options) bound() {
	for v, most := range map[*int]int{
		&o.MaxSeries:    mostSeries,
		&o.MaxQueue:     mostSeries,
		&o.MaxPerObject: mostSeries,
		&o.Burst:        mostBurst,
		&o.Writers:      mostWriters,
	} {
		*v = min(*v, most)
	}
	for _, v := range []*time.Duration{&o.FinishAfter, &o.Heartbeat, &o.BackoffBase, &o.BackoffMax} {
		*v = min(*v, mostTime)
	}
}

// check returns an error for each invalid value.
func (o *Options) check() error {
	clusterScoped := []string{metav1.NamespaceSystem, metav1.NamespaceDefault}
	fits := len(o.Instance) <= maxWord && utf8.ValidString(o.Instance)
	return errors.Join(
		check(
			slices.Contains(clusterScoped, o.ClusterNamespace),
			"ClusterNamespace %q: the API server takes events about cluster-scoped objects in one of %q only",
			o.ClusterNamespace, clusterScoped,
		),
		check(
			len(validation.IsDNS1123Label(o.RosterNamespace)) == 0,
			"RosterNamespace %q is no name of a namespace",
			o.RosterNamespace,
		),
		check(
			fits,
			"Instance %.200q: the API server takes at most %d bytes of UTF-8",
			o.Instance, maxWord,
		),
		positive("MaxSeries", o.MaxSeries),
		positive("MaxQueue", o.MaxQueue),
		positive("Writers", o.Writers),
		positive("FinishAfter", o.FinishAfter),
		positive("Heartbeat", o.Heartbeat),
		positive("BackoffBase", o.BackoffBase),
		check(
			o.BackoffBase <= o.BackoffMax,
			"BackoffBase %v exceeds BackoffMax %v",
			o.BackoffBase, o.BackoffMax,
		),
	)
}

func positive[T int | time.Duration](name string, v T) error {
	return check(v > 0, "%s is %v: it must be positive, or zero for the default", name, v)
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("events: "+format, args...)
}
