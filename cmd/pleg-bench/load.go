// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

// loadCommand is what the commands that make a load, run and stress, have in common: flags, and what
// comes before the load and after it.
type loadCommand struct {
	fake         fakeFlags
	keep         keepFlags
	output, args string

	expectations []report.Expectation
	display      *display
	began        time.Time
}

// begin completes the options with the flags and has them validated. Blank is a result for the names
// that expectations may use.
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
	o.Stderr = s.err
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

// end tells and keeps a result, good or bad, and the expectations that failed. Left is why the load
// ended early, or what it made and could not remove.
func (l *loadCommand) end(s streams, result interface{ WriteText(io.Writer) error }, good bool,
	saved interface{ Write(dir string) error }, failures []string, left error,
) error {
	if err := writeResult(s.out, l.output, result, result.WriteText); err != nil {
		return errors.Join(err, left)
	}
	if l.keep.out != "" {
		left = errors.Join(left, saved.Write(l.keep.out))
	}
	tellFailures(s.err, failures)
	tellKept(s, l.keep.out)
	if left == nil && (!good || len(failures) > 0) {
		return errBad
	}
	return left
}
