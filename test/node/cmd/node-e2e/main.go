// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command node-e2e runs the node e2e tests: the PLEG against a real container
// runtime that is stopped, killed and lied about.
//
//	node-e2e                 everything, on a private containerd
//	node-e2e --runtime crio  on another runtime; a list separated by commas, or all
//	node-e2e --bounded       the short form for CI
//	node-e2e --run '^0[13]'  the scenarios whose name matches
//	node-e2e --list          the scenarios and where they come from
//
// Environment: NODE_E2E_ENDPOINT=unix:///path uses a runtime that is already
// there, NODE_E2E_IMAGE names the workload image on it, NODE_E2E_BOUNDED=1,
// NODE_E2E_RUN and NODE_E2E_RUNTIME stand for the flags.
//
// It exits with 0 if all passed, 1 if a scenario failed or something was left
// behind, 2 if it could not run, and 130 when interrupted. It leaves no process,
// mount, cgroup or socket behind in any of these cases.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
	"github.com/evented-pleg/evented-pleg/test/node/suite"
	"github.com/evented-pleg/evented-pleg/test/node/sweep"
)

// Exit codes.
const (
	exitFailed      = 1
	exitCannotRun   = 2
	exitInterrupted = 130
)

// Environment by which the supervisor tells the suite what to own.
const (
	envBase    = "NODE_E2E_SUITE_BASE"
	envCgroup  = "NODE_E2E_SUITE_CGROUP"
	envRuntime = "NODE_E2E_SUITE_RUNTIME"
	envResults = "NODE_E2E_SUITE_RESULTS"
)

type options struct {
	list, bounded, verbose bool
	run                    *regexp.Regexp
	results, root          string
	endpoint, image        string
	runtimes               []string // for runs on private runtimes, one after another
}

func main() {
	surviveBrokenPipes()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e:", err)
		os.Exit(exitCannotRun)
	}
	if o.list {
		for _, s := range suite.Scenarios {
			fmt.Printf("%-24s %s\n", s.Name, s.Source)
		}
		return
	}
	if base := os.Getenv(envBase); base != "" {
		o.runtimes, o.results = []string{os.Getenv(envRuntime)}, os.Getenv(envResults)
		os.Exit(runSuite(o, base, os.Getenv(envCgroup)))
	}
	os.Exit(superviseAll(o))
}

// runtimesOf reads the names of runtimes, separated by commas. None is the default one.
func runtimesOf(names string) ([]string, error) {
	switch names {
	case "":
		return []string{runtimes.Default().Name}, nil
	case "all":
		return runtimes.Names(), nil
	}
	var found []string
	for name := range strings.SplitSeq(names, ",") {
		r, err := runtimes.ByName(name)
		if err != nil {
			return nil, err
		}
		found = append(found, r.Name)
	}
	return found, nil
}

// surviveBrokenPipes keeps a reader of our output that has gone from ending us
// before we have cleaned up. The signal is caught, not ignored: an ignored one
// would be ignored by every program that we start.
func surviveBrokenPipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("node-e2e", flag.ContinueOnError)
	flags.BoolVar(&o.list, "list", false, "print the scenarios and exit")
	flags.BoolVar(&o.bounded, "bounded", os.Getenv("NODE_E2E_BOUNDED") != "" && os.Getenv("NODE_E2E_BOUNDED") != "0",
		"run the short form, for CI")
	flags.BoolVar(&o.verbose, "v", false, "print the scenarios' logs as they come")
	pattern := flags.String("run", os.Getenv("NODE_E2E_RUN"), "run the scenarios whose name matches this regular expression")
	names := flags.String("runtime", os.Getenv("NODE_E2E_RUNTIME"), "the private runtimes to run on, one after another: names separated by commas, or all (default "+runtimes.Default().Name+")")
	flags.StringVar(&o.results, "results", "", "directory for junit.xml, figures and the logs of failures; emptied first (default build/node/results)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	if *pattern != "" {
		compiled, err := regexp.Compile(*pattern)
		if err != nil {
			return o, fmt.Errorf("--run: %w", err)
		}
		o.run = compiled
	}
	var err error
	if o.runtimes, err = runtimesOf(*names); err != nil {
		return o, fmt.Errorf("--runtime: %w", err)
	}
	o.endpoint, o.image = os.Getenv("NODE_E2E_ENDPOINT"), os.Getenv("NODE_E2E_IMAGE")
	if o.endpoint != "" && *names != "" {
		return o, fmt.Errorf("--runtime %s and NODE_E2E_ENDPOINT %s exclude each other: the one is a private runtime, the other one that is there", *names, o.endpoint)
	}
	dir, err := os.Getwd()
	if err != nil {
		return o, err
	}
	if o.root, err = components.FindRoot(dir); err != nil {
		return o, err
	}
	if o.results == "" {
		o.results = filepath.Join(o.root, "build", "node", "results")
	}
	o.results, err = filepath.Abs(o.results)
	return o, err
}

// runSuite is the child's part. What it starts is told by the cgroup that it joins.
func runSuite(o options, base, cgroup string) int {
	if err := (sweep.Target{Dir: base, Cgroup: cgroup}).Join(); err != nil {
		if o.endpoint == "" {
			fmt.Fprintln(os.Stderr, "node-e2e:", err)
			return exitCannotRun
		}
		cgroup = "" // no runtime of ours, and perhaps no root: what is left are children of the supervisor
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := suite.Run(ctx, suite.Options{
		Root: o.root, Base: base, Cgroup: cgroup, Endpoint: o.endpoint, Runtime: o.runtimes[0], Image: o.image,
		Run: o.run, Bounded: o.bounded, Verbose: o.verbose, Results: o.results, Out: os.Stdout,
	})
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "node-e2e: interrupted")
		return exitInterrupted
	case errors.Is(err, suite.ErrFailed):
		return exitFailed
	default:
		fmt.Fprintln(os.Stderr, "node-e2e:", err)
		return exitCannotRun
	}
}
