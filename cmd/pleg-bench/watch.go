// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
)

func newWatch(s streams) *cobra.Command {
	var (
		o      watch.Options
		output = cli.Output{Lines: true}
		events bool
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Attach to a runtime, read-only, and judge its event stream",
		Long: `watch attaches an evented PLEG to any container runtime and prints what it
tells: lifecycle events with their delay and source (an event of the runtime, or
a read that found the change first), what happens to the stream and to the trust
in it, and every report that an agent would make: lists that fail or hang,
statuses that cannot be read, why the stream ended. It only reads: a process of
its own holds the connection, refuses all other calls, and leaves the runtime
when it cannot read, so that a watch that is stopped holds up nobody.

It ends, at Ctrl-C or after --duration, with a judged summary: what was
received, what of it was stale, twice, out of order, late, what lists found that
no event told, and in words what this stream is worth, what relist period it
would earn, and what to tell the runtime's maintainers. It exits with 1 if the
runtime could not be listed once, and with 3 if --expect failed.

containerd 1.7 gives each event to one client only. There, watch polls and gives
no verdict, so that the agent of the node misses nothing; --take-events takes
events away from that agent.

Without --endpoint it takes CONTAINER_RUNTIME_ENDPOINT, and else the first of
the usual sockets that exists: those of containerd, CRI-O, cri-dockerd, k3s and
RKE2, k0s, MicroK8s.`,
		Example: `  pleg-bench watch
  pleg-bench watch --endpoint unix:///run/containerd/containerd.sock
  pleg-bench watch --endpoint unix:///run/crio/crio.sock --namespace kube-system
  pleg-bench watch --endpoint /tmp/cri.sock -o json --duration 30s
  pleg-bench watch --endpoint /tmp/cri.sock --raw --duration 30s
  pleg-bench watch --endpoint /tmp/cri.sock --duration 1m --out watched \
      --expect verdict.worth=full`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Quiet = !events
			unfinished := func(why string) any { return watch.Unfinished(o, why) }
			if err := checkWatch(cmd, &o, &output); err != nil {
				return output.Failed(cmd, err, unfinished)
			}
			o.Out = s.out
			o.Err = s.err
			o.OutColumns = cli.LineWidth(s.out)
			o.ErrColumns = cli.LineWidth(s.err)
			o.Output = output.Form
			o.Reader = []string{readerCommand}
			began := time.Now()
			found, err := watch.Run(cmd.Context(), o)
			if found == nil {
				return output.Failed(cmd, cli.Denied(o.Endpoint, err), unfinished)
			}
			return output.Write(cmd, report.Saved{
				Kind:     "watch",
				Began:    began,
				Setup:    cli.Setup(cmd),
				Result:   found,
				Timeline: found.Series,
			}, true, err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Endpoint, "endpoint", "", endpointHelp)
	flags.StringVar(&o.Mode, "mode", worker.Evented,
		"evented: listen to the runtime's events; generic: only poll")
	flags.BoolVar(&o.TakeEvents, "take-events", false,
		"subscribe although the runtime gives each event to one client only (containerd 1.7)")
	flags.StringVar(&o.Namespace, "namespace", "", "print only events of pods in this namespace")
	flags.DurationVar(&o.Duration, "duration", 0, "end after that time (default: at Ctrl-C)")
	flags.DurationVar(&o.StatusEvery, "status-every", 10*time.Second,
		"print the state that often on standard error when nothing happens; 0 never")
	flags.BoolVar(&events, "events", true,
		"print lifecycle events; with --events=false only reports, and changes of the state once a minute")
	flags.BoolVar(&o.Raw, "raw", false,
		"print the stream's messages as they are, with what is wrong with them, instead of lifecycle events")
	flags.DurationVar(&o.DoctorEvery, "doctor-every", 0,
		"examine the runtime that often, as doctor does and gently, and serve the findings with the metrics; 0 never")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", "",
		"serve metrics and /healthz on this address, such as 127.0.0.1:9464")
	output.AddFlags(flags, "text, or json with one object a line, all on standard output", "missed=0")
	return cmd
}

// checkWatch completes the options of a watch, and refuses those that make no sense.
func checkWatch(cmd *cobra.Command, o *watch.Options, output *cli.Output) (err error) {
	if o.Endpoint, err = findEndpoint(cmd, o.Endpoint); err != nil {
		return err
	}
	if o.Mode != worker.Evented && o.Mode != worker.Generic {
		return cli.Usagef("--mode %s: use %s or %s", o.Mode, worker.Evented, worker.Generic)
	}
	if o.Raw && o.Mode != worker.Evented {
		return cli.Usagef("--raw prints the event stream: it does not go with --mode generic")
	}
	if o.Raw && o.Quiet {
		return cli.Usagef("--raw prints the event stream: it does not go with --events=false")
	}
	if o.Duration < 0 || o.StatusEvery < 0 {
		return cli.Usagef("--duration %v, --status-every %v: they must not be negative", o.Duration, o.StatusEvery)
	}
	if o.DoctorEvery != 0 && o.DoctorEvery < doctor.RoundAtLeast {
		return cli.Usagef("--doctor-every %v: use at least %v, or 0 for never", o.DoctorEvery, doctor.RoundAtLeast)
	}
	if err := worker.CheckMetricsAddr(o.MetricsAddr); err != nil {
		return cli.Usage(err)
	}
	without := report.Without{}
	if o.Mode != worker.Evented {
		without.Add("--mode generic opens no stream", watch.OfStream...)
	}
	return output.Check(watch.BlankSummary(), without)
}
