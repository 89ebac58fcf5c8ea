// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

func newStress(s streams) *cobra.Command {
	var (
		o      run.StressOptions
		fake   fakeFlags
		output string
		args   string
		keep   keepFlags
	)
	cmd := &cobra.Command{
		Use:   "stress",
		Short: "Find the rate at which events take a second (KEP-3386)",
		Long: `stress makes containers that run to completion, at a rate that rises step by
step, and removes them, until the histogram
evented_pleg_connection_latency_seconds shows events above its 1-second bucket,
or the runtime cannot make containers faster, or --max-rate is reached. It tells
the number of events, the rate at the end, and the latency there.

On a real runtime this is disruptive: use a machine that nobody needs. What it
made is removed at the end, also after Ctrl-C.`,
		Example: `  pleg-bench stress
  pleg-bench stress --pods 5 --start-rate 100 --max-rate 2000 --step 5s
  pleg-bench stress --profile crio -o json
  pleg-bench stress --out stress --expect 'knee_rate>200' --expect missed=0
  # a real runtime, which nobody else uses
  pleg-bench stress --endpoint unix:///run/own/containerd.sock --image busybox`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("--output %s: use text or json", output)}
			}
			if err := checkEndpointFlags(cmd, o.Endpoint); err != nil {
				return err
			}
			o.Profile, o.Faults, o.Seed = fake.profile, fake.faults, fake.seed
			o.Args = strings.Fields(args)
			if err := o.Validate(); err != nil {
				return usageError{fmt.Errorf("%w%s", err, hintAt(cmd.Context(), o.Options))}
			}
			expectations, err := keep.parse(new(bench.StressResult))
			if err != nil {
				return err
			}
			o.Stderr = s.err
			o.Logger = klog.FromContext(cmd.Context())
			o.WorkerArgs = append([]string{workerCommand}, verboseArgs(cmd)...)
			o.FakeArgs = fake.childArgs(cmd)
			display := newDisplay(s)
			if output == "text" {
				o.OnStatus = display.show
			}
			began := time.Now()
			result, err := run.Stress(cmd.Context(), o)
			display.clear()
			if result == nil {
				return refusal(err)
			}
			left := err // what was made and could not be removed, or an interrupt
			if output == "json" {
				encoder := json.NewEncoder(s.out)
				encoder.SetIndent("", "  ")
				err = encoder.Encode(result)
			} else {
				err = result.WriteText(s.out)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("write the result: %w", err), left)
			}
			saved := report.NewStress(began, commandLine(cmd), result, expectations)
			if keep.out != "" {
				left = errors.Join(left, saved.Write(keep.out))
			}
			tellFailures(s.err, saved.Failures)
			tellKept(s, keep.out)
			if left == nil && (!result.OK || len(saved.Failures) > 0) {
				return errBad
			}
			return left
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Endpoint, "endpoint", "", "use the real runtime on this socket instead of a fake one")
	flags.Float64Var(&o.StartRate, "start-rate", 0, "containers a second to begin with (default 50, on a real runtime 5)")
	flags.Float64Var(&o.MaxRate, "max-rate", 0, "containers a second at which to end (default 5000, on a real runtime 200)")
	flags.Float64Var(&o.Factor, "factor", 1.5, "what each step multiplies the rate by")
	flags.DurationVar(&o.StepFor, "step", 3*time.Second, "how long a step lasts")
	flags.IntVar(&o.Pods, "pods", 1, "number of pods that the containers are made in")
	flags.IntVar(&o.Containers, "containers", 0, "number of long-lived containers in each pod")
	flags.IntVar(&o.Parallel, "parallel", 0, "the load's calls in flight at most (default 16, 64 with the fake runtime)")
	flags.DurationVar(&o.JobLife, "job-life", 50*time.Millisecond, "about how long a container runs")
	addRealFlags(flags, &o.Options)
	fake.add(flags)
	flags.StringVar(&o.Image, "image", "", "image of the containers; needed with --endpoint, where the runtime must have it already")
	flags.StringVar(&args, "args", "sleep {life}", "arguments of the containers; {life} becomes how long they run, such as 0.05s")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", "", "serve the PLEG's metrics on this address while it runs, such as 127.0.0.1:9464")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	keep.add(flags, "steps.csv, ", "knee_rate>200")
	return cmd
}
