// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
)

// streams are those of the process.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// adjust gives a test its view of the machine; nil for the machine as it is.
	adjust func(*doctor.Facts)
}

// newRoot returns the command line. The default command is run.
func newRoot(s streams) *cobra.Command {
	run := newRun(s)
	root := &cobra.Command{
		Use:   "pleg-bench",
		Short: "Show, measure and check an evented PLEG on a fake or a real container runtime",
		Long: `pleg-bench drives pods through their lives on a container runtime, lets an
evented PLEG (pod lifecycle event generator) watch, and checks that its cache
equals the runtime and that every change was told once, in order, and soon.

Without a command it is "pleg-bench run": on a fake runtime that it starts as a
child process, with a polling PLEG beside it for comparison. It needs nothing
else, and takes about 20 seconds.`,
		Example: `  # see it work, compared with polling
  pleg-bench
  # a runtime that loses and falsifies events
  pleg-bench run --fault drop=0.1 --fault stale=0.3
  # what is the event stream of this runtime worth? It only reads
  pleg-bench watch --endpoint unix:///run/containerd/containerd.sock
  # make pods on a real runtime, one without a kubelet
  pleg-bench run --endpoint unix:///run/own/containerd.sock --image busybox
  # a runtime for crictl, a kubelet, or "watch"
  pleg-bench fake --socket /tmp/cri.sock --pods 20`,
		RunE: run.RunE,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	hideFlags(root)
	cli.Prepare(root, commit)
	root.Flags().SortFlags = false
	root.Flags().AddFlagSet(run.Flags())
	verbose := root.PersistentFlags().CountP("verbose", "v", "log more to standard error; twice for everything")
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		setLogger(cmd, s, *verbose)
	}
	root.AddCommand(
		run,
		newStress(s),
		newWatch(s),
		newFake(s),
		newCompare(s),
		newCleanup(s),
		newFleet(),
		newProxy(s),
		newDoctor(s),
		newWorker(s),
		newReader(),
	)
	completeFlags(root)
	for _, cmd := range root.Commands() {
		completeFlags(cmd)
	}
	return root
}

// commit is set by `make build` and by a release: Go itself stamps no commit into a build from a
// workspace or a module proxy.
var commit string

// setLogger sends all logs to standard error, in a common form: warnings only, or more with -v.
func setLogger(cmd *cobra.Command, s streams, verbose int) {
	level := slog.LevelWarn
	switch {
	case verbose == 1:
		level = slog.Level(-2) // V(2), as kubelets run
	case verbose > 1:
		level = slog.Level(-10)
	}
	logger := cli.SetLogger(s.err, level)
	// The errors of gRPC come back with the calls.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	cmd.SetContext(klog.NewContext(cmd.Context(), logger))
}

// verboseArgs are the arguments for a child as verbose as this command.
func verboseArgs(cmd *cobra.Command) []string {
	n, _ := cmd.Flags().GetCount("verbose") // fails for other flags
	return slices.Repeat([]string{"-v"}, n)
}

// workerCommand is the command with which this program becomes the PLEG under test.
const workerCommand = "internal-worker"

func newWorker(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand,
		Short:  "The PLEG under test, for other commands",
		Hidden: true,
		Args:   cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return worker.Serve(cmd.Context(), s.in, s.out)
		},
	}
}

const (
	// endpointVariable names the runtime's socket, for crictl as well.
	endpointVariable = "CONTAINER_RUNTIME_ENDPOINT"
	endpointHelp     = "the runtime's socket (default $" + endpointVariable + ", then the usual sockets)"
)

// usualSockets are the sockets tried without an endpoint.
var usualSockets = cli.RuntimeSockets

// findEndpoint is nameEndpoint, and refuses a socket about which the kernel gives no answer.
func findEndpoint(cmd *cobra.Command, flag string) (string, error) {
	endpoint, err := nameEndpoint(cmd, flag)
	if err != nil {
		return "", err
	}
	return endpoint, cli.CheckMount(endpoint)
}

// nameEndpoint returns the endpoint of a flag, of the environment, or of the first usual socket.
func nameEndpoint(cmd *cobra.Command, flag string) (string, error) {
	err := cli.CheckEmptyEndpoint(cmd.Flags(), flag, endpointVariable)
	if err != nil {
		return "", err
	}
	endpoint := cmp.Or(flag, os.Getenv(endpointVariable))
	if endpoint == "" {
		endpoint = cli.UsualEndpoint(usualSockets)
	}
	if endpoint == "" {
		return "", cli.Usagef("--endpoint is missing, %s is not set, and none of the usual sockets exists (%s): name the runtime's socket",
			endpointVariable, strings.Join(usualSockets, ", "))
	}
	endpoint, err = absolute(endpoint)
	if err != nil {
		return "", cli.Usagef("--endpoint: %w", err)
	}
	return endpoint, checkEndpoint(endpoint)
}

// absolute returns an endpoint, or the path of a socket, with a relative path made absolute.
func absolute(endpoint string) (string, error) {
	path, hasScheme := strings.CutPrefix(endpoint, "unix://")
	if path == "" || strings.Contains(path, ":") || filepath.IsAbs(path) {
		return endpoint, nil // the client reports a malformed endpoint
	}
	path, err := filepath.Abs(path)
	if hasScheme {
		path = "unix://" + path
	}
	return path, err
}

// checkEndpoint refuses endpoints that name no socket. A missing runtime is found later.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	client, err := cri.New(cri.Config{Endpoint: endpoint})
	if err != nil {
		return cli.Usagef("--endpoint: %w", err)
	}
	return client.Close()
}

// ownSocket returns the path named by --socket, on which this program is to listen. The flag takes
// the same forms as --endpoint.
func ownSocket(flag string) (path string, err error) {
	endpoint, err := absolute(flag)
	if err == nil && strings.Contains(strings.TrimPrefix(endpoint, "unix://"), "://") {
		err = fmt.Errorf("%s: only unix sockets are supported, write a path or unix:///path/to/socket", flag)
	}
	if err != nil {
		return "", cli.Usagef("--socket: %w", err)
	}
	path = filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	const longest = 107 // of sockaddr_un's sun_path, beside its closing NUL
	if len(path) > longest {
		return "", cli.Usagef("--socket %s has %d bytes, of at most %d: name a shorter path", path, len(path), longest)
	}
	return path, nil
}

// hideFlags shows no flags in the help of the root command: they are run's.
func hideFlags(root *cobra.Command) {
	const (
		flags = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
		ours  = `{{if not .HasParent}}  those of run: "{{.Name}} run --help"{{else}}` + flags + "{{end}}"
	)
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), flags, ours, 1))
}

// completeFlags lets shells complete the values of flags with few values.
func completeFlags(cmd *cobra.Command) {
	values := map[string][]string{
		"output":  {"text", "json"},
		"mode":    {worker.Evented, worker.Generic},
		"profile": fakeruntime.ProfileNames(),
	}
	if cmd.Flags().Lookup("profile") != nil {
		for _, f := range fakeruntime.FaultList() {
			values["fault"] = append(values["fault"], f.Name+"="+f.Example+"\t"+f.Help)
		}
	}
	for name, list := range values {
		if cmd.Flags().Lookup(name) != nil {
			complete := cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // fails for registered flags
		}
	}
}
