// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pleg-bench-fleet is `pleg-bench fleet`: it judges the event streams of a fleet of nodes,
// and puts a load on some of them.
//
// `verdict` reads from Prometheus the metrics of `pleg-bench watch` on every node. `run` runs
// `pleg-bench run` on chosen nodes as one Indexed Job. Both print a document or JSON, and keep a
// page with --out. The program is apart from pleg-bench, which needs no Kubernetes client.
//
// The exit status is that of pleg-bench: 0 all is well, 1 a failure or a bad finding, 2 bad usage,
// 3 only a bound of --expect was not kept, 130 interrupted.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
)

var (
	// errBad is returned by a command that has printed a bad finding.
	errBad = errors.New("the finding is bad")
	// errUnmet is returned by a command that has printed the broken bounds of --expect.
	errUnmet = errors.New("an expectation was not kept")
	// errInterrupted is why the context ends at a signal.
	errInterrupted = errors.New("interrupted")
)

// usageError is an error about the command line.
type usageError struct{ error }

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the command line and returns the exit status.
func execute(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() { // ends with the program
		s := <-signals
		cancel(fmt.Errorf("%w (%v)", errInterrupted, s))
		signal.Reset() // a second signal kills
	}()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errBad) && !errors.Is(err, errUnmet) {
		fmt.Fprintf(stderr, "pleg-bench fleet: %v\n", err)
	}
	_, usage := errors.AsType[usageError](err)
	switch {
	case err == nil:
		return 0
	case errors.Is(context.Cause(ctx), errInterrupted):
		return 130
	case usage:
		fmt.Fprintln(stderr, "Run pleg-bench fleet --help, or with a command, for how it is used.")
		return 2
	case errors.Is(err, errUnmet):
		return 3
	}
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:         "pleg-bench-fleet",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "pleg-bench fleet"},
		Short:       "Judge the event streams of many nodes, and put load on some",
		Long: `pleg-bench fleet asks of a fleet what pleg-bench asks of a node: on which nodes
can polling be turned off, which version of a runtime loses events, and what
would it save? Kubernetes runs "pleg-bench watch" on every node, as a DaemonSet,
and Prometheus keeps its metrics.`,
		Example: `  # the verdict on the last hour
  pleg-bench fleet verdict --prometheus http://127.0.0.1:9090
  # a load on the nodes of a pool, on the fake runtime in each pod
  pleg-bench fleet run --nodes pool=canary --job-image example.com/pleg-bench`,
		Args:          noArgs,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetVersionTemplate("pleg-bench-fleet {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.AddCommand(newVerdict(), newRun((*runOptions).connect))
	return root
}

// commit is set by a release.
var commit string

// version is the module's version, the commit if it is known, and the Go release.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown build"
	}
	v := cmp.Or(info.Main.Version, "(devel)")
	if commit != "" {
		v += " commit " + commit
	}
	return v + " " + info.GoVersion
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown command or argument %q for %q", args[0], cmd.CommandPath())}
	}
	return nil
}

// output is how a finding is printed, kept and judged.
type output struct {
	form   string
	out    string
	expect []string
	bounds []report.Expectation
}

func (o *output) add(cmd *cobra.Command, example string) {
	flags := cmd.Flags()
	flags.StringVarP(&o.form, "output", "o", "text", "text or json; json is documented in docs/pleg-bench.md")
	flags.StringVar(&o.out, "out", "", "keep what was found in this folder: report.html, result.json, benchstat.txt")
	flags.StringArrayVar(&o.expect, "expect", nil, "exit with 3 unless a number of the result keeps a bound, such as '"+example+"'; may be repeated")
}

// check reads the bounds on results like blank.
func (o *output) check(blank any) (err error) {
	if o.form != "text" && o.form != "json" {
		return usageError{fmt.Errorf("--output %s: use text or json", o.form)}
	}
	if o.bounds, err = report.ParseExpectations(o.expect, blank); err != nil {
		return usageError{err}
	}
	return nil
}

// write prints a finding, keeps it, and returns errUnmet for a broken bound.
func (o *output) write(cmd *cobra.Command, began time.Time, found bench.Finding) error {
	var err error
	if o.form == "json" {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		err = encoder.Encode(found)
	} else {
		err = found.Document().WriteText(cmd.OutOrStdout())
	}
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	saved := report.Saved{
		Kind: "fleet " + cmd.Name(), Began: began, Result: found, Setup: map[string]string{"pleg-bench-fleet": version()},
		Command: []string{"pleg-bench", "fleet", cmd.Name()}, Timeline: []bench.Series{},
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		saved.Command = append(saved.Command, "--"+f.Name, f.Value.String())
		saved.Setup[f.Name] = f.Value.String()
	})
	saved.Expect(o.bounds)
	if o.out != "" {
		err = saved.Write(o.out)
	}
	for _, failure := range saved.Failures {
		fmt.Fprintf(cmd.ErrOrStderr(), "pleg-bench fleet: %s\n", failure)
	}
	if err == nil && len(saved.Failures) > 0 {
		err = errUnmet
	}
	return err
}
