// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// verdictOptions are the flags of verdict.
type verdictOptions struct {
	output                cli.Output
	prometheus, tokenFile string
	source
	trusted time.Duration
}

func newVerdict() *cobra.Command {
	var o verdictOptions
	cmd := &cobra.Command{
		Use:   "verdict",
		Short: "Judge the event streams of all nodes, from Prometheus",
		Long: `verdict asks Prometheus for the metrics of all nodes, of "pleg-bench watch", of
pleg-agent or of a kubelet with this PLEG, and says by runtime and version: on
how many nodes the event stream can be trusted, how many events were missed, and
how many lists of the runtime that saves, compared with a list a second. It
names the nodes that lose events, were without a stream, have not earned trust,
or deliver no metrics.

A stream is trusted if it is connected, no event was missed and none went
unheard within the window, and the relist period has grown to --trusted.

It exits with 1 if no node has delivered metrics, and with 3 if --expect failed.`,
		Example: `  pleg-bench fleet verdict --prometheus http://127.0.0.1:9090
  # the last day of one cluster, by node pool too; the page is kept
  pleg-bench fleet verdict --prometheus https://thanos.example.com \
      --selector 'cluster="a"' --by pool --window 1d --out verdict
  # a gate for a rollout
  pleg-bench fleet verdict --prometheus http://127.0.0.1:9090 \
      --expect missed=0 --expect 'trusted_share>0.99'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			began := time.Now()
			v, err := o.find(cmd, began)
			if err != nil {
				return o.output.Failed(cmd, err, func(why string) any { return o.unjudged(began, why) })
			}
			return o.output.Write(cmd, report.Saved{
				Kind:   "fleet verdict",
				Began:  began,
				Setup:  cli.Setup(cmd),
				Result: v,
			}, true, nil)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.prometheus, "prometheus", "",
		"address of Prometheus, or of a server with its API, such as http://127.0.0.1:9090")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a bearer token for Prometheus")
	o.window = time.Hour
	flags.Var((*model.Duration)(&o.window), "window", "time to judge, up to now, such as 30m or 1d")
	flags.StringVar(&o.selector, "selector", "",
		"matchers of the series, such as 'job=\"pleg-watch\",cluster=\"a\"'")
	flags.StringVar(&o.nodeLabel, "node-label", "node", "label of the series that names the node")
	flags.StringArrayVar(&o.by, "by", nil,
		"label of the series to group nodes by, beside the runtime, such as pool; may be repeated")
	flags.StringVar(&o.nodes, "all-nodes", "kube_node_info",
		"query of all nodes that should deliver metrics")
	flags.DurationVar(&o.trusted, "trusted", 30*time.Second,
		"relist period from which on a stream is trusted")
	o.output.AddFlags(flags, outputHelp, "missed=0")
	return cmd
}

var labelForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (o *verdictOptions) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if u, err := url.Parse(o.prometheus); o.prometheus == "" {
		bad("--prometheus is missing: name the address of Prometheus, such as http://127.0.0.1:9090")
	} else if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		bad("--prometheus %s: write a URL, such as http://127.0.0.1:9090", o.prometheus)
	}
	if o.window < 10*time.Second {
		bad("--window %v: it must be at least 10s", o.window)
	}
	if o.trusted < time.Second || o.trusted > 300*time.Second {
		bad("--trusted %v: relist periods are between 1s and 300s", o.trusted)
	}
	for _, label := range append([]string{o.nodeLabel}, o.by...) {
		if !labelForm.MatchString(label) {
			bad("--node-label or --by %q: it is no name of a label", label)
		}
	}
	if strings.ContainsAny(o.selector, "{}") {
		bad("--selector %q: write it without braces, such as job=\"pleg-watch\"", o.selector)
	}
	return errors.Join(errs...)
}

// readToken reads a file with a token. The file may be a pipe without a writer.
func readToken(path string) (string, error) {
	raw := make(chan []byte, 1)
	err := deadmount.Do(deadmount.FilesIn, path, func() error {
		text, err := os.ReadFile(path)
		raw <- text
		return err
	})
	if _, hangs := errors.AsType[*deadmount.Unanswered](err); hangs {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	if err != nil {
		return "", cli.Usagef("--token-file: %w", err)
	}
	return strings.TrimSpace(string(<-raw)), nil
}

// find checks the options, asks Prometheus, and judges.
func (o *verdictOptions) find(cmd *cobra.Command, began time.Time) (*Verdict, error) {
	if err := o.output.Check(new(Verdict), nil); err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, cli.Usage(err)
	}
	config := api.Config{Address: strings.TrimSuffix(o.prometheus, "/")}
	if o.tokenFile != "" {
		token, err := readToken(o.tokenFile)
		if err != nil {
			return nil, err
		}
		config.RoundTripper = bearer(token)
	}
	client, err := api.NewClient(config)
	if err != nil {
		return nil, cli.Usagef("--prometheus %s: %w", o.prometheus, err)
	}
	o.api = prometheus.NewAPI(client)
	o.warn = func(text string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "pleg-bench fleet: Prometheus warns: %s\n", printable.Text(text))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
	defer cancel()
	nodes, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	v := judge(nodes, began, o.window, o.trusted)
	if v.Nodes == v.Silent {
		return nil, fmt.Errorf("no node has metrics of pleg-bench watch in Prometheus at %s (%s without): is the DaemonSet scraped, "+
			"and do --selector and --node-label fit?", o.prometheus, bench.Count(v.Silent, "node"))
	}
	return v, nil
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return api.DefaultRoundTripper.RoundTrip(r)
}
