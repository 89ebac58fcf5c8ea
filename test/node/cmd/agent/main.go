// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command agent is the node agent of the node e2e tests: package agent as a
// process, so that tests can kill, stop and starve it. It prints the address of
// its HTTP interface and logs to its standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/test/node/agent"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var config agent.Config
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	config.Flags(flags)
	verbosity := flags.Int("v", 2, "log verbosity")
	if err := flags.Parse(args); err != nil {
		return err
	}
	logs := flag.NewFlagSet("logs", flag.ContinueOnError)
	klog.InitFlags(logs)
	if err := logs.Set("v", fmt.Sprint(*verbosity)); err != nil {
		return err
	}
	a, err := agent.New(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return a.Run(klog.NewContext(ctx, klog.Background()), os.Stdout)
}
