// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
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

// begin completes the options with the flags and validates them. Blank is a result for the names in
// expectations.
func (l *loadCommand) begin(cmd *cobra.Command, s streams, o *run.Options, validate func() error, blank any) error {
	if err := checkEndpointFlags(cmd, o.Endpoint); err != nil {
		return err
	}
	o.Profile, o.Faults, o.Seed = l.fake.profile, l.fake.faults, l.fake.seed
	o.Args = strings.Fields(l.args)
	if err := validate(); err != nil {
		return cli.Usagef("%w%s", err, hintAt(cmd.Context(), *o))
	}
	if err := l.output.Check(blank); err != nil {
		return err
	}
	o.Stderr, o.WantTimeline = s.err, l.output.Dir != ""
	o.Logger = klog.FromContext(cmd.Context())
	o.WorkerArgs = append([]string{workerCommand}, verboseArgs(cmd)...)
	o.FakeArgs = l.fake.childArgs(cmd)
	l.display = cli.NewLine(s.err)
	if l.output.Form == "text" {
		o.OnStatus = func(status run.Status) { l.display.Show(progressLine(status)) }
	}
	l.began = time.Now()
	return nil
}

// end prints and keeps a result, good or bad. Left is why the load ended early, or what the load
// made and could not remove.
func (l *loadCommand) end(cmd *cobra.Command, result bench.Finding, good bool, timeline []bench.Series, left error) error {
	options := cli.Setup(cmd)
	options["runtime"] = result.Document().Title
	saved := report.Saved{Kind: cmd.Name(), Began: l.began, Setup: options, Result: result, Timeline: timeline}
	return l.output.Write(cmd, saved, good, left)
}
