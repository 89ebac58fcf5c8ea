// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command pleg-bench-fleet is `pleg-bench fleet`: the command judges the event streams of a fleet
// of nodes, and puts a load on some of them.
//
// `verdict` reads from Prometheus the metrics of `pleg-bench watch` on every node. `run` runs
// `pleg-bench run` on chosen nodes as an Indexed Job. Both print a document or JSON, and keep a
// page with --out. The program is apart from pleg-bench, which needs no Kubernetes client.
//
// The exit status is that of pleg-bench: 0 all is well, 1 a failure or a bad finding, 2 bad usage,
// 3 only a bound of --expect was not kept, 130 interrupted.
package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// commit is set by a release.
var commit string

func main() {
	root := newRoot()
	root.SetOut(cli.NewOutlet(os.Stdout))
	root.SetErr(cli.NewOutlet(os.Stderr))
	os.Exit(cli.Execute(root, os.Args[1:], nil))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:         "pleg-bench-fleet",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "pleg-bench fleet"},
		Short:       "Judge the event streams of many nodes, and put load on some",
		Long: `pleg-bench fleet asks of a fleet what pleg-bench asks of a node: on which nodes
can polling be turned off, which version of a runtime loses events, and what
would it save? Kubernetes runs "pleg-bench watch" on every node, as a DaemonSet,
and Prometheus keeps its metrics.`,
		Example: `  # the verdict on the last hour
  pleg-bench fleet verdict --prometheus http://127.0.0.1:9090
  # a load on the nodes of a pool, on the fake runtime in each pod
  pleg-bench fleet run --nodes pool=canary --job-image example.com/pleg-bench`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cli.Prepare(root, commit)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		cli.SetLogger(cmd.ErrOrStderr(), slog.LevelWarn) // the API server's warnings
	}
	root.AddCommand(newVerdict(), newRun((*runOptions).connect))
	return root
}

// outputHelp is the help of --output.
const outputHelp = "text or json; json is documented in docs/json.md"
