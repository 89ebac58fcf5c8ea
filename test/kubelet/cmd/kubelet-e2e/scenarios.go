// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/test/environ"
	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
)

func scenarios(ctx context.Context, args []string) error {
	flags := newCommon("scenarios")
	pods := flags.Int("pods", 200, "pods of a full node")
	again := flags.Int("again", 50, "how often a static pod is put back under its UID")
	only := flags.String("only", "", "play these scenarios only, separated by commas")
	long := flags.Duration("for", 0, "play all again and again for that long")
	isBounded, err := environ.Switch("KUBELET_E2E_BOUNDED")
	if err != nil {
		return err
	}
	bounded := flags.Bool(
		"bounded",
		isBounded,
		"the short form, as in CI: 20 pods, a static pod put back 10 times, all kubelets at once (or set KUBELET_E2E_BOUNDED)",
	)
	_ = flags.Parse(args)
	if *bounded {
		*pods = min(*pods, 20)
		*again = min(*again, 10)
		flags.together = true
	}
	names := flags.Args()
	if len(names) == 0 {
		names = []string{"evented-1.36.3", "evented-1.37.1"}
	}
	kubelets, err := flags.variants(names)
	if err != nil {
		return err
	}
	list, err := choose(scene.Scenarios(scene.Size{Pods: *pods, Again: *again}, flags.api != ""), *only)
	if err != nil {
		return err
	}
	return play(
		flags,
		kubelets,
		func(v scene.Variant) (*scene.Column, error) { return playAll(ctx, v, list, *long) },
	)
}

// choose returns the requested scenarios, by default all.
func choose(list []scene.Scenario, only string) ([]scene.Scenario, error) {
	if only == "" {
		return list, nil
	}
	names := strings.Split(only, ",")
	var known []string
	for _, s := range list {
		known = append(known, s.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usagef("no scenario is called %q here, where some are with -api alone and some without; there are %s",
				name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(list, func(s scene.Scenario) bool { return !slices.Contains(names, s.Name) }), nil
}

// playAll plays the scenarios, once or for the duration, on a separate node.
func playAll(
	ctx context.Context,
	v scene.Variant,
	list []scene.Scenario,
	long time.Duration,
) (report *scene.Column, err error) {
	w, err := scene.NewWorld(ctx, v)
	if err != nil {
		return nil, err
	}
	defer func() {
		report = w.Report()
		err = errors.Join(err, w.Summary.Err(), w.Close())
	}()
	say := func(what string, took time.Duration, verdict string) {
		fmt.Printf(
			"%s %-16s %-22s %6.1fs  %s\n",
			time.Now().UTC().Format(time.TimeOnly),
			v.Name,
			what,
			took.Seconds(),
			verdict,
		)
	}
	end := time.Now().Add(long)
	for round := 1; ; round++ {
		began := time.Now()
		for _, s := range list {
			if long > 0 && time.Now().After(end) && s.Name != scene.PodsStop {
				continue // the time is over: the round ends with an empty node
			}
			// A kubelet must live long to show a leak: it is killed in the rounds 1, 2, 4, 8, ...
			kills := s.Name == scene.KubeletRestarted || s.Name == scene.GatesToggled
			if kills && bits.OnesCount(uint(round)) != 1 {
				continue
			}
			start := time.Now()
			worst, err := w.Play(s)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case errors.Is(err, errors.ErrUnsupported):
				say(s.Name, 0, "not here: "+err.Error())
			case err != nil:
				say(s.Name, time.Since(start), "FAILED: "+err.Error())
			default:
				say(
					s.Name,
					time.Since(start),
					fmt.Sprintf("ok, exits to status at most %d ms", worst.Milliseconds()),
				)
			}
		}
		level, err := w.EndRound()
		verdict := fmt.Sprintf(
			"%d goroutines, %d of ours; RSS %.0f MiB, heap %.0f MiB",
			level.Goroutines,
			level.Ours,
			level.RSS,
			level.Heap,
		)
		if err != nil {
			verdict = "FAILED: " + err.Error()
		}
		say(fmt.Sprintf("round %d", round), time.Since(began), verdict)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if time.Now().After(end) {
			return nil, nil
		}
	}
}

func compare(ctx context.Context, args []string) error {
	flags := newCommon("compare")
	var course scene.Course
	flags.IntVar(&course.Pods, "pods", 200, "pods of the node")
	flags.IntVar(&course.Containers, "containers", 1, "containers of a pod")
	flags.IntVar(&course.Volumes, "volumes", 0, "volumes of a pod (emptyDir)")
	flags.BoolVar(&course.Probes, "probes", false, "give each container an exec and an HTTP probe, every 10 s")
	flags.DurationVar(&course.Settle, "settle", 2*time.Minute, "time for a started node to come to rest")
	flags.DurationVar(&course.Idle, "idle", 5*time.Minute, "time to watch the idle node")
	flags.Float64Var(
		&course.Churn,
		"churn",
		0,
		"pods a second that come and go afterwards, for a minute, in place of exits and removals",
	)
	flags.StringVar(
		&course.Profile,
		"profile",
		"",
		"folder for a CPU profile of each kubelet, VARIANT.pprof, taken for as long again as -idle after it, and of the churn, VARIANT-churn.pprof",
	)
	_ = flags.Parse(args)
	course.NoEnds = course.Churn > 0
	course.ChurnFor = time.Minute
	course.Life = 3 * time.Second
	list, err := flags.variants(flags.Args())
	if err != nil {
		return err
	}
	return play(
		flags,
		list,
		func(v scene.Variant) (*scene.Column, error) { return scene.Measure(ctx, v, course) },
	)
}
