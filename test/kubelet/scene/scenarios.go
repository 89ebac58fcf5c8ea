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
)

// Scenario acts on a world and waits for the required result.
type Scenario struct {
	Name string
	Play func(*Play)
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
		{Name: "pods-start", Play: func(p *Play) { p.startPods(size.Pods) }},
		{Name: "complete", Play: complete},
		{Name: "crash-loop", Play: crashLoop},
		{Name: "failed-starts", Play: failedStarts},
		{Name: "probes-and-hooks", Play: probes},
		{Name: "sidecars", Play: sidecars},
		{Name: "graceful-termination", Play: graceful},
		{Name: "same-uid-recreated", Play: func(p *Play) { recreate(p, size.Again) }},
		{Name: "stranger", Play: besideStranger},
		{Name: "events-dropped", Play: eventsDropped, Disturbs: true},
		{Name: "stream-deaf", Play: streamDeaf, Disturbs: true},
		{Name: "runtime-restarted", Play: runtimeRestarted, Disturbs: true},
		{Name: KubeletRestarted, Play: kubeletRestarted, Disturbs: true},
		{Name: "stream-cut", Play: streamCut, Disturbs: true},
		{Name: PodsStop, Play: func(p *Play) { p.remove(p.full...) }},
	}
}

const (
	// KubeletRestarted is the name of the scenario after which another kubelet is there.
	KubeletRestarted = "kubelet-restarted"
	// PodsStop is the name of the last scenario, after which there are no pods.
	PodsStop = "pods-stop"
)

func (p *Play) startPods(n int) {
	p.full = p.batch("one-node", n)
	p.putAll(p.full)
	p.await(ready, p.full...)
}

// complete has pods end by themselves, well and badly, with and without init containers.
func complete(p *Play) {
	good, bad := p.batch("one-good", 10), p.batch("one-bad", 10)
	for i, name := range good {
		p.put(name, once, runs("sleep", fmt.Sprintf("%.1fs", 0.2*float64(i))))
	}
	p.putAll(bad, once, runs("sleep", "500ms", "3"))
	p.await(phase(corev1.PodSucceeded), good...)
	p.await(func(s corev1.PodStatus) error {
		if t := s.ContainerStatuses[0].State.Terminated; t == nil || t.ExitCode != 3 {
			return fmt.Errorf("terminated: %v, want exit code 3", t)
		}
		return phase(corev1.PodFailed)(s)
	}, bad...)
	all := append(good, bad...)
	p.ranOnly(1, all...)
	p.remove(all...)
}

// restarted reports whether the first of the containers was restarted so often.
func restarted(containers []corev1.ContainerStatus, times int32) error {
	if len(containers) == 0 || containers[0].RestartCount < times {
		return fmt.Errorf("fewer than %d restarts", times)
	}
	return nil
}

// crashLoop has containers end again and again.
func crashLoop(p *Play) {
	all := p.batch("one-crash", 10)
	p.putAll(all, runs("exit", "1"))
	p.await(func(s corev1.PodStatus) error { return restarted(s.ContainerStatuses, 2) }, all...)
	p.eventually(patience, func() error { return p.restartsAgree(p.ctx, all) })
	p.remove(all...)
}

// failedStarts has pods with a command that is not in the image. The end of a container that cannot
// start is the effect of the kubelet's own call, and costs the stream no trust.
func failedStarts(p *Play) {
	all := p.batch("one-unstartable", 10)
	p.putAll(all, func(made *corev1.Pod) {
		made.Spec.Containers[0].Command = []string{"/does/not/exist"}
	})
	before := p.count()
	p.await(func(s corev1.PodStatus) error {
		if len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].State.Waiting == nil ||
			!failedStart[s.ContainerStatuses[0].State.Waiting.Reason] {
			return fmt.Errorf("the start of %s has not failed: %+v", s.Phase, s.ContainerStatuses)
		}
		return nil
	}, all...)
	p.earned(16 * time.Second) // with ten pods that go on failing
	if n := p.count().missed - before.missed; n != 0 {
		p.fail("%d failed starts count as missed events", n)
	}
	p.remove(all...)
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
func probes(p *Play) {
	execs := func() (n uint64) {
		p.step(func() error {
			_, calls, err := p.runtime.usage(p.ctx)
			n = calls["ExecSync"]
			return err
		})
		return n
	}
	before := execs()
	fine, ill := p.batch("one-probed", 5), p.batch("one-unlively", 3)
	p.putAll(fine, probed)
	p.putAll(ill, unlively)
	p.await(ready, fine...)
	p.await(func(s corev1.PodStatus) error { return restarted(s.ContainerStatuses, 1) }, ill...)
	p.remove(append(fine, ill...)...)
	// Two hooks, the startup and the readiness probe in healthy pods, a probe in the others.
	if n, want := execs()-before, uint64(4*len(fine)+len(ill)); n < want {
		p.fail("%d probes and hooks were run, want %d", n, want)
	}
}

// sidecars has pods with init containers and restartable ones; ending pods take their sidecar with
// them, and an ended sidecar is started again.
func sidecars(p *Play) {
	run, end, ill := p.batch("side-run", 5), p.batch("side-end", 5), p.batch("side-ill", 3)
	p.putAll(ill, sidecar("sleep", "500ms", "1"))
	p.putAll(run, initialized, sidecar("pause"))
	p.putAll(end, once, initialized, sidecar("pause"), runs("sleep", "1s"))
	p.await(ready, run...)
	p.await(phase(corev1.PodSucceeded), end...)
	p.await(func(s corev1.PodStatus) error {
		if err := restarted(s.InitContainerStatuses, 2); err != nil {
			return fmt.Errorf("the sidecar: %w", err)
		}
		if main := s.ContainerStatuses[0]; main.RestartCount != 0 || main.State.Running == nil {
			return fmt.Errorf("the main container does not run on beside it: %v, %d restarts", main.State, main.RestartCount)
		}
		return nil
	}, ill...)
	p.ranOnly(3, append(run, end...)...) // init, sidecar and main
	p.remove(slices.Concat(run, end, ill)...)
}

// graceful removes pods while they start, run and end, and pods with a hook longer than their grace
// period: they must get the period, and then be killed.
func graceful(p *Play) {
	all := p.batch("one-short", 20)
	for i, name := range all {
		p.put(name, probed, runs("sleep", fmt.Sprintf("%ds", 1+i%3)))
		if i%4 == 3 {
			p.sleep(200 * time.Millisecond)
		}
	}
	p.remove(all...)
	patient := p.batch("one-patient", 3)
	p.putAll(patient, slowEnd)
	p.await(ready, patient...)
	start := time.Now()
	p.remove(patient...)
	if took := time.Since(start); took < grace {
		p.fail("killed after %v, want no sooner than their grace period, %v", took, grace)
	}
}

// recreate removes and makes a static pod with the same UID again and again, with short pauses.
func recreate(p *Play, times int) {
	name := p.batch("one-again", 1)[0]
	for i := range times {
		p.put(name)
		if i%10 == 0 { // most of them are taken away while they start
			p.await(ready, name)
		} else {
			p.sleep(time.Duration(i%10) * 50 * time.Millisecond)
		}
		p.step(func() error {
			p.tracker.forget(name)
			return p.node.Remove(name)
		})
		p.sleep(time.Duration(i%7) * 50 * time.Millisecond)
		if p.err != nil {
			p.err = fmt.Errorf("time %d: %w", i, p.err)
			return
		}
	}
	p.put(name)
	p.await(ready, name)
	p.step(func() error { return p.Check(p.ctx) })
	p.remove(name)
}
