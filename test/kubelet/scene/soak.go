// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Summary is the result of all scenarios played in a world.
type Summary struct {
	Variant string
	// Rounds and Scenarios were played; Failed are scenarios with any fault, WrongStatuses and
	// DoubleStarts those of them with this fault. Leaks are rounds after which the kubelet had too
	// many goroutines.
	Rounds, Scenarios                          int
	Failed, WrongStatuses, DoubleStarts, Leaks int
	// RuntimeKills and KubeletKills are how often each was killed and started again.
	RuntimeKills, KubeletKills int
	// Starts, Exits and Removals are of containers, as the runtime knows them.
	Starts, Exits, Removals int
	// Forgotten are ended containers that run on for the runtime, until stopped.
	Forgotten int
	// Events are the container events received by the generator, Missed the changes found by reads
	// alone, and MissedUndisturbed those of them in undisturbed scenarios. Zero in stock kubelets.
	Events, Missed, MissedUndisturbed int
	// Undisturbed are the times from a container's end to its first status, in undisturbed
	// scenarios, of lasting pods. Disturbed are those of the scenarios without the runtime, the
	// kubelet or the event stream for a while.
	Undisturbed, Disturbed []time.Duration
	// First, Last and Peak are the kubelet's levels after rounds, with no pods on the node.
	First, Last, Peak Level
}

// Err says whether anything was wrong.
func (s *Summary) Err() error {
	if s.Failed+s.WrongStatuses+s.DoubleStarts+s.Leaks == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d scenarios failed, %d with wrong statuses, %d with double starts; %d rounds leaked goroutines", s.Variant, s.Failed, s.WrongStatuses, s.DoubleStarts, s.Leaks)
}

// counters are the kubelet's counters.
type counters struct{ events, missed, unheard int }

// counters returns the counters of this kubelet and its predecessors.
func (w *World) counters(ctx context.Context) (counters, error) {
	m, err := w.Kubelet.Metrics(ctx)
	return counters{
		events:  w.lives.events + int(m["evented_pleg_notifications_received"]),
		missed:  w.lives.missed + int(m["kube_pod_missed_events"]),
		unheard: w.lives.unheard + int(m["evented_pleg_unheard_changes_total"]),
	}, err
}

// count returns the counters, as a step.
func (p *Play) count() (c counters) {
	p.step(func() (err error) {
		c, err = p.counters(p.ctx)
		return err
	})
	return c
}

// Play plays a scenario, checks its result, and sums it up. It returns the longest time from a
// container's end to its status. An error that matches errors.ErrUnsupported means that the runtime
// cannot do it.
func (w *World) Play(ctx context.Context, s Scenario) (worst time.Duration, err error) {
	p := &Play{World: w, ctx: ctx}
	before := p.count()
	s.Play(p)
	p.step(func() error { return w.Check(ctx) })
	err = p.err
	if errors.Is(err, errors.ErrUnsupported) || ctx.Err() != nil {
		return 0, err
	}
	if err != nil {
		err = errors.Join(err, w.tidy(ctx))
	}
	after, err2 := w.counters(ctx)
	err = errors.Join(err, err2)
	sum := &w.Summary
	sum.Scenarios++
	if err != nil {
		sum.Failed++
	}
	if errors.Is(err, errWrongStatus) {
		sum.WrongStatuses++
	}
	if errors.Is(err, errTwice) {
		sum.DoubleStarts++
	}
	sum.Events, sum.Missed = after.events, after.missed
	if !s.Disturbs {
		sum.MissedUndisturbed += after.missed - before.missed
	}
	sum.Starts, sum.Exits, sum.Removals = w.book.total.starts, w.book.total.exits, w.book.total.removals
	return w.time(s.Disturbs), err
}

// time sums up the time until statuses showed the exits since the last call.
func (w *World) time(disturbed bool) (worst time.Duration) {
	for id, c := range w.book.exits {
		at, ok := w.tracker.shown(id, c.At)
		if removed := w.removed[c.Pod]; !ok || removed != 0 && removed < c.At { // of a stopped pod the kubelet reports at the end of all its containers
			continue
		}
		took := time.Duration(at - c.At)
		worst = max(worst, took)
		if disturbed {
			w.Summary.Disturbed = append(w.Summary.Disturbed, took)
		} else {
			w.Summary.Undisturbed = append(w.Summary.Undisturbed, took)
		}
	}
	clear(w.book.exits)
	clear(w.book.gone)
	clear(w.removed)
	return worst
}

// tidy restores the world for the next scenario, after a failed scenario.
func (w *World) tidy(ctx context.Context) error {
	var errs []error
	if err := w.runtime.disturb(ctx, undisturbed); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		errs = append(errs, err)
	}
	if !w.Kubelet.Alive() {
		errs = append(errs, w.StartKubelet(ctx))
	}
	keep := make(map[string]bool)
	for _, name := range w.full {
		keep[name] = true
	}
	var left []string
	for name := range w.there {
		if !keep[name] {
			left = append(left, name)
		}
	}
	p := &Play{World: w, ctx: ctx}
	p.remove(left...)
	return errors.Join(append(errs, p.err)...)
}

// EndRound takes the kubelet's level without pods, and reports growth from round to round.
func (w *World) EndRound(ctx context.Context) (Level, error) {
	w.Summary.Rounds++
	level, err := w.rest(ctx)
	if err != nil {
		return level, err
	}
	sum := &w.Summary
	if sum.Rounds == 1 {
		sum.First = level
	}
	sum.Last = level
	if level.Goroutines > sum.Peak.Goroutines {
		sum.Peak.Goroutines = level.Goroutines
	}
	sum.Peak.RSS = max(sum.Peak.RSS, level.RSS)
	sum.Peak.Heap = max(sum.Peak.Heap, level.Heap)
	if err = w.leak.after(level); err != nil {
		sum.Leaks++
	}
	return level, err
}
