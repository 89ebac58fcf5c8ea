// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/grpclog"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// options are the flags.
type options struct {
	config     string
	endpoint   string
	kubeconfig string
	node       string
	state      string
	httpAddr   string

	kinds            []string
	namespaces       []string
	exceptNamespaces []string
	selector         string

	settle         time.Duration
	namespaceRate  float64
	namespaceBurst int
	nodeRate       float64
	nodeBurst      int
	qps            float32
	qpsBurst       int
	nodeEvents     bool

	fake    bool
	print   bool
	output  string
	lasting time.Duration
	verbose int
}

// newRoot returns the command line.
func newRoot(out, errOut io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "pleg-agent",
		Short: "Record the end of each container of a node as a Kubernetes Event about its pod",
		Long: `pleg-agent answers why a container died. It follows the container runtime of
its node, and records the end of each container as an Event about the pod: exit
code, signal, OOM kill, how long the container ran, and which attempt it was. The
ends of a container that restarts in a loop are one Event with an exact count.

It needs the runtime's socket, and a role that may create and patch Events. It
lists no pods: names and UIDs come from the runtime.`,
		Example: `  # see it work, without a runtime and without a cluster
  pleg-agent --fake
  # what ends on this node, printed instead of recorded
  pleg-agent --print
  # only OOM kills and failures, not those of tests
  pleg-agent --kinds oom,failed --selector 'tier!=test'
  # on every node of a cluster
  kubectl apply -k 'https://github.com/evented-pleg/evented-pleg/deploy/agent/base?ref=v0.1.0'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.readConfig(cmd.Flags())
			if _, hangs := errors.AsType[*deadmount.Unanswered](err); err != nil && !hangs {
				err = cli.Usage(err)
			}
			if err != nil {
				return err
			}
			if err := o.validate(cmd.Flags()); err != nil {
				return err
			}
			levels := []slog.Level{slog.LevelWarn, -2, -10}
			logger := cli.SetLogger(errOut, levels[max(0, min(o.verbose, len(levels)-1))])
			// The errors of gRPC come back with the calls.
			grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
			return o.run(klog.NewContext(cmd.Context(), logger), out, errOut)
		},
	}
	root.SetOut(out)
	root.SetErr(errOut)
	cli.Prepare(root, commit)
	o.add(root.Flags())
	return root
}

// add adds the flags.
func (o *options) add(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.BoolVar(&o.fake, "fake", false,
		"a fake runtime whose containers end in many ways; Events are printed")
	flags.BoolVar(&o.print, "print", false,
		"print Events instead of sending them to the API server")
	flags.StringVarP(&o.output, "output", "o", "text",
		"form of printed Events: text, or json for a line of JSON each")
	flags.DurationVar(&o.lasting, "duration", 0,
		"end after this time (default: with Ctrl-C or SIGTERM)")
	flags.StringVar(&o.endpoint, "endpoint", "",
		"the runtime's socket (default $"+endpointVariable+", then the usual sockets)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "",
		"path of the kubeconfig (default: the pod's account, else $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&o.node, "node", os.Getenv("NODE_NAME"),
		"name of the node (default $NODE_NAME, then the host name)")
	flags.StringVar(&o.state, "state", "",
		"file that remembers what was reported, so that a restart neither repeats nor loses reports")
	flags.StringVar(&o.httpAddr, "http-addr", "",
		"address for /metrics, /healthz and /readyz, such as :9465")
	flags.StringSliceVar(&o.kinds, "kinds", nil,
		"kinds of ends to report: "+kindNames(exits.Kinds())+" (default "+kindNames(exits.DefaultKinds())+")")
	flags.StringSliceVar(&o.namespaces, "namespaces", nil, "report about these namespaces only")
	flags.StringSliceVar(&o.exceptNamespaces, "except-namespaces", nil,
		"do not report about these namespaces")
	flags.StringVarP(&o.selector, "selector", "l", "",
		"report about pods with these labels only, such as app=db,tier!=test")
	flags.DurationVar(&o.settle, "settle", 500*time.Millisecond,
		"time for a runtime to settle the reason of an end")
	flags.Float64Var(&o.namespaceRate, "namespace-rate", 1,
		"ends a second reported one by one for each namespace; others are counted together")
	flags.IntVar(&o.namespaceBurst, "namespace-burst", 100, "likewise, at once")
	flags.Float64Var(&o.nodeRate, "node-rate", 5, "ends a second reported one by one for the node")
	flags.IntVar(&o.nodeBurst, "node-burst", 500, "likewise, at once")
	flags.Float32Var(&o.qps, "qps", 20, "calls a second to the API server")
	flags.IntVar(&o.qpsBurst, "qps-burst", 100, "likewise, at once")
	flags.BoolVar(&o.nodeEvents, "node-events", true,
		"also report about the node when the runtime's events are lost, missed or restored")
	flags.StringVar(&o.config, "config", "",
		"YAML file with flags by their names, for those not given here")
	flags.CountVarP(&o.verbose, "verbose", "v", "log more to standard error; twice for everything")
}

func kindNames(kinds []exits.Kind) string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.Short()
	}
	return strings.Join(names, ", ")
}

// validate checks and completes the flags.
func (o *options) validate(flags *pflag.FlagSet) error {
	switch {
	case o.output != "text" && o.output != "json":
		return cli.Usagef("--output %s: use text or json", o.output)
	case o.fake && (o.endpoint != "" || o.kubeconfig != ""):
		return cli.Usagef("--fake has a runtime of its own and prints: leave --endpoint and --kubeconfig out")
	case o.output == "json" && !o.print && !o.fake:
		return cli.Usagef("--output json: Events are sent, and not printed: add --print, or leave it out")
	case o.lasting < 0:
		return cli.Usagef("--duration %v: use a time that is not negative", o.lasting)
	case !(o.qps > 0 && o.qps <= math.MaxFloat32) || o.qpsBurst <= 0:
		return cli.Usagef("--qps %v, --qps-burst %d: use finite numbers above 0", o.qps, o.qpsBurst)
	case o.settle <= 0 || o.settle > longestSettle:
		return cli.Usagef("--settle %v: use a time above 0 and of %v at most, such as 500ms", o.settle, longestSettle)
	}
	for _, rate := range []struct {
		name  string
		rate  float64
		burst int
	}{{"namespace", o.namespaceRate, o.namespaceBurst}, {"node", o.nodeRate, o.nodeBurst}} {
		if !(rate.rate >= 0 && rate.rate <= math.MaxFloat64) || rate.burst <= 0 {
			return cli.Usagef("--%s-rate %v, --%s-burst %d: use a finite rate of at least 0 and a burst above 0", rate.name, rate.rate, rate.name, rate.burst)
		}
	}
	if flags.Changed("kinds") && len(o.kinds) == 0 {
		return cli.Usagef("--kinds names no kind: name some, or leave it out for the usual ones")
	}
	if _, err := o.choice(); err != nil {
		return err
	}
	if err := exits.CheckPath(o.state); err != nil {
		return cli.Usagef("--state: %w", err)
	}
	if err := checkAddress(o.httpAddr); err != nil {
		return cli.Usagef("--http-addr %s: %w: use HOST:PORT or :PORT, such as :9465", o.httpAddr, err)
	}
	if o.fake {
		o.print = true
	}
	if err := o.findNode(os.Hostname); err != nil || o.fake {
		return err
	}
	return o.findEndpoint(flags)
}

// longestSettle is more than any runtime takes for a reason: until then nobody is told of an end.
const longestSettle = time.Minute

// checkAddress returns an error for a malformed address to listen on. listen finds out later
// whether the host has the address.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	var wrong *net.AddrError
	if errors.As(err, &wrong) {
		return errors.New(wrong.Err)
	}
	return err
}

// findNode completes and checks the name of the node. The default is the kubelet's: the host's name
// in small letters. kubectl describe node shows no Event under another name.
func (o *options) findNode(hostname func() (string, error)) error {
	given := o.node
	if given == "" {
		host, err := hostname()
		if err != nil {
			return cli.Usagef("--node is missing, and the host has no name: %w", err)
		}
		o.node = strings.ToLower(strings.TrimSpace(host))
	}
	wrong := validation.IsDNS1123Subdomain(o.node)
	switch {
	case len(wrong) == 0, given == "" && o.print:
		return nil
	case given == "":
		return cli.Usagef("--node is missing, and no node has the name of the host, %q: %s", o.node, wrong[0])
	}
	return cli.Usagef("--node %q: no node has this name: %s", given, wrong[0])
}

// choice returns the choice of ends.
func (o *options) choice() (exits.Choice, error) {
	c := exits.Choice{
		Namespaces:       o.namespaces,
		ExceptNamespaces: o.exceptNamespaces,
		Labels:           o.selector,
	}
	for _, name := range o.kinds {
		kind, err := exits.ParseKind(name)
		if err != nil {
			return c, cli.Usagef("--kinds: %w", err)
		}
		c.Kinds = append(c.Kinds, kind)
	}
	for _, part := range []struct {
		flags  string
		choice exits.Choice
	}{
		{"--namespaces", exits.Choice{Namespaces: c.Namespaces}},
		{"--except-namespaces", exits.Choice{ExceptNamespaces: c.ExceptNamespaces}},
		{"--selector", exits.Choice{Labels: c.Labels}},
		{"--namespaces, --except-namespaces", c},
	} {
		if err := part.choice.Validate(); err != nil {
			return c, cli.Usagef("%s: %w", part.flags, err)
		}
	}
	return c, nil
}

// endpointVariable names the runtime's socket, for crictl as well.
const endpointVariable = "CONTAINER_RUNTIME_ENDPOINT"

// usualSockets are the sockets tried without a flag.
var usualSockets = cli.RuntimeSockets

// findEndpoint completes the endpoint.
func (o *options) findEndpoint(flags *pflag.FlagSet) error {
	err := cli.CheckEmptyEndpoint(flags, o.endpoint, endpointVariable)
	if err != nil {
		return err
	}
	o.endpoint = cmp.Or(o.endpoint, os.Getenv(endpointVariable))
	if o.endpoint == "" {
		o.endpoint = cli.UsualEndpoint(usualSockets)
	}
	if o.endpoint == "" {
		return cli.Usagef("--endpoint is missing, %s is not set, and none of the usual sockets exists (%s): name the runtime's socket, or see --fake",
			endpointVariable, strings.Join(usualSockets, ", "))
	}
	client, err := cri.New(cri.Config{Endpoint: o.endpoint})
	if err != nil {
		return cli.Usagef("--endpoint: %w", err)
	}
	return errors.Join(client.Close(), cli.CheckMount(o.endpoint))
}
