// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/eventsbench"
)

func newEvents(s streams) *cobra.Command {
	var (
		o         eventsbench.Options
		recorders []string
		output    string
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Measure the Event recorder against client-go's",
		Long: `events emits Kubernetes Events through this project's recorder or client-go's,
and tells how many calls the API server got, how many events its objects tell of
in the end, and what it cost. The embedded API server can be made to fail
(--fault).

Several --recorder are measured one after another and told side by side. A real
API server (--kubeconfig) gets events in its namespace default, about pods that
do not exist; they go away by themselves after its event TTL.

It exits with 1 if this project's recorder lost an event without counting it.`,
		Example: `  pleg-bench events
  pleg-bench events --recorder series --recorder client-go --load storm
  pleg-bench events --fault 429 --fault-for 30s -o json
  pleg-bench events --load nodes --nodes 200 --duration 60s
  pleg-bench events --kubeconfig ~/.kube/config --load storm --count 1000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if err := checkEvents(o, recorders); err != nil {
				return usageError{err}
			}
			display := newDisplay(s)
			var reports []*eventsbench.Report
			for _, recorder := range recorders {
				o := o
				o.Recorder = recorder
				if output == "text" {
					o.Progress = func(p eventsbench.Progress) {
						display.line(fmt.Sprintf("%s, %s: %s  %d events  %d calls", recorder, p.Phase, p.Elapsed.Round(time.Second), p.Emitted, p.Calls))
					}
				}
				report, err := eventsbench.Run(cmd.Context(), o)
				if err != nil {
					display.clear()
					return err
				}
				reports = append(reports, report)
			}
			display.clear()
			text := func(w io.Writer) error { return eventsbench.WriteText(w, reports...) }
			if err := writeResult(s.out, output, reports, text); err != nil {
				return err
			}
			for _, r := range reports {
				if r.Recorder == eventsbench.RecorderSeries && r.Silent > 0 {
					return errBad
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Load, "load", eventsbench.LoadHotLoop, "what is emitted: "+strings.Join(eventsbench.Loads, ", "))
	flags.StringArrayVar(&recorders, "recorder", []string{eventsbench.RecorderSeries}, "which recorder, may be repeated: "+strings.Join(eventsbench.Recorders, ", "))
	flags.IntVar(&o.Count, "count", 0, "events of a hotloop (default 1000000) or storm (default 10000)")
	flags.IntVar(&o.Nodes, "nodes", 0, "nodes of the load nodes (default 200)")
	flags.IntVar(&o.Pods, "pods", 0, "crash-looping pods on each node (default 2)")
	flags.DurationVar(&o.Period, "period", 0, "time between two rounds of crash loops (default 1s)")
	flags.DurationVar(&o.Duration, "duration", 0, "how long crash loops go on (default 15s)")
	flags.StringVar(&o.Fault, "fault", eventsbench.FaultNone, "how the embedded API server fails: "+strings.Join(eventsbench.Faults, ", "))
	flags.DurationVar(&o.FaultFor, "fault-for", 0, "how long it fails, from the begin of the load (default 10s)")
	flags.Float32Var(&o.QPS, "qps", 0, "limit of each node's client, 50 for a kubelet (default none)")
	flags.DurationVar(&o.Settle, "settle", 0, "how long to wait for a recorder that still makes calls (default 30s, longer with a fault)")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "use the real API server of this file instead of the embedded one")
	flags.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// checkEvents reports every option that makes no sense, by the name of its flag.
func checkEvents(o eventsbench.Options, recorders []string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	oneOf := func(flag, value string, of []string) {
		if !slices.Contains(of, value) {
			bad("--%s %s: use one of %s", flag, value, strings.Join(of, ", "))
		}
	}
	oneOf("load", o.Load, eventsbench.Loads)
	oneOf("fault", o.Fault, eventsbench.Faults)
	for _, r := range recorders {
		oneOf("recorder", r, eventsbench.Recorders)
	}
	if o.Count < 0 || o.Nodes < 0 || o.Pods < 0 || !(o.QPS >= 0) {
		bad("--count %d, --nodes %d, --pods %d, --qps %v: none may be negative", o.Count, o.Nodes, o.Pods, o.QPS)
	}
	if o.Count > 1_000_000_000 || o.Nodes > 20_000 || o.Pods > 1000 {
		bad("--count %d, --nodes %d, --pods %d: at most 1000000000, 20000 and 1000", o.Count, o.Nodes, o.Pods)
	}
	for flag, d := range map[string]time.Duration{"period": o.Period, "duration": o.Duration, "fault-for": o.FaultFor, "settle": o.Settle} {
		if d < 0 {
			bad("--%s %v: it must not be negative", flag, d)
		}
	}
	if o.Kubeconfig != "" {
		if o.Fault != eventsbench.FaultNone {
			bad("--fault needs the embedded API server: it does not go with --kubeconfig")
		}
		if _, err := os.Stat(o.Kubeconfig); err != nil {
			bad("--kubeconfig: %w", err)
		}
	}
	return errors.Join(errs...)
}
