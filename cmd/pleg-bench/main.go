// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pleg-bench shows, measures and checks an evented PLEG on a fake or a real container
// runtime.
//
// Without arguments the command is `pleg-bench run`: `run` starts the fake runtime as a child
// process, makes pods live and die, and prints the results of an evented and a polling PLEG. See
// `pleg-bench --help` and docs/pleg-bench.md.
//
// The exit status is 0 if all is well, 1 if a run failed or found something wrong, 2 if called
// wrongly, 3 if only a bound of --expect was not kept, 130 if interrupted, and 141 if nobody reads
// the output to its end.
package main

import (
	"os"
	"slices"
	"strings"

	"github.com/evented-pleg/evented-pleg/internal/cli"
)

func main() {
	os.Exit(cli.Execute(newRoot(ofProcess()), os.Args[1:], hint))
}

// ofProcess returns the streams of the process.
func ofProcess() streams {
	return streams{
		in:  os.Stdin,
		out: cli.NewOutlet(os.Stdout),
		err: cli.NewOutlet(os.Stderr),
	}
}

// hint names the server behind a socket of no container runtime, by the text of an error: errors of
// the PLEG's process are texts. The hint ends with a new line.
func hint(err error) string {
	text := err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	const first = "cri: Version on" // the first call of all
	switch {
	case has("unknown service runtime.v1.RuntimeService"):
		return "The socket is served by a program without the CRI. If it is containerd: " +
			"its CRI plugin is switched off or failed to load (disabled_plugins, its log).\n"
	case has(first) && has("use of closed network connection"):
		return "The socket takes connections and says nothing: a container runtime that hangs, " +
			"or a program of another kind. Which one listens there (ss -xlp)?\n"
	case has(first) && slices.ContainsFunc(notGRPC, has):
		return "The socket answers, but not as a container runtime does: the CRI is gRPC. " +
			"Which program listens there (ss -xlp)? Or did the runtime just end?\n"
	}
	return ""
}

// notGRPC are gRPC's errors about servers of another kind.
var notGRPC = []string{
	"error reading server preface",
	"malformed HTTP response",
	"frame too large",
	"broken pipe",
	"connection reset",
	"error reading from server",
}
