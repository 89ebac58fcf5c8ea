// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// trustedPeriod is the relist period from which on the generator is taken to trust the stream.
const trustedPeriod = 4 * time.Second

// promptly is the time beyond the relist period within which a status must show a change without an
// event: a relist, reads of 20 pods and a sync of each, on a machine with other work.
const promptly = 5 * time.Second

// eventsDropped has the runtime change containers without events, on an otherwise healthy stream.
func eventsDropped(ctx context.Context, w *World) error { return w.unheard(ctx, silent) }

// streamDeaf has the stream stay open and carry nothing any more.
func streamDeaf(ctx context.Context, w *World) error { return w.unheard(ctx, deaf) }

// unheard has containers end without events. The next relist must find them, count them as missed,
// and take the stream's trust; later events must earn it back.
func (w *World) unheard(ctx context.Context, how disturbance) error {
	if err := w.runtime.disturb(ctx, undisturbed); err != nil {
		return err
	}
	if err := w.trusted(ctx); err != nil {
		return err
	}
	all, err := w.runningAndDying(ctx, "one-unheard", 20)
	if err != nil {
		return err
	}
	before, err := w.counters(ctx)
	if err != nil {
		return err
	}
	if err := w.runtime.disturb(ctx, how); err != nil {
		return err
	}
	since := bench.Now()
	var longest time.Duration // a list before the first end finds nothing, and raises the period once more
	if err := eventually(ctx, patience, func() error {
		period, err := w.relistPeriod(ctx)
		if err != nil {
			return err
		}
		longest = max(longest, period)
		return w.are(ctx, phase(corev1.PodSucceeded), all...)
	}); err != nil {
		return err
	}
	within := longest + promptly
	if err := w.look(ctx); err != nil {
		return err
	}
	unheard := 0
	for id, c := range w.book.exits {
		if at, ok := w.tracker.shown(id, c.At); ok && c.At > since {
			unheard++
			if took := time.Duration(at - c.At); w.Variant.Ours && took > within {
				return fmt.Errorf("%s: its end was shown after %v, want %v: the relist period and a little", c.Pod, took.Round(time.Millisecond), within)
			}
		}
	}
	if unheard < 2 {
		return fmt.Errorf("%d containers ended unheard, want 2 at least", unheard)
	}
	if w.Variant.Ours { // a stream goes deaf after an event
		if err := w.noticed(ctx, before, unheard-1); err != nil {
			return err
		}
	}
	if err := w.runtime.disturb(ctx, undisturbed); err != nil {
		return err
	}
	if err := w.ranOnce(ctx, all); err != nil {
		return err
	}
	if !w.Variant.Ours {
		return nil
	}
	if err := w.hears(ctx); err != nil {
		return err
	}
	return w.trusted(ctx)
}

// hears has pods come and end until the generator hears of them: a deaf stream must have been
// replaced.
func (w *World) hears(ctx context.Context) error {
	return eventually(ctx, patience, func() error {
		before, err := w.counters(ctx)
		if err != nil {
			return err
		}
		all := w.batch("one-heard", 2)
		for _, name := range all {
			if err := w.put(pod(name, once, runs("sleep", "200ms"))); err != nil {
				return err
			}
		}
		if err := w.await(ctx, phase(corev1.PodSucceeded), all...); err != nil {
			return err
		}
		after, err := w.counters(ctx)
		if err != nil {
			return err
		}
		if err := w.remove(ctx, all...); err != nil {
			return err
		}
		if n := after.events - before.events; n < 3*len(all) { // created, started, stopped
			return fmt.Errorf("%d events were heard of %d pods that came and ended", n, len(all))
		}
		return nil
	})
}

// trusted waits until the generator trusts the stream.
func (w *World) trusted(ctx context.Context) error { return w.earned(ctx, trustedPeriod) }

// earned waits until the relist period is as long as that.
func (w *World) earned(ctx context.Context, want time.Duration) error {
	if !w.Variant.Ours {
		return nil
	}
	return eventually(ctx, patience, func() error {
		period, err := w.relistPeriod(ctx)
		if err == nil && period < want {
			err = fmt.Errorf("the relist period is %v, want %v", period, want)
		}
		return err
	})
}

// relistPeriod returns the generator's present period, zero for a stock kubelet.
func (w *World) relistPeriod(ctx context.Context) (time.Duration, error) {
	m, err := w.Kubelet.Metrics(ctx)
	return time.Duration(m["evented_pleg_relist_period_seconds"] * float64(time.Second)), err
}

// noticed waits until the number of unannounced changes is counted, and reported on the node with
// an API server. The first two are missed events for certain: at the second, an otherwise silent
// stream is replaced, and later changes until the next stream are unheard.
func (w *World) noticed(ctx context.Context, before counters, changes int) error {
	if err := eventually(ctx, patience, func() error {
		c, err := w.counters(ctx)
		missed, unheard := c.missed-before.missed, c.unheard-before.unheard
		if err == nil && (missed < min(changes, 2) || missed+unheard < changes) {
			err = fmt.Errorf("%d missed events and %d unheard changes are counted, want 2 of the former at least and %d in all", missed, unheard, changes)
		}
		return err
	}); err != nil || w.api == nil {
		return err
	}
	return w.nodeEvents(ctx, "ContainerEventsMissed")
}

// nodeEvents waits until Events with these reasons are on the node.
func (w *World) nodeEvents(ctx context.Context, reasons ...string) error {
	return eventually(ctx, patience, func() error {
		list, err := w.api.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		missing := make(map[string]bool)
		for _, r := range reasons {
			missing[r] = true
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == w.nodeName {
				delete(missing, e.Reason)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no Events on the node with the reasons %v", missing)
		}
		return nil
	})
}
