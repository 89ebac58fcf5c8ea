// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Summary is the result of all scenarios played in a world.
type Summary struct {
	// Rounds and Scenarios were played; Failed are scenarios with any fault, WrongStatuses and
	// DoubleStarts those of them with this fault. Leaks are rounds after which the kubelet had too
	// many goroutines.
	Rounds, Scenarios                          int
	Failed, WrongStatuses, DoubleStarts, Leaks int
	// RuntimeKills and KubeletKills are how often each was killed and started again.
	RuntimeKills, KubeletKills int
	// Starts, Exits and Removals are of containers, as the runtime knows them.
	Starts, Exits, Removals int
	// Forgotten are ended containers that run on for the runtime, until stopped.
	Forgotten int
	// Events are the container events received by the generator, Missed the changes found by reads
	// alone, and MissedUndisturbed those of them in undisturbed scenarios. Zero in stock kubelets.
	Events, Missed, MissedUndisturbed int
	// Reads are the reads of single pods in undisturbed scenarios, and Lives the containers started in
	// these.
	Reads, Lives int
	// Undisturbed are the times from a container's end to its first status, in undisturbed
	// scenarios, of lasting pods. Disturbed are those of the scenarios without the runtime, the
	// kubelet or the event stream for a while.
	Undisturbed, Disturbed []time.Duration
	// First, Last and Peak are the kubelet's levels after rounds, with no pods on the node.
	First, Last, Peak Level
}

// Err says whether anything was wrong.
func (s *Summary) Err() error {
	if s.Failed+s.WrongStatuses+s.DoubleStarts+s.Leaks == 0 {
		return nil
	}
	return fmt.Errorf(
		"%d scenarios failed, %d with wrong statuses, %d with double starts; %d rounds leaked goroutines",
		s.Failed,
		s.WrongStatuses,
		s.DoubleStarts,
		s.Leaks,
	)
}

// counters are the kubelet's counters, zero in stock kubelets.
type counters struct{ events, missed, unheard, reads int }

// missed returns the starts and ends of which a kubelet has missed the event.
func missed(m map[string]float64) int {
	of := func(change string) float64 {
		return m[`kubelet_evented_pleg_missed_events_total{change="`+change+`"}`]
	}
	return int(of("started") + of("exited"))
}

// counters returns the counters of this kubelet and its predecessors.
func (w *World) counters() counters {
	m := w.metrics()
	return counters{
		events:  w.lives.events + int(m["kubelet_evented_pleg_notifications_received_total"]),
		missed:  w.lives.missed + missed(m),
		unheard: w.lives.unheard + int(m["kubelet_evented_pleg_unheard_changes_total"]),
		reads:   w.lives.reads + int(m[readsName]),
	}
}

// Play plays a scenario, checks its result, and sums it up. It returns the longest time from a
// container's end to its status. An error that matches errors.ErrUnsupported means that the runtime
// cannot do it.
func (w *World) Play(s Scenario) (worst time.Duration, err error) {
	var before counters
	err = attempt(func() {
		before = w.counters()
		s.play(w)
		w.check()
	})
	if errors.Is(err, errors.ErrUnsupported) || w.ctx.Err() != nil {
		return 0, err
	}
	if err != nil {
		err = errors.Join(err, attempt(w.tidy))
	}
	var after counters
	err = errors.Join(err, attempt(func() { after = w.counters() }))
	sum := &w.Summary
	sum.Scenarios++
	if err != nil {
		sum.Failed++
	}
	if errors.Is(err, errWrongStatus) {
		sum.WrongStatuses++
	}
	if errors.Is(err, errTwice) {
		sum.DoubleStarts++
	}
	sum.Events = after.events
	sum.Missed = after.missed
	if !s.Disturbs {
		sum.MissedUndisturbed += after.missed - before.missed
		sum.Reads += after.reads - before.reads
		sum.Lives += w.book.total.starts - sum.Starts
	}
	sum.Starts = w.book.total.starts
	sum.Exits = w.book.total.exits
	sum.Removals = w.book.total.removals
	return w.time(s.Disturbs), err
}

// time sums up the time until statuses showed the exits since the last call.
func (w *World) time(disturbed bool) (worst time.Duration) {
	times := &w.Summary.Undisturbed
	if disturbed {
		times = &w.Summary.Disturbed
	}
	for id, c := range w.book.exits {
		at, ok := w.tracker.shown(id, c.At)
		if removed := w.removed[c.Pod]; !ok ||
			removed != 0 &&
				removed < c.At { // of a stopped pod the kubelet reports at the end of all its containers
			continue
		}
		took := time.Duration(at - c.At)
		worst = max(worst, took)
		*times = append(*times, took)
	}
	clear(w.book.exits)
	clear(w.book.gone)
	clear(w.removed)
	return worst
}

// tidy restores the world for the next scenario, after a failed scenario.
func (w *World) tidy() {
	w.disturb(undisturbed)
	if !w.Kubelet.Alive() {
		w.startKubelet()
	}
	w.remove(
		slices.DeleteFunc(
			slices.Collect(maps.Keys(w.there)),
			func(name string) bool { return slices.Contains(w.full, name) },
		)...)
}

// EndRound takes the kubelet's level without pods, and reports growth from round to round.
func (w *World) EndRound() (level Level, err error) {
	w.Summary.Rounds++
	if err := attempt(func() { level = w.rest() }); err != nil {
		return level, err
	}
	sum := &w.Summary
	if sum.Rounds == 1 {
		sum.First = level
	}
	sum.Last = level
	sum.Peak.Goroutines = max(sum.Peak.Goroutines, level.Goroutines)
	sum.Peak.RSS = max(sum.Peak.RSS, level.RSS)
	sum.Peak.Heap = max(sum.Peak.Heap, level.Heap)
	if err = w.leak.after(level); err != nil {
		sum.Leaks++
	}
	return level, err
}

// Report returns the summary as a column of a table.
func (w *World) Report() *Column {
	s := &w.Summary
	c := NewColumn(w.Variant.Name)
	for _, row := range []struct {
		name string
		n    int
	}{
		{"rounds", s.Rounds}, {"scenarios", s.Scenarios}, {"failed", s.Failed}, {"of these, wrong statuses", s.WrongStatuses},
		{"of these, double starts", s.DoubleStarts}, {"container starts", s.Starts}, {"container exits", s.Exits},
		{"container removals", s.Removals}, {"ended, and running for the runtime for ever", s.Forgotten},
		{"runtime kills", s.RuntimeKills}, {"kubelet kills", s.KubeletKills}, {"events received", s.Events},
		{"missed while something was taken away", s.Missed - s.MissedUndisturbed}, {"missed otherwise", s.MissedUndisturbed},
		{"rounds that leaked goroutines", s.Leaks},
	} {
		c.add(row.name, "%d", row.n)
	}
	if s.Lives > 0 {
		c.add(
			"reads of its pod for each container started, otherwise",
			"%.1f",
			float64(s.Reads)/float64(s.Lives),
		)
	}
	c.times("exits to status", s.Undisturbed)
	c.times("the same while something was taken away", s.Disturbed)
	c.add(
		"goroutines after the first / last / worst round",
		"%d / %d / %d",
		s.First.Goroutines,
		s.Last.Goroutines,
		s.Peak.Goroutines,
	)
	c.add("RSS, MiB, likewise", "%.0f / %.0f / %.0f", s.First.RSS, s.Last.RSS, s.Peak.RSS)
	c.add("heap in use, MiB, likewise", "%.0f / %.0f / %.0f", s.First.Heap, s.Last.Heap, s.Peak.Heap)
	return c
}

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
		if strings.Contains(stack, "github.com/google/cadvisor/") ||
			strings.Contains(stack, ".(*volumeStatCalculator).") {
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
	l.rounds++
	if l.rounds <= 2 {
		if now.Goroutines > l.base.Goroutines {
			l.base.Goroutines = now.Goroutines
			l.base.By = now.By
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
	return fmt.Errorf(
		"%d goroutines, %d of ours, in the kubelet's round %d; it had %d and %d in its first two. Growth by creator: %s",
		now.Goroutines,
		now.Ours,
		l.rounds,
		l.base.Goroutines,
		l.base.Ours,
		strings.Join(more, ", "),
	)
}

// level returns the kubelet's holdings now.
func (w *World) level() (l Level) {
	l.count(must(w.Kubelet.Stacks(w.ctx)))
	const mib = 1 << 20
	m := w.metrics()
	l.RSS = m["process_resident_memory_bytes"] / mib
	l.Heap = m["go_memstats_heap_inuse_bytes"] / mib
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
