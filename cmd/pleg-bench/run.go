// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// fakeFlags are the flags of a fake runtime.
type fakeFlags struct {
	profile string
	faults  []string
	seed    uint64
}

func (f *fakeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.profile, "profile", fakeruntime.DefaultProfile,
		"behave like this runtime: "+strings.Join(fakeruntime.ProfileNames(), ", "))
	flags.StringArrayVar(&f.faults, "fault", nil,
		"misbehave: NAME=VALUE, may be repeated; \"pleg-bench fake --list-faults\" explains all")
	flags.Uint64Var(&f.seed, "seed", 8,
		"decides what happens to which pod, and which fault strikes when")
}

// childArgs returns the arguments for this program as a fake runtime, the child of another command.
func (f *fakeFlags) childArgs(cmd *cobra.Command) func(socket string) []string {
	return func(socket string) []string {
		args := []string{
			"fake", "--child",
			"--socket", socket,
			"--profile", f.profile,
			"--seed", fmt.Sprint(f.seed),
		}
		for _, fault := range f.faults {
			args = append(args, "--fault", fault)
		}
		return append(args, verboseArgs(cmd)...)
	}
}

// checkEndpointFlags refuses flags of a fake runtime beside a real endpoint.
func checkEndpointFlags(cmd *cobra.Command, endpoint string) error {
	if err := checkEndpoint(endpoint); err != nil {
		return err
	}
	if endpoint != "" && cmd.Flags().Changed("profile") {
		return cli.Usagef("--profile is for the fake runtime: it does not go with --endpoint")
	}
	return cli.CheckMount(endpoint)
}

// hintAt names the runtime's images where none was named.
func hintAt(ctx context.Context, o run.Options) string {
	if o.Endpoint != "" && o.Image == "" {
		return run.Images(ctx, o.Endpoint)
	}
	return ""
}

// refusal turns a refused runtime into a usage error: a flag decides.
func refusal(err error) error {
	if refused, ok := errors.AsType[*run.Refused](err); ok {
		return cli.Usage(refused)
	}
	return err
}

// runForm returns the form of a run's result with these options.
func runForm(o run.Options) form {
	blank := report.BlankRun()
	without := report.Without{}
	if o.RestartAt == 0 {
		blank.Outage = nil
	}
	if !o.Compare {
		blank.Comparison = nil
	}
	ofEvents := []string{
		"events.missed",
		"events.received",
		"events.stale",
		"events.replayed",
		"event_latency_seconds",
		"pleg.overruled",
	}
	for _, path := range ofEvents {
		without.Add("the polling PLEG hears no events", "comparison."+path)
		if o.Mode == worker.Generic {
			without.Add("--mode generic hears no events", path)
		}
	}
	if o.ProbeRate == 0 {
		without.Add("it needs --probe-rate", "freshness_seconds", "comparison.freshness_seconds")
	}
	if o.Rate == 0 {
		const still = "nothing changes at --rate 0"
		without.Add(still, "latency_seconds", "comparison.latency_seconds")
		without.Add(still, "events.unseen", "events.undelivered")
	}
	if o.Endpoint != "" {
		without.Add("only the fake runtime tells", "events.runtime_emitted")
	}
	return form{blank, without}
}

func newRun(s streams) *cobra.Command {
	var (
		o       run.Options
		l       loadCommand
		compare bool
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Make pods live and die, and check the PLEG (the default)",
		Long: `run makes pods live, die and be replaced on a container runtime, at a rate,
through plain CRI calls, while a PLEG in a process of its own keeps a cache,
tells lifecycle events, and serves simulated pod workers that wait for fresh
statuses. At the end it compares the cache with the runtime, and tells latency,
freshness and cost.

Without --endpoint it starts a fake runtime as a child process, whose history
says exactly what happened when. With --endpoint it makes real pods (label
evented-pleg.io/bench-run, host network) and removes them at the end, also after
Ctrl-C. It never touches other pods.

It refuses a runtime that holds Kubernetes pods which pleg-bench has not made: a
kubelet there takes the load's pods for its own and removes them, and is
disturbed by them. --beside-kubelet says that this is wanted. What a run has
left that was killed is removed by the next one, and by "pleg-bench cleanup".

It exits with 1 if a pod differs in the end, if an event was delivered twice,
out of order, or never, or if nothing was checked; with 3 if only --expect
failed.`,
		Example: `  # 500 pods of 2 containers, 4 changes every 5 s, for 10 s
  pleg-bench run
  # a busy node, with 20 reads a second for statuses newer than now
  pleg-bench run --rate 100 --probe-rate 20
  # the same load, polled
  pleg-bench run --mode generic
  pleg-bench run --profile crio --fault drop=0.1 -o json
  # the runtime restarts, its containers survive
  pleg-bench run --restart-runtime-at 4s
  # keep the result with a page, and fail if it is worse than that
  pleg-bench run --out before --expect 'latency.p99<5ms' \
      --expect events.missed=0
  # the cost of watching a quiet node
  pleg-bench run --rate 0 --duration 60s
  # a real runtime
  pleg-bench run --endpoint unix:///run/own/containerd.sock --image busybox \
      --pods 10 --rate 20`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Compare = compare
			if !cmd.Flags().Changed("compare") {
				o.Compare = l.output.Form == "text" && o.Endpoint == "" && o.Mode == worker.Evented
			}
			if cmd.Flags().Changed("outage") && o.RestartAt == 0 {
				return cli.Usagef("--outage is for --restart-runtime-at, which is missing")
			}
			unfinished := func(why string, interrupted bool) any { return run.Unfinished(o, why, interrupted) }
			if err := l.begin(cmd, s, &o, &o, runForm(o)); err != nil {
				return l.unfinished(cmd, err, unfinished)
			}
			result, err := run.Run(cmd.Context(), o)
			l.display.Show("")
			if result == nil {
				return l.unfinished(cmd, cli.Denied(o.Endpoint, refusal(err)), unfinished)
			}
			return l.end(cmd, result, result.OK, result.Series, err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Endpoint, "endpoint", "",
		"use the real runtime on this socket instead of a fake one")
	flags.StringVar(&o.Mode, "mode", worker.Evented,
		"evented: listen to the runtime's events; generic: only poll")
	flags.BoolVar(&compare, "compare", false,
		"let a polling PLEG watch the same load beside (default: with the fake runtime and text output)")
	flags.IntVar(&o.Pods, "pods", 500, "number of pods")
	flags.IntVar(&o.Containers, "containers", 2, "number of long-lived containers in each pod")
	flags.Float64Var(&o.Rate, "rate", 0.8, "state changes a second; 0 changes nothing")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second,
		"how long pods are changed; starting, settling and comparing take about 8s more")
	l.add(flags, &o, 200*time.Millisecond)
	flags.Float64Var(&o.ProbeRate, "probe-rate", 0,
		"reads a second that simulated pod workers make, each for a status newer than now")
	flags.DurationVar(&o.RestartAt, "restart-runtime-at", 0,
		"restart the fake runtime at that time of the load; its containers survive")
	flags.DurationVar(&o.OutageFor, "outage", 400*time.Millisecond,
		"how long a restarted runtime is down")
	flags.DurationVar(&o.RelistBase, "relist-base", 0,
		"relist period without trust in the stream (default the PLEG's own, 1s)")
	flags.DurationVar(&o.RelistMax, "relist-max", 0,
		"longest relist period that the stream can earn (default the PLEG's own, 300s)")
	flags.DurationVar(&o.ReadTimeout, "read-timeout", 0,
		"timeout of a read of the runtime (default the PLEG's own; 2s with faults)")
	l.output.AddFlags(flags, "text or json; json is documented in docs/json.md", "latency.p99<5ms")
	return cmd
}
