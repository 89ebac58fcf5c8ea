// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
)

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
