// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command kubelet-e2e runs real kubelets, stock and with the evented PLEG, on a node of static pods
// without an API server. Run it as root, in the repository's root, after test/kubelet/build.
//
//	go run ./test/kubelet/cmd/kubelet-e2e scenarios [-pods 200] [-for 1h] [-together]
//		[-runtime crio] [-api DIR] [-only NAME,...] [VARIANT...]
//	go run ./test/kubelet/cmd/kubelet-e2e upstream [-bounded] [-seed 1] [-focus REGEXP]
//		[-runtime crio] [-out DIR] [VARIANT...]
//	go run ./test/kubelet/cmd/kubelet-e2e compare [-pods 200] [-containers 2] [-probes] [-idle 5m]
//		[-volumes 1] [-churn 1] [-profile DIR] [-together] [-runtime crio] [-api DIR] [VARIANT...]
//
// Variants are stock-1.36.3, evented-1.36.3, stock-1.37.1, evented-1.37.1 and,
// on request, gate-1.36.3 and gate-1.37.1 (stock with EventedPLEG), resting-1.36.3 and
// resting-1.37.1 (evented, with the gates of loops that rest), and those of 1.38.0-alpha.0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
	"github.com/evented-pleg/evented-pleg/test/kubelet/upstream"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

func main() {
	all := func() int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err := run(ctx, os.Args[1:])
		if err == nil {
			return 0
		}
		fmt.Fprintln(os.Stderr, "kubelet-e2e:", err)
		if errors.As(err, new(usageError)) {
			return 2
		}
		return 1
	}
	if len(os.Args) > 1 &&
		slices.Contains([]string{"scenarios", "compare", "value-run", "upstream"}, os.Args[1]) {
		os.Exit(unshare.Main(all))
	}
	os.Exit(all())
}

// usageError is an error of the caller: its exit status is 2, where a failure's is 1.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usagef("say what to do: scenarios, compare, value or upstream; each takes -h")
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Println(usage)
		return nil
	case standalone.Inside:
		return standalone.RunInside(args[1:])
	case scene.FakeRuntime:
		return scene.ServeFake(ctx, args[1:])
	case "scenarios":
		return scenarios(ctx, args[1:])
	case "compare":
		return compare(ctx, args[1:])
	case "value":
		return value(ctx, args[1:])
	case "value-run":
		return valueOne(ctx, args[1:])
	case upstream.Namespaces:
		return upstream.RunNode(args[1])
	case upstream.Suite:
		return upstream.RunSuite(ctx)
	case "upstream":
		return runUpstream(ctx, args[1:])
	}
	return usagef("%q is none of scenarios, compare, value and upstream; each takes -h", args[0])
}

const usage = `usage: kubelet-e2e scenarios|compare|value|upstream [FLAG...] [VARIANT...]

scenarios  plays each kubelet through starts, ends, probes, kills and a disturbed stream
compare    measures kubelets beside each other
value      measures what the PLEG is worth, each kubelet in a run of its own
upstream   runs upstream's own node e2e tests

Each takes -h. Run it as root in the root of the repository; make kubelet builds the kubelets.`

// common are the flags of scenarios and compare.
type common struct {
	*flag.FlagSet
	dir, runtime, api string
	together          bool
}

func newCommon(name string) *common {
	c := &common{FlagSet: flag.NewFlagSet(name, flag.ExitOnError)}
	c.StringVar(&c.dir, "kubelets", "build/kubelet", "where the kubelets are")
	c.StringVar(
		&c.runtime,
		"runtime",
		"",
		"a real runtime that each kubelet has to itself, built at first if it must be ("+
			strings.Join(runtimes.Names(), ", ")+"), instead of the fake one",
	)
	c.StringVar(
		&c.api,
		"api",
		"",
		"folder with a folder for each version, with etcd and kube-apiserver in it, to have pods bound to the node by an API server",
	)
	c.BoolVar(
		&c.together,
		"together",
		false,
		"all kubelets at once, each with its own runtime, so that whatever else the machine does is the same for all",
	)
	return c
}

// variants returns those of the names, on the runtime and with the API server of the flags.
func (c *common) variants(names []string) ([]scene.Variant, error) {
	if c.runtime != "" {
		if _, err := runtimes.ByName(c.runtime); err != nil {
			return nil, usageError{err}
		}
	}
	list, err := variants(c.dir, names)
	for i := range list {
		list[i].Runtime = c.runtime
		if c.api != "" {
			list[i].API = filepath.Join(c.api, "v"+list[i].Version)
		}
	}
	return list, err
}

// play plays on each of the variants, one after the other or together, and writes the results.
func play(c *common, list []scene.Variant, on func(scene.Variant) (*scene.Column, error)) error {
	all := make([]*scene.Column, len(list))
	errs := make([]error, len(list))
	var done sync.WaitGroup
	for i, v := range list {
		done.Go(func() {
			all[i], errs[i] = on(v)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", v.Name, errs[i])
			}
		})
		if !c.together {
			done.Wait()
		}
	}
	done.Wait()
	fmt.Println()
	scene.WriteTable(os.Stdout, slices.DeleteFunc(all, func(c *scene.Column) bool { return c == nil }))
	return errors.Join(errs...)
}

// preview is a version played only on request: not all of its modules are available everywhere.
const preview = "1.38.0-alpha.0"

// ourGates are the feature gates of a kubelet with this PLEG.
var ourGates = map[string]bool{scene.Generator: true, scene.Lists: true}

// restingGates are those of one whose loops rest besides, while nothing changes.
var restingGates = map[string]bool{
	scene.Generator: true,
	scene.Lists:     true,
	scene.Volumes:   true,
	scene.Cleanups:  true,
}

// variants returns those of the names, or all of the released versions.
func variants(dir string, names []string) ([]scene.Variant, error) {
	var chosen []scene.Variant
	var known []string
	for _, version := range []string{"1.36.3", "1.37.1", preview} {
		file := func(kind string) string { return filepath.Join(dir, "kubelet-v"+version+"-"+kind) }
		for _, v := range []scene.Variant{
			{Name: "stock-" + version, Binary: file("stock")},
			{Name: "gate-" + version, Binary: file("stock"), Gates: map[string]bool{"EventedPLEG": true}},
			{Name: "evented-" + version, Binary: file("evented"), Gates: ourGates, Ours: true},
			{Name: "resting-" + version, Binary: file("evented"), Gates: restingGates, Ours: true},
		} {
			known = append(known, v.Name)
			if unasked := version == preview || strings.HasPrefix(v.Name, "gate-") ||
				strings.HasPrefix(v.Name, "resting-"); !slices.Contains(names, v.Name) &&
				(len(names) > 0 || unasked) {
				continue
			}
			if _, err := os.Stat(v.Binary); err != nil {
				return nil, fmt.Errorf("%s: %w (make kubelet builds it)", v.Name, err)
			}
			v.Binary, _ = filepath.Abs(v.Binary)
			v.Version = version
			chosen = append(chosen, v)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usagef("no variant is called %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
