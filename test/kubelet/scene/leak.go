// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

// Level is a kubelet's holdings at a moment.
type Level struct {
	// Goroutines are all but those unrelated to the kubelet's work. Ours are those of the evented
	// PLEG.
	Goroutines, Ours int
	// By is their number by origin.
	By map[standalone.Origin]int
	// RSS and Heap (in use) are in bytes.
	RSS, Heap int64
}

// follows reports whether a goroutine is unrelated to the kubelet's work: cadvisor has a goroutine
// for each cgroup of the machine, of any maker, and the statistics of volumes have a goroutine for
// each pod of a minute ago.
func follows(o standalone.Origin) bool {
	return strings.HasPrefix(o.Begins, "github.com/google/cadvisor/") || strings.Contains(o.Creator, ".(*volumeStatCalculator).")
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
	return fmt.Errorf("%d goroutines, %d of ours, in the kubelet's round %d; it had %d and %d in its first two. More of: %s",
		now.Goroutines, now.Ours, l.rounds, l.base.Goroutines, l.base.Ours, grown(l.base.By, now.By))
}

// grown tells of which there are more now, the most first.
func grown(before, now map[standalone.Origin]int) string {
	type growth struct {
		of standalone.Origin
		by int
	}
	var all []growth
	for o, n := range now {
		if d := n - before[o]; d > 0 && !follows(o) {
			all = append(all, growth{o, d})
		}
	}
	slices.SortFunc(all, func(a, b growth) int {
		if a.by != b.by {
			return b.by - a.by
		}
		return strings.Compare(a.of.Begins, b.of.Begins)
	})
	var text []string
	for _, g := range all[:min(len(all), 8)] {
		text = append(text, fmt.Sprintf("%s of %s (+%d)", g.of.Begins, g.of.Creator, g.by))
	}
	return strings.Join(text, ", ")
}

// level returns the kubelet's holdings now.
func (w *World) level(ctx context.Context) (l Level, err error) {
	if l.By, err = w.Kubelet.Goroutines(ctx); err != nil {
		return l, err
	}
	for o, n := range l.By {
		if follows(o) {
			continue
		}
		l.Goroutines += n
		if strings.HasPrefix(o.Begins, ourPath) {
			l.Ours += n
		}
	}
	m, err := w.Kubelet.Metrics(ctx)
	if err != nil {
		return l, err
	}
	l.Heap = int64(m["go_memstats_heap_inuse_bytes"])
	l.RSS, err = w.Kubelet.RSS()
	return l, err
}

// rest returns the lowest of several levels, because ends take a moment: more of them while they
// are too high.
func (w *World) rest(ctx context.Context) (Level, error) {
	var lowest Level
	for i := range 30 {
		l, err := w.level(ctx)
		if err != nil {
			return lowest, err
		}
		if i == 0 || l.Goroutines < lowest.Goroutines {
			lowest = l
		}
		probe := w.leak
		if i >= 4 && probe.after(lowest) == nil {
			break
		}
		if err := bench.Sleep(ctx, time.Second); err != nil {
			return lowest, err
		}
	}
	return lowest, nil
}
