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

// Summary is what came of all scenarios that were played in a world.
type Summary struct {
	Variant string
	// Rounds and Scenarios were played; Failed are scenarios of which anything was wrong,
	// WrongStatuses and DoubleStarts those of them with that fault. Leaks are rounds after which the
	// kubelet had more goroutines than it should.
	Rounds, Scenarios                          int
	Failed, WrongStatuses, DoubleStarts, Leaks int
	// RuntimeKills and KubeletKills are how often each was killed and started again.
	RuntimeKills, KubeletKills int
	// Starts, Exits and Removals are of containers, as the runtime knows them.
	Starts, Exits, Removals int
	// Forgotten are containers that have ended and run on for the runtime, until they are stopped.
	Forgotten int
	// Events are the container events that the generator received, Missed the changes that only a
	// read told it of, and MissedUndisturbed those of them in scenarios that take nothing away. Zero
	// in stock kubelets.
	Events, Missed, MissedUndisturbed int
	// Undisturbed are the times from a container's end to the first status that shows it, in
	// scenarios that take nothing away, of pods that were to stay. Disturbed are those of the
	// scenarios in which the runtime, the kubelet or the event stream was taken away.
	Undisturbed, Disturbed []time.Duration
	// First, Last and Peak are what the kubelet held after rounds, with no pods on the node.
	First, Last, Peak Level
}

// Err says whether anything was wrong.
func (s *Summary) Err() error {
	if s.Failed+s.WrongStatuses+s.DoubleStarts+s.Leaks == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d scenarios failed, %d with wrong statuses, %d with double starts; %d rounds leaked goroutines", s.Variant, s.Failed, s.WrongStatuses, s.DoubleStarts, s.Leaks)
}

// counters are what the kubelet counts.
type counters struct{ events, missed, unheard int }

// counters returns what this kubelet and those before it have counted.
func (w *World) counters(ctx context.Context) (counters, error) {
	m, err := w.Kubelet.Metrics(ctx)
	return counters{
		events:  w.lives.events + int(m["evented_pleg_notifications_received"]),
		missed:  w.lives.missed + int(m["kube_pod_missed_events"]),
		unheard: w.lives.unheard + int(m["evented_pleg_unheard_changes_total"]),
	}, err
}

// Play plays a scenario, checks what came of it, and sums it up. It returns the longest time from a
// container's end to its status. An error that matches errors.ErrUnsupported says that the runtime
// cannot do it.
func (w *World) Play(ctx context.Context, s Scenario) (worst time.Duration, err error) {
	before, err := w.counters(ctx)
	if err == nil {
		err = s.Play(ctx, w)
	}
	if err == nil {
		err = w.Check(ctx)
	}
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

// time sums up how long it took until statuses showed the exits since the last call.
func (w *World) time(disturbed bool) (worst time.Duration) {
	for id, c := range w.book.exits {
		at, ok := w.tracker.shown(id, c.At)
		if removed := w.removed[c.Pod]; !ok || removed != 0 && removed < c.At { // of a pod that is stopped, the kubelet tells when all of it has ended
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

// tidy brings the world back to where the next scenario can begin, after one that failed on the
// way.
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
	return errors.Join(append(errs, w.remove(ctx, left...))...)
}

// EndRound looks what the kubelet holds now that all pods are gone, and says if that grows from
// round to round.
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
