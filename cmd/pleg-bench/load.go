// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// loadCommand is the common part of the commands with a load, run and stress: flags, and the steps
// before and after the load.
type loadCommand struct {
	fake   fakeFlags
	output cli.Output
	args   string

	display *cli.Line
	began   time.Time
}

// add adds the common flags. JobLife is a default.
func (l *loadCommand) add(flags *pflag.FlagSet, o *run.Options, jobLife time.Duration) {
	flags.IntVar(&o.Parallel, "parallel", 0,
		"the load's calls in flight at most (default 16; stress on the fake runtime 64)")
	flags.DurationVar(&o.JobLife, "job-life", jobLife, "about how long short-lived containers live")
	flags.BoolVar(&o.BesideKubelet, "beside-kubelet", false,
		"make pods on a runtime that holds somebody else's, such as a kubelet's")
	flags.StringVar(&o.LogDirectory, "log-directory", "",
		"folder for the containers' logs, under the same path for the runtime (default: a temporary one)")
	flags.StringVar(&o.Image, "image", "",
		"image of the containers; needed with --endpoint, where the runtime must have it already")
	flags.StringVar(&l.args, "args", "sleep {life}",
		"arguments of the containers; {life} becomes how long they run, such as 0.2s")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", "",
		"serve the PLEG's metrics on this address while it runs, such as 127.0.0.1:9464")
	l.fake.add(flags)
}

// form is an empty result with the parts chosen by the options, for the names in expectations, and
// the reasons why the options do not measure the other parts.
type form struct {
	blank   any
	without report.Without
}

// begin completes the options with the flags and validates all.
func (l *loadCommand) begin(cmd *cobra.Command, s streams, o *run.Options, all interface{ Validate() error }, result form) error {
	if cmd.Flags().Changed("endpoint") && o.Endpoint == "" {
		return cli.Usagef("--endpoint is empty: name the runtime's socket, or leave the flag out for the fake runtime")
	}
	var err error
	if o.Endpoint, err = absolute(o.Endpoint); err != nil {
		return cli.Usagef("--endpoint: %w", err)
	}
	if err := checkEndpointFlags(cmd, o.Endpoint); err != nil {
		return err
	}
	o.Profile = l.fake.profile
	o.Faults = l.fake.faults
	o.Seed = l.fake.seed
	o.Args = strings.Fields(l.args)
	if err := all.Validate(); err != nil {
		return cli.Usagef("%w%s", err, hintAt(cmd.Context(), *o))
	}
	if err := l.output.Check(result.blank, result.without); err != nil {
		return err
	}
	o.WantTimeline = l.output.Dir != ""
	o.Logger = klog.FromContext(cmd.Context())
	o.WorkerArgs = append([]string{workerCommand}, verboseArgs(cmd)...)
	o.FakeArgs = l.fake.childArgs(cmd)
	l.display = cli.NewLine(s.err)
	o.Stderr = l.display.Above()
	if l.output.Form == "text" {
		o.OnStatus = func(status run.Status) { l.display.Show(progressLine(status)) }
	}
	l.began = time.Now()
	return nil
}

// end prints and keeps a result, good or bad. left is the reason for an early end of the load, or
// lists the pods left behind.
func (l *loadCommand) end(cmd *cobra.Command, result bench.Finding, good bool, timeline []bench.Series, left error) error {
	options := cli.Setup(cmd)
	options["runtime"] = result.Document().Title
	saved := report.Saved{
		Kind:     cmd.Name(),
		Began:    l.began,
		Setup:    options,
		Result:   result,
		Timeline: timeline,
	}
	return l.output.Write(cmd, saved, good, left)
}

// unfinished returns the error of a load that has no result, and prints its document.
func (l *loadCommand) unfinished(cmd *cobra.Command, err error, document func(why string, interrupted bool) any) error {
	return l.output.Failed(cmd, err, func(why string) any {
		return document(why, cmd.Context().Err() != nil)
	})
}

// progressLine is the phase, and a bar while the load runs.
func progressLine(s run.Status) string {
	if s.Total == 0 {
		return s.Phase + " …"
	}
	const barWidth = 30
	done := min(int(barWidth*s.Elapsed/s.Total), barWidth)
	bar := strings.Repeat("█", done) + strings.Repeat("░", barWidth-done)
	elapsed := bench.Short(s.Elapsed.Round(100 * time.Millisecond))
	changes := bench.Count(s.Changes, "change")
	line := fmt.Sprintf("%s  %s  %s of %s  %s", s.Phase, bar, elapsed, bench.Short(s.Total), changes)
	if s.Behind > time.Second {
		line += fmt.Sprintf("  (%s behind: the runtime is slower than the rate)", bench.Short(s.Behind))
	}
	return line
}
