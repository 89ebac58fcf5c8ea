// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/kubeconfig"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// runOptions are the flags of run.
type runOptions struct {
	output                         cli.Output
	kubeconfig, context, namespace string
	nodes                          string
	atOnce                         int
	jobImage                       string
	endpoint, image, logDirectory  string
	pods, containers               int
	rate                           float64
	duration                       time.Duration
	runArgs                        []string
	dryRun                         bool
}

// Bounds of a load on a fleet.
const (
	mostRate     = 100
	mostDuration = time.Hour
	mostNodes    = 20_000
)

// newRun returns the command; connect reaches the cluster.
func newRun(connect func(*runOptions) (cluster, error)) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: `Run "pleg-bench run" on chosen nodes, as one Indexed Job`,
		Long: `run makes one Indexed Job with a pod on each chosen node, which runs "pleg-bench
run", and merges the results: on the fake runtime inside the pod, or, with
--endpoint, on a runtime beside that of the kubelet. It never uses the kubelet's
own runtime, where the kubelet would remove the load's pods: it asks each
kubelet for its runtime (nodes/proxy), and a pod that finds itself on the
endpoint's runtime makes no load.

Nodes with the annotation or taint evented-pleg.io/no-load, with a taint that
keeps pods away, or not ready, are left out and named. At most --at-once nodes
work at a time. The Job has a deadline of its own, and is removed at the end,
also at Ctrl-C; if this program is killed, no further node starts. With
--endpoint the namespace has to allow hostPath volumes.

It exits with 1 if a node failed or has no result, and with 3 if --expect
failed.`,
		Example: `  # on the fake runtime, to see that it works
  pleg-bench fleet run --nodes kubernetes.io/os=linux \
      --job-image example.com/pleg-bench:v0.1.0
  # on a second containerd of each node of a pool, two at a time
  pleg-bench fleet run --nodes pool=canary --at-once 2 \
      --job-image example.com/pleg-bench:v0.1.0 --image busybox \
      --endpoint unix:///run/bench/containerd.sock --duration 5m --rate 20
  # the Job only, for a look
  pleg-bench fleet run --nodes pool=canary --job-image example.com/pleg-bench \
      --dry-run`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.Check(new(LoadReport), nil); err != nil {
				return o.unbegun(cmd, nil, err)
			}
			if err := o.validate(); err != nil {
				return cli.Usage(err)
			}
			c, err := connect(&o)
			if err != nil {
				return o.unbegun(cmd, nil, err)
			}
			return o.run(cmd, c)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&o.nodes, "nodes", "l", "",
		"labels of the nodes, such as pool=canary; kubernetes.io/os=linux is all of Linux")
	flags.IntVar(&o.atOnce, "at-once", 10, "number of nodes under load at a time")
	flags.StringVar(&o.jobImage, "job-image", "", "image of pleg-bench")
	flags.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the Job")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "",
		"path of the kubeconfig (default $KUBECONFIG, ~/.kube/config, or the pod's account)")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig")
	flags.StringVar(&o.endpoint, "endpoint", "",
		"socket of a runtime on each node that no kubelet uses (default: the fake runtime)")
	flags.StringVar(&o.image, "image", "",
		"image of the load's containers, which the runtime has; needed with --endpoint")
	flags.StringVar(&o.logDirectory, "log-directory", "/var/log/pleg-bench",
		"folder on the nodes for the logs of the load's containers")
	flags.IntVar(&o.pods, "pods", 10, "number of pods on each node's runtime")
	flags.IntVar(&o.containers, "containers", 2, "number of containers in each pod")
	flags.Float64Var(&o.rate, "rate", 5,
		fmt.Sprintf("state changes a second on each node, at most %d", mostRate))
	flags.DurationVar(&o.duration, "duration", 30*time.Second,
		"how long pods are changed on each node, at most "+mostDuration.String())
	flags.StringArrayVar(&o.runArgs, "run-arg", nil,
		"further argument of pleg-bench run, such as --probe-rate=5; may be repeated")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the Job, and make nothing")
	o.output.AddFlags(flags, outputHelp, "missed=0")
	return cmd
}

// setHere are the flags of pleg-bench run set by this command, or never.
var setHere = []string{"--beside-kubelet", "--endpoint", "--output", "--rate", "--duration", "--out"}

func (o *runOptions) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if selector, err := labels.Parse(o.nodes); err != nil {
		bad("--nodes %s: %w", o.nodes, err)
	} else if selector.Empty() {
		bad("--nodes is missing: choose nodes by their labels, such as kubernetes.io/os=linux")
	}
	if o.jobImage == "" {
		bad("--job-image is missing: name an image of pleg-bench that the nodes can pull")
	}
	if o.atOnce < 1 {
		bad("--at-once %d: it must be at least 1", o.atOnce)
	}
	if !(o.rate >= 0 && o.rate <= mostRate) {
		bad("--rate %v: use 0 to %d changes a second", o.rate, mostRate)
	}
	if o.duration <= 0 || o.duration > mostDuration {
		bad("--duration %v: use a time up to %v", o.duration, mostDuration)
	}
	if o.pods < 1 || o.containers < 0 {
		bad("--pods %d, --containers %d: a load needs a pod at least", o.pods, o.containers)
	}
	switch socket := socketPath(o.endpoint); {
	case o.endpoint == "":
		if o.image != "" {
			bad("--image is for a real runtime: it needs --endpoint")
		}
	case !strings.HasPrefix(socket, "/") || strings.Count(socket, "/") < 2:
		bad("--endpoint %s: name a socket in a folder of its own, such as unix:///run/bench/containerd.sock", o.endpoint)
	case slices.Contains(cli.RuntimeSockets, socket):
		bad("--endpoint %s: a kubelet uses this runtime, and would remove the load's pods: start a second runtime on the nodes", o.endpoint)
	case o.image == "":
		bad("--image is missing: with --endpoint, name an image that the runtime has")
	}
	for _, arg := range o.runArgs {
		name, _, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "--") || slices.Contains(setHere, name) {
			bad("--run-arg %s: write --NAME=VALUE with a flag of pleg-bench run that is not set here", arg)
		}
	}
	return errors.Join(errs...)
}

// cluster is the API of a cluster.
type cluster struct {
	core  coreclient.CoreV1Interface
	batch batchclient.BatchV1Interface
	// configz returns the effective configuration of a node's kubelet, through the API server.
	configz func(ctx context.Context, node string) ([]byte, error)
}

// connect reads the kubeconfig.
func (o *runOptions) connect() (c cluster, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	if err := kubeconfig.CheckMounts(rules); err != nil {
		return c, err
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return c, cli.Usagef("--kubeconfig: %w", err)
	}
	config.UserAgent = "pleg-bench-fleet"
	config.QPS = 50
	config.Burst = 100
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if c.core, err = coreclient.NewForConfig(config); err == nil {
		c.batch, err = batchclient.NewForConfig(config)
	}
	if err != nil {
		return c, cli.Usagef("--kubeconfig: %w", err)
	}
	c.configz = func(ctx context.Context, node string) ([]byte, error) {
		proxy := c.core.RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy")
		return proxy.Suffix("configz").DoRaw(ctx)
	}
	return c, nil
}

// list returns the nodes with the labels.
func (c cluster) list(ctx context.Context, selector string) (nodes []core.Node, err error) {
	options := meta.ListOptions{LabelSelector: selector, Limit: 500}
	for {
		page, err := c.core.Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		nodes = append(nodes, page.Items...)
		options.Continue = page.Continue
		if options.Continue == "" {
			return nodes, nil
		}
	}
}

// unbegun returns the error of a load that did not begin, and prints its report. Left are the nodes
// that were left out.
func (o *runOptions) unbegun(cmd *cobra.Command, left []NodeReason, err error) error {
	if o.dryRun { // which prints a Job, and no report
		return err
	}
	return o.output.Failed(cmd, err, func(why string) any {
		r := newLoadReport(time.Now(), left)
		r.Interrupted = cmd.Context().Err() != nil
		r.Unfinished = why
		return r
	})
}

func (o *runOptions) run(cmd *cobra.Command, c cluster) error {
	ctx := cmd.Context()
	nodes, err := c.list(ctx, o.nodes)
	if err != nil {
		return o.unbegun(cmd, nil, err)
	}
	chosen, left := choose(nodes, o.endpoint)
	unknown := 0
	if o.endpoint != "" {
		g := c.guard(ctx, chosen, o.endpoint)
		chosen = g.chosen
		left = append(left, g.left...)
		unknown = g.unknown
		if notice := g.notice(); notice != "" {
			cmd.PrintErrln(printable.Text(notice))
		}
	}
	if len(chosen) == 0 {
		reason := ""
		if len(left) > 0 {
			reason = "; " + left[0].Node + ": " + left[0].Reason
		}
		err := fmt.Errorf("no node takes the load: %d have the labels %s%s", len(nodes), o.nodes, reason)
		return o.unbegun(cmd, left, err)
	}
	if len(chosen) > mostNodes {
		return cli.Usagef("--nodes %s: %d nodes, more than %d: choose fewer", o.nodes, len(chosen), mostNodes)
	}
	job := o.job(len(chosen))
	if o.dryRun {
		return printable.WriteJSON(cmd.OutOrStdout(), job, "  ")
	}
	began := time.Now()
	loaded := newLoadReport(began, left)
	loaded.RuntimeUnknown = unknown
	conductor := &conductor{
		cluster: c,
		options: o,
		nodes:   chosen,
		report:  loaded,
		line:    cli.NewLine(cmd.ErrOrStderr()),
	}
	err = conductor.run(ctx, job)
	if loaded.Job == "" {
		return o.unbegun(cmd, left, err)
	}
	loaded.conclude(ctx.Err() != nil)
	return o.output.Write(cmd, report.Saved{
		Kind:   "fleet run",
		Began:  began,
		Setup:  cli.Setup(cmd),
		Result: loaded,
	}, loaded.OK, err)
}
