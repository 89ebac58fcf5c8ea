// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command runtime runs a private container runtime with runc and the workload image, built from the
// module registry, until interrupted: a real runtime for pleg-bench on a machine without any. It
// has the requirements of the node e2e tests, and leaves as little behind: its processes, mounts,
// sockets and files go at its end (package unshare).
//
//	runtime                the default one
//	runtime crio           another one
//	runtime crio COMMAND   until the command ends, which finds ENDPOINT and IMAGE in its environment
//	runtime --list         the names it takes
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

func main() {
	flags := flag.NewFlagSet("runtime", flag.ExitOnError)
	list := flags.Bool("list", false, "print the names of the runtimes and exit")
	flags.Usage = func() {
		fmt.Fprintf(
			flags.Output(),
			"usage: runtime [--list] [NAME [COMMAND...]]\nNAME is one of %s\n",
			strings.Join(runtimes.Names(), ", "),
		)
	}
	_ = flags.Parse(os.Args[1:]) // exits at an error
	if *list {
		fmt.Println(strings.Join(runtimes.Names(), "\n"))
		return
	}
	name := cmp.Or(flags.Arg(0), runtimes.Default().Name)
	kind, err := runtimes.ByName(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(2)
	}
	os.Exit(unshare.Main(func() int {
		if err := run(kind, flags.Args()[min(1, flags.NArg()):]); err != nil {
			fmt.Fprintln(os.Stderr, "runtime:", err)
			return unshare.ExitFailed
		}
		return 0
	}))
}

// addNetwork adds a network that answers nothing but its version. Pods of pleg-bench have the
// host's network, but a runtime without one calls itself not ready, and doctor believes it.
func addNetwork(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "bin/none"), []byte(`#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
`), 0o755)
	conf := `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}`
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "conf/10-none.conflist"), []byte(conf), 0o644))
}

func run(kind runtimes.Runtime, command []string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	private, err := daemon.Run(ctx, kind.Name, unshare.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	err = addNetwork(filepath.Join(unshare.Dir(), "cni"))
	defer func() {
		stopping, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = errors.Join(err, private.Stop(stopping, syscall.SIGTERM))
	}()
	if err != nil {
		return err
	}
	if len(command) > 0 {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "ENDPOINT="+private.Endpoint(), "IMAGE="+image.DefaultRef)
		cmd.Stdout = os.Stdout
		cmd.Stderr = os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		return cmd.Run()
	}
	fmt.Printf("%[1]s %[2]s with runc %[5]s is ready. In another terminal:\n\n"+
		"  go run ./cmd/pleg-bench watch --endpoint %[3]s\n"+
		"  go run ./cmd/pleg-bench run --endpoint %[3]s --image %[4]s --pods 8 --rate 20\n\nCtrl-C ends it.\n",
		kind.Family, kind.Version, private.Endpoint(), image.DefaultRef, components.RuncVersion)
	<-ctx.Done()
	return nil
}
