// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Loads.
const (
	LoadHotLoop = "hotloop" // one event, over and over, as fast as it goes
	LoadStorm   = "storm"   // events about as many different pods, as fast as it goes
	LoadNodes   = "nodes"   // many nodes, each with crash-looping pods, in step
)

// Recorders.
const (
	RecorderSeries         = "series"           // package events
	RecorderClientGo       = "client-go"        // client-go's tools/events
	RecorderClientGoLegacy = "client-go-legacy" // client-go's tools/record
)

// Faults of the embedded server.
const (
	FaultNone        = "none"
	Fault429         = "429"
	Fault429After    = "429-retry-after" // with Retry-After: 1
	Fault500         = "500"
	Fault503         = "503"
	FaultUnreachable = "unreachable" // connections are closed without an answer
)

// Values that a flag may take, for help texts.
var (
	Loads     = []string{LoadHotLoop, LoadStorm, LoadNodes}
	Recorders = []string{RecorderSeries, RecorderClientGo, RecorderClientGoLegacy}
	Faults    = []string{FaultNone, Fault429, Fault429After, Fault500, Fault503, FaultUnreachable}
)

// Options of a run. Zero values mean the defaults.
type Options struct {
	// Load is one of Loads. Default hotloop.
	Load string
	// Recorder is one of Recorders. Default series.
	Recorder string
	// Count is how many occurrences a hot loop has (default 1,000,000), or how many distinct events a storm (default 10,000).
	Count int
	// Nodes and Pods are, of the load nodes: how many nodes (default 200), and crash-looping pods on each (default 2).
	Nodes, Pods int
	// Period is the time between two rounds of the crash loops, in each of which every pod has four events (default 1 s), and Duration is for
	// how long they go on (default 15 s).
	Period, Duration time.Duration
	// Kubeconfig is the file that says how to reach a real API server. Default: the embedded one.
	Kubeconfig string
	// Fault is one of Faults, for the first FaultFor (default 10 s) of the load. The embedded server only.
	Fault    string
	FaultFor time.Duration
	// QPS limits the client of each node, as a kubelet's does (50 there). Default 0: no limit.
	QPS float32
	// Settle is how long to wait, after the load, for a recorder that still makes calls. It ends when there was none for Quiet (default 2 s) and no
	// fault is left. Default 30 s, and FaultFor on top.
	Settle, Quiet time.Duration
	// Shutdown is how long the recorder may take to shut down. Default 30 s.
	Shutdown time.Duration
	// Progress, if set, is told once a second what has happened so far. It must not block.
	Progress func(Progress)
}

// Progress is where a run is.
type Progress struct {
	Elapsed time.Duration
	Emitted int64
	Calls   int64
	Phase   string // load, settle, shutdown
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o *Options) complete() error {
	orDefault(&o.Load, LoadHotLoop)
	orDefault(&o.Recorder, RecorderSeries)
	orDefault(&o.Fault, FaultNone)
	if o.Load == LoadStorm {
		orDefault(&o.Count, 10_000)
	}
	orDefault(&o.Count, 1_000_000)
	orDefault(&o.Nodes, 200)
	orDefault(&o.Pods, 2)
	orDefault(&o.Period, time.Second)
	orDefault(&o.Duration, 15*time.Second)
	orDefault(&o.FaultFor, 10*time.Second)
	orDefault(&o.Shutdown, 30*time.Second)
	orDefault(&o.Quiet, 2*time.Second)
	if o.Settle == 0 {
		o.Settle = 30 * time.Second
		if o.Fault != FaultNone {
			o.Settle += o.FaultFor
		}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	var errs []error
	for _, f := range []struct {
		name, value string
		of          []string
	}{{"load", o.Load, Loads}, {"recorder", o.Recorder, Recorders}, {"fault", o.Fault, Faults}} {
		if !slices.Contains(f.of, f.value) {
			errs = append(errs, fmt.Errorf("%s %q is unknown: use one of %s", f.name, f.value, strings.Join(f.of, ", ")))
		}
	}
	if o.Count < 0 || o.Nodes < 0 || o.Pods < 0 || o.QPS < 0 {
		errs = append(errs, fmt.Errorf("count %d, nodes %d, pods %d, qps %g: none may be negative", o.Count, o.Nodes, o.Pods, o.QPS))
	}
	if o.Period < 0 || o.Duration < 0 || o.FaultFor < 0 || o.Settle < 0 || o.Quiet < 0 || o.Shutdown < 0 {
		errs = append(errs, errors.New("a time is negative"))
	}
	if o.Fault != FaultNone && o.Kubeconfig != "" {
		errs = append(errs, fmt.Errorf("fault %q needs the embedded server: leave the kubeconfig out", o.Fault))
	}
	if o.Nodes > 20_000 || o.Pods > 1000 || o.Count > 1_000_000_000 {
		errs = append(errs, fmt.Errorf("count %d, nodes %d, pods %d: at most 1e9, 20000 and 1000", o.Count, o.Nodes, o.Pods))
	}
	return errors.Join(errs...)
}
