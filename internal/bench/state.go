// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// State is how far a container or a sandbox has come.
type State string

// States. A ready sandbox is Running, an unready sandbox Exited.
const (
	Created State = "Created"
	Running State = "Running"
	Exited  State = "Exited"
	Removed State = "Removed"
	Unknown State = "Unknown"
)

var ranks = map[State]int{Created: 1, Running: 2, Exited: 3, Removed: 4}

// Rank orders the states of a life; Unknown is 0.
func (s State) Rank() int { return ranks[s] }

// Item is a container or sandbox in a cache or a runtime.
type Item struct {
	ID      string
	Sandbox bool
	State   State
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
	index := func(list []Pod) map[string]Pod {
		m := make(map[string]Pod, len(list))
		for _, p := range list {
			if len(p.Items) > 0 {
				m[p.UID] = p
			}
		}
		return m
	}
	have, want := index(cache), index(runtime)
	uids := slices.Collect(maps.Keys(want))
	for uid := range have {
		if _, ok := want[uid]; !ok {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	for _, uid := range uids {
		diffs := comparePod(have[uid], want[uid])
		if len(diffs) == 0 {
			continue
		}
		pods++
		for _, d := range diffs {
			if len(lines) < limit {
				lines = append(lines, "pod "+uid+": "+d)
			}
		}
	}
	return pods, lines
}

func comparePod(have, want Pod) []string {
	var diffs []string
	byID := make(map[string]Item, len(have.Items))
	for _, i := range have.Items {
		byID[i.ID] = i
	}
	items := slices.Clone(want.Items)
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.ID, b.ID) })
	ready := false
	for _, w := range items {
		h, ok := byID[w.ID]
		same := h
		same.Reason = w.Reason
		delete(byID, w.ID)
		ready = ready || w.Sandbox && w.State == Running
		switch {
		case !ok:
			diffs = append(diffs, fmt.Sprintf("%s is %s in the runtime and missing in the cache", describe(w), w.State))
		case same != w:
			diffs = append(diffs, fmt.Sprintf("%s is %+v in the runtime and %+v in the cache", describe(w), w, h))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		diffs = append(diffs, fmt.Sprintf("%s is gone in the runtime and %s in the cache", describe(byID[id]), byID[id].State))
	}
	if ready && !slices.Equal(have.IPs, want.IPs) {
		diffs = append(diffs, fmt.Sprintf("the IPs are %v in the runtime and %v in the cache", want.IPs, have.IPs))
	}
	if len(diffs) == 0 && have.Err != "" {
		diffs = append(diffs, "the cache has an error: "+have.Err)
	}
	return diffs
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

func describe(i Item) string {
	if i.Sandbox {
		return "sandbox " + i.ID
	}
	return "container " + i.ID
}
