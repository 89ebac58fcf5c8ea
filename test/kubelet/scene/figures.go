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
	// runtime. Unknown are the same of pods that were removed while no kubelet was there.
	Removal, Unknown []time.Duration
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
	f, p := &Figures{Variant: w.Variant.Name}, &Play{World: w, ctx: ctx}
	part := func(name string, play func()) {
		if p.err == nil {
			if play(); p.err != nil {
				p.err = fmt.Errorf("%s: %w", name, p.err)
			}
		}
	}
	var all []string
	part("start", func() { all = f.start(p, c.Pods) })
	p.sleep(c.Settle)
	part("idle", func() { f.idle(p, c.Idle) })
	if c.Profile != "" {
		part("profile", func() {
			p.step(func() error {
				profile, err := w.Kubelet.CPUProfile(ctx, c.Idle)
				if err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(c.Profile, w.Variant.Name+".pprof"), profile, 0o644)
			})
		})
	}
	part("exits", func() { f.exits(p, 40) })
	part("removals", func() { f.removals(p, all[:min(len(all), 40)]) })
	p.step(func() error {
		m, err := w.Kubelet.Metrics(ctx)
		f.Goroutines, f.MissedEvent = int(m["go_goroutines"]), int(m["kube_pod_missed_events"])
		return err
	})
	part("unknown pods", func() { f.unknown(p) })
	p.step(func() error { return w.Check(ctx) })
	if p.err != nil {
		return nil, p.err
	}
	return f, nil
}

// housekeeping is a kubelet's housekeepingPeriod.
const housekeeping = 2 * time.Second

// removals times the removal of pods, a quarter of them at a time. A kubelet takes a removed static
// pod for deleted at its next housekeeping, and its sync loop then cleans up the pods' folders: the
// quarters come at four times of that period.
func (f *Figures) removals(p *Play, pods []string) {
	first, quarter := time.Now(), 0
	for part := range slices.Chunk(pods, max(1, len(pods)/4)) {
		late := (time.Since(first) - time.Duration(quarter)*housekeeping/4) % housekeeping
		p.sleep(housekeeping - late)
		quarter++
		began := bench.Now()
		p.remove(part...)
		p.eventually(patience, func() error {
			for _, name := range part {
				if _, ok := p.tracker.at(p.tracker.deleted, p.uidOf(name)); !ok {
					return fmt.Errorf("%s is not finished", name)
				}
			}
			return nil
		})
		for _, name := range part {
			at, _ := p.tracker.at(p.tracker.deleted, p.uidOf(name))
			f.Deletion = append(f.Deletion, time.Duration(at-began))
		}
		f.Removal = append(f.Removal, p.cleaned(part)...)
	}
}

// unknown times the removal of static pods that the kubelet does not know after its restart. An API
// server would keep their objects.
func (f *Figures) unknown(p *Play) {
	if p.api != nil {
		return
	}
	all := p.batch("one-unknown", 10)
	p.putAll(all)
	p.await(ready, all...)
	p.step(func() error { return p.killKubelet(p.ctx) })
	for _, name := range all {
		p.step(func() error { return p.node.Remove(name) })
	}
	p.step(func() error { return p.StartKubelet(p.ctx) })
	p.remove(all...)
	f.Unknown = p.cleaned(all)
}

// cleaned waits until the runtime has removed the ended containers of removed pods, and times how
// long they stayed. The collector of dead containers comes once a minute.
func (p *Play) cleaned(pods []string) (stayed []time.Duration) {
	p.eventually(2*patience, func() error {
		if err := p.look(p.ctx); err != nil {
			return err
		}
		stayed = stayed[:0]
		for id, c := range p.book.exits {
			if !slices.Contains(pods, c.Pod) {
				continue
			}
			at, ok := p.book.gone[id]
			if !ok {
				return fmt.Errorf("a container of %s is not removed", c.Pod)
			}
			stayed = append(stayed, time.Duration(at-c.At))
		}
		return nil
	})
	return stayed
}

// start starts a node of the number of pods, times it, and writes a log for each container unless
// the runtime does.
func (f *Figures) start(p *Play, pods int) (all []string) {
	all = p.batch("one-node", pods)
	put := make(map[string]int64, len(all))
	for _, name := range all {
		put[name] = bench.Now()
		p.put(name)
	}
	p.eventually(patience*time.Duration(1+pods/startsWithin), func() error {
		return p.are(p.ctx, ready, all...)
	})
	for _, name := range all {
		if at, ok := p.tracker.at(p.tracker.ready, p.uidOf(name)); ok { // else the kubelet had just ended the watch
			f.Start = append(f.Start, time.Duration(at-put[name]))
		}
	}
	if p.Variant.Runtime == "" { // which writes its own
		p.step(func() error {
			n, err := p.node.WriteLogs()
			if err == nil && n != len(all) {
				err = fmt.Errorf("the kubelet has made folders for the logs of %d containers, want %d", n, len(all))
			}
			return err
		})
	}
	return all
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

func (p *Play) sample() (s sample) {
	s.memory = make(map[string]uint64)
	p.step(func() (err error) {
		m, err := p.Kubelet.Metrics(p.ctx)
		for name, n := range m {
			if part := memory.FindStringSubmatch(name); part != nil {
				s.memory[strings.TrimSuffix(part[1]+" "+part[2]+", "+part[3], ", ")] = uint64(n)
			}
		}
		s.relists, s.podRelists = m["kubelet_pleg_relist_duration_seconds_count"], m["kubelet_pleg_pod_relist_duration_seconds_count"]
		return err
	})
	p.step(func() error {
		fs, err := procfs.NewDefaultFS()
		if err != nil {
			return err
		}
		average, err := fs.LoadAvg()
		if err == nil {
			s.load = average.Load1
		}
		return err
	})
	p.step(func() (err error) { s.runtime, s.calls, err = p.runtime.usage(p.ctx); return err })
	p.step(func() (err error) { s.kubelet, err = p.Kubelet.CPUSeconds(); return err })
	s.at = time.Now()
	return s
}

func (f *Figures) idle(p *Play, d time.Duration) {
	before := p.sample()
	p.sleep(d)
	after := p.sample()
	f.Idle = after.at.Sub(before.at)
	seconds := f.Idle.Seconds()
	f.KubeletCPU, f.RuntimeCPU = (after.kubelet-before.kubelet)/seconds, (after.runtime-before.runtime)/seconds
	f.Relists, f.PodReads = (after.relists-before.relists)/seconds, (after.podRelists-before.podRelists)/seconds
	f.Calls, f.Memory = rates(before.calls, after.calls, seconds), rates(before.memory, after.memory, seconds)
	f.Load = [2]float64{before.load, after.load}
}

// exits times the way of a container's end to the kubelet's status.
func (f *Figures) exits(p *Play, n int) {
	all := p.batch("one-exit", n)
	for i, name := range all {
		p.put(name, once, runs("sleep", fmt.Sprintf("%.2fs", 5+0.33*float64(i))))
	}
	p.running(all)
	before := p.sample()
	p.await(phase(corev1.PodSucceeded), all...)
	after := p.sample()
	f.ExitCalls = rates(before.calls, after.calls, float64(n))
	maps.Copy(f.ExitCalls, rates(before.memory, after.memory, float64(n)))
	p.step(func() error { return p.look(p.ctx) })
	for id, c := range p.book.exits {
		if at, ok := p.tracker.shown(id, c.At); ok && slices.Contains(all, c.Pod) {
			f.Exit = append(f.Exit, time.Duration(at-c.At))
		}
	}
	if len(f.Exit) != n {
		p.fail("%d exits timed, want %d", len(f.Exit), n)
	}
	p.remove(all...)
	p.cleaned(all) // a kubelet removes one container at a time: the next pods would wait
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
