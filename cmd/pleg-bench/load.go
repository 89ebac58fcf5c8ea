// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// loadCommand is the common part of the commands with a load, run and stress: flags, and the steps
// before and after the load.
type loadCommand struct {
	fake         fakeFlags
	keep         keepFlags
	output, args string

	expectations []report.Expectation
	display      *display
	began        time.Time
}

// begin completes the options with the flags and validates them. Blank is a result for the names in
// expectations.
func (l *loadCommand) begin(cmd *cobra.Command, s streams, o *run.Options, validate func() error, blank any) (err error) {
	if err := checkOutput(l.output); err != nil {
		return err
	}
	if err := checkEndpointFlags(cmd, o.Endpoint); err != nil {
		return err
	}
	o.Profile, o.Faults, o.Seed = l.fake.profile, l.fake.faults, l.fake.seed
	o.Args = strings.Fields(l.args)
	if err := validate(); err != nil {
		return usageError{fmt.Errorf("%w%s", err, hintAt(cmd.Context(), *o))}
	}
	if l.expectations, err = l.keep.parse(blank); err != nil {
		return err
	}
	o.Stderr, o.WantTimeline = s.err, l.keep.out != ""
	o.Logger = klog.FromContext(cmd.Context())
	o.WorkerArgs = append([]string{workerCommand}, verboseArgs(cmd)...)
	o.FakeArgs = l.fake.childArgs(cmd)
	l.display = newDisplay(s)
	if l.output == "text" {
		o.OnStatus = l.display.show
	}
	l.began = time.Now()
	return nil
}

// end prints and keeps a result, good or bad. Left is why the load ended early, or what the load
// made and could not remove.
func (l *loadCommand) end(cmd *cobra.Command, s streams, kind string, result bench.Finding, good bool, timeline []bench.Series, left error) error {
	if err := writeResult(s.out, l.output, result, result.Document().WriteText); err != nil {
		return errors.Join(err, left)
	}
	options := setup(cmd)
	options["runtime"] = result.Document().Title
	saved := report.Saved{Kind: kind, Began: l.began, Command: commandLine(cmd), Setup: options, Result: result, Timeline: timeline}
	saved.Expect(l.expectations)
	if l.keep.out != "" {
		left = errors.Join(left, saved.Write(l.keep.out))
	}
	tellFailures(s.err, saved.Failures)
	tellKept(s, l.keep.out)
	switch {
	case left != nil:
		return left
	case !good:
		return errBad
	case len(saved.Failures) > 0:
		return errUnmet
	}
	return nil
}
