// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pleg-bench shows, measures and checks an evented PLEG on a fake or a real container runtime.
//
// Without arguments it is `pleg-bench run`: it starts the fake runtime as a child process, makes pods live and die, and prints what an evented
// and a polling PLEG made of it. See `pleg-bench --help` and docs/pleg-bench.md.
//
// It exits with 0 if all is well, 1 if a run failed or found something wrong, 2 if it was called wrongly, and 130 if it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errInterrupted is why the context ends at a Ctrl-C or SIGTERM.
var errInterrupted = errors.New("interrupted")

// errBad is returned by a command that has told already what is wrong.
var errBad = errors.New("the verdict is bad")

// usageError is an error about how the program was called.
type usageError struct{ error }

// execute runs the command line and returns the exit status.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() { // ends with the program
		<-signals
		cancel(errInterrupted)
		signal.Stop(signals) // the next one kills
	}()

	root := newRoot(streams{stdin, stdout, stderr})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errBad):
		return exitFailure
	case context.Cause(ctx) == errInterrupted:
		fmt.Fprintln(stderr, "pleg-bench: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "pleg-bench: %v\n", err)
	if usage, ok := errors.AsType[usageError](err); ok {
		_ = usage
		fmt.Fprintln(stderr, "Run pleg-bench --help, or with a command, for how it is used.")
		return exitUsage
	}
	return exitFailure
}
