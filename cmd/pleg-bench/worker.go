// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// workerCommand is the command with which this program becomes the PLEG under test.
const workerCommand = "internal-worker"

func newWorker(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand,
		Short:  "The PLEG under test, for other commands",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return worker.Serve(cmd.Context(), s.in, s.out)
		},
	}
}
