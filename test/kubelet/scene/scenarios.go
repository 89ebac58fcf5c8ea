// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// Scenario acts on a world and waits for the required result.
type Scenario struct {
	Name string
	play func(*World)
	// Disturbs: the runtime, the kubelet or the event stream is taken away meanwhile.
	Disturbs bool
	// static and api: it is played only without, or only with, an API server.
	static, api bool
}

// Size is how much is played.
type Size struct {
	// Pods is the number of pods of a full node, which are there while all else happens.
	Pods int
	// Again is how often a static pod is removed and put back under its UID.
	Again int
}

// Scenarios returns those of static pods, or those with an API server, in the order to play them
// in.
func Scenarios(size Size, api bool) []Scenario {
	return slices.DeleteFunc([]Scenario{
		{Name: "pods-start", play: func(w *World) { w.startPods(size.Pods) }},
		{Name: "complete", play: complete},
		{Name: "crash-loop", play: crashLoop},
		{Name: "failed-starts", play: failedStarts},
		{Name: "probes-and-hooks", play: probes},
		{Name: "sidecars", play: sidecars},
		{Name: "graceful-termination", play: graceful},
		{
			Name:   "same-uid-recreated",
			play:   func(w *World) { recreate(w, size.Again) },
			static: true,
		}, // an API server gives each pod a UID of its own
		{Name: "in-place-resize", play: resize, api: true},
		{Name: "same-name-recreated", play: sameName, api: true},
		{Name: "stranger", play: stranger},
		{Name: "events-dropped", play: eventsDropped, Disturbs: true},
		{Name: "stream-deaf", play: streamDeaf, Disturbs: true},
		{Name: "runtime-restarted", play: runtimeRestarted, Disturbs: true},
		{Name: "stream-events", play: streamEvents, api: true},
		{Name: KubeletRestarted, play: kubeletRestarted, Disturbs: true},
		{Name: GatesToggled, play: toggleGates, Disturbs: true},
		{Name: "stream-cut", play: streamCut, Disturbs: true},
		{Name: PodsStop, play: func(w *World) { w.remove(w.full...) }},
	}, func(s Scenario) bool { return s.static && api || s.api && !api })
}

const (
	// KubeletRestarted is the name of the scenario after which another kubelet is there.
	KubeletRestarted = "kubelet-restarted"
	// GatesToggled is the name of the scenario that restarts the kubelet with other feature gates.
	GatesToggled = "gates-toggled"
	// PodsStop is the name of the last scenario, after which there are no pods.
	PodsStop = "pods-stop"
)

func (w *World) startPods(n int) {
	w.full = w.batch("one-node", n)
	w.putAll(w.full)
	w.await(ready, w.full...)
}

// complete has pods end by themselves, well and badly, with and without init containers.
func complete(w *World) {
	good := w.batch("one-good", 10)
	bad := w.batch("one-bad", 10)
	for i, name := range good {
		w.put(name, once, runs("sleep", fmt.Sprintf("%.1fs", 0.2*float64(i))))
	}
	w.putAll(bad, once, runs("sleep", "500ms", "3"))
	w.await(phase(corev1.PodSucceeded), good...)
	w.await(func(s corev1.PodStatus) error {
		if t := s.ContainerStatuses[0].State.Terminated; t == nil || t.ExitCode != 3 {
			return fmt.Errorf("terminated: %v, want exit code 3", t)
		}
		return phase(corev1.PodFailed)(s)
	}, bad...)
	all := append(good, bad...)
	w.ranOnly(1, all...)
	w.remove(all...)
}

// restarted reports whether the first of the containers was restarted so often.
func restarted(containers []corev1.ContainerStatus, times int32) error {
	if len(containers) == 0 || containers[0].RestartCount < times {
		return fmt.Errorf("fewer than %d restarts", times)
	}
	return nil
}

// crashLoop has containers end again and again.
func crashLoop(w *World) {
	all := w.batch("one-crash", 10)
	w.putAll(all, runs("exit", "1"))
	w.await(func(s corev1.PodStatus) error { return restarted(s.ContainerStatuses, 2) }, all...)
	w.eventually(patience, func() { w.restartsAgree(all) })
	w.remove(all...)
}

// failedStarts has pods with a command that is not in the image. The end of a container that cannot
// start is the effect of the kubelet's own call, and costs the stream no trust.
func failedStarts(w *World) {
	all := w.batch("one-unstartable", 10)
	w.putAll(all, func(made *corev1.Pod) {
		made.Spec.Containers[0].Command = []string{"/does/not/exist"}
	})
	before := w.counters()
	w.await(func(s corev1.PodStatus) error {
		if len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].State.Waiting == nil ||
			!failedStart[s.ContainerStatuses[0].State.Waiting.Reason] {
			return fmt.Errorf("the start of %s has not failed: %+v", s.Phase, s.ContainerStatuses)
		}
		return nil
	}, all...)
	w.earned(16 * time.Second) // with ten pods that go on failing
	if n := w.counters().missed - before.missed; n != 0 {
		fail("%d failed starts count as missed events", n)
	}
	w.remove(all...)
}

// failedStart are the reasons for which a container waits whose start has failed.
var failedStart = map[string]bool{
	"CrashLoopBackOff":     true,
	"RunContainerError":    true,
	"CreateContainerError": true,
}

// restartsAgree compares the kubelet's reported restarts with the containers that ran.
func (w *World) restartsAgree(all []string) {
	w.look()
	status := w.pods()
	for _, name := range all {
		for _, c := range status[name].ContainerStatuses {
			if ran := w.book.ran[name]; ran != int(c.RestartCount)+1 {
				fail("%s: %d restarts are reported, and %d containers ran", name, c.RestartCount, ran)
			}
		}
	}
}

// probes has pods with successful probes and hooks, and some with a failing liveness probe.
func probes(w *World) {
	execs := func() uint64 {
		_, calls, err := w.runtime.usage(w.ctx)
		do(err)
		return calls["ExecSync"]
	}
	before := execs()
	fine := w.batch("one-probed", 5)
	ill := w.batch("one-unlively", 3)
	w.putAll(fine, probed)
	w.putAll(ill, unlively)
	w.await(ready, fine...)
	w.await(func(s corev1.PodStatus) error { return restarted(s.ContainerStatuses, 1) }, ill...)
	w.remove(append(fine, ill...)...)
	// Two hooks, the startup and the readiness probe in healthy pods, a probe in the others.
	if n, want := execs()-before, uint64(4*len(fine)+len(ill)); n < want {
		fail("%d probes and hooks were run, want %d", n, want)
	}
}

// sidecars has pods with init containers and restartable ones; ending pods take their sidecar with
// them, and an ended sidecar is started again.
func sidecars(w *World) {
	run := w.batch("side-run", 5)
	end := w.batch("side-end", 5)
	ill := w.batch("side-ill", 3)
	w.putAll(ill, sidecar("sleep", "500ms", "1"))
	w.putAll(run, initialized, sidecar("pause"))
	w.putAll(end, once, initialized, sidecar("pause"), runs("sleep", "1s"))
	w.await(ready, run...)
	w.await(phase(corev1.PodSucceeded), end...)
	w.await(func(s corev1.PodStatus) error {
		if err := restarted(s.InitContainerStatuses, 2); err != nil {
			return fmt.Errorf("the sidecar: %w", err)
		}
		if main := s.ContainerStatuses[0]; main.RestartCount != 0 || main.State.Running == nil {
			return fmt.Errorf(
				"the main container does not run on beside it: %v, %d restarts",
				main.State,
				main.RestartCount,
			)
		}
		return nil
	}, ill...)
	w.ranOnly(3, append(run, end...)...) // init, sidecar and main
	w.remove(slices.Concat(run, end, ill)...)
}

// graceful removes pods while they start, run and end, and pods with a hook longer than their grace
// period: they must get the period, and then be killed.
func graceful(w *World) {
	all := w.batch("one-short", 20)
	for i, name := range all {
		w.put(name, probed, runs("sleep", fmt.Sprintf("%ds", 1+i%3)))
		if i%4 == 3 {
			w.sleep(200 * time.Millisecond)
		}
	}
	w.remove(all...)
	patient := w.batch("one-patient", 3)
	w.putAll(patient, slowEnd)
	w.await(ready, patient...)
	start := time.Now()
	w.remove(patient...)
	if took := time.Since(start); took < grace {
		fail("killed after %v, want no sooner than their grace period, %v", took, grace)
	}
}

// recreate removes and makes a static pod with the same UID again and again, with short pauses.
func recreate(w *World, times int) {
	name := w.batch("one-again", 1)[0]
	for i := range times {
		if err := attempt(func() {
			w.put(name)
			if i%10 == 0 { // most of them are taken away while they start
				w.await(ready, name)
			} else {
				w.sleep(time.Duration(i%10) * 50 * time.Millisecond)
			}
			w.take(name)
			w.sleep(time.Duration(i%7) * 50 * time.Millisecond)
		}); err != nil {
			fail("time %d: %w", i, err)
		}
	}
	w.put(name)
	w.await(ready, name)
	w.check()
	w.remove(name)
}

// collected bounds the wait for a kubelet's garbage collection, which comes once a minute.
const collected = 4 * time.Minute

// stranger has a container unknown to the kubelet and without a log path, beside a pod for which
// the kubelet pulls the image. A kubelet stops and removes the container and, because it looks for
// logs by the pattern "" + "*", every file of its own working directory
// (kubernetes/kubernetes#107717).
func stranger(w *World) {
	name := w.batch("one-beside", 1)[0]
	w.put(name)
	w.await(ready, name)
	client := must(crikit.Dial(crikit.Options{
		Endpoint:     "unix://" + w.runtime.socket(),
		Namespace:    "default",
		CgroupParent: w.cgroup,
		Image:        Image,
	}))
	defer client.Close()
	uid := w.batch("stranger", 1)[0]
	pod := must(client.RunPod(w.ctx, uid, uid, 0))
	id := must(client.Create(w.ctx, pod, crikit.Spec{Name: "main", Command: "/tool", Args: []string{"pause"}}))
	unstarted := client.Start(
		w.ctx,
		id,
	) // the kubelet may have ended the stranger before, and removes it either way
	w.eventually(collected, func() {
		_, err := client.ContainerStatus(w.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if !crikit.Gone(err) {
			fail(
				"container %s, which the kubelet does not know, is still there (%v)",
				id,
				errors.Join(err, unstarted),
			)
		}
	})
	w.remove(name)
}
