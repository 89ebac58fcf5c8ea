// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
	"github.com/evented-pleg/evented-pleg/test/kubelet/upstream"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// Specs that need what a node of this harness lacks (images of others, UDP in Debian's nc, SCTP, a
// disk to fill, a proxy of the runtime, D-Bus, swap, huge pages), measure, or flake upstream.
const (
	notHere = `\[Flaky\]|\[Alpha\]|AppArmor|Image|communication: (udp|sctp)|Eviction|DiskGC|QuotaMonitoring|CriProxy|StandaloneMode|` +
		`GracefulNodeShutdown|NodeSwap|HugePages|Density|Resource-usage|Node Performance`
	parallel  = notHere + `|\[Serial\]`
	notShort  = parallel + `|\[Slow\]|\[Feature:`
	lifecycle = `Containers Lifecycle|InitContainer|Pod Extended|Deleted pods|MirrorPod|Container Lifecycle Hook|Lifecycle [Ss]leep|Probing|PreStop|Static Pod|` +
		`Container Runtime|Pod conditions|Pod Status|Ephemeral|Kubelet |Pods |Restartable|Pods Lifecycle|ContainerStopSignals|Pod InPlace Resize Container`
	garbage  = `\] GarbageCollect |Unknown Pods`     // the containers of pods that are gone
	killed   = `Network should recover from ip leak` // containerd, six times, under 100 pods
	devices  = `DynamicResourceAllocation|Device Plugin \[|Device Manager|POD Resources API`
	restarts = `\] Restart .*Kubelet should|RestartAllContainersWithKubeletRestarts|StaticPod .*\[Serial\]|MirrorPod .*\[Serial\]|` +
		`Containers Lifecycle when The kubelet restarts|Containers Lifecycle when A node|OOMKiller \[LinuxOnly\]|Kubelet Pods API|Not Change Container Status`
)

// selections are the parts of a run: the bounded one, that before a release, and those that have
// less to do with the PLEG.
var selections = map[string][]upstream.Part{
	"bounded": {
		{
			Name:   "short",
			Focus:  `Deleted pods|InitContainer|Container Lifecycle Hook|PreStop|Ephemeral|Container Runtime|Kubelet when|Pods should|Static Pod|Pods Extended`,
			Skip:   notShort + "|Probing",
			Procs:  4,
			Within: 8 * time.Minute,
		},
		{Name: "garbage", Focus: garbage, Skip: notHere, Procs: 1, Within: 8 * time.Minute},
	},
	"full": {
		{Name: "lifecycle", Focus: lifecycle, Skip: parallel, Procs: 6, Within: 2 * time.Hour},
		{Name: "garbage", Focus: garbage, Skip: notHere, Procs: 1, Within: time.Hour},
		{
			Name:   "restarts",
			Focus:  restarts,
			Skip:   notHere + "|MirrorPod when recreating",
			Procs:  1,
			Within: time.Hour,
		},
		{Name: "killed", Focus: killed, Skip: notHere, Procs: 1, Within: time.Hour},
	},
	"rest": {
		{Name: "others", Focus: `.`, Skip: parallel + "|" + lifecycle, Procs: 6, Within: time.Hour},
		{Name: "devices", Focus: devices, Skip: notHere, Procs: 1, Within: 2 * time.Hour},
		{
			Name:   "serial",
			Focus:  `\[Serial\]`,
			Skip:   strings.Join([]string{notHere, garbage, restarts, killed, devices}, "|"),
			Procs:  1,
			Within: 2 * time.Hour,
		},
	},
}

// reruns is how often a spec that differs is run again, alone.
const reruns = 4

func runUpstream(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("upstream", flag.ExitOnError)
	dir := flags.String("kubelets", "build/kubelet", "where the kubelets, their trees and suites are")
	out := flags.String("out", "build/upstream", "folder for the table, specs.md, and for each node's files")
	selection := flags.String(
		"specs",
		"full",
		"which specs: bounded (eight minutes), full, or the rest of what runs here",
	)
	seed := flags.Int64("seed", 1, "of the order of specs")
	name := flags.String(
		"runtime",
		"containerd",
		"the runtime of each kubelet ("+strings.Join(runtimes.Names(), ", ")+")",
	)
	focus := flags.String("focus", "", "only these specs, by a regular expression")
	skip := flags.String("skip", "^$", "of these specs not those, by a regular expression")
	procs := flags.Int("procs", 1, "how many of these specs at a time")
	_ = flags.Parse(args)
	if _, err := runtimes.ByName(*name); err != nil {
		return usageError{err}
	}
	columns, err := variants(*dir, flags.Args())
	if err != nil {
		return err
	}
	for _, c := range columns {
		if c.Version != columns[0].Version {
			return usagef(
				"%s and %s are kubelets of different releases: name those of one, the judge first",
				columns[0].Name,
				c.Name,
			)
		}
	}
	parts := selections[*selection]
	if parts == nil {
		return usagef("-specs %s: write bounded, full or rest", *selection)
	}
	if *focus != "" {
		parts = []upstream.Part{
			{Name: "focus", Focus: *focus, Skip: notHere + "|" + *skip, Procs: *procs, Within: time.Hour},
		}
	} else if *skip != "^$" || *procs != 1 {
		return usagef("-skip and -procs choose from -focus: name that, too")
	}
	config, err := prepare(ctx, *dir, *out, columns[0].Version, *name)
	if err != nil {
		return err
	}
	config.Seed = *seed
	var names []string
	for _, c := range columns {
		names = append(names, c.Name)
	}
	table := upstream.NewTable(names...)
	broken := runParts(ctx, config, columns, parts, table)
	differ := differences(table, columns)
	for i := 0; i < reruns && len(differ) > 0 && broken == nil; i++ {
		for _, spec := range differ {
			fmt.Println("again:", spec)
			again := upstream.Part{
				Name:   "again",
				Focus:  regexp.QuoteMeta(beside(spec)),
				Skip:   `^$`,
				Procs:  1,
				Within: 20 * time.Minute,
			}
			broken = errors.Join(broken, runParts(ctx, config, columns, []upstream.Part{again}, table))
		}
		differ = differences(table, columns)
	}
	var text bytes.Buffer
	table.Write(&text)
	os.Stdout.Write(text.Bytes())
	broken = errors.Join(broken, os.WriteFile(filepath.Join(*out, "specs.md"), text.Bytes(), 0o644))
	if len(differ) > 0 {
		broken = errors.Join(broken, fmt.Errorf("%d specs differ from those of %s", len(differ), names[0]))
	}
	return broken
}

// beside returns the text that a spec has in common with those beside it, as ginkgo sees it: the
// specs of an ordered container share their results, and cannot be run alone.
func beside(spec string) string {
	name := spec[:max(0, strings.LastIndex(spec, " ["))] // without its labels
	if i := strings.LastIndex(strings.ToLower(name), " should "); i >= 0 && strings.Contains(name, "Containers Lifecycle") {
		return name[:i]
	}
	return name
}

// runParts runs all parts on all columns at the same time.
func runParts(
	ctx context.Context,
	config upstream.Config,
	columns []scene.Variant,
	parts []upstream.Part,
	table *upstream.Table,
) error {
	errs := make([]error, len(columns)*len(parts))
	var mu sync.Mutex // owns table
	var nodes sync.WaitGroup
	for i, c := range columns {
		for j, part := range parts {
			nodes.Go(func() {
				node := upstream.Node{
					Config: config,
					Column: upstream.Column{Name: c.Name, Binary: c.Binary, Gates: c.Gates},
					Part:   part,
				}
				results, err := node.Run(ctx)
				errs[i*len(parts)+j] = err
				mu.Lock()
				defer mu.Unlock()
				table.Add(i, results)
			})
		}
	}
	nodes.Wait()
	return errors.Join(errs...)
}

// differences returns the specs in which a kubelet of ours differs from the first column, and says
// how.
func differences(table *upstream.Table, columns []scene.Variant) []string {
	var specs []string
	for i, c := range columns {
		for _, spec := range table.Specs() {
			if how := table.Difference(i, spec); how != "" && c.Ours {
				fmt.Printf("%s: %s: %s\n", c.Name, spec, how)
				specs = append(specs, spec)
			}
		}
	}
	slices.Sort(specs)
	return slices.Compact(specs)
}

// prepare builds the runtime and the stand-in for nmeter, and unpacks Debian's packages.
func prepare(ctx context.Context, kubelets, out, version, runtime string) (c upstream.Config, err error) {
	set, err := components.Build(ctx, runtime, os.Stderr)
	if err != nil {
		return c, err
	}
	kubelets, errKubelets := filepath.Abs(kubelets)
	out, errOut := filepath.Abs(out)
	if err := errors.Join(errKubelets, errOut); err != nil {
		return c, err
	}
	c = upstream.Config{
		Tree:    filepath.Join(kubelets, "v"+version),
		Suite:   filepath.Join(kubelets, "suite-v"+version),
		Debs:    filepath.Join(set.Root, "build/debs"),
		Runtime: set,
		Out:     out,
	}
	c.Runtime.RuncDir = filepath.Join(c.Debs, "usr/sbin")
	if _, err := os.Stat(filepath.Join(c.Suite, "pause")); err != nil {
		return c, fmt.Errorf("%w (make kubelet KUBELET_BUILD=-s builds it)", err)
	}
	return c, errors.Join(
		components.Unpack(ctx, c.Debs, "runc", "busybox-static", "containernetworking-plugins"),
		components.Unpack(ctx, "-r", "forky", filepath.Join(c.Debs, "forky"), "busybox-static"),
	)
}
