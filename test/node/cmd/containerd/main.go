// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command containerd runs a private containerd with runc and the workload image, built from the module registry, until it is interrupted: a real
// runtime to point pleg-bench at on a machine that has none. It needs what the node e2e tests need, and leaves as little behind:
// its processes, mounts, sockets and files go when it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/ctrd"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/sweep"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	if err := sweep.Preflight(); err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := components.FindRoot(here)
	if err != nil {
		return err
	}
	set, err := components.Build(ctx, components.Options{Root: root, Runtime: true, Own: true, Log: os.Stderr})
	if err != nil {
		return err
	}
	base, err := os.MkdirTemp("", "pc-") // short: sockets lie below it
	if err != nil {
		return err
	}
	target := sweep.Target{Dir: base}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, target.Sweep(ctx))
	}()
	if err := os.Chmod(base, 0o711); err != nil {
		return err
	}
	archive := filepath.Join(base, "image.tar")
	if err := image.PackFile(archive, set.Workload(), image.DefaultRef); err != nil {
		return err
	}
	daemon, err := ctrd.New(ctrd.Config{Base: base, Components: set, Archive: archive, Image: image.DefaultRef})
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := daemon.Start(starting); err != nil {
		return err
	}
	fmt.Printf("containerd %s with runc %s is ready. In another terminal:\n\n"+
		"  go run ./cmd/pleg-bench watch --endpoint %[3]s\n"+
		"  go run ./cmd/pleg-bench run --endpoint %[3]s --image %[4]s --pods 8 --rate 20\n\nCtrl-C ends it.\n",
		components.ContainerdVersion, components.RuncVersion, daemon.Endpoint(), image.DefaultRef)
	<-ctx.Done()
	stopping, cancelStop := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancelStop()
	return daemon.Stop(stopping, syscall.SIGTERM)
}
