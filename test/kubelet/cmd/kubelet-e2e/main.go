// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command kubelet-e2e runs real kubelets, stock and with the evented PLEG, on a node of static pods
// without an API server. Run it as root, in the repository's root, after kubelet-build.
//
//	go run ./test/kubelet/cmd/kubelet-e2e scenarios [-pods 200] [-for 1h] [-together] [-runtime crio] [-api DIR] [-only NAME,...] [VARIANT...]
//	go run ./test/kubelet/cmd/kubelet-e2e upstream [-bounded] [-seed 1] [-focus REGEXP] [-out DIR] [VARIANT...]
//	go run ./test/kubelet/cmd/kubelet-e2e compare [-pods 200] [-idle 5m] [-logs 10s] [-profile DIR] [-together] [-runtime crio] [-api DIR] [VARIANT...]
//
// Variants are stock-1.36.3, gate-1.36.3 (stock with EventedPLEG), evented-1.36.3, stock-1.37.1 and
// evented-1.37.1, and on request those of 1.38.0-alpha.0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
	"github.com/evented-pleg/evented-pleg/test/kubelet/upstream"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

func main() {
	if err, ok := upstream.Unit(filepath.Base(os.Args[0]), os.Args[1:], os.Stdout); ok {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-e2e:", err)
		if errors.As(err, new(usageError)) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// usageError is an error of the caller: its exit status is 2, where a failure's is 1.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usagef("say what to do: scenarios, compare or upstream")
	}
	switch args[0] {
	case standalone.Inside:
		return standalone.RunInside(args[1:])
	case scene.FakeRuntime:
		return scene.ServeFake(ctx, args[1:])
	case "scenarios":
		return scenarios(ctx, args[1:])
	case "compare":
		return compare(ctx, args[1:])
	case upstream.Namespaces:
		return upstream.RunNode(args[1])
	case upstream.Suite:
		return upstream.RunSuite(ctx)
	case "upstream":
		return runUpstream(ctx, args[1:])
	}
	return usagef("%q is none of scenarios, compare and upstream", args[0])
}

// runtimeFlag is -runtime of both commands: empty for the fake runtime.
func runtimeFlag(flags *flag.FlagSet) *string {
	return flags.String("runtime", "", "a real runtime that each kubelet has to itself, built at first if it must be ("+
		strings.Join(runtimes.Names(), ", ")+"), instead of the fake one")
}

// checkRuntime checks the name in -runtime.
func checkRuntime(name string) error {
	if name == "" {
		return nil
	}
	if _, err := runtimes.ByName(name); err != nil {
		return usageError{err}
	}
	return nil
}

// preview is a version played only on request: not all of its modules are available everywhere.
const preview = "1.38.0-alpha.0"

// variants returns those of the names, or all of the released versions.
func variants(dir string, names []string) ([]scene.Variant, error) {
	var chosen []scene.Variant
	for _, version := range []string{"1.36.3", "1.37.1", preview} {
		file := func(kind string) string { return filepath.Join(dir, "kubelet-v"+version+"-"+kind) }
		all := []scene.Variant{{Name: "stock-" + version, Binary: file("stock")}}
		if version == "1.36.3" {
			all = append(all, scene.Variant{Name: "gate-" + version, Binary: file("stock"), Gates: map[string]bool{"EventedPLEG": true}})
		}
		all = append(all, scene.Variant{Name: "evented-" + version, Binary: file("evented"), Gates: map[string]bool{"EventDrivenPLEG": true}, Ours: true})
		for _, v := range all {
			wanted := len(names) == 0 && version != preview
			for _, n := range names {
				wanted = wanted || n == v.Name
			}
			if !wanted {
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
	if len(chosen) == 0 {
		return nil, usagef("no variant is called %s", strings.Join(names, " or "))
	}
	return chosen, nil
}
