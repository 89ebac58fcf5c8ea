// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
)

// value is the table of what the PLEG is worth: a kubelet and others beside it, each in a run of
// its own and by turns, on some runtimes and sizes of a node, a few rounds. Two kubelets in one run
// would share a cgroup namespace, and each would pay for the other's pods.
func value(ctx context.Context, args []string) error {
	flags := newCommon("value")
	runtimesOf := flags.String(
		"runtimes",
		"fake,crio,containerd-1.7,containerd-2.4,containerd-2.4+10s",
		"runtimes, separated by commas; +10s: with that stats_collect_period",
	)
	sizes := flags.String("pods", "", "numbers of pods, separated by commas; by default 30,60,110, and 250 on the fake")
	rounds := flags.Int("rounds", 3, "runs of each kubelet, by turns")
	settle := flags.Duration(
		"settle",
		90*time.Second,
		"time for a started node to come to rest; the relist period grows to 45 s meanwhile",
	)
	idle := flags.Duration("idle", 100*time.Second, "time to watch the idle node")
	churn := flags.Float64("churn", 1, "pods a second that come and go afterwards, for a minute; 0: none")
	volumes := flags.Int("volumes", 0, "volumes of a pod (emptyDir)")
	_ = flags.Parse(args)
	names := flags.Args()
	if len(names) == 0 {
		names = []string{"stock-1.36.3", "evented-1.36.3"}
	}
	if len(names) < 2 || *rounds < 1 {
		return usagef(
			"value compares kubelets with the first in one round or more, such as stock-1.36.3 evented-1.36.3",
		)
	}
	var table []valueRow
	for on := range strings.SplitSeq(*runtimesOf, ",") {
		for size := range strings.SplitSeq(cmp.Or(*sizes, defaultSizes(on)), ",") {
			if _, err := strconv.Atoi(size); err != nil {
				return usagef("-pods: %q is no number", size)
			}
			row := valueRow{Runtime: on, Pods: size, Runs: make([][]valueFigures, len(names))}
			for range *rounds {
				for side, name := range names {
					run := valueRun{
						variant: name,
						runtime: on,
						pods:    size,
						volumes: *volumes,
						dir:     flags.dir,
						settle:  *settle,
						idle:    *idle,
						churn:   *churn,
					}
					got, err := run.measure(ctx)
					if err != nil {
						return fmt.Errorf("%s on %s with %s pods: %w", name, on, size, err)
					}
					row.Runs[side] = append(row.Runs[side], got)
				}
			}
			table = append(table, row)
			writeValue(os.Stdout, []valueRow{row}, len(table) == 1)
		}
	}
	return nil
}

// defaultSizes returns the numbers of pods for a runtime, with commas. A kubelet admits 110 pods by
// default, and the fake runtime has no more to show than the cost of lists.
func defaultSizes(runtime string) string {
	if runtime == "fake" {
		return "30,60,110,250"
	}
	return "30,60,110"
}

// valueRow is the runs of the kubelets on a runtime with a number of pods, by kubelet and round.
type valueRow struct {
	Runtime, Pods string
	Runs          [][]valueFigures
}

// valueFigures are the figures of a run, as the command of a single run writes them: milliseconds
// of CPU a second when idle, of CPU a pod in the churn, milliseconds of the times as texts. Load is
// the machine's, the average of the last idle minute.
type valueFigures struct {
	Kubelet, Daemon, Monitors, Both float64
	Lists                           float64
	ChurnBoth, ChurnReads           float64
	ChurnLists, Load                float64
	Exit, Ready                     string
}

// valueRun is a run of one kubelet.
type valueRun struct {
	variant, runtime, pods, dir string
	volumes                     int
	settle, idle                time.Duration
	churn                       float64
}

// measure runs this program anew for the run, because a run has namespaces of its own.
func (r *valueRun) measure(ctx context.Context) (got valueFigures, err error) {
	out, err := os.CreateTemp("", "value-*.json")
	if err != nil {
		return got, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		return got, err
	}
	args := []string{
		"value-run", "-kubelets", r.dir, "-pods", r.pods, "-volumes", strconv.Itoa(r.volumes), "-settle", r.settle.String(),
		"-idle", r.idle.String(), "-churn", fmt.Sprint(r.churn), "-to", out.Name(),
	}
	on, period, _ := strings.Cut(r.runtime, "+")
	if on != "fake" {
		args = append(args, "-runtime", on, "-stats-period", period)
	}
	cmd := exec.CommandContext(ctx, self, append(args, r.variant)...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return got, err
	}
	text, err := os.ReadFile(out.Name())
	return got, errors.Join(err, json.Unmarshal(text, &got))
}

// valueOne is the command of a single run.
func valueOne(ctx context.Context, args []string) error {
	flags := newCommon("value-run")
	course := scene.Course{
		NoEnds:     true,
		ChurnFor:   time.Minute,
		Life:       3 * time.Second,
		Containers: 1,
	}
	flags.IntVar(&course.Pods, "pods", 30, "pods of the node")
	flags.IntVar(&course.Volumes, "volumes", 0, "see value")
	flags.DurationVar(&course.Settle, "settle", 0, "see value")
	flags.DurationVar(&course.Idle, "idle", 0, "see value")
	flags.Float64Var(&course.Churn, "churn", 0, "see value")
	period := flags.String("stats-period", "", "containerd's stats_collect_period")
	to := flags.String("to", "", "file for the figures")
	_ = flags.Parse(args)
	list, err := flags.variants(flags.Args())
	if err != nil {
		return err
	}
	if len(list) != 1 || *to == "" {
		return usagef("value-run plays one kubelet, and writes to a file")
	}
	v := list[0]
	v.StatsPeriod = *period
	v.FileCheck = time.Hour
	column, err := scene.Measure(ctx, v, course)
	if err != nil {
		return err
	}
	text, err := json.Marshal(figuresOf(column, course.Churn))
	return errors.Join(err, os.WriteFile(filepath.Clean(*to), text, 0o644))
}

func figuresOf(c *scene.Column, churn float64) (f valueFigures) {
	number := func(row string) float64 { n, _ := c.Number(row); return n }
	f.Kubelet = number("idle: kubelet CPU, ms/s")
	f.Daemon = number("idle: runtime CPU, ms/s")
	f.Monitors = number("idle: shims or monitors CPU, ms/s")
	f.Both = number("idle: kubelet and runtime CPU, ms/s")
	f.Lists = number("idle: ListPodSandbox / min") + number("idle: ListContainers / min")
	_, load, _ := strings.Cut(c.Text("idle: load of the machine, from / to"), " / ")
	f.Load, _ = strconv.ParseFloat(load, 64)
	if churn > 0 {
		row := fmt.Sprintf("churn %g/s: ", churn)
		f.ChurnBoth = number(row + "kubelet and runtime CPU, ms a pod")
		f.ChurnReads = number(row + "reads by the generator a pod")
		f.ChurnLists = number(row+"ListPodSandbox a pod") + number(row+"ListContainers a pod")
		f.Exit = c.Text(row + "exit to status: number, p50 / p99 / worst ms")
		f.Ready = c.Text(row + "manifest to ready: number, p50 / p99 / worst ms")
	}
	return f
}

// writeValue writes rows of the table, whose cells have a figure for each kubelet: medians, ratios
// to the first kubelet with their spread over the rounds, and the CPU-seconds that a node gets back
// each day.
func writeValue(out io.Writer, rows []valueRow, head bool) {
	if head {
		fmt.Fprint(
			out,
			"| runtime, pods | kubelet ms/s | daemon ms/s | shims ms/s | both, ratio (spread) | CPU-s a day | lists/min | ",
			"churn: CPU ms a pod, ratio (spread) | reads a pod | lists a pod | exit → status, last round | ready, last round | load |\n",
			"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
		)
	}
	for _, r := range rows {
		cells := []string{
			r.Runtime + ", " + r.Pods,
			r.medians("%.1f", func(f valueFigures) float64 { return f.Kubelet }),
			r.medians("%.1f", func(f valueFigures) float64 { return f.Daemon }),
			r.medians("%.1f", func(f valueFigures) float64 { return f.Monitors }),
			r.ratios(func(f valueFigures) float64 { return f.Both }),
			r.saved(),
			r.medians("%.1f", func(f valueFigures) float64 { return f.Lists }),
			r.medians("%.1f", func(f valueFigures) float64 { return f.ChurnBoth }) + ", " +
				r.ratios(func(f valueFigures) float64 { return f.ChurnBoth }),
			r.medians("%.1f", func(f valueFigures) float64 { return f.ChurnReads }),
			r.medians("%.1f", func(f valueFigures) float64 { return f.ChurnLists }),
			r.last(func(f valueFigures) string { return f.Exit }),
			r.last(func(f valueFigures) string { return f.Ready }),
			r.medians("%.0f", func(f valueFigures) float64 { return f.Load }),
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
}

// medians returns the median of a figure for each kubelet.
func (r *valueRow) medians(format string, get func(valueFigures) float64) string {
	var all []string
	for _, runs := range r.Runs {
		all = append(all, fmt.Sprintf(format, median(runs, get)))
	}
	return strings.Join(all, " → ")
}

// last returns a text of the last round for each kubelet.
func (r *valueRow) last(get func(valueFigures) string) string {
	var all []string
	for _, runs := range r.Runs {
		all = append(all, get(runs[len(runs)-1]))
	}
	return strings.Join(all, " → ")
}

// ratios returns the ratio of the medians of a figure to the first kubelet's, for each of the
// others, and the least and the largest ratio of a round.
func (r *valueRow) ratios(get func(valueFigures) float64) string {
	var all []string
	for _, runs := range r.Runs[1:] {
		var each []float64
		for i, f := range runs {
			each = append(each, get(f)/get(r.Runs[0][i]))
		}
		all = append(all, fmt.Sprintf(
			"%.2f (%.2f–%.2f)",
			median(runs, get)/median(r.Runs[0], get),
			slices.Min(each),
			slices.Max(each),
		))
	}
	return strings.Join(all, ", ")
}

// saved returns the CPU-seconds that a node gets back each day with each of the other kubelets.
func (r *valueRow) saved() string {
	both := func(f valueFigures) float64 { return f.Both }
	var all []string
	for _, runs := range r.Runs[1:] {
		all = append(all, fmt.Sprintf("%.0f", (median(r.Runs[0], both)-median(runs, both))/1e3*86400))
	}
	return strings.Join(all, ", ")
}

// median returns the median of a figure of some runs.
func median(runs []valueFigures, get func(valueFigures) float64) float64 {
	var all []float64
	for _, f := range runs {
		all = append(all, get(f))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
