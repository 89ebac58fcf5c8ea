// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command kubelet-e2e runs real kubelets, stock and with the evented PLEG in them, on a node of static pods without an API server. It must be run
// as root, in the repository's root, after kubelet-build.
//
//	go run ./test/kubelet/cmd/kubelet-e2e scenarios [-pods 200] [-containerd] [-api DIR] [-only NAME] [VARIANT...]
//	go run ./test/kubelet/cmd/kubelet-e2e compare [-pods 200] [-idle 5m] [-together] [VARIANT...]
//
// Variants are stock-1.36.3, gate-1.36.3 (stock with EventedPLEG), evented-1.36.3, stock-1.37.1 and evented-1.37.1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-e2e:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do: scenarios or compare")
	}
	switch args[0] {
	case standalone.Inside:
		return standalone.RunInside(args[1:])
	case scene.FakeRuntime:
		return scene.ServeFake(ctx, args[1:])
	case "scenarios":
		return scenarios(ctx, args[1:])
	case "compare":
		return compare(ctx, args[1:])
	}
	return fmt.Errorf("%q is neither scenarios nor compare", args[0])
}

// variants returns those of the names, or all that were built.
func variants(dir string, names []string) ([]scene.Variant, error) {
	var chosen []scene.Variant
	for _, version := range []string{"1.36.3", "1.37.1"} {
		file := func(kind string) string { return filepath.Join(dir, "kubelet-v"+version+"-"+kind) }
		all := []scene.Variant{{Name: "stock-" + version, Binary: file("stock")}}
		if version == "1.36.3" {
			all = append(all, scene.Variant{Name: "gate-" + version, Binary: file("stock"), Gates: map[string]bool{"EventedPLEG": true}})
		}
		all = append(all, scene.Variant{Name: "evented-" + version, Binary: file("evented"), Gates: map[string]bool{"EventDrivenPLEG": true}, Ours: true})
		for _, v := range all {
			wanted := len(names) == 0
			for _, n := range names {
				wanted = wanted || n == v.Name
			}
			if !wanted {
				continue
			}
			if _, err := os.Stat(v.Binary); err != nil {
				return nil, fmt.Errorf("%s: %w (make kubelet builds it)", v.Name, err)
			}
			v.Binary, _ = filepath.Abs(v.Binary)
			chosen = append(chosen, v)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no variant is called %s", strings.Join(names, " or "))
	}
	return chosen, nil
}

func scenarios(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("scenarios", flag.ExitOnError)
	dir := flags.String("kubelets", "build/kubelet", "where the kubelets are")
	pods := flags.Int("pods", 200, "pods of a full node")
	only := flags.String("only", "", "play this scenario only")
	containerd := flags.Bool("containerd", false, "play on a containerd of its own instead of the fake runtime")
	api := flags.String("api", "", "folder with etcd and kube-apiserver, to have pods bound to the node by an API server")
	hours := flags.Duration("for", 0, "play all again and again for that long")
	_ = flags.Parse(args)
	names := flags.Args()
	if len(names) == 0 {
		names = []string{"evented-1.36.3", "evented-1.37.1"}
	}
	list, err := variants(*dir, names)
	if err != nil {
		return err
	}
	failed := 0
	for _, v := range list {
		v.Containerd, v.API = *containerd, *api
		list := scene.Scenarios(*pods)
		if v.API != "" {
			list = scene.APIScenarios(*pods)
		}
		n, err := playAll(ctx, v, list, *only, *hours)
		if err != nil {
			return err
		}
		failed += n
	}
	if failed > 0 {
		return fmt.Errorf("%d scenarios failed", failed)
	}
	return nil
}

func playAll(ctx context.Context, v scene.Variant, list []scene.Scenario, only string, long time.Duration) (failed int, err error) {
	w, err := scene.NewWorld(ctx, v)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for end := time.Now().Add(long); ; {
		for _, s := range list {
			if only != "" && s.Name != only {
				continue
			}
			start := time.Now()
			err := s.Play(ctx, w)
			if err == nil {
				err = w.Check(ctx)
			}
			if errors.Is(err, errors.ErrUnsupported) {
				fmt.Printf("%-16s %-22s not on this runtime: %v\n", v.Name, s.Name, err)
				continue
			}
			if ctx.Err() != nil {
				return failed, context.Cause(ctx)
			}
			verdict := "ok"
			if err != nil {
				verdict = "FAILED: " + err.Error()
				failed++
			}
			fmt.Printf("%-16s %-22s %6.1fs  %s\n", v.Name, s.Name, time.Since(start).Seconds(), verdict)
		}
		if n, err := w.Kubelet.Goroutines(ctx); err == nil {
			fmt.Printf("%-16s %d goroutines\n", v.Name, n)
		}
		if time.Now().After(end) {
			return failed, nil
		}
	}
}

func compare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	dir := flags.String("kubelets", "build/kubelet", "where the kubelets are")
	pods := flags.Int("pods", 200, "pods of the node")
	settle := flags.Duration("settle", 2*time.Minute, "time for a started node to come to rest")
	idle := flags.Duration("idle", 5*time.Minute, "time to watch the idle node")
	together := flags.Bool("together", false, "all at once, so that whatever else the machine does is the same for all")
	_ = flags.Parse(args)
	list, err := variants(*dir, flags.Args())
	if err != nil {
		return err
	}
	all := make([]*scene.Figures, len(list))
	errs := make([]error, len(list))
	var done sync.WaitGroup
	for i, v := range list {
		done.Go(func() { all[i], errs[i] = measure(ctx, v, *pods, *settle, *idle) })
		if !*together {
			done.Wait()
		}
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	table(os.Stdout, all)
	return nil
}

func measure(ctx context.Context, v scene.Variant, pods int, settle, idle time.Duration) (f *scene.Figures, err error) {
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
	return scene.Measure(ctx, w, pods, settle, idle)
}

// table writes the figures as Markdown, a column a kubelet.
func table(out io.Writer, all []*scene.Figures) {
	row := func(name string, cell func(*scene.Figures) string) {
		fmt.Fprintf(out, "| %s |", name)
		for _, f := range all {
			fmt.Fprintf(out, " %s |", cell(f))
		}
		fmt.Fprintln(out)
	}
	row("", func(f *scene.Figures) string { return f.Variant })
	row("---", func(*scene.Figures) string { return "---:" })
	times := func(name string, of func(*scene.Figures) []time.Duration) {
		row(name+", p50 / p99 ms", func(f *scene.Figures) string {
			return fmt.Sprintf("%.0f / %.0f", scene.Quantile(of(f), 0.5).Seconds()*1e3, scene.Quantile(of(f), 0.99).Seconds()*1e3)
		})
	}
	times("container exit to kubelet status", func(f *scene.Figures) []time.Duration { return f.Exit })
	times("manifest to ready, all at once", func(f *scene.Figures) []time.Duration { return f.Start })
	times("manifest removed to pod gone, 40 at once", func(f *scene.Figures) []time.Duration { return f.Deletion })
	row("idle: relists / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.Relists*60) })
	row("idle: reads of one pod / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.PodReads*60) })
	row("idle: kubelet CPU, ms/s", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.KubeletCPU*1e3) })
	row("idle: runtime CPU, ms/s", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.RuntimeCPU*1e3) })
	for _, name := range scene.CallNames(all) {
		row("idle: "+name+" / min", func(f *scene.Figures) string { return fmt.Sprintf("%.1f", f.Calls[name]*60) })
	}
	row("goroutines of the kubelet", func(f *scene.Figures) string { return fmt.Sprint(f.Goroutines) })
	row("missed events", func(f *scene.Figures) string { return fmt.Sprint(f.MissedEvent) })
}
