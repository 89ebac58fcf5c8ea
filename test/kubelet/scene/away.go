// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	status, n := w.pods(), 0
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

// disturb disturbs the event stream.
func (w *World) disturb(how disturbance) { do(w.runtime.disturb(w.ctx, how)) }

// streamCut lets no event through any more.
func streamCut(w *World) {
	w.disturb(cut)
	w.ranOnce(w.dying("one-cut", 20))
	w.disturb(undisturbed)
}
