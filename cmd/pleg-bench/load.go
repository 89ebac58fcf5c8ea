// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// keepFlags are the flags for storing and judging a result.
type keepFlags struct {
	out    string
	expect []string
}

func (k *keepFlags) add(flags *pflag.FlagSet, example string) {
	flags.StringVar(&k.out, "out", "", "keep what was found in this folder: report.html, result.json, benchstat.txt")
	flags.StringArrayVar(&k.expect, "expect", nil, "exit with 3 unless a number of the result keeps a bound, such as '"+example+"'; may be repeated")
}

// parse reads the bounds on results like blank, and checks before the work that the folder is
// writable.
func (k *keepFlags) parse(blank any) ([]report.Expectation, error) {
	bounds, err := report.ParseExpectations(k.expect, blank)
	if err != nil {
		return nil, usageError{err}
	}
	return bounds, checkFolder(k.out)
}

// checkFolder makes the folder, if named, and tries to write there.
func checkFolder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return usageError{fmt.Errorf("--out: %w", err)}
	}
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return usageError{fmt.Errorf("--out: %w", err)}
	}
	name := f.Name()
	_ = f.Close()
	_ = os.Remove(name)
	return nil
}

// tellKept prints the page's path, on a terminal only: scripts know the folder.
func tellKept(s streams, dir string) {
	if dir != "" && s.terminal() > 0 {
		fmt.Fprintf(s.err, "kept in %s\n", filepath.Join(dir, "report.html"))
	}
}

// tellFailures says which bounds were not kept.
func tellFailures(w io.Writer, failures []string) {
	for _, failure := range failures {
		fmt.Fprintf(w, "pleg-bench: %s\n", failure)
	}
}

// setup returns every option that shapes what a command finds, and the version of the command.
func setup(cmd *cobra.Command) map[string]string {
	options := map[string]string{"pleg-bench": version()}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "out", "expect", "output", "verbose", "help", "version", "metrics-addr", "endpoint", "log-directory", "status-every", "compare":
		default:
			options[f.Name] = f.Value.String()
		}
	})
	return options
}

// commandLine is the user's command line.
func commandLine(cmd *cobra.Command) []string {
	return append([]string{cmd.Root().Name()}, os.Args[1:]...)
}
