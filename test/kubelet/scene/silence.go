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
func eventsDropped(p *Play) { p.unheard(silent) }

// streamDeaf has the stream stay open and carry nothing any more.
func streamDeaf(p *Play) { p.unheard(deaf) }

// unheard has containers end without events. The next relist must find them, count them as missed,
// and take the stream's trust; later events must earn it back.
func (p *Play) unheard(how disturbance) {
	p.disturb(undisturbed)
	p.earned(trustedPeriod)
	all := p.runningAndDying("one-unheard", 20)
	before := p.count()
	p.disturb(how)
	since := bench.Now()
	var longest time.Duration // a list before the first end finds nothing, and raises the period once more
	p.eventually(patience, func() error {
		period, err := p.relistPeriod(p.ctx)
		if err != nil {
			return err
		}
		longest = max(longest, period)
		return p.are(p.ctx, phase(corev1.PodSucceeded), all...)
	})
	within := longest + promptly
	p.step(func() error { return p.look(p.ctx) })
	unheard := 0
	for id, c := range p.book.exits {
		if at, ok := p.tracker.shown(id, c.At); ok && c.At > since {
			unheard++
			if took := time.Duration(at - c.At); p.Variant.Ours && took > within {
				p.fail("%s: its end was shown after %v, want %v: the relist period and a little",
					c.Pod, took.Round(time.Millisecond), within)
			}
		}
	}
	if unheard < 2 {
		p.fail("%d containers ended unheard, want 2 at least", unheard)
	}
	if p.Variant.Ours { // a stream goes deaf after an event
		p.step(func() error { return p.noticed(p.ctx, before, unheard-1) })
	}
	p.disturb(undisturbed)
	p.ranOnce(all)
	if p.Variant.Ours {
		p.hears()
		p.earned(trustedPeriod)
	}
}

// hears has pods come and end until the generator hears of them: a deaf stream must have been
// replaced.
func (p *Play) hears() {
	p.eventually(patience, func() error {
		try := &Play{World: p.World, ctx: p.ctx}
		before := try.count()
		all := try.batch("one-heard", 2)
		try.putAll(all, once, runs("sleep", "200ms"))
		try.await(phase(corev1.PodSucceeded), all...)
		n := try.count().events - before.events
		try.remove(all...)
		if n < 3*len(all) { // created, started, stopped
			try.fail("%d events were heard of %d pods that came and ended", n, len(all))
		}
		return try.err
	})
}

// earned waits until the relist period is as long as that.
func (p *Play) earned(want time.Duration) {
	if !p.Variant.Ours {
		return
	}
	p.eventually(patience, func() error {
		period, err := p.relistPeriod(p.ctx)
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
