// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/reader"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// Bounds of an examination, and where the line of --check is cut: the node problem detector keeps
// 80 columns by default.
const (
	shortestExam = 2 * time.Second
	longestExam  = 10 * time.Minute
	checkColumns = 80
)

func newDoctor(s streams) *cobra.Command {
	var (
		endpoint, healthz, metrics string
		within                     time.Duration
		check, noEvents            bool
		output                     cli.Output
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with the container runtime of this node",
		Long: `doctor examines the container runtime of a node that is not well, read-only and
in ten seconds. Does the runtime answer, and how fast beside what is usual?
Which container or shim hangs? What cannot be read, what was left over, is a
disk full, are the clocks right? Does the event stream tell of what changes, who
else calls, and what burns the CPU of a quiet node? Each finding is a sentence
with its evidence and the command or line that changes it.

It exits with 1 if something is wrong. With --check it prints one line, and
exits with 0 if all is well, 1 if something is wrong, and 2 if that could not be
found out: a plugin for the node problem detector.

It needs root for the socket, and sees shims and disks only in the node's own
namespaces: in a pod with hostPID.`,
		Example: `  pleg-bench doctor
  pleg-bench doctor --endpoint unix:///run/crio/crio.sock
  pleg-bench doctor --check --within 4s
  pleg-bench doctor -o json
  pleg-bench doctor --out examined`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if within < shortestExam || within > longestExam {
				return cli.Usagef("--within %v: use %v to %v", within, shortestExam, longestExam)
			}
			err := checkDoctorFlags(cmd, check, healthz, metrics)
			if err != nil {
				return err
			}
			endpoint, err = nameEndpoint(cmd, endpoint) // a dead mount is a finding
			if err != nil {
				return err
			}
			err = cli.CheckSocket(endpoint)
			if err != nil {
				return err
			}
			err = output.Check(doctor.Report{}, nil)
			if err != nil {
				return output.Failed(cmd, err, func(string) any {
					nothing := doctor.Facts{
						Began:    time.Now(),
						Endpoint: endpoint,
						Host:     doctor.HostFacts{Node: bench.Node()},
					}
					return doctor.Conclude(nothing).Interrupted(err)
				})
			}
			socket := strings.TrimPrefix(endpoint, "unix://")
			supervisor := reader.NewSupervisor(socket, readerCommand)
			defer supervisor.Close()
			addresses := doctor.UsualMetrics
			if metrics != "" {
				addresses = []string{metrics}
			}
			began := time.Now()
			found := doctor.Examine(cmd.Context(), doctor.Options{
				Endpoint: "unix://" + socket,
				Dial: func(ctx context.Context) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
					return conn, cli.Denied("unix://"+socket, noSocket(socket, err))
				},
				DialStream: supervisor.Dial,
				Own:        supervisor.Why,
				Within:     within,
				NoEvents:   noEvents,
				Host:       &doctor.Machine{Socket: socket, Kubelet: healthz},
				Adjust:     s.adjust,
				Metrics:    doctor.ListRates(addresses...),
			})
			cause := context.Cause(cmd.Context())
			if cause != nil && found.Worth != doctor.Sick { // no word on what was not looked at
				if output.Form != "json" {
					return cause
				}
				return errors.Join(cause, printable.WriteJSON(s.out, found.Interrupted(cause), "  "))
			}
			if check {
				_, err = fmt.Fprintln(s.out, found.Line(checkColumns))
				if err != nil && found.Worth == doctor.Well { // which nobody can read
					err = errors.Join(cli.ErrUnknown, err)
				}
				return errors.Join(verdictOf(found), err)
			}
			saved := report.Saved{
				Kind:   "doctor",
				Began:  began,
				Setup:  cli.Setup(cmd),
				Result: found,
			}
			return output.Write(cmd, saved, found.Worth != doctor.Sick, unknownOf(found))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&endpoint, "endpoint", "", endpointHelp)
	flags.DurationVar(&within, "within", 10*time.Second, "how long the examination takes")
	flags.BoolVar(&check, "check", false,
		"print one line, and exit with 0, 1 or 2: well, wrong, unknown")
	flags.BoolVar(&noEvents, "no-events", false, "do not subscribe to the runtime's events")
	flags.StringVar(&healthz, "kubelet-healthz", doctor.UsualHealthz,
		"the kubelet's health, asked once; empty to leave it alone")
	flags.StringVar(&metrics, "runtime-metrics", "",
		"the runtime's metrics, read twice for the lists a minute (default: where containerd and CRI-O serve them)")
	output.AddFlags(flags, "text or json", "running>=1")
	return cmd
}

// checkDoctorFlags refuses flags without effect.
func checkDoctorFlags(cmd *cobra.Command, check bool, healthz, metrics string) error {
	for _, name := range []string{"output", "out", "expect"} {
		if check && cmd.Flags().Changed(name) {
			return cli.Usagef("--check prints one line: it does not go with --%s", name)
		}
	}
	for _, asked := range []struct{ flag, address, example string }{
		{"kubelet-healthz", healthz, doctor.UsualHealthz},
		{"runtime-metrics", metrics, doctor.UsualMetrics[0]},
	} {
		parsed, err := url.Parse(asked.address)
		if asked.address != "" && (err != nil || parsed.Host == "" || !strings.HasPrefix(parsed.Scheme, "http")) {
			return cli.Usagef("--%s %s: use a URL, such as %s", asked.flag, asked.address, asked.example)
		}
	}
	return nil
}

// noSocket completes the error of a connection to a path at which something else than a socket is.
func noSocket(path string, err error) error {
	for _, other := range []error{syscall.ENOTDIR, syscall.ELOOP, syscall.EPROTOTYPE} {
		if errors.Is(err, other) {
			return fmt.Errorf("%w: name the socket of the runtime", err)
		}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	other, _ := deadmount.Ask(path, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().Type() != fs.ModeSocket
	})
	if !other {
		return err
	}
	return fmt.Errorf("%w: %s is not a socket: name the socket of the runtime", err, path)
}

// verdictOf is the error for the exit status of --check.
func verdictOf(r doctor.Report) error {
	switch r.Worth {
	case doctor.Well:
		return nil
	case doctor.Sick:
		return cli.ErrBad
	}
	return cli.ErrUnknown
}

// unknownOf is the error of a report without an examination.
func unknownOf(r doctor.Report) error {
	if r.Worth == doctor.Unknown {
		return errors.New("the runtime could not be examined")
	}
	return nil
}
