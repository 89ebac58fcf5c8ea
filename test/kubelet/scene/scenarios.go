// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Scenario acts on a world and waits for the required result.
type Scenario struct {
	Name string
	Play func(context.Context, *World) error
	// Disturbs: the runtime, the kubelet or the event stream is taken away meanwhile.
	Disturbs bool
}

// Size is how much is played.
type Size struct {
	// Pods is the number of pods of a full node, which are there while all else happens.
	Pods int
	// Again is how often a static pod is removed and put back under its UID.
	Again int
}

// Scenarios returns those of static pods, in the order to play them in.
func Scenarios(size Size) []Scenario {
	return []Scenario{
		{Name: "pods-start", Play: func(ctx context.Context, w *World) error { return w.startPods(ctx, size.Pods) }},
		{Name: "complete", Play: complete},
		{Name: "crash-loop", Play: crashLoop},
		{Name: "failed-starts", Play: failedStarts},
		{Name: "probes-and-hooks", Play: probes},
		{Name: "sidecars", Play: sidecars},
		{Name: "graceful-termination", Play: graceful},
		{Name: "same-uid-recreated", Play: func(ctx context.Context, w *World) error { return recreate(ctx, w, size.Again) }},
		{Name: "stranger", Play: stranger},
		{Name: "events-dropped", Play: eventsDropped, Disturbs: true},
		{Name: "stream-deaf", Play: streamDeaf, Disturbs: true},
		{Name: "runtime-restarted", Play: runtimeRestarted, Disturbs: true},
		{Name: KubeletRestarted, Play: kubeletRestarted, Disturbs: true},
		{Name: "stream-cut", Play: streamCut, Disturbs: true},
		{Name: PodsStop, Play: func(ctx context.Context, w *World) error { return w.stopPods(ctx) }},
	}
}

const (
	// KubeletRestarted is the name of the scenario after which another kubelet is there.
	KubeletRestarted = "kubelet-restarted"
	// PodsStop is the name of the last scenario, after which there are no pods.
	PodsStop = "pods-stop"
)

func (w *World) startPods(ctx context.Context, n int) error {
	w.full = w.batch("one-node", n)
	for _, name := range w.full {
		if err := w.put(pod(name)); err != nil {
			return err
		}
	}
	return w.await(ctx, ready, w.full...)
}

func (w *World) stopPods(ctx context.Context) error { return w.remove(ctx, w.full...) }

// complete has pods end by themselves, well and badly, with and without init containers.
func complete(ctx context.Context, w *World) error {
	good, bad := w.batch("one-good", 10), w.batch("one-bad", 10)
	for i, name := range good {
		if err := w.put(pod(name, once, runs("sleep", fmt.Sprintf("%.1fs", 0.2*float64(i))))); err != nil {
			return err
		}
	}
	for _, name := range bad {
		if err := w.put(pod(name, once, runs("sleep", "500ms", "3"))); err != nil {
			return err
		}
	}
	if err := w.await(ctx, phase(corev1.PodSucceeded), good...); err != nil {
		return err
	}
	if err := w.await(ctx, func(s corev1.PodStatus) error {
		if t := s.ContainerStatuses[0].State.Terminated; t == nil || t.ExitCode != 3 {
			return fmt.Errorf("terminated: %v, want exit code 3", t)
		}
		return phase(corev1.PodFailed)(s)
	}, bad...); err != nil {
		return err
	}
	if err := w.ranOnly(ctx, 1, append(good, bad...)...); err != nil {
		return err
	}
	return w.remove(ctx, append(good, bad...)...)
}

// crashLoop has containers end again and again.
func crashLoop(ctx context.Context, w *World) error {
	all := w.batch("one-crash", 10)
	for _, name := range all {
		if err := w.put(pod(name, runs("exit", "1"))); err != nil {
			return err
		}
	}
	err := w.await(ctx, func(s corev1.PodStatus) error {
		if len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].RestartCount < 2 {
			return fmt.Errorf("fewer than 2 restarts")
		}
		return nil
	}, all...)
	if err != nil {
		return err
	}
	if err := eventually(ctx, patience, func() error { return w.restartsAgree(ctx, all) }); err != nil {
		return err
	}
	return w.remove(ctx, all...)
}

// failedStarts has pods with a command that is not in the image. The end of a container that cannot
// start is the effect of the kubelet's own call, and costs the stream no trust.
func failedStarts(ctx context.Context, w *World) error {
	all := w.batch("one-unstartable", 10)
	for _, name := range all {
		if err := w.put(pod(name, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/does/not/exist"} })); err != nil {
			return err
		}
	}
	before, err := w.counters(ctx)
	if err != nil {
		return err
	}
	if err := w.await(ctx, func(s corev1.PodStatus) error {
		if len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].State.Waiting == nil || !failedStart[s.ContainerStatuses[0].State.Waiting.Reason] {
			return fmt.Errorf("the start of %s has not failed: %+v", s.Phase, s.ContainerStatuses)
		}
		return nil
	}, all...); err != nil {
		return err
	}
	if err := w.earned(ctx, 16*time.Second); err != nil { // with ten pods that go on failing
		return err
	}
	after, err := w.counters(ctx)
	if err != nil {
		return err
	}
	if n := after.missed - before.missed; n != 0 {
		return fmt.Errorf("%d failed starts count as missed events", n)
	}
	return w.remove(ctx, all...)
}

// failedStart are the reasons for which a container waits whose start has failed.
var failedStart = map[string]bool{"CrashLoopBackOff": true, "RunContainerError": true, "CreateContainerError": true}

// restartsAgree compares the kubelet's reported restarts with the containers that ran.
func (w *World) restartsAgree(ctx context.Context, all []string) error {
	if err := w.look(ctx); err != nil {
		return err
	}
	status, err := w.pods(ctx)
	if err != nil {
		return err
	}
	for _, name := range all {
		for _, c := range status[name].ContainerStatuses {
			if ran := w.book.ran[name]; ran != int(c.RestartCount)+1 {
				return fmt.Errorf("%s: %d restarts are reported, and %d containers ran", name, c.RestartCount, ran)
			}
		}
	}
	return nil
}

// probes has pods with successful probes and hooks, and some with a failing liveness probe.
func probes(ctx context.Context, w *World) error {
	_, before, err := w.runtime.usage(ctx)
	if err != nil {
		return err
	}
	fine, ill := w.batch("one-probed", 5), w.batch("one-unlively", 3)
	for _, name := range fine {
		if err := w.put(pod(name, probed)); err != nil {
			return err
		}
	}
	for _, name := range ill {
		if err := w.put(pod(name, unlively)); err != nil {
			return err
		}
	}
	if err := w.await(ctx, ready, fine...); err != nil {
		return err
	}
	if err := w.await(ctx, func(s corev1.PodStatus) error {
		if len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].RestartCount < 1 {
			return fmt.Errorf("not restarted by its liveness probe")
		}
		return nil
	}, ill...); err != nil {
		return err
	}
	if err := w.remove(ctx, append(fine, ill...)...); err != nil {
		return err
	}
	_, after, err := w.runtime.usage(ctx)
	if err != nil {
		return err
	}
	// Two hooks, the startup and the readiness probe in healthy pods, a probe in the others.
	if n, want := after["ExecSync"]-before["ExecSync"], uint64(4*len(fine)+len(ill)); n < want {
		return fmt.Errorf("%d probes and hooks were run, want %d", n, want)
	}
	return nil
}

// sidecars has pods with init containers and restartable ones; ending pods take their sidecar with
// them, and an ended sidecar is started again.
func sidecars(ctx context.Context, w *World) error {
	run, end, ill := w.batch("side-run", 5), w.batch("side-end", 5), w.batch("side-ill", 3)
	for _, name := range ill {
		if err := w.put(pod(name, sidecar("sleep", "500ms", "1"))); err != nil {
			return err
		}
	}
	for _, name := range run {
		if err := w.put(pod(name, initialized, sidecar("pause"))); err != nil {
			return err
		}
	}
	for _, name := range end {
		if err := w.put(pod(name, once, initialized, sidecar("pause"), runs("sleep", "1s"))); err != nil {
			return err
		}
	}
	if err := w.await(ctx, ready, run...); err != nil {
		return err
	}
	if err := w.await(ctx, phase(corev1.PodSucceeded), end...); err != nil {
		return err
	}
	if err := w.await(ctx, func(s corev1.PodStatus) error {
		if len(s.InitContainerStatuses) == 0 || s.InitContainerStatuses[0].RestartCount < 2 {
			return fmt.Errorf("the sidecar was not restarted twice")
		}
		if main := s.ContainerStatuses[0]; main.RestartCount != 0 || main.State.Running == nil {
			return fmt.Errorf("the main container does not run on beside it: %v, %d restarts", main.State, main.RestartCount)
		}
		return nil
	}, ill...); err != nil {
		return err
	}
	if err := w.ranOnly(ctx, 3, append(run, end...)...); err != nil { // init, sidecar and main
		return err
	}
	return w.remove(ctx, slices.Concat(run, end, ill)...)
}

// graceful removes pods while they start, run and end.
func graceful(ctx context.Context, w *World) error {
	all := w.batch("one-short", 20)
	for i, name := range all {
		if err := w.put(pod(name, probed, runs("sleep", fmt.Sprintf("%ds", 1+i%3)))); err != nil {
			return err
		}
		if i%4 == 3 {
			if err := bench.Sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
	}
	if err := w.remove(ctx, all...); err != nil {
		return err
	}
	return w.patient(ctx)
}

// patient removes pods with a hook longer than their grace period: they must get the period, and
// then be killed.
func (w *World) patient(ctx context.Context) error {
	all := w.batch("one-patient", 3)
	for _, name := range all {
		if err := w.put(pod(name, slowEnd)); err != nil {
			return err
		}
	}
	if err := w.await(ctx, ready, all...); err != nil {
		return err
	}
	start := time.Now()
	if err := w.remove(ctx, all...); err != nil {
		return err
	}
	if took := time.Since(start); took < grace {
		return fmt.Errorf("killed after %v, want no sooner than their grace period, %v", took, grace)
	}
	return nil
}

// recreate removes and makes a static pod with the same UID again and again, with short pauses.
func recreate(ctx context.Context, w *World, times int) error {
	name := w.batch("one-again", 1)[0]
	for i := range times {
		if err := w.put(pod(name)); err != nil {
			return err
		}
		if i%10 == 0 { // most of them are taken away while they start
			if err := w.await(ctx, ready, name); err != nil {
				return fmt.Errorf("time %d: %w", i, err)
			}
		} else if err := bench.Sleep(ctx, time.Duration(i%10)*50*time.Millisecond); err != nil {
			return err
		}
		w.tracker.forget(name)
		if err := w.node.Remove(name); err != nil {
			return err
		}
		if err := bench.Sleep(ctx, time.Duration(i%7)*50*time.Millisecond); err != nil {
			return err
		}
	}
	if err := w.put(pod(name)); err != nil {
		return err
	}
	if err := w.await(ctx, ready, name); err != nil {
		return fmt.Errorf("the last time: %w", err)
	}
	if err := w.Check(ctx); err != nil {
		return err
	}
	return w.remove(ctx, name)
}
