// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/scene"
)

func scenarios(ctx context.Context, args []string) error {
	flags := newCommon("scenarios")
	pods := flags.Int("pods", 200, "pods of a full node")
	again := flags.Int("again", 50, "how often a static pod is put back under its UID")
	only := flags.String("only", "", "play these scenarios only, separated by commas")
	long := flags.Duration("for", 0, "play all again and again for that long")
	bounded := flags.Bool("bounded", os.Getenv("KUBELET_E2E_BOUNDED") != "", "the short form, as in CI: 20 pods, a static pod put back 10 times, all kubelets at once (or set KUBELET_E2E_BOUNDED)")
	_ = flags.Parse(args)
	if *bounded {
		*pods, *again, flags.together = min(*pods, 20), min(*again, 10), true
	}
	names := flags.Args()
	if len(names) == 0 {
		names = []string{"evented-1.36.3", "evented-1.37.1"}
	}
	kubelets, err := flags.variants(names)
	if err != nil {
		return err
	}
	size := scene.Size{Pods: *pods, Again: *again}
	list := scene.Scenarios(size)
	if flags.api != "" {
		list = scene.APIScenarios(size)
	}
	if list, err = choose(list, *only); err != nil {
		return err
	}
	sums, err := play(flags, kubelets, func(v scene.Variant) (*scene.Summary, error) {
		return playAll(ctx, v, list, *long)
	})
	summaries(os.Stdout, sums)
	for _, s := range sums {
		err = errors.Join(err, s.Err())
	}
	return err
}

// choose returns the requested scenarios, by default all.
func choose(list []scene.Scenario, only string) ([]scene.Scenario, error) {
	if only == "" {
		return list, nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(list, func(s scene.Scenario) bool { return s.Name == name }) {
			return nil, usagef("no scenario is called %q", name)
		}
	}
	return slices.DeleteFunc(list, func(s scene.Scenario) bool { return !slices.Contains(names, s.Name) }), nil
}

// playAll plays the scenarios, once or for the duration, on a separate node. Failures are in the
// summary; the error is about unplayable scenarios.
func playAll(ctx context.Context, v scene.Variant, list []scene.Scenario, long time.Duration) (sum *scene.Summary, err error) {
	w, err := scene.NewWorld(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.Name, err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	say := func(what string, took time.Duration, verdict string) {
		fmt.Printf("%s %-16s %-22s %6.1fs  %s\n", time.Now().UTC().Format(time.TimeOnly), v.Name, what, took.Seconds(), verdict)
	}
	for end, round := time.Now().Add(long), 1; ; round++ {
		began := time.Now()
		for _, s := range list {
			if long > 0 && time.Now().After(end) && s.Name != scene.PodsStop {
				continue // the time is over: the round ends with an empty node
			}
			// A kubelet must live long to show a leak: it is killed in the rounds 1, 2, 4, 8, ...
			if s.Name == scene.KubeletRestarted && bits.OnesCount(uint(round)) != 1 {
				continue
			}
			start := time.Now()
			worst, err := w.Play(ctx, s)
			switch {
			case ctx.Err() != nil:
				return &w.Summary, context.Cause(ctx)
			case errors.Is(err, errors.ErrUnsupported):
				say(s.Name, 0, "not here: "+err.Error())
			case err != nil:
				say(s.Name, time.Since(start), "FAILED: "+err.Error())
			default:
				say(s.Name, time.Since(start), fmt.Sprintf("ok, exits to status at most %d ms", worst.Milliseconds()))
			}
		}
		level, err := w.EndRound(ctx)
		verdict := fmt.Sprintf("%d goroutines, %d of ours; RSS %.0f MiB, heap %.0f MiB", level.Goroutines, level.Ours, mib(level.RSS), mib(level.Heap))
		if err != nil {
			verdict = "FAILED: " + err.Error()
		}
		say(fmt.Sprintf("round %d", round), time.Since(began), verdict)
		if ctx.Err() != nil {
			return &w.Summary, context.Cause(ctx)
		}
		if time.Now().After(end) {
			return &w.Summary, nil
		}
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// summaries writes the summaries as Markdown, a column a kubelet.
func summaries(out io.Writer, all []*scene.Summary) {
	row := rows(out, all)
	number := func(name string, of func(*scene.Summary) int) {
		row(name, func(s *scene.Summary) string { return fmt.Sprint(of(s)) })
	}
	times := func(name string, of func(*scene.Summary) []time.Duration) {
		row(name, func(s *scene.Summary) string {
			q := bench.Summarize(of(s))
			return fmt.Sprintf("%d: %.0f / %.0f / %.0f", q.Count, q.P50.Seconds()*1e3, q.P99.Seconds()*1e3, q.Max.Seconds()*1e3)
		})
	}
	fmt.Fprintln(out)
	row("", func(s *scene.Summary) string { return s.Variant })
	row("---", func(*scene.Summary) string { return "---:" })
	number("rounds", func(s *scene.Summary) int { return s.Rounds })
	number("scenarios", func(s *scene.Summary) int { return s.Scenarios })
	number("failed", func(s *scene.Summary) int { return s.Failed })
	number("of these, wrong statuses", func(s *scene.Summary) int { return s.WrongStatuses })
	number("of these, double starts", func(s *scene.Summary) int { return s.DoubleStarts })
	number("container starts", func(s *scene.Summary) int { return s.Starts })
	number("container exits", func(s *scene.Summary) int { return s.Exits })
	number("container removals", func(s *scene.Summary) int { return s.Removals })
	number("ended, and running for the runtime for ever", func(s *scene.Summary) int { return s.Forgotten })
	number("runtime kills", func(s *scene.Summary) int { return s.RuntimeKills })
	number("kubelet kills", func(s *scene.Summary) int { return s.KubeletKills })
	number("events received", func(s *scene.Summary) int { return s.Events })
	number("missed while something was taken away", func(s *scene.Summary) int { return s.Missed - s.MissedUndisturbed })
	number("missed otherwise", func(s *scene.Summary) int { return s.MissedUndisturbed })
	times("exits to status: number, p50 / p99 / worst ms", func(s *scene.Summary) []time.Duration { return s.Undisturbed })
	times("the same while something was taken away", func(s *scene.Summary) []time.Duration { return s.Disturbed })
	number("rounds that leaked goroutines", func(s *scene.Summary) int { return s.Leaks })
	row("goroutines after the first / last / worst round", func(s *scene.Summary) string {
		return fmt.Sprintf("%d / %d / %d", s.First.Goroutines, s.Last.Goroutines, s.Peak.Goroutines)
	})
	row("RSS, MiB, likewise", func(s *scene.Summary) string {
		return fmt.Sprintf("%.0f / %.0f / %.0f", mib(s.First.RSS), mib(s.Last.RSS), mib(s.Peak.RSS))
	})
	row("heap in use, MiB, likewise", func(s *scene.Summary) string {
		return fmt.Sprintf("%.0f / %.0f / %.0f", mib(s.First.Heap), mib(s.Last.Heap), mib(s.Peak.Heap))
	})
}
