// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Play is a course of steps in a world. After its first error the steps do nothing.
type Play struct {
	*World
	ctx context.Context // of all steps
	err error           // the first
}

// step does a step, unless one before has failed.
func (p *Play) step(do func() error) {
	if p.err == nil {
		p.err = do()
	}
}

// fail fails the play, unless it has failed before.
func (p *Play) fail(format string, args ...any) {
	p.step(func() error { return fmt.Errorf(format, args...) })
}

// sleep waits.
func (p *Play) sleep(d time.Duration) {
	p.step(func() error { return bench.Sleep(p.ctx, d) })
}

// eventually waits until what returns nil.
func (p *Play) eventually(within time.Duration, what func() error) {
	p.step(func() error { return eventually(p.ctx, within, what) })
}

// put makes a pod.
func (p *Play) put(name string, change ...func(*corev1.Pod)) {
	p.step(func() error {
		made := pod(name, change...)
		if !p.Variant.privileged() {
			unprivileged(made)
		}
		p.tracker.forget(name)
		put := p.node.Put
		if p.api != nil {
			put = func(made *corev1.Pod) error { return p.create(p.ctx, made) }
		}
		if err := put(made); err != nil {
			return err
		}
		p.there[name] = true
		delete(p.removed, name)
		return nil
	})
}

// putAll makes pods.
func (p *Play) putAll(names []string, change ...func(*corev1.Pod)) {
	for _, name := range names {
		p.put(name, change...)
	}
}

// remove removes pods and waits until nothing of them runs.
func (p *Play) remove(names ...string) {
	now := bench.Now()
	for _, name := range names {
		p.removed[name] = now
	}
	if p.api != nil {
		p.step(func() error { return p.erase(p.ctx, names...) })
	}
	for _, name := range names {
		p.step(func() error {
			p.tracker.forget(name)
			if p.api == nil {
				if err := p.node.Remove(name); err != nil && !os.IsNotExist(err) {
					return err
				}
			}
			delete(p.there, name)
			return nil
		})
	}
	p.eventually(patience, func() error {
		if err := p.look(p.ctx); err != nil {
			return err
		}
		return p.book.stopped(names)
	})
}

// await waits until the kubelet shows the expected state of each pod.
func (p *Play) await(want func(corev1.PodStatus) error, names ...string) {
	p.eventually(patience, func() error { return p.are(p.ctx, want, names...) })
}

// are reports whether the kubelet shows the expected state of each pod now.
func (w *World) are(ctx context.Context, want func(corev1.PodStatus) error, names ...string) error {
	status, err := w.pods(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		s, ok := status[name]
		if !ok {
			return fmt.Errorf("%s: no status", name)
		}
		if err := want(s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func ready(s corev1.PodStatus) error {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("not ready: %s %s", s.Phase, s.Reason)
}

func phase(want corev1.PodPhase) func(corev1.PodStatus) error {
	return func(s corev1.PodStatus) error {
		if s.Phase != want {
			return fmt.Errorf("is %s, want %s", s.Phase, want)
		}
		return nil
	}
}

// batch returns unused pod names.
func (w *World) batch(prefix string, n int) []string {
	w.serial++
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d-%03d", prefix, w.serial, i)
	}
	return list
}
