// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
)

func compare(ctx context.Context, args []string) error {
	flags := newCommon("compare")
	pods := flags.Int("pods", 200, "pods of the node")
	settle := flags.Duration("settle", 2*time.Minute, "time for a started node to come to rest")
	idle := flags.Duration("idle", 5*time.Minute, "time to watch the idle node")
	logs := flags.Duration("logs", 10*time.Second, "how often the kubelet looks whether logs must be rotated (its default)")
	profile := flags.String("profile", "", "folder for a CPU profile of each kubelet, VARIANT.pprof, taken for as long again as -idle after it")
	_ = flags.Parse(args)
	course := scene.Course{Pods: *pods, Settle: *settle, Idle: *idle, Profile: *profile}
	list, err := flags.variants(flags.Args())
	if err != nil {
		return err
	}
	all, err := play(flags, list, func(v scene.Variant) (*scene.Figures, error) {
		v.MaxPods, v.LogInterval = *pods+100, *logs
		return measure(ctx, v, course)
	})
	table(os.Stdout, all)
	return err
}

func measure(ctx context.Context, v scene.Variant, c scene.Course) (f *scene.Figures, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", v.Name, err)
		}
	}()
	w, err := scene.NewWorld(ctx, v)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return scene.Measure(ctx, w, c)
}

// table writes the figures as Markdown, a column a kubelet.
func table(out io.Writer, all []*scene.Figures) {
	row := rows(out, all)
	row("", func(f *scene.Figures) string { return f.Variant })
	row("---", func(*scene.Figures) string { return "---:" })
	times := func(name string, of func(*scene.Figures) []time.Duration) {
		row(name+", p50 / p99 ms", func(f *scene.Figures) string {
			q := bench.Summarize(of(f))
			return fmt.Sprintf("%.0f / %.0f", q.P50.Seconds()*1e3, q.P99.Seconds()*1e3)
		})
	}
	times("container exit to kubelet status", func(f *scene.Figures) []time.Duration { return f.Exit })
	for _, name := range scene.CallNames(all, func(f *scene.Figures) map[string]float64 { return f.ExitCalls }) {
		row("per exit: "+name, func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.ExitCalls[name]) })
	}
	times("manifest to ready, all at once", func(f *scene.Figures) []time.Duration { return f.Start })
	times("manifest removed to pod gone, at most 10 at once", func(f *scene.Figures) []time.Duration { return f.Deletion })
	times("end of a removed pod's container to its removal", func(f *scene.Figures) []time.Duration { return f.Removal })
	times("the same of a pod that is unknown after a restart", func(f *scene.Figures) []time.Duration { return f.Unknown })
	row("idle: relists / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.Relists*60) })
	row("idle: reads of one pod / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.PodReads*60) })
	row("idle: kubelet CPU, ms/s", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.KubeletCPU*1e3) })
	row("idle: runtime CPU, ms/s", func(f *scene.Figures) string { return fmt.Sprintf("%.2f", f.RuntimeCPU*1e3) })
	for _, name := range scene.CallNames(all, func(f *scene.Figures) map[string]float64 { return f.Calls }) {
		row("idle: "+name+" / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.Calls[name]*60) })
	}
	row("idle: kubelet and runtime CPU, ms/s", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", (f.KubeletCPU+f.RuntimeCPU)*1e3) })
	for _, name := range scene.CallNames(all, func(f *scene.Figures) map[string]float64 { return f.Memory }) {
		row("idle: "+name+" / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.Memory[name]*60) })
	}
	row("idle: load of the machine, from / to", func(f *scene.Figures) string { return fmt.Sprintf("%.1f / %.1f", f.Load[0], f.Load[1]) })
	row("idle, s", func(f *scene.Figures) string { return fmt.Sprintf("%.0f", f.Idle.Seconds()) })
	row("goroutines of the kubelet", func(f *scene.Figures) string { return fmt.Sprint(f.Goroutines) })
	row("missed events", func(f *scene.Figures) string { return fmt.Sprint(f.MissedEvent) })
}
