// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench/run"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

func newCleanup(s streams) *cobra.Command {
	var o run.CleanupOptions
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what killed runs have left on a runtime",
		Long: `cleanup removes the pods of runs and stress tests whose process has ended:
those with the label evented-pleg.io/bench-run and with a UID of the same run,
which no Kubernetes pod has. It removes the log folders that these runs have
recorded in /run/pleg-bench, or where $PLEG_BENCH_STATE says, and nothing else.
The next run does the same before it begins.`,
		Example: `  pleg-bench cleanup --endpoint unix:///run/own/containerd.sock --dry-run
  pleg-bench cleanup --endpoint unix:///run/own/containerd.sock
  pleg-bench cleanup --endpoint unix:///run/own/containerd.sock --run lq3x0a9k`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Endpoint, err = findEndpoint(cmd, o.Endpoint); err != nil {
				return err
			}
			if cmd.Flags().Changed("run") && o.RunID == "" {
				return cli.Usagef("--run is empty: name a run, or leave the flag out for all whose process has ended")
			}
			if o.All && o.RunID != "" {
				return cli.Usagef("--all and --run exclude each other")
			}
			o.Out = s.out
			return cli.Denied(o.Endpoint, run.Cleanup(cmd.Context(), o))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Endpoint, "endpoint", "", endpointHelp)
	flags.StringVar(&o.RunID, "run", "",
		"remove the pods of this run alone, even while its process lives")
	flags.BoolVar(&o.All, "all", false,
		"remove those of runs too whose process lives or cannot be seen from here")
	flags.BoolVar(&o.DryRun, "dry-run", false, "only tell")
	return cmd
}
