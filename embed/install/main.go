// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command install puts the evented PLEG into a source tree of Kubernetes, as packages of the tree,
// and patches the kubelet. The command carries the sources.
//
//	install -kubernetes DIR             installs, or upgrades
//	install -kubernetes DIR -remove     the tree is again as it was
//	install -kubernetes DIR -series OUT writes the change as patches for git am, and leaves the tree
//
// The packages go to pkg/kubelet/pleg/evented, with rewritten imports. The patches change the
// kubelet, its list of feature gates and the buckets of one histogram: no go.mod, no vendor folder.
// An upgrade discards changes made in pkg/kubelet/pleg/evented. A tree that the patches do not fit
// stays as it is, with the PLEG that it has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	module = "github.com/evented-pleg/evented-pleg"
	into   = "pkg/kubelet/pleg/evented" // in the tree
)

// errUsage is an error of the command line.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

// run carries out a command line.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	tree := flags.String("kubernetes", "", "`DIR` of a Kubernetes source tree")
	remove := flags.Bool("remove", false, "remove the PLEG from the tree")
	generator := flags.Bool(
		"generator",
		false,
		"install the generator alone, without lists from memory, loops that rest, and their gates",
	)
	series := flags.String(
		"series",
		"",
		"write the change as patches into the folder `OUT`, and leave the tree as it is",
	)
	stamp := flags.Bool("version", false, "print the version of the carried sources")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case *stamp:
		_, err := fmt.Fprintln(out, version())
		return err
	case flags.NArg() > 0:
		return fmt.Errorf(
			"%w: the argument %q is not known: a tree is named by -kubernetes DIR",
			errUsage,
			flags.Arg(0),
		)
	case *tree == "":
		return fmt.Errorf("%w: name the source tree of Kubernetes: -kubernetes DIR", errUsage)
	case *remove && *series != "", *generator && (*remove || *series != ""):
		return fmt.Errorf("%w: -generator, -remove and -series exclude each other", errUsage)
	case *series != "":
		return writeSeries(ctx, *tree, *series, out)
	case *remove:
		if err := uninstall(ctx, *tree); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "the evented PLEG is removed from %s\n", *tree)
		return err
	}
	if err := install(ctx, *tree, !*generator); err != nil {
		return err
	}
	_, err := fmt.Fprintf(
		out,
		"the evented PLEG %s is in %s; hack/update-featuregates.sh renews the tree's table of gates\n",
		version(),
		*tree,
	)
	return err
}
