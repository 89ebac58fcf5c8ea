// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// exitUnseen is a runtime's exit code for containers that ended while it was down.
const exitUnseen = 255

// dying puts pods that end by themselves during the next seconds.
func (w *World) dying(prefix string, n int) []string {
	all := w.batch(prefix, n)
	for i, name := range all {
		w.put(name, once, runs("sleep", fmt.Sprintf("%.1fs", 4+0.5*float64(i%20))))
	}
	return all
}

// runningAndDying is dying, once all of them run.
func (w *World) runningAndDying(prefix string, n int) []string {
	all := w.dying(prefix, n)
	w.running(all)
	return all
}

// ranOnce waits until all have ended, and checks that each has had a single container.
func (w *World) ranOnce(all []string) {
	err := attempt(func() {
		w.await(func(s corev1.PodStatus) error {
			if s.Phase == corev1.PodFailed && len(s.ContainerStatuses) > 0 {
				if t := s.ContainerStatuses[0].State.Terminated; t != nil && t.ExitCode == exitUnseen {
					return nil
				}
			}
			return phase(corev1.PodSucceeded)(s)
		}, all...)
	})
	if err != nil && w.Variant.traits().ForgetsExits {
		err = w.forgotten(all, err)
	}
	do(err)
	w.ranOnly(1, all...)
	w.remove(all...)
}

// forgotten checks whether the pods with ends unseen by the kubelet, though all have ended, still
// run for the runtime, too: then nobody can tell, and they are counted. Otherwise it returns why
// the scenario has failed.
func (w *World) forgotten(all []string, failed error) error {
	w.look()
	status := w.pods()
	n := 0
	for _, name := range all {
		switch ended := status[name].Phase == corev1.PodSucceeded || status[name].Phase == corev1.PodFailed; {
		case !ended && !w.book.runs(name):
			return failed
		case !ended:
			n++
		}
	}
	w.Summary.Forgotten += n
	return nil
}

// runtimeRestarted kills the runtime while containers end and new pods come.
func runtimeRestarted(w *World) {
	all := w.runningAndDying("one-rt", 20)
	var more []string
	for range 3 {
		come := w.batch("one-come", 5)
		w.putAll(come)
		more = append(more, come...)
		w.Summary.RuntimeKills++
		do(w.runtime.restart(w.ctx))
		w.sleep(3 * time.Second)
	}
	w.await(ready, more...)
	w.ranOnce(all)
	w.remove(more...)
}

// kubeletRestarted kills the kubelet while containers end, starts it again three seconds later, and
// kills the new kubelet at its begin.
func kubeletRestarted(w *World) {
	all := w.runningAndDying("one-kl", 20)
	for _, down := range []time.Duration{3 * time.Second, time.Second} {
		w.killKubelet()
		w.sleep(down)
		w.startKubelet()
	}
	w.ranOnce(all)
}

// toggleGates restarts the kubelet with our feature gates off, with that of the generator alone,
// and with both, while pods run, containers end and pods come. Nothing runs twice, and each kubelet
// has the PLEG that its gates say. A kubelet without our gates is restarted as it is.
func toggleGates(w *World) {
	defer func() { w.gates = nil }()
	all := w.runningAndDying("one-toggled", 20)
	var more []string
	for _, on := range []map[string]bool{
		{Generator: false, Lists: false, Cleanups: false}, // which cannot be on without lists
		{Generator: true, Lists: false, Cleanups: false},
		{Generator: true, Lists: true},
	} {
		if w.Variant.Ours {
			w.gates = on
		}
		w.killKubelet()
		w.sleep(time.Second)
		w.startKubelet()
		come := w.batch("one-between", 3)
		w.putAll(come)
		w.await(ready, come...)
		more = append(more, come...)
		if !w.Variant.Ours {
			continue
		}
		m := w.metrics()
		_, generator := m["kubelet_evented_pleg_relist_period_seconds"]
		lists := slices.ContainsFunc(slices.Collect(maps.Keys(m)), memory.MatchString)
		if generator != on[Generator] || lists != on[Lists] {
			fail("with the gates %v: the generator serves metrics: %v, lists from memory: %v", on, generator, lists)
		}
	}
	w.ranOnce(all)
	w.ranOnly(1, more...)
	w.remove(more...)
}

// disturb disturbs the event stream.
func (w *World) disturb(how disturbance) { do(w.runtime.disturb(w.ctx, how)) }

// streamCut lets no event through any more.
func streamCut(w *World) {
	w.disturb(cut)
	w.ranOnce(w.dying("one-cut", 20))
	w.disturb(undisturbed)
}

// trustedPeriod is the relist period from which on the generator is taken to trust the stream.
const trustedPeriod = 4 * time.Second

// promptly is the time beyond the relist period within which a status must show a change without an
// event: a relist, reads of 20 pods and a sync of each, on a machine with other work. A kubelet
// that takes longer than soon to say its metrics has stood still: that time does not count.
const (
	promptly = 5 * time.Second
	soon     = 500 * time.Millisecond
)

// eventsDropped has the runtime change containers without events, on an otherwise healthy stream.
func eventsDropped(w *World) { w.unheard(silent) }

// streamDeaf has the stream stay open and carry nothing any more.
func streamDeaf(w *World) { w.unheard(deaf) }

// unheard has containers end without events. The next relist must find them, count them as missed,
// and take the stream's trust; later events must earn it back.
func (w *World) unheard(how disturbance) {
	w.disturb(undisturbed)
	w.earned(trustedPeriod)
	all := w.runningAndDying("one-unheard", 20)
	before := w.counters()
	w.disturb(how)
	since := bench.Now()
	var longest time.Duration // a list before the first end finds nothing, and raises the period once more
	var stood time.Duration
	w.eventually(patience, func() {
		asked := time.Now()
		longest = max(longest, w.relistPeriod())
		if took := time.Since(asked); took > soon {
			stood += took
		}
		w.are(phase(corev1.PodSucceeded), all...)
	})
	within := longest + promptly + stood
	w.look()
	unheard := 0
	for id, c := range w.book.exits {
		if at, ok := w.tracker.shown(id, c.At); ok && c.At > since {
			unheard++
			if took := time.Duration(at - c.At); w.Variant.Ours && took > within {
				fail("%s: its end was shown after %v, want %v: the relist period %v, %v of standstill and a little",
					c.Pod, took.Round(time.Millisecond), within, longest, stood)
			}
		}
	}
	if unheard < 2 {
		fail("%d containers ended unheard, want 2 at least", unheard)
	}
	if w.Variant.Ours {
		w.noticed(before, unheard)
	}
	w.disturb(undisturbed)
	w.ranOnce(all)
	if w.Variant.Ours {
		w.hears()
		w.earned(trustedPeriod)
	}
}

// hears has pods come and end until the generator hears of them: a deaf stream must have been
// replaced.
func (w *World) hears() {
	w.eventually(patience, func() {
		before := w.counters()
		all := w.batch("one-heard", 2)
		w.putAll(all, once, runs("sleep", "200ms"))
		w.await(phase(corev1.PodSucceeded), all...)
		n := w.counters().events - before.events
		w.remove(all...)
		if n < 3*len(all) { // created, started, stopped
			fail("%d events were heard of %d pods that came and ended", n, len(all))
		}
	})
}

// earned waits until the relist period is as long as that.
func (w *World) earned(want time.Duration) {
	if !w.Variant.Ours {
		return
	}
	w.eventually(patience, func() {
		if period := w.relistPeriod(); period < want {
			fail("the relist period is %v, want %v", period, want)
		}
	})
}

// relistPeriod returns the generator's present period, zero for a stock kubelet.
func (w *World) relistPeriod() time.Duration {
	return time.Duration(w.metrics()["kubelet_evented_pleg_relist_period_seconds"] * float64(time.Second))
}

// noticed waits until each change is an event that was heard, or counted; and reported on the node
// with an API server. A stream goes deaf after an event. The first two changes without one are
// missed events for certain: at the second, an otherwise silent stream is replaced, and later
// changes until the next stream are unheard.
func (w *World) noticed(before counters, changes int) {
	w.eventually(patience, func() {
		c := w.counters()
		heard := c.events - before.events
		missed := c.missed - before.missed
		unheard := c.unheard - before.unheard
		if missed < min(changes-heard, 2) || heard+missed+unheard < changes {
			fail(
				"%d events came, %d missed events and %d unheard changes are counted: want 2 of the second at least and %d in all",
				heard,
				missed,
				unheard,
				changes,
			)
		}
	})
	if w.api != nil {
		w.nodeEvents("ContainerEventsMissed")
	}
}
