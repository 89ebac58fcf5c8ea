// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

const (
	// RunLabel marks every sandbox and container that a load made; its value names the run.
	RunLabel = "evented-pleg.io/bench-run"
	// ownerAnnotation names the process that made a sandbox, as [processName] writes processes.
	ownerAnnotation = "evented-pleg.io/bench-process"
	// logsAnnotation is the LogDirectory of the load that made a sandbox.
	logsAnnotation = "evented-pleg.io/bench-logs"

	labelPodUID        = "io.kubernetes.pod.uid"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelContainerName = "io.kubernetes.container.name"

	defaultParallel    = 16
	defaultCallTimeout = 30 * time.Second
	// defaultUnderWay keeps a runtime that hangs from collecting goroutines.
	defaultUnderWay = 4096
)

// Fact is what a call has made of a container or sandbox. Every read that begins after At must show
// the state, or a later one.
type Fact struct {
	Pod     string
	ID      string
	Sandbox bool
	State   bench.State
	// At is a bench.Stamp of when the call returned.
	At int64
}

// Config is a load.
type Config struct {
	// Conn is the connection to the runtime.
	Conn grpc.ClientConnInterface
	// RunID names the run in RunLabel and in the pods' namespace.
	RunID string
	// Pods and Containers are the number of pods and of long-lived containers in each.
	Pods, Containers int
	// Rate is the number of state changes a second that Run aims at. 0: Run changes nothing.
	Rate float64
	// JobsOnly makes Run only run short jobs, as KEP-3386's stress test does.
	JobsOnly bool
	// JobLife is about how long a job runs; each takes half to one and a half of it. Default 200 ms.
	JobLife time.Duration
	// Seed decides what happens to which pod.
	Seed uint64
	// Image is what containers run, and Args what they are given: "{life}" in them becomes how long
	// they run, such as 0.2s.
	Image string
	Args  []string
	// LogDirectory is an absolute path of a folder that the runtime can write to and that nobody else
	// uses. Every sandbox and container names a path in the folder for its log, because a kubelet
	// that removes a container without a log path removes the files of its own working directory.
	LogDirectory string
	// HostNetwork puts pods into the network of the node, for runtimes without CNI.
	HostNetwork bool
	// Parallel bounds the calls in flight. Default 16.
	Parallel int
	// UnderWay bounds the actions that are begun and not finished: a runtime that does not keep up with
	// the rate is asked for no more. Default 4096.
	UnderWay int
	// CallTimeout bounds each call. Default 30 s.
	CallTimeout time.Duration
	// OnFact takes every fact, from several goroutines. Nil discards them.
	OnFact func(Fact)
	// OnChange takes every change with the time at which the runtime says that it happened, from
	// several goroutines. It costs a ContainerStatus for each start and exit. Nil: nobody wants to
	// know.
	OnChange func(bench.Change)
	// Logger takes what went wrong with single calls.
	Logger logr.Logger
}

func (c Config) withDefaults() Config {
	if c.Parallel == 0 {
		c.Parallel = defaultParallel
	}
	if c.UnderWay == 0 {
		c.UnderWay = defaultUnderWay
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = defaultCallTimeout
	}
	if c.JobLife == 0 {
		c.JobLife = 200 * time.Millisecond
	}
	if len(c.Args) == 0 {
		c.Args = []string{"sleep", "{life}"}
	}
	if c.OnFact == nil {
		c.OnFact = func(Fact) {}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("load: "+format, args...)) }
	if c.Conn == nil {
		bad("Config.Conn is nil: the load needs a connection to a runtime")
	}
	if c.RunID == "" || strings.ContainsAny(c.RunID, "/ ") {
		bad("Config.RunID is %q: it must be a plain word", c.RunID)
	}
	if c.Pods < 1 {
		bad("Config.Pods is %d: there must be at least one pod", c.Pods)
	}
	if c.Containers < 0 {
		bad("Config.Containers is %d: it must not be negative", c.Containers)
	}
	if !(c.Rate >= 0) || math.IsInf(c.Rate, 0) {
		bad("Config.Rate is %v: it must be a number of changes a second, or 0", c.Rate)
	}
	if c.Image == "" {
		bad("Config.Image is empty: containers need an image")
	}
	if !filepath.IsAbs(c.LogDirectory) {
		bad("Config.LogDirectory is %q: it must be an absolute path", c.LogDirectory)
	}
	if c.Parallel < 0 || c.UnderWay < 0 || c.CallTimeout < 0 || c.JobLife < 0 {
		bad("Config.Parallel, UnderWay, CallTimeout and JobLife must not be negative")
	}
	return errors.Join(errs...)
}
