// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// RunLabel marks every sandbox and container of a load; its value names the run.
	RunLabel = "evented-pleg.io/bench-run"

	// LabelPodUID and the others are the labels of a kubelet's pods and containers.
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelContainerName = "io.kubernetes.container.name"

	defaultParallel    = 16
	defaultCallTimeout = 30 * time.Second
	// defaultUnderWay keeps a hanging runtime from collecting goroutines.
	defaultUnderWay = 4096
)

// Fact is the effect of a call on a container or sandbox. Every read begun after At must show the
// state, or a later state.
type Fact struct {
	Pod     string
	ID      string
	Sandbox bool
	State   pleg.Phase
	// At is a bench.Stamp of when the call returned.
	At int64
}

// Config is a load. The caller has checked its values.
type Config struct {
	// Conn is the connection to the runtime.
	Conn grpc.ClientConnInterface
	// RunID names the run in RunLabel, and begins the UIDs of pods. It has letters and digits alone.
	RunID string
	// Namespace is the pods' namespace. Default: one with the RunID in it.
	Namespace string
	// CgroupParent is the cgroup for pods. Empty: the runtime's choice.
	CgroupParent string
	// Pods and Containers are the number of pods and of long-lived containers in each.
	Pods, Containers int
	// Rate is the intended number of state changes a second. 0: Run changes nothing.
	Rate float64
	// JobsOnly makes Run only run short jobs, as KEP-3386's stress test does.
	JobsOnly bool
	// JobLife is the approximate life of a job; each takes half to one and a half of JobLife.
	// Default 200 ms.
	JobLife time.Duration
	// Seed determines the actions and their pods.
	Seed uint64
	// Image is the containers' image, and Args their arguments: "{life}" becomes their duration,
	// such as 0.2s.
	Image string
	Args  []string
	// LogDirectory is an absolute path of a folder writable by the runtime and used by nobody else.
	// Every sandbox and container names a log path in the folder, because a kubelet that removes a
	// container without a log path removes the files of its own working directory.
	LogDirectory string
	// HostNetwork puts pods into the network of the node, for runtimes without CNI.
	HostNetwork bool
	// Parallel bounds the calls in flight. Default 16.
	Parallel int
	// UnderWay bounds the unfinished actions: a runtime behind the rate gets no more. Default 4096.
	UnderWay int
	// CallTimeout bounds each call. Default 30 s.
	CallTimeout time.Duration
	// GoneAfter is for how long a runtime may refuse every call (Unavailable) until it counts as gone:
	// no call is repeated then, and the work ends. 0: for ever, and each call is repeated for
	// CallTimeout.
	GoneAfter time.Duration
	// Connected reports whether the connection stands, from any goroutine. While it does not, a load
	// that changes nothing asks whether the runtime is there. Nil: it always stands.
	Connected func() bool
	// OnGone takes the error once. It must not call the driver. Nil discards it.
	OnGone func(*Gone)
	// Meter knows when this process does not run: such a time is no part of CallTimeout. Nil: the
	// process always runs.
	Meter *standstill.Meter
	// OnFact takes every fact, from several goroutines. Nil discards them.
	OnFact func(Fact)
	// OnChange takes every change with the runtime's time of the change, from several goroutines. It
	// costs a ContainerStatus for each start and exit. Nil disables it.
	OnChange func(bench.Change)
	// Logger takes the failures of single calls.
	Logger logr.Logger
}

func (c Config) withDefaults() Config {
	c.Parallel = cmp.Or(c.Parallel, defaultParallel)
	c.UnderWay = cmp.Or(c.UnderWay, defaultUnderWay)
	c.CallTimeout = cmp.Or(c.CallTimeout, defaultCallTimeout)
	c.JobLife = cmp.Or(c.JobLife, 200*time.Millisecond)
	c.Namespace = cmp.Or(c.Namespace, "pleg-bench-"+c.RunID)
	if len(c.Args) == 0 {
		c.Args = []string{"sleep", "{life}"}
	}
	if c.OnFact == nil {
		c.OnFact = func(Fact) {}
	}
	if c.Connected == nil {
		c.Connected = func() bool { return true }
	}
	if c.OnGone == nil {
		c.OnGone = func(*Gone) {}
	}
	return c
}
