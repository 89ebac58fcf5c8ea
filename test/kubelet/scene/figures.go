// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// startsWithin is how many pods start within the harness's patience on a busy machine.
const startsWithin = 200

// Course is how a comparison goes.
type Course struct {
	// Pods is the number of the node's pods, Containers that of a pod's containers, Volumes that of
	// its volumes. Probes: each container has an exec and an HTTP probe. Settle is the node's time to
	// come to rest, Idle the duration of the watch afterwards.
	Pods, Containers, Volumes int
	Probes                    bool
	Settle, Idle              time.Duration
	// Churn is the number of pods a second that come, run for Life, and are taken away; zero: none.
	// They come for ChurnFor, after the idle time.
	Churn          float64
	ChurnFor, Life time.Duration
	// NoEnds leaves out what follows: exits, removals, pods unknown to a restarted kubelet.
	NoEnds bool
	// Profile is a folder for a CPU profile of each kubelet, VARIANT.pprof, taken for as long again
	// as Idle, afterwards, so that the figures have no profiler in them; and one of the churn,
	// VARIANT-churn.pprof, whose figures do. Empty: none is taken.
	Profile string
}

// figures are the measurements of a kubelet.
type figures struct {
	*World
	*Column
}

// Measure plays the comparison on a kubelet: a node of pods starts, settles, idles, containers end,
// pods are removed.
func Measure(ctx context.Context, v Variant, c Course) (*Column, error) {
	v.logInterval = 10 * time.Second // a kubelet's default
	w, err := NewWorld(ctx, v)
	if err != nil {
		return nil, err
	}
	f := figures{w, NewColumn(v.Name)}
	err = attempt(func() {
		ordinary := []func(*corev1.Pod){containers(c.Containers), volumes(c.Volumes)}
		if c.Probes {
			healthy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer healthy.Close()
			ordinary = append(ordinary, watched(healthy.Listener.Addr().(*net.TCPAddr)))
		}
		all := f.start(c.Pods, ordinary...)
		w.sleep(c.Settle)
		f.idle(c.Idle)
		do(f.profile(c.Profile, v.Name, c.Idle)())
		if c.Churn > 0 {
			f.churn(c)
		}
		if c.NoEnds {
			w.check()
			return
		}
		f.exits(40)
		f.removals(all[:min(len(all), 40)])
		m := w.metrics()
		f.add("goroutines of the kubelet", "%.0f", m["go_goroutines"])
		f.add("missed events", "%d", missed(m))
		if w.api == nil { // an API server would keep the objects of the pods
			f.unknown()
		}
		w.check()
	})
	return f.Column, errors.Join(err, w.Close())
}

// start starts a node of the number of pods, times it, and writes a log for each container unless
// the runtime does.
func (f figures) start(pods int, change ...func(*corev1.Pod)) (all []string) {
	n := len(pod("", change...).Spec.Containers)
	prefix := "one-node"
	if n > 1 {
		prefix = "node"
	}
	all = f.batch(prefix, pods)
	put := make(map[string]int64, len(all))
	for _, name := range all {
		put[name] = bench.Now()
		f.put(name, change...)
	}
	f.eventually(patience*time.Duration(1+pods/startsWithin), func() { f.are(ready, all...) })
	var took []time.Duration
	for _, name := range all {
		if at, ok := f.tracker.at(f.tracker.ready, f.uidOf(name)); ok { // else the kubelet had just ended the watch
			took = append(took, time.Duration(at-put[name]))
		}
	}
	f.times("manifest to ready, all at once", took)
	if f.Variant.Runtime == "" { // which writes its own
		if logs := must(f.node.WriteLogs()); logs != n*pods {
			fail("the kubelet has made folders for the logs of %d containers, want %d", logs, n*pods)
		}
	}
	return all
}

// The rows of CPU time.
const (
	rowKubelet  = "kubelet CPU, "
	rowDaemon   = "runtime CPU, "
	rowMonitors = "shims or monitors CPU, "
	rowBoth     = "kubelet and runtime CPU, "
)

// cpu adds rows of the CPU time spent between two samples, times a factor.
func (f figures) cpu(row, unit string, before, after sample, factor float64) {
	kubelet := (after.kubelet - before.kubelet) * factor
	runtime := (after.runtime.all() - before.runtime.all()) * factor
	f.add(row+rowKubelet+unit, "%.2f", kubelet)
	f.add(row+rowDaemon+unit, "%.2f", (after.runtime.daemon-before.runtime.daemon)*factor)
	if after.runtime.monitors > 0 {
		f.add(row+rowMonitors+unit, "%.2f", (after.runtime.monitors-before.runtime.monitors)*factor)
	}
	f.add(row+rowBoth+unit, "%.2f", kubelet+runtime)
}

// idle measures the node at rest.
func (f figures) idle(d time.Duration) {
	before := f.sample()
	f.sleep(d)
	after := f.sample()
	seconds := after.at.Sub(before.at).Seconds()
	minutes := 1 / seconds * 60
	f.cpu("idle: ", "ms/s", before, after, 1e3/seconds)
	f.growth("idle: ", " / min", before.calls, after.calls, minutes)
	f.growth("idle: ", " / min", before.memory, after.memory, minutes)
	f.add("idle: load of the machine, from / to", "%.1f / %.1f", before.load, after.load)
	f.add("idle, s", "%.0f", seconds)
}

// exits times the way of a container's end to the kubelet's status, and counts the calls meanwhile.
func (f figures) exits(n int) {
	all := f.batch("one-exit", n)
	for i, name := range all {
		f.put(name, once, runs("sleep", fmt.Sprintf("%.2fs", 5+0.33*float64(i))))
	}
	f.running(all)
	before := f.sample()
	f.await(phase(corev1.PodSucceeded), all...)
	after := f.sample()
	f.look()
	var took []time.Duration
	for id, c := range f.book.exits {
		if at, ok := f.tracker.shown(id, c.At); ok && slices.Contains(all, c.Pod) {
			took = append(took, time.Duration(at-c.At))
		}
	}
	if len(took) != n {
		fail("%d exits timed, want %d", len(took), n)
	}
	f.times("container exit to kubelet status", took)
	f.growth("per exit: ", "", before.calls, after.calls, 1/float64(n))
	f.growth("per exit: ", "", before.memory, after.memory, 1/float64(n))
	f.remove(all...)
	f.cleaned(all) // a kubelet removes one container at a time: the next pods would wait
}

// housekeeping is a kubelet's housekeepingPeriod.
const housekeeping = 2 * time.Second

// removals times the removal of pods, a quarter of them at a time. A kubelet takes a removed static
// pod for deleted at its next housekeeping, and its sync loop then cleans up the pods' folders: the
// quarters come at four times of that period.
func (f figures) removals(pods []string) {
	first := time.Now()
	quarter := 0
	var took, stayed []time.Duration
	for part := range slices.Chunk(pods, max(1, len(pods)/4)) {
		late := (time.Since(first) - time.Duration(quarter)*housekeeping/4) % housekeeping
		f.sleep(housekeeping - late)
		quarter++
		began := bench.Now()
		f.remove(part...)
		f.eventually(patience, func() {
			for _, name := range part {
				if _, ok := f.tracker.at(f.tracker.deleted, f.uidOf(name)); !ok {
					fail("%s is not finished", name)
				}
			}
		})
		for _, name := range part {
			at, _ := f.tracker.at(f.tracker.deleted, f.uidOf(name))
			took = append(took, time.Duration(at-began))
		}
		stayed = append(stayed, f.cleaned(part)...)
	}
	f.times("manifest removed to pod gone, at most 10 at once", took)
	f.times("end of a removed pod's container to its removal", stayed)
}

// unknown times the removal of static pods that the kubelet does not know after its restart.
func (f figures) unknown() {
	all := f.batch("one-unknown", 10)
	f.putAll(all)
	f.await(ready, all...)
	f.killKubelet()
	for _, name := range all {
		f.take(name)
	}
	f.startKubelet()
	f.remove(all...)
	f.times("the same of a pod that is unknown after a restart", f.cleaned(all))
}

// cleaned waits until the runtime has removed the ended containers of removed pods, and times how
// long they stayed. The collector of dead containers comes once a minute.
func (w *World) cleaned(pods []string) (stayed []time.Duration) {
	w.eventually(2*patience, func() {
		w.look()
		stayed = stayed[:0]
		for id, c := range w.book.exits {
			if !slices.Contains(pods, c.Pod) {
				continue
			}
			at, ok := w.book.gone[id]
			if !ok {
				fail("a container of %s is not removed", c.Pod)
			}
			stayed = append(stayed, time.Duration(at-c.At))
		}
	})
	return stayed
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
	at      time.Time
	kubelet float64 // CPU time in seconds
	runtime spent
	// calls are the kubelet's by method. memory are its lists: those answered from memory by caller,
	// those sent to the runtime by reason.
	calls, memory map[string]uint64
	load          float64 // of the machine, the average of a minute
}

// memory are the counters of answers from memory, and their names.
var memory = regexp.MustCompile(
	`^kubelet_evented_pleg_lists_(served|forwarded)_total(?:{(?:caller|reason)="(\w+)"})?$`,
)

func (w *World) sample() (s sample) {
	m := w.metrics()
	s.memory = make(map[string]uint64)
	for name, n := range m {
		if part := memory.FindStringSubmatch(name); part != nil {
			s.memory[strings.TrimSuffix("lists "+part[1]+", "+part[2], ", ")] = uint64(n)
		}
	}
	s.kubelet = m["process_cpu_seconds_total"]
	s.load = must(must(procfs.NewDefaultFS()).LoadAvg()).Load1
	var err error
	s.runtime, s.calls, err = w.runtime.usage(w.ctx)
	do(err)
	s.at = time.Now()
	return s
}

// Column is the results of a kubelet: a cell for each row, by the row's name.
type Column struct {
	head  string
	rows  []string // in order
	cells map[string]string
}

// NewColumn returns an empty column.
func NewColumn(head string) *Column { return &Column{head: head, cells: make(map[string]string)} }

func (c *Column) add(row, format string, values ...any) {
	c.rows = append(c.rows, row)
	c.cells[row] = fmt.Sprintf(format, values...)
}

// Number returns the number in a row's cell, or false if there is none.
func (c *Column) Number(row string) (float64, bool) {
	n, err := strconv.ParseFloat(c.cells[row], 64)
	return n, err == nil
}

// Text returns the text in a row's cell.
func (c *Column) Text(row string) string { return c.cells[row] }

// times adds a row of durations.
func (c *Column) times(row string, all []time.Duration) {
	q := bench.Summarize(all)
	c.add(
		row+": number, p50 / p99 / worst ms",
		"%d: %.0f / %.0f / %.0f",
		q.Count,
		q.P50.Seconds()*1e3,
		q.P99.Seconds()*1e3,
		q.Max.Seconds()*1e3,
	)
}

// growth adds a row for each counter that has grown, times a factor.
func (c *Column) growth(row, unit string, before, after map[string]uint64, factor float64) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if grown := after[name] - before[name]; grown > 0 {
			c.add(row+name+unit, "%.1f", float64(grown)*factor)
		}
	}
}

// WriteTable writes columns as a table in Markdown. A row that only later columns have stands
// behind the row before it.
func WriteTable(out io.Writer, columns []*Column) {
	var rows []string
	for _, c := range columns {
		at := 0
		for _, row := range c.rows {
			if i := slices.Index(rows, row); i >= 0 {
				at = i
			} else {
				rows = slices.Insert(rows, at, row)
			}
			at++
		}
	}
	line := func(name string, cell func(*Column) string) {
		fmt.Fprintf(out, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(out, " %s |", cell(c))
		}
		fmt.Fprintln(out)
	}
	line("", func(c *Column) string { return c.head })
	line("---", func(*Column) string { return "---:" })
	for _, row := range rows {
		line(row, func(c *Column) string { return cmp.Or(c.cells[row], "0") })
	}
}

// profile begins a CPU profile of the kubelet, of the given length. The returned function waits for
// the profile, and writes NAME.pprof in the folder. Without a folder none is taken.
func (f figures) profile(folder, name string, d time.Duration) (write func() error) {
	if folder == "" {
		return func() error { return nil }
	}
	type result struct {
		profile []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		profile, err := f.World.Kubelet.CPUProfile(f.ctx, d)
		done <- result{profile, err}
	}()
	return func() error {
		r := <-done
		if r.err != nil {
			return r.err
		}
		return os.WriteFile(filepath.Join(folder, name+".pprof"), r.profile, 0o644)
	}
}
