// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

func newFake(s streams) *cobra.Command {
	var (
		fake             fakeFlags
		socket           string
		pods, containers int
		life             time.Duration
		rate             float64
		isChild          bool
		listFaults       bool
	)
	cmd := &cobra.Command{
		Use:   "fake --socket PATH",
		Short: "Serve a fake container runtime for any CRI client",
		Long: fmt.Sprintf(`fake serves the CRI on a unix socket until it is interrupted: virtual pods and
containers that live, end and are removed as those of a real runtime, with its
quirks (--profile) and with faults of your choice (--fault). Nothing is really
run, no root is needed.

A container ends by itself if its command is "sleep D [CODE]", "exit N", "true"
or "false", or "sh -c" with a list of these; "echo" prints to its log.
Annotations of the container or its pod do the same for any command:
docs/fake-runtime.md.

Two images are there from the beginning:

  %s
  %s

A container of another one is refused, as real runtimes do, until it was pulled
(crictl pull). Pulling works for every name, without a network.`, fakeruntime.WorkloadImage, fakeruntime.PauseImage),
		Example: `  pleg-bench fake --socket /tmp/cri.sock --pods 20 --rate 10
  # in another terminal
  pleg-bench watch --endpoint unix:///tmp/cri.sock
  crictl --runtime-endpoint unix:///tmp/cri.sock pods
  pleg-bench fake --socket /tmp/cri.sock --profile crio --fault drop=0.05
  pleg-bench fake --list-faults`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if listFaults {
				return writeFaults(s.out)
			}
			if socket == "" {
				return cli.Usagef("--socket is missing: name the unix socket to listen on, such as --socket /tmp/cri.sock")
			}
			if !cmd.Flags().Changed("seed") {
				fake.seed = uint64(time.Now().UnixMilli()) // IDs come from the seed: a restart repeats none
			}
			profile, err := fakeruntime.ProfileByName(fake.profile)
			if err != nil {
				return cli.Usagef("--profile: %w", err)
			}
			faults, err := run.ParseFaults(fake.faults)
			if err != nil {
				return cli.Usage(err)
			}
			if err := run.CheckSize(pods, containers); err != nil {
				return cli.Usage(err)
			}
			if life < 0 || !(rate >= 0) || math.IsInf(rate, 0) {
				return cli.Usagef("--life %v, --rate %v: use numbers that are not negative", life, rate)
			}
			socket, err = ownSocket(socket)
			if err != nil {
				return err
			}
			rt, err := fakeruntime.New(fakeruntime.Config{
				Profile:      profile,
				Faults:       faults,
				Seed:         fake.seed,
				HistoryLimit: historyLimit,
			})
			if err != nil {
				return cli.Usage(err)
			}
			population := fakeruntime.Population{Pods: pods, Containers: containers}
			if life > 0 {
				population.Life = fakeruntime.After(life, 0)
			}
			if _, err := rt.Populate(population); err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			churned := make(chan error, 1)
			churned <- nil
			config := fakeproc.Config{Socket: socket, Runtime: rt}
			if isChild {
				config.In = s.in
				config.Out = s.out
			}
			config.Ready = func() {
				if isChild {
					return
				}
				profile := rt.Profile()
				fmt.Fprintf(s.err, "%s %s as %s, with %s and seed %d, on unix://%s. Ctrl-C ends it.\n",
					profile.RuntimeName, profile.RuntimeVersion, fake.profile,
					bench.Count(pods, "pod"), fake.seed, socket)
				if rate > 0 {
					<-churned
					load := churnLoad{
						Socket:     socket,
						Pods:       max(pods, 1),
						Containers: max(containers, 1),
						Rate:       rate,
						Seed:       fake.seed,
					}
					go func() { churned <- load.run(ctx, s.err) }()
				}
			}
			err = fakeproc.Serve(ctx, config)
			if dir := filepath.Dir(socket); isChild && strings.HasPrefix(filepath.Base(dir), run.FakeFolder) {
				err = errors.Join(err, os.RemoveAll(dir)) // the parent may have been killed
			}
			cancel()
			return errors.Join(err, <-churned)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&socket, "socket", "", "path of the unix socket to listen on")
	fake.add(flags)
	flags.Lookup("seed").DefValue = "another each time"
	flags.IntVar(&pods, "pods", 0, "pods that are there from the beginning")
	flags.IntVar(&containers, "containers", 2, "containers in each of them")
	flags.DurationVar(&life, "life", 0,
		"how long these containers live (default: until they are stopped)")
	flags.Float64Var(&rate, "rate", 0,
		"make as many pods more and change them, this many state changes a second")
	flags.BoolVar(&listFaults, "list-faults", false, "explain all faults and exit")
	flags.BoolVar(&isChild, "child", false,
		"answer calls of another command on standard input and output")
	flags.Lookup("child").Hidden = true
	return cmd
}

// historyLimit is enough changes for a fast run between two collections of the history.
const historyLimit = 1_000_000

// writeFaults explains all faults: in a table, or in folded lines where a terminal is too narrow.
func writeFaults(w io.Writer) error {
	width := cli.LineWidth(w)
	var lines, rows strings.Builder
	table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tKIND\tEXAMPLE\tMEANING")
	for _, f := range fakeruntime.FaultList() {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Name, f.Kind, f.Example, f.Help)
		kind := f.Kind
		if f.Example != "" {
			kind += ", such as " + f.Example
		}
		fmt.Fprintln(&lines, width.Fold(fmt.Sprintf("%s (%s): %s", f.Name, kind, f.Help), 4))
	}
	err := table.Flush()
	text := rows.String()
	for line := range strings.Lines(text) {
		if width > 0 && utf8.RuneCountInString(line) > int(width) {
			text = lines.String()
			break
		}
	}
	if _, failed := io.WriteString(w, text); errors.Join(err, failed) != nil {
		return fmt.Errorf("write the faults: %w", errors.Join(err, failed))
	}
	return nil
}

// churnLoad is a load on a fake runtime. The runtime may fail calls, leave them hanging, or lose
// their effects: the load goes on.
type churnLoad struct {
	// Socket is the runtime's.
	Socket           string
	Pods, Containers int
	// Rate is the intended number of changes a second.
	Rate float64
	Seed uint64
}

const (
	// churnCallTimeout bounds the load's calls: faults may hang them.
	churnCallTimeout = 2 * time.Second
	// churnQuiet is the time without a successful change after which the load reports a failure.
	churnQuiet = 5 * time.Second
)

// run makes pods and changes them until ctx ends. run writes to told if pods cannot be made, or if
// no change succeeds for churnQuiet.
func (c churnLoad) run(ctx context.Context, told io.Writer) error {
	conn, err := load.Connect(c.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	driver := load.New(load.Config{
		Conn:        conn,
		RunID:       "churn" + strconv.FormatInt(time.Now().UnixMilli(), 36),
		Pods:        c.Pods,
		Containers:  c.Containers,
		Rate:        c.Rate,
		Seed:        c.Seed,
		Image:       run.FakeImage,
		CallTimeout: churnCallTimeout,
		Logger:      klog.FromContext(ctx),
		// The fake runtime writes no logs.
		LogDirectory: filepath.Join(filepath.Dir(c.Socket), "logs"),
	})
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.tellQuiet(ctx, driver, told) })
	if err := driver.Setup(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintf(told, "not all pods could be made yet, and the load goes on: %s\n", printable.Text(err.Error()))
	}
	driver.Run(ctx, math.MaxInt64)
	return nil
}

// tellQuiet writes a line for each churnQuiet without a successful change, with the failing call.
func (c churnLoad) tellQuiet(ctx context.Context, driver *load.Driver, told io.Writer) {
	last := driver.Stats().Changes
	for bench.Sleep(ctx, churnQuiet) == nil {
		stats := driver.Stats()
		if stats.Changes == last {
			why := "no call has ended"
			for _, method := range slices.Sorted(maps.Keys(stats.Errors)) {
				times := bench.Count(stats.Errors[method], "time")
				why = fmt.Sprintf("%s failed %s, first: %s", method, times, stats.FirstErrors[method])
			}
			fmt.Fprintf(told, "the load has changed nothing for %v, and tries on: %s\n", churnQuiet, why)
		}
		last = stats.Changes
	}
}
