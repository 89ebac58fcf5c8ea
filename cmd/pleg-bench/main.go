// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pleg-bench shows, measures and checks an evented PLEG on a fake or a real container
// runtime.
//
// Without arguments it is `pleg-bench run`: it starts the fake runtime as a child process, makes
// pods live and die, and prints the results of an evented and a polling PLEG. See `pleg-bench
// --help` and docs/pleg-bench.md.
//
// It exits with 0 if all is well, 1 if a run failed or found something wrong, 2 if it was called
// wrongly, 3 if only a bound of --expect was not kept, and 130 if it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnmet       = 3
	exitInterrupted = 130
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errInterrupted is why the context ends at a Ctrl-C, SIGTERM or hangup.
var errInterrupted = errors.New("interrupted")

// errBad is returned by a command that has printed its finding.
var errBad = errors.New("the verdict is bad")

// errUnmet is returned by a command that has told already which bounds of --expect were not kept.
var errUnmet = errors.New("an expectation was not kept")

// usageError is an error about how the program was called.
type usageError struct{ error }

// execute runs the command line and returns the exit status.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer endAtSignals(cancel)()
	root := newRoot(streams{stdin, stdout, stderr})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(context.Cause(ctx), errInterrupted):
		if !errors.Is(err, errInterrupted) && !errors.Is(err, errBad) && !errors.Is(err, errUnmet) {
			fmt.Fprintf(stderr, "pleg-bench: %v\n", err)
			err = context.Cause(ctx)
		}
		fmt.Fprintf(stderr, "pleg-bench: %v\n", err)
		return exitInterrupted
	case errors.Is(err, errBad):
		return exitFailure
	case errors.Is(err, errUnmet):
		return exitUnmet
	}
	fmt.Fprintf(stderr, "pleg-bench: %v\n", err)
	if h := hint(err); h != "" {
		fmt.Fprintln(stderr, h)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, "Run pleg-bench --help, or with a command, for how it is used.")
		return exitUsage
	}
	return exitFailure
}

// hint names the server behind a socket that is not a container runtime's. It goes by the text,
// because errors of the PLEG's process are texts.
func hint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "unknown service runtime.v1.RuntimeService"):
		return "The socket is served by a program without the CRI. If it is containerd: its CRI plugin is switched off or failed to load (disabled_plugins, its log)."
	case strings.Contains(text, "cri: Version on") && strings.Contains(text, "use of closed network connection"):
		return "The socket takes connections and says nothing: a container runtime that hangs, or a program of another kind. Which one listens there (ss -xlp)?"
	case strings.Contains(text, "cri: Version on") && containsAny(text, "error reading server preface", "malformed HTTP response",
		"frame too large", "broken pipe", "connection reset", "error reading from server"):
		return "The socket answers, but not as a container runtime does: the CRI is gRPC. Which program listens there (ss -xlp)? Or did the runtime just end?"
	}
	return ""
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// endAtSignals calls cancel at the first Ctrl-C, SIGTERM or hangup. A second Ctrl-C or SIGTERM
// kills. A second hangup does not, because shells repeat the terminal's; nor does output without a
// reader. Pods on a real runtime have to be removed first. The returned function ends the handling.
func endAtSignals(cancel context.CancelCauseFunc) (stop func()) {
	asked := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		asked = append(asked, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, asked...)
	signal.Ignore(syscall.SIGPIPE)
	go func() { // ends with the program
		s := <-signals
		cancel(fmt.Errorf("%w (%v)", errInterrupted, s))
		signal.Ignore(syscall.SIGHUP)
		signal.Reset(syscall.SIGINT, syscall.SIGTERM)
	}()
	return func() { signal.Stop(signals) }
}
