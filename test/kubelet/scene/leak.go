// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Level is a kubelet's holdings at a moment.
type Level struct {
	// Goroutines are all but those unrelated to the kubelet's work. Ours are those with a function of
	// the evented PLEG.
	Goroutines, Ours int
	// By is their number by creator.
	By map[string]int
	// RSS and Heap (in use) are in MiB.
	RSS, Heap float64
}

// ourPath is the adapter's place in a tree, with our packages below.
const ourPath = "k8s.io/kubernetes/pkg/kubelet/pleg/evented"

// leakSlack is the number of goroutines by which a kubelet may exceed its first rounds after a
// later round. At rest a kubelet still has changing housekeeping: a garbage collection that removes
// containers, a connection to the runtime or to a watcher of its pods, a volume's or an event's
// worker. In a hundred rounds here it made no difference; a leak of a goroutine a round, or a pod,
// passes 6 within an hour.
const leakSlack = 6

// ourSlack is the same for our own goroutines, which are constant at rest except for a stream being
// opened.
const ourSlack = 2

// count counts the goroutines of some stacks. Unrelated to the kubelet's work are those of
// cadvisor, one for each cgroup of the machine, of any maker, and of the statistics of volumes, one
// for each pod of a minute ago.
func (l *Level) count(stacks []string) {
	l.By = make(map[string]int)
	for _, stack := range stacks {
		if strings.Contains(stack, "github.com/google/cadvisor/") || strings.Contains(stack, ".(*volumeStatCalculator).") {
			continue
		}
		l.Goroutines++
		if strings.Contains(stack, ourPath) {
			l.Ours++
		}
		_, creator, _ := strings.Cut(stack, "\ncreated by ")
		creator, _, _ = strings.Cut(creator, " in goroutine ")
		l.By[creator]++
	}
}

// leak remembers the level after a kubelet's first rounds.
type leak struct {
	rounds int
	base   Level // the higher of the first two, since a kubelet starts some of its parts at their first use
}

// after takes the level after a round and reports its growth.
func (l *leak) after(now Level) error {
	if l.rounds++; l.rounds <= 2 {
		if now.Goroutines > l.base.Goroutines {
			l.base.Goroutines, l.base.By = now.Goroutines, now.By
		}
		l.base.Ours = max(l.base.Ours, now.Ours)
		return nil
	}
	if now.Goroutines <= l.base.Goroutines+leakSlack && now.Ours <= l.base.Ours+ourSlack {
		return nil
	}
	grown := slices.SortedFunc(maps.Keys(now.By), func(a, b string) int {
		return cmp.Compare(now.By[b]-l.base.By[b], now.By[a]-l.base.By[a])
	})
	var more []string
	for _, creator := range grown[:min(len(grown), 8)] {
		more = append(more, fmt.Sprintf("%s (%+d)", creator, now.By[creator]-l.base.By[creator]))
	}
	return fmt.Errorf("%d goroutines, %d of ours, in the kubelet's round %d; it had %d and %d in its first two. Growth by creator: %s",
		now.Goroutines, now.Ours, l.rounds, l.base.Goroutines, l.base.Ours, strings.Join(more, ", "))
}

// level returns the kubelet's holdings now.
func (w *World) level() (l Level) {
	l.count(must(w.Kubelet.Stacks(w.ctx)))
	const mib = 1 << 20
	m := w.metrics()
	l.RSS, l.Heap = m["process_resident_memory_bytes"]/mib, m["go_memstats_heap_inuse_bytes"]/mib
	return l
}

// rest returns the lowest of several levels, because ends take a moment: more of them while they
// are too high.
func (w *World) rest() (lowest Level) {
	for i := range 30 {
		if l := w.level(); i == 0 || l.Goroutines < lowest.Goroutines {
			lowest = l
		}
		probe := w.leak
		if i >= 4 && probe.after(lowest) == nil {
			break
		}
		w.sleep(time.Second)
	}
	return lowest
}
