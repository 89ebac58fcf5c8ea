// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// stays is how long the manifest of a churning pod stays after the pod's end is due.
const stays = 12 * time.Second

// cleared is how long after the last manifest has gone all that its pod left in the runtime has
// gone as well: a kubelet collects dead containers and sandboxes once a minute. Stock leaves most
// containers to that, so in a shorter time the kubelets would not have done the same work.
const cleared = 75 * time.Second

// visit is the putting of a manifest, or its removal.
type visit struct {
	at  time.Duration // from the beginning
	pod string
	put bool
}

// visits returns the visits of a churn in their order.
func visits(pods []string, c Course) []visit {
	var all []visit
	for i, name := range pods {
		at := time.Duration(float64(i) / c.Churn * float64(time.Second))
		all = append(all,
			visit{at: at, pod: name, put: true},
			visit{at: at + c.Life + stays, pod: name})
	}
	slices.SortFunc(all, func(a, b visit) int { return cmp.Compare(a.at, b.at) })
	return all
}

// churn has pods come and go at a rate, and adds rows of what each costs.
func (f figures) churn(c Course) {
	pods := f.batch("one-churn", int(c.Churn*c.ChurnFor.Seconds()))
	counters := f.World.metrics()
	before := f.sample()
	profiled := f.profile(c.Profile, f.Variant.Name+"-churn", c.ChurnFor)
	start := time.Now()
	put := make(map[string]int64, len(pods))
	late := time.Duration(0)
	for _, v := range visits(pods, c) {
		wait := time.Until(start.Add(v.at))
		late = max(late, -wait)
		f.sleep(max(0, wait))
		if v.put {
			put[v.pod] = bench.Now()
			f.put(v.pod, once, runs("sleep", c.Life.String()))
			continue
		}
		delete(f.there, v.pod)
		do(f.node.Remove(v.pod))
	}
	f.sleep(cleared)
	after := f.sample()
	f.look()
	do(profiled())

	row := fmt.Sprintf("churn %g/s: ", c.Churn)
	each := 1 / float64(len(pods))
	f.add(row+"pods", "%d", len(pods))
	f.cpu(row, "ms a pod", before, after, 1e3*each)
	f.churnTimes(row, pods, put)
	f.growth(row, " a pod", before.calls, after.calls, each)
	f.growth(row, " a pod", before.memory, after.memory, each)
	reads := f.World.metrics()[readsName] - counters[readsName]
	f.add(row+"reads by the generator a pod", "%.2f", reads*each)
	f.add(row+"load of the machine, from / to", "%.1f / %.1f", before.load, after.load)
	f.add(row+"harness late by at most, ms", "%d", late.Milliseconds())
}

// readsName is the metric of reads of single pods: the generator's, or a stock kubelet's on demand.
const readsName = "kubelet_pleg_pod_relist_duration_seconds_count"

// churnTimes adds rows of the times of churning pods.
func (f figures) churnTimes(row string, pods []string, put map[string]int64) {
	var readies, exits []time.Duration
	for _, name := range pods {
		if at, ok := f.tracker.at(f.tracker.ready, f.uidOf(name)); ok {
			readies = append(readies, time.Duration(at-put[name]))
		}
	}
	for id, e := range f.book.exits {
		at, ok := f.tracker.shown(id, e.At)
		if ok && strings.HasPrefix(e.Pod, "one-churn") {
			exits = append(exits, time.Duration(at-e.At))
		}
	}
	f.times(row+"manifest to ready", readies)
	f.times(row+"exit to status", exits)
}
