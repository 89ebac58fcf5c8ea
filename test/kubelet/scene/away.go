// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// exitUnseen is a runtime's exit code for containers that ended while it was down.
const exitUnseen = 255

// dying puts pods that end by themselves during the next seconds.
func (p *Play) dying(prefix string, n int) []string {
	all := p.batch(prefix, n)
	for i, name := range all {
		p.put(name, once, runs("sleep", fmt.Sprintf("%.1fs", 4+0.5*float64(i%20))))
	}
	return all
}

// ranOnce waits until all have ended, and checks that each has had a single container.
func (p *Play) ranOnce(all []string) {
	if p.err != nil {
		return
	}
	p.await(func(s corev1.PodStatus) error {
		if s.Phase == corev1.PodFailed && len(s.ContainerStatuses) > 0 {
			if t := s.ContainerStatuses[0].State.Terminated; t != nil && t.ExitCode == exitUnseen {
				return nil
			}
		}
		return phase(corev1.PodSucceeded)(s)
	}, all...)
	if p.err != nil && p.Variant.traits().ForgetsExits {
		p.err = p.forgotten(p.ctx, all, p.err)
	}
	p.ranOnly(1, all...)
	p.remove(all...)
}

// forgotten checks whether the pods with ends unseen by the kubelet, though all have ended, still
// run for the runtime, too: then nobody can tell, and they are counted. Otherwise it returns why
// the scenario has failed.
func (w *World) forgotten(ctx context.Context, all []string, failed error) error {
	if err := w.look(ctx); err != nil {
		return err
	}
	status, err := w.pods(ctx)
	if err != nil {
		return err
	}
	n := 0
	for _, name := range all {
		switch ended, running := status[name].Phase == corev1.PodSucceeded || status[name].Phase == corev1.PodFailed, w.book.runs(name); {
		case !ended && !running:
			return failed
		case !ended:
			n++
		}
	}
	w.Summary.Forgotten += n
	return nil
}

// runningAndDying is dying, once all of them run.
func (p *Play) runningAndDying(prefix string, n int) []string {
	all := p.dying(prefix, n)
	p.running(all)
	return all
}

// running waits until the pods' containers run.
func (p *Play) running(all []string) {
	p.await(func(s corev1.PodStatus) error {
		if s.Phase == corev1.PodPending || s.Phase == "" {
			return fmt.Errorf("is %s", s.Phase)
		}
		return nil
	}, all...)
}

// runtimeRestarted kills the runtime while containers end and new pods come.
func runtimeRestarted(p *Play) {
	all := p.runningAndDying("one-rt", 20)
	var more []string
	for range 3 {
		come := p.batch("one-come", 5)
		p.putAll(come)
		more = append(more, come...)
		p.step(func() error { return p.restartRuntime(p.ctx) })
		p.sleep(3 * time.Second)
	}
	p.await(ready, more...)
	p.ranOnce(all)
	p.remove(more...)
}

// kubeletRestarted kills the kubelet while containers end, starts it again three seconds later, and
// kills the new kubelet at its begin.
func kubeletRestarted(p *Play) {
	all := p.runningAndDying("one-kl", 20)
	for _, down := range []time.Duration{3 * time.Second, time.Second} {
		p.step(func() error { return p.killKubelet(p.ctx) })
		p.sleep(down)
		p.step(func() error { return p.StartKubelet(p.ctx) })
	}
	p.ranOnce(all)
}

// disturb disturbs the event stream.
func (p *Play) disturb(how disturbance) {
	p.step(func() error { return p.runtime.disturb(p.ctx, how) })
}

// streamCut lets no event through any more.
func streamCut(p *Play) {
	p.disturb(cut)
	p.ranOnce(p.dying("one-cut", 20))
	p.disturb(undisturbed)
}
