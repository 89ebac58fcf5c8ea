// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// FakeImage is the containers' image on the fake runtime.
const FakeImage = fakeruntime.WorkloadImage

// Options are those of a run.
type Options struct {
	// Endpoint is a real runtime's socket; empty starts the fake runtime.
	Endpoint string
	// BesideKubelet allows a real runtime with pods that no load has made.
	BesideKubelet bool
	// LogDirectory is the parent of the folder for the containers' logs on a real runtime; empty is
	// the folder for temporary files.
	LogDirectory string
	// Profile and Faults are the fake runtime's.
	Profile string
	Faults  []string
	// Mode is worker.Evented or worker.Generic. Compare runs a generic generator as well.
	Mode    string
	Compare bool
	// Pods, Containers, Rate, Duration, Seed and JobLife shape the load.
	Pods, Containers int
	Rate             float64
	Duration         time.Duration
	Seed             uint64
	JobLife          time.Duration
	// Parallel bounds the load's calls in flight; zero means its default.
	Parallel int
	// Image and Args are those of the containers. An empty Image is right for the fake runtime only.
	Image string
	Args  []string
	// ProbeRate is the number of reads a second by the pod workers.
	ProbeRate float64
	// RelistBase, RelistMax and ReadTimeout are the generator's; zero means its defaults.
	RelistBase, RelistMax, ReadTimeout time.Duration
	// RestartAt restarts the fake runtime at this time of the load, for OutageFor. Zero: never.
	RestartAt, OutageFor time.Duration
	// MetricsAddr serves the generator's metrics.
	MetricsAddr string
	// WantTimeline keeps the latency of every single change in Result.Series.
	WantTimeline bool

	// FakeArgs and WorkerArgs are the arguments that make this program a fake runtime and a worker.
	FakeArgs   func(socket string) []string
	WorkerArgs []string
	// Stderr takes the children's output, OnStatus the progress of the run, several times a second.
	// Nil discards.
	Stderr   io.Writer
	OnStatus func(Status)
	Logger   logr.Logger
}

// Validate reports every senseless option by the name of its flag.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Mode != worker.Evented && o.Mode != worker.Generic {
		bad("--mode %s: use %s or %s", o.Mode, worker.Evented, worker.Generic)
	}
	if err := CheckSize(max(o.Pods, 0), o.Containers); err != nil {
		errs = append(errs, err)
	}
	if o.Pods < 1 {
		bad("--pods %d: there must be at least one pod", o.Pods)
	}
	if !(o.Rate >= 0) || math.IsInf(o.Rate, 0) {
		bad("--rate %v: it must be a number of changes a second, or 0", o.Rate)
	}
	if !(o.ProbeRate >= 0) || o.ProbeRate > 10000 {
		bad("--probe-rate %v: use 0 to 10000 reads a second", o.ProbeRate)
	}
	if o.Duration <= 0 {
		bad("--duration %v: it must be positive", o.Duration)
	}
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{
		{"restart-runtime-at", o.RestartAt}, {"outage", o.OutageFor},
		{"relist-base", o.RelistBase}, {"relist-max", o.RelistMax}, {"read-timeout", o.ReadTimeout}, {"job-life", o.JobLife},
	} {
		if d.v < 0 {
			bad("--%s %v: it must not be negative", d.flag, d.v)
		}
	}
	if o.Compare && o.Mode == worker.Generic {
		bad("--compare: the other PLEG polls too; use --mode %s", worker.Evented)
	}
	if base := cmp.Or(o.RelistBase, time.Second); o.RelistMax > 0 && o.RelistMax < base {
		bad("--relist-max %v: it must not be shorter than --relist-base, %v", o.RelistMax, base)
	}
	if err := worker.CheckMetricsAddr(o.MetricsAddr); err != nil {
		errs = append(errs, err)
	}
	const shortLife = time.Minute // of jobs that may outlive the load
	if o.JobLife > max(o.Duration, shortLife) {
		bad("--job-life %v: the run would wait for these containers: use at most %v", o.JobLife, max(o.Duration, shortLife))
	}
	if o.RestartAt > 0 && o.RestartAt >= o.Duration {
		bad("--restart-runtime-at %v: the load ends at %v", o.RestartAt, o.Duration)
	}
	if o.Parallel < 0 || o.Parallel > 1000 {
		bad("--parallel %d: use 1 to 1000 calls at once", o.Parallel)
	}
	if o.Endpoint != "" {
		if o.Image == "" {
			bad(
				"--image is missing: with --endpoint, name an image that the runtime has (crictl images); containers of it are given the arguments %q",
				"sleep 0.2s",
			)
		}
		if o.RestartAt > 0 || len(o.Faults) > 0 {
			bad("--fault and --restart-runtime-at are for the fake runtime: they do not go with --endpoint")
		}
	} else {
		if o.BesideKubelet || o.LogDirectory != "" {
			bad("--beside-kubelet and --log-directory are for a real runtime: they need --endpoint")
		}
		if _, err := fakeruntime.ProfileByName(o.Profile); err != nil {
			bad("--profile: %w", err)
		}
		if _, err := ParseFaults(o.Faults); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ParseFaults reads the values of --fault, and names the flag and what to use in its errors.
func ParseFaults(specs []string) (fakeruntime.Faults, error) {
	var errs []error
	for _, spec := range specs {
		_, err := fakeruntime.ParseFaults(spec)
		if err == nil {
			continue
		}
		name, _, _ := strings.Cut(spec, "=")
		of := func(f fakeruntime.Fault) bool { return f.Name == strings.TrimSpace(name) }
		_, unread := errors.AsType[*strconv.NumError](err)
		unread = unread || strings.Contains(err.Error(), ": time: ")
		if i := slices.IndexFunc(fakeruntime.FaultList(), of); unread && i >= 0 {
			f := fakeruntime.FaultList()[i]
			err = fmt.Errorf("%s: use a value such as %s=%s", spec, f.Name, f.Example)
		}
		errs = append(errs, fmt.Errorf("--fault %w", err))
	}
	if len(errs) > 0 {
		return fakeruntime.Faults{}, errors.Join(errs...)
	}
	return fakeruntime.ParseFaults(specs...)
}

// maxIDs bounds the sandboxes and containers of a load, which take some 10 KiB each.
const maxIDs = 300_000

// CheckSize returns an error for a number of pods, or of containers in each, that is negative or
// takes the machine's memory.
func CheckSize(pods, containers int) error {
	switch {
	case pods < 0:
		return fmt.Errorf("--pods %d: it must not be negative", pods)
	case containers < 0:
		return fmt.Errorf("--containers %d: it must not be negative", containers)
	case pods > maxIDs || containers >= maxIDs || pods*(1+containers) > maxIDs:
		return fmt.Errorf(
			"--pods %d, with --containers %d: use at most %d pods and containers in all",
			pods,
			containers,
			maxIDs,
		)
	}
	return nil
}

// readsLie says whether the faults make the runtime's lists and statuses false.
func readsLie(f fakeruntime.Faults) bool {
	return f.NilFields+f.UnknownEnum+f.InvalidUTF8+f.DuplicateID+f.OrphanContainer > 0
}
