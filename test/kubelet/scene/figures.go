// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Figures are the measurements of a kubelet.
type Figures struct {
	Variant string
	// Start, Exit and Deletion are from the manifest to the ready status, from the container's end
	// to the status with the end, and from the manifest's removal to the pod's.
	Start, Exit, Deletion []time.Duration
	// Removal are from the end of a removed pod's container to the container's removal from the
	// runtime.
	Removal []time.Duration
	// ExitCalls are the kubelet's calls by method, and the answers from memory, while containers
	// ended, for each ended container.
	ExitCalls map[string]float64
	// The rest is of the idle node: the duration of the watch, and rates a second.
	Idle                   time.Duration
	KubeletCPU, RuntimeCPU float64 // in seconds of CPU time
	Relists, PodReads      float64
	Calls                  map[string]float64
	// Memory are the kubelet's lists and questions for the version: those answered from memory by
	// caller, those sent to the runtime by reason.
	Memory map[string]float64
	// Load is the machine's load average of a minute at the begin and the end of the idle time.
	Load                    [2]float64
	Goroutines, MissedEvent int
}

// startsWithin is how many pods start within the harness's patience on a busy machine.
const startsWithin = 200

// Course is how a comparison goes.
type Course struct {
	// Pods is the number of the node's pods. Settle is its time to come to rest, Idle the duration
	// of the watch afterwards.
	Pods         int
	Settle, Idle time.Duration
	// Profile is a folder for a CPU profile of each kubelet, VARIANT.pprof, taken for as long again
	// as Idle, afterwards, so that the figures have no profiler in them. Empty: none is taken.
	Profile string
}

// Measure plays the comparison on a fresh world: a node of pods starts, settles, idles, containers
// end, pods are removed.
func Measure(ctx context.Context, w *World, c Course) (*Figures, error) {
	f := &Figures{Variant: w.Variant.Name}
	all, err := f.start(ctx, w, c.Pods)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	if err := bench.Sleep(ctx, c.Settle); err != nil {
		return nil, err
	}
	if err := f.idle(ctx, w, c.Idle); err != nil {
		return nil, err
	}
	if c.Profile != "" {
		profile, err := w.Kubelet.CPUProfile(ctx, c.Idle)
		if err == nil {
			err = os.WriteFile(filepath.Join(c.Profile, w.Variant.Name+".pprof"), profile, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
	}
	if err := f.exits(ctx, w, 40); err != nil {
		return nil, fmt.Errorf("exits: %w", err)
	}
	if err := f.removals(ctx, w, all[:min(len(all), 40)]); err != nil {
		return nil, fmt.Errorf("removals: %w", err)
	}
	m, err := w.Kubelet.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	f.Goroutines, f.MissedEvent = int(m["go_goroutines"]), int(m["kube_pod_missed_events"])
	return f, w.Check(ctx)
}

// housekeeping is a kubelet's housekeepingPeriod.
const housekeeping = 2 * time.Second

// removals times the removal of pods, a quarter of them at a time. A kubelet takes a removed static
// pod for deleted at its next housekeeping, and its sync loop then cleans up the pods' folders: the
// quarters come at four times of that period.
func (f *Figures) removals(ctx context.Context, w *World, pods []string) error {
	first, quarter := time.Now(), 0
	for part := range slices.Chunk(pods, max(1, len(pods)/4)) {
		late := (time.Since(first) - time.Duration(quarter)*housekeeping/4) % housekeeping
		if err := bench.Sleep(ctx, housekeeping-late); err != nil {
			return err
		}
		quarter++
		began := bench.Now()
		if err := w.remove(ctx, part...); err != nil {
			return err
		}
		if err := eventually(ctx, patience, func() error {
			for _, name := range part {
				if _, ok := w.tracker.at(w.tracker.deleted, w.uidOf(name)); !ok {
					return fmt.Errorf("%s is not finished", name)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		for _, name := range part {
			at, _ := w.tracker.at(w.tracker.deleted, w.uidOf(name))
			f.Deletion = append(f.Deletion, time.Duration(at-began))
		}
		stayed, err := removed(ctx, w, part)
		if err != nil {
			return err
		}
		f.Removal = append(f.Removal, stayed...)
	}
	return nil
}

// removed waits until the runtime has removed the ended containers of removed pods, and times how
// long they stayed. The collector of dead containers comes once a minute.
func removed(ctx context.Context, w *World, pods []string) (stayed []time.Duration, err error) {
	err = eventually(ctx, 2*patience, func() error {
		if err := w.look(ctx); err != nil {
			return err
		}
		stayed = stayed[:0]
		for id, c := range w.book.exits {
			if !slices.Contains(pods, c.Pod) {
				continue
			}
			at, ok := w.book.gone[id]
			if !ok {
				return fmt.Errorf("a container of %s is not removed", c.Pod)
			}
			stayed = append(stayed, time.Duration(at-c.At))
		}
		return nil
	})
	return stayed, err
}

// start starts a node of the number of pods, times it, and writes a log for each container unless
// the runtime does.
func (f *Figures) start(ctx context.Context, w *World, pods int) (all []string, err error) {
	all = w.batch("one-node", pods)
	put := make(map[string]int64, len(all))
	for _, name := range all {
		put[name] = bench.Now()
		if err := w.put(pod(name)); err != nil {
			return nil, err
		}
	}
	err = w.await(ctx, ready, all...)
	for more := pods / startsWithin; more > 0 && err != nil; more-- {
		err = w.await(ctx, ready, all...)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if at, ok := w.tracker.at(w.tracker.ready, w.uidOf(name)); ok { // else the kubelet had just ended the watch
			f.Start = append(f.Start, time.Duration(at-put[name]))
		}
	}
	if w.Variant.Runtime == "" { // which writes its own
		if n, err := w.node.WriteLogs(); err != nil {
			return nil, err
		} else if n != len(all) {
			return nil, fmt.Errorf("the kubelet has made folders for the logs of %d containers, want %d", n, len(all))
		}
	}
	return all, nil
}

// uidOf returns the UID of the only pod of the name: the name itself for a static pod.
func (w *World) uidOf(name string) string {
	for uid, of := range w.uids {
		if of == name {
			return uid
		}
	}
	return name
}

// sample is the counters at a moment.
type sample struct {
	at                  time.Time
	kubelet, runtime    float64
	relists, podRelists float64
	calls               map[string]uint64
	memory              map[string]uint64
	load                float64
}

// memory are the counters of answers from memory, and their names.
var memory = regexp.MustCompile(`^evented_pleg_(lists|versions)_(served|forwarded)_total(?:{(?:caller|reason)="(\w+)"})?$`)

func (w *World) sample(ctx context.Context) (s sample, err error) {
	m, err := w.Kubelet.Metrics(ctx)
	if err != nil {
		return s, err
	}
	s.memory = make(map[string]uint64)
	for name, n := range m {
		if part := memory.FindStringSubmatch(name); part != nil {
			s.memory[strings.TrimSuffix(part[1]+" "+part[2]+", "+part[3], ", ")] = uint64(n)
		}
	}
	if s.load, err = load(); err != nil {
		return s, err
	}
	s.relists, s.podRelists = m["kubelet_pleg_relist_duration_seconds_count"], m["kubelet_pleg_pod_relist_duration_seconds_count"]
	if s.runtime, s.calls, err = w.runtime.usage(ctx); err != nil {
		return s, err
	}
	s.kubelet, err = w.Kubelet.CPUSeconds()
	s.at = time.Now()
	return s, err
}

func (f *Figures) idle(ctx context.Context, w *World, d time.Duration) error {
	before, err := w.sample(ctx)
	if err != nil {
		return err
	}
	if err := bench.Sleep(ctx, d); err != nil {
		return err
	}
	after, err := w.sample(ctx)
	if err != nil {
		return err
	}
	f.Idle = after.at.Sub(before.at)
	seconds := f.Idle.Seconds()
	f.KubeletCPU, f.RuntimeCPU = (after.kubelet-before.kubelet)/seconds, (after.runtime-before.runtime)/seconds
	f.Relists, f.PodReads = (after.relists-before.relists)/seconds, (after.podRelists-before.podRelists)/seconds
	f.Calls, f.Memory = rates(before.calls, after.calls, seconds), rates(before.memory, after.memory, seconds)
	f.Load = [2]float64{before.load, after.load}
	return nil
}

// load returns the machine's load average of the last minute.
func load() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	average, err := fs.LoadAvg()
	if err != nil {
		return 0, err
	}
	return average.Load1, nil
}

// exits times the way of a container's end to the kubelet's status.
func (f *Figures) exits(ctx context.Context, w *World, n int) error {
	all := w.batch("one-exit", n)
	for i, name := range all {
		if err := w.put(pod(name, once, runs("sleep", fmt.Sprintf("%.2fs", 5+0.33*float64(i))))); err != nil {
			return err
		}
	}
	if err := w.running(ctx, all); err != nil {
		return err
	}
	before, err := w.sample(ctx)
	if err != nil {
		return err
	}
	if err := w.await(ctx, phase(corev1.PodSucceeded), all...); err != nil {
		return err
	}
	after, err := w.sample(ctx)
	if err != nil {
		return err
	}
	f.ExitCalls = rates(before.calls, after.calls, float64(n))
	maps.Copy(f.ExitCalls, rates(before.memory, after.memory, float64(n)))
	if err := w.look(ctx); err != nil {
		return err
	}
	for id, c := range w.book.exits {
		if !slices.Contains(all, c.Pod) {
			continue
		}
		if at, ok := w.tracker.shown(id, c.At); ok {
			f.Exit = append(f.Exit, time.Duration(at-c.At))
		}
	}
	if len(f.Exit) != n {
		return fmt.Errorf("%d exits timed, want %d", len(f.Exit), n)
	}
	if err := w.remove(ctx, all...); err != nil {
		return err
	}
	_, err = removed(ctx, w, all) // a kubelet removes one container at a time: the next pods would wait
	return err
}

// rates returns the growth of counters, divided by a number.
func rates(before, after map[string]uint64, by float64) map[string]float64 {
	grown := make(map[string]float64)
	for name, n := range after {
		if d := n - before[name]; d > 0 {
			grown[name] = float64(d) / by
		}
	}
	return grown
}

// CallNames returns the methods in any of the figures, sorted, by the field of.
func CallNames(all []*Figures, of func(*Figures) map[string]float64) []string {
	set := make(map[string]bool)
	for _, f := range all {
		for name := range of(f) {
			set[name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
