// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/internal/criproxy/disturb"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// longestProxy is the longest time for which a proxy disturbs.
const longestProxy = 24 * time.Hour

// proxyOptions are those of the command proxy.
type proxyOptions struct {
	// endpoint is the runtime's socket, socket the proxy's.
	endpoint, socket string
	rules            []string
	duration         time.Duration
	seed             uint64
	output           string
}

func newProxy(s streams) *cobra.Command {
	var (
		o         proxyOptions
		listRules bool
	)
	cmd := &cobra.Command{
		Use:   "proxy --socket PATH --rule RULE",
		Short: "Disturb the calls between a runtime and a kubelet or agent",
		Long: `proxy listens on a socket of its own, passes every call to a runtime, and
disturbs some by rules: it drops events, delays and stalls replies, cuts
connections, hangs the calls of a method or a container, refuses lists. Point a
kubelet or an agent of a test node at its socket, and see what they make of it.

A rule may end with the time in which it is in force, since the begin: @FROM or
@FROM-TO, as in stall=events@10s-40s. --list-rules explains all of them.

It is not made to stay. After --duration, and at Ctrl-C, all rules end, what was
held is delivered, and it prints what it has done, kind by kind. From then on it
passes everything through, so that nobody loses the runtime, until the last
client has gone; a second Ctrl-C ends it at once. It never takes the place of a
runtime's usual socket.`,
		Example: `  pleg-bench proxy --socket /tmp/proxy.sock --rule drop=STOPPED:0.2
  pleg-bench proxy --endpoint unix:///run/own/containerd.sock \
      --socket /tmp/proxy.sock --rule delay=lists:3s --rule stall=events@30s-60s
  pleg-bench proxy --socket /tmp/proxy.sock --rule hang=3f2a91c0 --duration 2m
  # in another terminal
  pleg-bench watch --endpoint /tmp/proxy.sock
  pleg-bench proxy --list-rules`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if listRules {
				return writeRules(s.out)
			}
			if !cmd.Flags().Changed("seed") {
				o.seed = rand.Uint64N(seeds)
			}
			begun := false
			plan, err := o.check(cmd)
			if err == nil {
				err = runProxy(cmd.Context(), s, o, plan, func() { begun = true })
			}
			if begun {
				return err
			}
			form := cli.Output{Form: o.output}
			return form.Failed(cmd, err, func(why string) any { return o.unbegun(why) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.endpoint, "endpoint", "", endpointHelp)
	flags.StringVar(&o.socket, "socket", "", "the proxy's own socket, a path or unix://path")
	flags.StringArrayVar(&o.rules, "rule", nil,
		"disturb so, as drop=STOPPED:0.2; may be repeated (see --list-rules)")
	flags.DurationVar(&o.duration, "duration", 10*time.Minute, "disturb for that time, at most 24h")
	flags.Uint64Var(&o.seed, "seed", 0, "decides which events and calls a share takes")
	flags.Lookup("seed").DefValue = "another each time"
	flags.StringVarP(&o.output, "output", "o", "text", "the last report as text or json")
	flags.BoolVar(&listRules, "list-rules", false, "explain all rules and exit")
	return cmd
}

// seeds bounds the seeds that are drawn: many a reader of JSON takes a number for a double.
const seeds = 1 << 53

// check completes the options, and returns the plan.
func (o *proxyOptions) check(cmd *cobra.Command) (plan disturb.Plan, err error) {
	if o.output != "text" && o.output != "json" {
		return nil, cli.Usagef("--output %s: use text or json", o.output)
	}
	if o.duration <= 0 || o.duration > longestProxy {
		return nil, cli.Usagef("--duration %v: use a time above 0 and at most %v: a proxy is not made to stay", o.duration, longestProxy)
	}
	plan, err = disturb.Parse(o.rules...)
	if err != nil {
		return nil, cli.Usagef("--rule: %w", err)
	}
	if o.socket == "" {
		return nil, cli.Usagef("--socket is missing: name the proxy's own socket, such as --socket /tmp/proxy.sock")
	}
	o.socket, err = ownSocket(o.socket)
	if err != nil {
		return nil, err
	}
	if slices.Contains(usualSockets, o.socket) {
		return nil, cli.Usagef("--socket %s is where a runtime's own socket belongs: choose another path", o.socket)
	}
	o.endpoint, err = findEndpoint(cmd, o.endpoint)
	if err != nil {
		return nil, err
	}
	o.endpoint = strings.TrimPrefix(o.endpoint, "unix://")
	if o.endpoint == o.socket {
		return nil, cli.Usagef("--socket and --endpoint are both %s: the proxy needs a socket of its own", o.socket)
	}
	return plan, nil
}

// rulesGiven returns the rules for a report: a list without any is empty, and not null.
func (o *proxyOptions) rulesGiven() []string { return append([]string{}, o.rules...) }

// unbegun is the report of a proxy that could not begin.
func (o *proxyOptions) unbegun(why string) proxyReport {
	return proxyReport{
		Schema:     proxySchema,
		Unfinished: why,
		Seed:       o.seed,
		Rules:      o.rulesGiven(),
		Tally:      disturb.Tally{Events: map[string]disturb.EventCount{}, Calls: map[string]disturb.CallCount{}},
	}
}

// runProxy disturbs, reports, and passes calls through until the last client has gone. runProxy
// calls begun once the proxy listens.
func runProxy(ctx context.Context, s streams, o proxyOptions, plan disturb.Plan, begun func()) error {
	client, err := cri.Dial(ctx, cri.Config{Endpoint: o.endpoint})
	if err != nil {
		return cli.Denied(o.endpoint, err)
	}
	version, err := client.Version(ctx)
	err = errors.Join(err, client.Close())
	if err != nil {
		return err
	}
	err = freePath(o.socket)
	if err != nil {
		return err
	}
	// Every call from here on is held up while this process stands still.
	meter, rest := standstill.Start()
	defer rest()
	span := meter.Begin()
	before := syscall.Umask(0o077) // whoever reaches the socket is root on the node
	proxy, err := criproxy.Start(o.socket, o.endpoint)
	syscall.Umask(before)
	if err != nil {
		return bench.ListenFailed(o.socket, err)
	}
	defer proxy.Close()
	begun()
	disturber := disturb.New(proxy, plan, o.seed)
	fmt.Fprintf(s.err, "between unix://%s and %s on unix://%s, with seed %d; "+
		"it disturbs for %v, or until Ctrl-C, and passes everything through then.\n",
		o.socket, printable.Text(version.String()), o.endpoint, o.seed, o.duration)
	for _, r := range plan {
		fmt.Fprintf(s.err, "  %s\n", r.Text)
	}
	disturbFor(ctx, disturber, o.duration)
	ran, stood := span.Took()
	report := proxyReport{
		Schema:       proxySchema,
		Runtime:      version.String(),
		Seconds:      (ran + stood).Seconds(),
		StoodSeconds: stood.Seconds(),
		Seed:         o.seed,
		Rules:        o.rulesGiven(),
		Tally:        disturber.Tally(),
	}
	err = report.write(s.out, o.output)
	passThrough(ctx, s.err, proxy, o.endpoint)
	return errors.Join(err, context.Cause(ctx))
}

// disturbFor disturbs for a time, or until ctx ends.
func disturbFor(ctx context.Context, d *disturb.Disturber, long time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	d.Run(ctx)
	<-ctx.Done()
}

// remindEvery is the time between two reminders of a proxy after the end of its rules.
const remindEvery = time.Minute

// passThrough returns when no client is connected, or when ctx ends meanwhile. The proxy does not
// cut a client off from the runtime unless the user asks for the end with Ctrl-C.
func passThrough(ctx context.Context, w io.Writer, proxy *criproxy.Proxy, endpoint string) {
	if ctx.Err() != nil { // this Ctrl-C has ended the rules, and the next ends the process
		ctx = context.WithoutCancel(ctx)
	}
	const lookEvery = 200 * time.Millisecond
	next := time.Now()
	for ; proxy.Clients() > 0 && ctx.Err() == nil; _ = bench.Sleep(ctx, lookEvery) {
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(remindEvery)
		fmt.Fprintf(w, "all rules have ended, and the calls of %s pass through: "+
			"point them at unix://%s again. Ctrl-C cuts them off.\n",
			bench.Count(proxy.Clients(), "client"), endpoint)
	}
}

// freePath removes a socket without a listener from a path.
func freePath(path string) error {
	err := deadmount.Check(path)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	err = bench.RemoveSocket(path, info, "proxy.sock")
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	return nil
}

// proxySchema is the version of the report's JSON.
const proxySchema = "evented-pleg.io/proxy/v1"

// proxyReport is the account of a proxy. docs/json.md documents its JSON.
type proxyReport struct {
	// Schema is evented-pleg.io/proxy/v1.
	Schema string `json:"schema"`
	// Unfinished is why the proxy could not begin; left out otherwise.
	Unfinished string `json:"unfinished,omitempty"`
	// Runtime is name and version, as the runtime says.
	Runtime string `json:"runtime"`
	// Seconds is how long the proxy disturbed, with the moment of opening its socket before.
	Seconds float64 `json:"seconds"`
	// StoodSeconds is for how long of these seconds the proxy itself did not run: stopped, or
	// without CPU. A proxy that does not run holds up every call, whatever the rules say.
	StoodSeconds float64 `json:"stood_seconds"`
	// Seed is --seed.
	Seed uint64 `json:"seed"`
	// Rules are those of --rule.
	Rules []string `json:"rules"`
	disturb.Tally
}

func (r proxyReport) write(w io.Writer, form string) error {
	if form == "json" {
		return printable.WriteJSON(w, r, "  ")
	}
	return r.document().WriteText(w, cli.Columns(w))
}

// document is the report for people.
func (r proxyReport) document() bench.Document {
	dropped, received := r.Dropped()
	took := bench.Seconds(r.Seconds)
	events := bench.Count(received, "event")
	cuts := bench.Count(r.Cuts, "time")
	d := bench.Document{
		Title:   fmt.Sprintf("%s, disturbed for %s with seed %d", r.Runtime, took, r.Seed),
		Lines:   []string{"rules: " + strings.Join(r.Rules, " ")},
		Verdict: fmt.Sprintf("dropped %d of %s; cut clients' connections %s.", dropped, events, cuts),
	}
	if len(r.Rules) == 0 {
		d.Lines = []string{"no rules: everything passed through"}
	}
	if r.StoodSeconds >= bench.StoodFrom {
		d.Lines = append(d.Lines, fmt.Sprintf(
			"pleg-bench itself did not run for %s: it was stopped, or this machine has too few CPUs. It held up every call for that time, which is no rule's doing",
			bench.Seconds(r.StoodSeconds),
		))
	}
	streamed := bench.Table{
		Title:   "events",
		Columns: []string{"received", "passed", "dropped", "delayed", "stalled"},
	}
	for _, kind := range r.Kinds() {
		c := r.Events[kind]
		passed := c.Received - c.Dropped
		streamed.Add(kind, "", cells(c.Received, passed, c.Dropped, c.Delayed, c.Stalled)...)
	}
	calls := bench.Table{
		Title:   "calls",
		Columns: []string{"begun", "refused", "hung", "delayed", "stalled", "failed"},
	}
	for _, method := range r.Methods() {
		c := r.Calls[method]
		calls.Add(method, "", cells(c.Begun, c.Refused, c.Hung, c.Delayed, c.Stalled, c.Failed)...)
	}
	for _, t := range []bench.Table{streamed, calls} {
		if len(t.Rows) > 0 {
			d.Tables = append(d.Tables, t)
		}
	}
	return d
}

func cells(counts ...int) (list []string) {
	for _, n := range counts {
		list = append(list, fmt.Sprint(n))
	}
	return list
}

func writeRules(w io.Writer) error {
	for _, r := range disturb.Words() {
		help := cli.Columns(w).Fold(r.Help, 4)
		text := fmt.Sprintf("%s=%s\n    %s\n    as in --rule %s\n", r.Name, r.Form, help, r.Example)
		if _, err := io.WriteString(w, text); err != nil {
			return fmt.Errorf("write the rules: %w", err)
		}
	}
	return nil
}
