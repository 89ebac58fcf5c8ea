// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench/reader"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// readerCommand is the command of the process that reads a runtime for watch and doctor.
const readerCommand = "internal-reader"

func newReader() *cobra.Command {
	return &cobra.Command{
		Use:    readerCommand,
		Short:  "The process that reads a runtime, for other commands",
		Hidden: true,
		Args:   cli.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return reader.Main(cmd.Context()) },
	}
}
