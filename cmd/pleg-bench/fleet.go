// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

// fleetProgram is the program behind `pleg-bench fleet`, in a module of its own: pleg-bench has no
// Kubernetes client.
const fleetProgram = "pleg-bench-fleet"

func newFleet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Judge the event streams of many nodes, and put load on some",
		Long: `fleet is a program of its own, pleg-bench-fleet, which is looked for beside this
program and in PATH. "fleet verdict" judges the event streams of all nodes from
the metrics that watch, pleg-agent or a kubelet serves to Prometheus; "fleet
run" runs pleg-bench on chosen nodes as a Kubernetes Job. Install it with

  ` + installFleet,
		Example: `  pleg-bench fleet verdict --prometheus http://127.0.0.1:9090
  pleg-bench fleet --help`,
		DisableFlagParsing: true, // they are the program's
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := findFleet()
			if err == nil {
				err = syscall.Exec(path, append([]string{path}, args...), os.Environ())
				return fmt.Errorf("start %s: %w", path, err)
			}
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return cmd.Help()
			}
			return fmt.Errorf("the program %s is neither beside pleg-bench nor in PATH; install it with: %s", fleetProgram, installFleet)
		},
	}
	return cmd
}

const installFleet = "go install github.com/evented-pleg/evented-pleg/cmd/" + fleetProgram + "@v0.1.0"

// findFleet returns the program beside pleg-bench, or in PATH.
func findFleet() (string, error) {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(own), fleetProgram)); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(fleetProgram)
}
