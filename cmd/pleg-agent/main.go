// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pleg-agent tells why containers died: the agent follows the container runtime of a node,
// and records the end of each container as a Kubernetes Event about its pod.
//
// See `pleg-agent --help` and docs/agent.md. The exit status is 0 after SIGTERM, Ctrl-C or
// --duration, 1 after a failure, 2 if called wrongly, 130 after a failure that follows SIGTERM or
// Ctrl-C, and 141 if nobody reads the output to its end.
package main

import (
	"os"

	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// commit is set by a release.
var commit string

func main() {
	root := newRoot(cli.NewOutlet(os.Stdout), cli.NewOutlet(os.Stderr))
	os.Exit(cli.Execute(root, os.Args[1:], nil))
}
