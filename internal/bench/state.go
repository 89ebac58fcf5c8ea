// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"strings"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
)

// Item is a container or sandbox in a cache or a runtime.
type Item struct {
	ID      string
	Sandbox bool
	State   pleg.Phase
	// The rest is set for containers only, and only by deep reads.
	Name     string
	ExitCode int32
	// Reason is the runtime's, for instance Completed or OOMKilled. Compare leaves it out: runtimes
	// may change the reason after the exit without an event.
	Reason                string
	StartedAt, FinishedAt int64
}

// Pod is a pod in a cache or a runtime. Items are in no order.
type Pod struct {
	UID   string
	Items []Item
	// IPs are those of the pod's ready sandbox.
	IPs []string
	// Err is the error beside the status, of a cache only.
	Err string
}

// Compare returns the differences between the cache's pods and the runtime's, a line for each
// difference, sorted, at most limit lines, and the number of pods that differ. A pod without items
// equals no pod.
func Compare(cache, runtime []Pod, limit int) (pods int, lines []string) {
	last := ""
	for _, d := range plegtest.Compare(compared(cache), compared(runtime)) {
		if uid := string(d.Pod); uid != last {
			last = uid
			pods++
		}
		if len(lines) < limit {
			lines = append(lines, printable.Text(d.Error()))
		}
	}
	return pods, lines
}

// detail is what must be equal beside the phase.
type detail struct {
	ExitCode              int32
	StartedAt, FinishedAt int64
	// IPs are the pod's, with a ready sandbox.
	IPs string
}

// compared returns pods in the form of a comparison.
func compared(list []Pod) (pods []plegtest.Pod) {
	for _, p := range list {
		pods = append(pods, p.Judged())
	}
	return pods
}

// Judged returns the pod in the form of [plegtest.Checker].
func (p Pod) Judged() plegtest.Pod {
	judged := plegtest.Pod{UID: cache.UID(p.UID)}
	if p.Err != "" {
		judged.Err = errors.New(p.Err)
	}
	for _, i := range p.Items {
		d := detail{ExitCode: i.ExitCode, StartedAt: i.StartedAt, FinishedAt: i.FinishedAt}
		if i.Sandbox && i.State == pleg.PhaseRunning {
			d.IPs = strings.Join(p.IPs, " ")
		}
		judged.Items = append(judged.Items, plegtest.Item{Item: i.item(), Detail: d})
	}
	return judged
}

// item returns the item as package pleg names it.
func (i Item) item() pleg.Item {
	item := pleg.Item{ID: i.ID, Phase: i.State, Name: i.Name}
	if i.Sandbox {
		item.Kind = pleg.Sandbox
	}
	return item
}

// ItemsOf returns the items of a pod, none for an absent pod.
func ItemsOf(pods []Pod, uid string) []Item {
	for _, p := range pods {
		if p.UID == uid {
			return p.Items
		}
	}
	return nil
}

// Find returns an item of a pod, or the zero Item.
func Find(pods []Pod, uid, id string) Item {
	for _, i := range ItemsOf(pods, uid) {
		if i.ID == id {
			return i
		}
	}
	return Item{}
}
