// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
)

func newCompare(s streams) *cobra.Command {
	var output, out string
	cmd := &cobra.Command{
		Use:   "compare A [B]",
		Short: "Tell what two kept runs differ in, and how sure that is",
		Long: `compare reads two runs that "run --out DIR" has kept and tells their numbers,
the difference, and how sure the difference is. With one run it compares the two
generators that watched its load (evented and generic). --out keeps the
comparison, with a page that shows both beside each other.

  differs       at 95 %: the intervals in which the two quantiles lie do not
                touch, or two counts differ by more than chance makes them
  same          nothing speaks for a difference
  one run each  a single run tells nothing of the spread: make several, and
                compare with benchstat`,
		Example: `  pleg-bench run --out before
  pleg-bench run --out after --relist-max 60s
  pleg-bench compare before after
  # with a page, difference/report.html
  pleg-bench compare before after --out difference
  # evented and generic of one run
  pleg-bench compare before
  benchstat before/benchstat.txt after/benchstat.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageError{fmt.Errorf("compare needs one or two runs, folders of run --out: %d given", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			a, b, err := report.LoadPair(args...)
			if err != nil {
				return err
			}
			c := report.Compare(a, b)
			if err := writeResult(s.out, output, c, c.WriteText); err != nil || out == "" {
				return err
			}
			err = report.WriteComparison(out, commandLine(cmd), a, b)
			tellKept(s, out)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&out, "out", "", "keep the comparison in this folder: result.json, differences.csv, report.html")
	return cmd
}
