// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is the benchmark of the compared PLEGs: each in a test binary of its own, beside
// the same runtime process.
//
// # Model
//
// A [Driver] is a PLEG behind the few calls common to every PLEG. [Bench] runs the rows of
// docs/performance.md with a driver. A row starts a runtime and a driver, and reports the cost to
// its own process as metrics for benchstat: CPU time from the kernel (user and system, every
// thread, garbage collection included), bytes and objects allocated from the Go runtime.
//
// A row does a fixed amount of work and ignores b.N: run with -benchtime=1x, and each row in a new
// process, because a kubelet's PLEG cannot be started twice. The script run in the folder above
// does so.
//
// The package is a module without requirements, so that the kubelet's drivers and ours have their
// own dependencies and share nothing else.
package agent

import (
	"strings"
	"time"
)

// Options select a driver's PLEG.
type Options struct {
	// Socket is the runtime's unix socket, a path.
	Socket string
	// Mode is "manual" (lists on request, no stream), "generic" (unchanged, without a stream),
	// "evented" (unchanged, with a stream), "intake" (with a stream, and a single listing at the
	// start), "told" (evented, with reports of the agent's own calls), or "none" (no PLEG at all).
	Mode string
	// Streams: the runtime has the streaming list calls.
	Streams bool
}

// streams reports whether the PLEG subscribes to the runtime's events.
func (o Options) streams() bool {
	return o.Mode == "evented" || o.Mode == "told" || o.Mode == "intake"
}

// Driver is a PLEG.
type Driver interface {
	// Start connects and starts.
	Start(Options) error
	// Relist lists the whole runtime, applies the list, and returns afterwards.
	Relist() error
	// Ready reports whether the first list was applied and, with a stream, the stream is up.
	Ready() bool
	// Handled is the number of applied events of the stream so far.
	Handled() int64
	// Newer returns after the pod's status as of a read begun after t is there.
	Newer(uid string, t time.Time) error
	// Drain calls told with every event of Watch, and does not return.
	Drain(told func(pod, id, kind string))
	// Footprint returns the bytes of another set of the statuses of all pods.
	Footprint() (int64, error)
}

// Churner is a driver with an agent that makes, stops and removes pods itself, as a kubelet does.
// All methods are called from many goroutines.
type Churner interface {
	// Make makes a pod of the UID and name with a container, which runs and ends by itself at the
	// end of its life.
	Make(uid, name string, life time.Duration) (Pod, error)
	// Stop stops the pod after its container's end.
	Stop(Pod) error
	// Remove removes the container, and then the pod.
	Remove(Pod) error
	// Synced is called after a pod worker's action: then a kubelet asks its PLEG to look at the pod.
	Synced(uid string)
	// Await returns when the cache has a status of the pod newer than t.
	Await(uid string, t time.Time) error
}

// Pod is a created pod.
type Pod struct{ UID, Sandbox, Container string }

// Annotations returns the annotations of a pod, and of its container without its lifetime, long
// enough for the list items of other rows: 1.1 and 1.45 KB.
func Annotations() (pod, container map[string]string) {
	return map[string]string{
			"kubernetes.io/config.seen": "2026-11-21T05:00:00.000000000Z", "kubernetes.io/config.source": "api",
			"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("{}", appliedBytes/2),
		}, map[string]string{
			"io.kubernetes.container.hash": "4f2a7c11", "io.kubernetes.container.restartCount": "0",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.ports":                    strings.Repeat("{}", portsBytes/2),
		}
}

// How long the longest annotations are.
const (
	appliedBytes = 620
	portsBytes   = 600
)
