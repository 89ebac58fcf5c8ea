// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// put makes pods.
func (w *World) put(pods ...*corev1.Pod) error {
	for _, p := range pods {
		if !w.Variant.privileged() {
			unprivileged(p)
		}
		w.tracker.forget(string(p.UID))
		if w.api != nil {
			if err := w.create(context.Background(), p); err != nil {
				return err
			}
		} else if err := w.node.Put(p); err != nil {
			return err
		}
		w.there[p.Name] = true
		delete(w.removed, p.Name)
	}
	return nil
}

// remove removes pods and waits until nothing of them runs.
func (w *World) remove(ctx context.Context, names ...string) error {
	now := bench.Now()
	for _, name := range names {
		w.removed[name] = now
	}
	if w.api != nil {
		if err := w.erase(ctx, names...); err != nil {
			return err
		}
	}
	for _, name := range names {
		w.tracker.forget(name)
		if w.api == nil {
			if err := w.node.Remove(name); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		delete(w.there, name)
	}
	return eventually(ctx, patience, func() error {
		if err := w.look(ctx); err != nil {
			return err
		}
		return w.book.stopped(names)
	})
}

// await waits until the kubelet shows the expected state of each pod.
func (w *World) await(ctx context.Context, want func(corev1.PodStatus) error, names ...string) error {
	return eventually(ctx, patience, func() error { return w.are(ctx, want, names...) })
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
