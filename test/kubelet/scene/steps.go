// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// failure is the panic of a step that fails. It ends the attempt around the step.
type failure struct{ error }

// attempt takes steps, and returns the error of the first that fails.
func attempt(steps func()) (err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = f.error
		default:
			panic(f)
		}
	}()
	steps()
	return nil
}

// fail fails the attempt.
func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// do fails the attempt at an error.
func do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must fails the attempt at an error, and returns the value otherwise.
func must[T any](v T, err error) T {
	do(err)
	return v
}

// eventually attempts the steps again and again until all succeed. It returns the last error.
func eventually(ctx context.Context, within time.Duration, steps func()) error {
	for end := time.Now().Add(within); ; {
		err := attempt(steps)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %w", within, err)
		}
		if err := bench.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// eventually fails if the steps do not succeed in time.
func (w *World) eventually(within time.Duration, steps func()) {
	do(eventually(w.ctx, within, steps))
}

// sleep waits.
func (w *World) sleep(d time.Duration) { do(bench.Sleep(w.ctx, d)) }

// batch returns unused pod names.
func (w *World) batch(prefix string, n int) []string {
	w.serial++
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d-%03d", prefix, w.serial, i)
	}
	return list
}

// put makes a pod.
func (w *World) put(name string, change ...func(*corev1.Pod)) {
	made := pod(name, change...)
	if w.Variant.traits().PrivilegedTakesAll {
		unprivileged(made)
	}
	w.tracker.forget(name)
	if w.api != nil {
		w.create(made)
	} else {
		do(w.node.Put(made))
	}
	w.there[name] = true
	delete(w.removed, name)
}

// putAll makes pods.
func (w *World) putAll(names []string, change ...func(*corev1.Pod)) {
	for _, name := range names {
		w.put(name, change...)
	}
}

// remove removes pods and waits until nothing of them runs.
func (w *World) remove(names ...string) {
	now := bench.Now()
	for _, name := range names {
		w.removed[name] = now
	}
	if w.api != nil {
		w.erase(names...)
	}
	for _, name := range names {
		w.take(name)
	}
	w.eventually(patience, func() {
		w.look()
		do(w.book.stopped(names))
	})
}

// take takes a static pod's manifest away.
func (w *World) take(name string) {
	w.tracker.forget(name)
	if w.api == nil && w.there[name] {
		do(w.node.Remove(name))
	}
	delete(w.there, name)
}

// await waits until the kubelet shows the expected state of each pod.
func (w *World) await(want func(corev1.PodStatus) error, names ...string) {
	w.eventually(patience, func() { w.are(want, names...) })
}

// are fails unless the kubelet shows the expected state of each pod now.
func (w *World) are(want func(corev1.PodStatus) error, names ...string) {
	status := w.pods()
	for _, name := range names {
		s, ok := status[name]
		if !ok {
			fail("%s: no status", name)
		}
		if err := want(s); err != nil {
			fail("%s: %w", name, err)
		}
	}
}

// running waits until the pods' containers run.
func (w *World) running(all []string) {
	w.await(func(s corev1.PodStatus) error {
		if s.Phase == corev1.PodPending || s.Phase == "" {
			return fmt.Errorf("is %s", s.Phase)
		}
		return nil
	}, all...)
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
