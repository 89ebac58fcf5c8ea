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

// exitUnseen is a runtime's exit code for containers that ended while it was down.
const exitUnseen = 255

// dying puts pods that end by themselves during the next seconds.
func (w *World) dying(prefix string, n int) ([]string, error) {
	all := w.batch(prefix, n)
	for i, name := range all {
		if err := w.put(pod(name, once, runs("sleep", fmt.Sprintf("%.1fs", 4+0.5*float64(i%20))))); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ranOnce waits until all have ended, and checks that each has had a single container.
func (w *World) ranOnce(ctx context.Context, all []string) error {
	err := w.await(ctx, func(s corev1.PodStatus) error {
		if s.Phase == corev1.PodFailed && len(s.ContainerStatuses) > 0 {
			if t := s.ContainerStatuses[0].State.Terminated; t != nil && t.ExitCode == exitUnseen {
				return nil
			}
		}
		return phase(corev1.PodSucceeded)(s)
	}, all...)
	if err != nil && w.Variant.traits().ForgetsExits {
		err = w.forgotten(ctx, all, err)
	}
	if err != nil {
		return err
	}
	if err := w.ranOnly(ctx, 1, all...); err != nil {
		return err
	}
	return w.remove(ctx, all...)
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
func (w *World) runningAndDying(ctx context.Context, prefix string, n int) ([]string, error) {
	all, err := w.dying(prefix, n)
	if err != nil {
		return nil, err
	}
	return all, w.running(ctx, all)
}

// running waits until the pods' containers run.
func (w *World) running(ctx context.Context, all []string) error {
	return w.await(ctx, func(s corev1.PodStatus) error {
		if s.Phase == corev1.PodPending || s.Phase == "" {
			return fmt.Errorf("is %s", s.Phase)
		}
		return nil
	}, all...)
}

// runtimeRestarted kills the runtime while containers end and new pods come.
func runtimeRestarted(ctx context.Context, w *World) error {
	all, err := w.runningAndDying(ctx, "one-rt", 20)
	if err != nil {
		return err
	}
	var more []string
	for range 3 {
		come := w.batch("one-come", 5)
		for _, name := range come {
			if err := w.put(pod(name)); err != nil {
				return err
			}
		}
		more = append(more, come...)
		if err := w.restartRuntime(ctx); err != nil {
			return err
		}
		if err := bench.Sleep(ctx, 3*time.Second); err != nil {
			return err
		}
	}
	if err := w.await(ctx, ready, more...); err != nil {
		return err
	}
	if err := w.ranOnce(ctx, all); err != nil {
		return err
	}
	return w.remove(ctx, more...)
}

// kubeletRestarted kills the kubelet while containers end, starts it again three seconds later, and
// kills the new kubelet at its begin.
func kubeletRestarted(ctx context.Context, w *World) error {
	all, err := w.runningAndDying(ctx, "one-kl", 20)
	if err != nil {
		return err
	}
	for _, down := range []time.Duration{3 * time.Second, time.Second} {
		if err := w.killKubelet(ctx); err != nil {
			return err
		}
		if err := bench.Sleep(ctx, down); err != nil {
			return err
		}
		if err := w.StartKubelet(ctx); err != nil {
			return err
		}
	}
	return w.ranOnce(ctx, all)
}

// streamCut lets no event through any more.
func streamCut(ctx context.Context, w *World) error {
	if err := w.runtime.disturb(ctx, cut); err != nil {
		return err
	}
	all, err := w.dying("one-cut", 20)
	if err != nil {
		return err
	}
	if err := w.ranOnce(ctx, all); err != nil {
		return err
	}
	return w.runtime.disturb(ctx, undisturbed)
}
