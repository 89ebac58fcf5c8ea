// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

func newStress(s streams) *cobra.Command {
	var (
		o run.StressOptions
		l loadCommand
	)
	cmd := &cobra.Command{
		Use:   "stress",
		Short: "Find the rate at which events take a second (KEP-3386)",
		Long: `stress makes containers that run to completion, at a rate that rises step by
step, and removes them, until the histogram
evented_pleg_connection_latency_seconds shows events above its 1-second bucket,
or the runtime cannot make containers faster, or --max-rate is reached. It tells
the number of events, the rate at the end, and the latency there. A runtime
without events, or one that completes nothing, fails the test.

On a real runtime this is disruptive: use a machine that nobody needs. What it
made is removed at the end, also after Ctrl-C.`,
		Example: `  pleg-bench stress
  pleg-bench stress --pods 5 --start-rate 100 --max-rate 2000 --step 5s
  pleg-bench stress --profile crio -o json
  pleg-bench stress --out stress --expect 'knee_rate>200' --expect missed=0
  # a real runtime, which nobody else uses
  pleg-bench stress --endpoint unix:///run/own/containerd.sock --image busybox`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unfinished := func(why string, interrupted bool) any { return run.UnfinishedStress(o, why, interrupted) }
			if err := l.begin(cmd, s, &o.Options, &o, form{blank: new(bench.StressResult)}); err != nil {
				return l.unfinished(cmd, err, unfinished)
			}
			result, err := run.Stress(cmd.Context(), o)
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
	flags.Float64Var(&o.StartRate, "start-rate", 0,
		"containers a second to begin with (default 50, on a real runtime 5)")
	flags.Float64Var(&o.MaxRate, "max-rate", 0,
		"containers a second at which to end (default 5000, on a real runtime 200)")
	flags.Float64Var(&o.Factor, "factor", 1.5, "what each step multiplies the rate by")
	flags.DurationVar(&o.StepFor, "step", 3*time.Second, "how long a step lasts")
	flags.IntVar(&o.Pods, "pods", 1, "number of pods that the containers are made in")
	flags.IntVar(&o.Containers, "containers", 0, "number of long-lived containers in each pod")
	l.add(flags, &o.Options, 50*time.Millisecond)
	l.output.AddFlags(flags, "text or json", "knee_rate>200")
	return cmd
}
