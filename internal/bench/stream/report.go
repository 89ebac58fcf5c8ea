// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Report is the content of a stream and its flaws.
type Report struct {
	// Opened counts the connections of the stream.
	Opened int `json:"opened"`
	// Endings counts their ends by reason.
	Endings map[string]int `json:"endings"`
	// Received counts the messages.
	Received int `json:"received"`
	// Bytes adds up their sizes.
	Bytes int `json:"bytes"`
	// LargestBytes is the size of the largest.
	LargestBytes int `json:"largest_bytes"`
	// ToldSomething counts the events with something new.
	ToldSomething int `json:"told_something"`
	// Replayed counts the events stamped before the stream was opened. They are expected to repeat and
	// to come late: only their form is judged.
	Replayed int `json:"replayed"`
	// Loss is, for each kind of event, such as "container STARTED", the share of lost events among the
	// changes while the stream was open, as proven by other evidence than their own event.
	Loss map[string]bench.Share `json:"loss"`
	// Never are the optional kinds of events without any event from the runtime: the creation and the
	// removal of sandboxes, and of containers along with them.
	Never []string `json:"never_sent"`
	// MuteSeconds is how long the open stream carried nothing before a read found a change. Items that
	// came and went in this time are in no share.
	MuteSeconds float64 `json:"mute_seconds"`
	// FullBacklogs counts replays of exactly as many events as a runtime's channel holds: older ones
	// may have been dropped.
	FullBacklogs int `json:"full_backlogs"`
	// ClockSeconds is how far the runtime's clock is behind this one, or how late each event is; 0
	// for less than a second.
	ClockSeconds float64 `json:"clock_behind_seconds"`
	// Frozen counts the times in which the watch itself did not run.
	Frozen int `json:"frozen"`
	// FrozenSeconds adds these times up.
	FrozenSeconds float64 `json:"frozen_seconds"`
	// Unjudged counts the events of such times: their delay is not the runtime's.
	Unjudged int `json:"unjudged"`
	// Flaws counts events by flaw.
	Flaws map[Flaw]int `json:"flaws"`
	// Reordered counts events out of order by kind, such as "STOPPED after DELETED".
	Reordered map[string]int `json:"reordered"`
	// Examples has the first of each flaw in words.
	Examples map[Flaw]string `json:"examples"`
	// Delays are the times from stamp to receipt by kind of event, such as "container STARTED",
	// and of all of them ("all").
	Delays map[string]bench.LatencyResult `json:"delay_seconds"`
	// ReplayDelays are those of replays.
	ReplayDelays bench.LatencyResult `json:"replay_delay_seconds"`
	// ExitLag is the time from the exit of a container, by its status, to the stamp of its STOPPED.
	ExitLag bench.LatencyResult `json:"exit_lag_seconds"`
	// LateEvents counts events received a second or more after their stamp.
	LateEvents int `json:"late_events"`
	// LateExits counts exits stamped a second or more after they happened.
	LateExits int `json:"late_exits"`

	delays  map[string]*bench.Histogram
	all     *bench.Histogram // of every kind
	replays *bench.Histogram
	exits   *bench.Histogram
}

func newReport() Report {
	return Report{
		Endings:   make(map[string]int),
		Flaws:     make(map[Flaw]int),
		Reordered: make(map[string]int),
		Examples:  make(map[Flaw]string),
		delays:    make(map[string]*bench.Histogram),
		all:       new(bench.Histogram),
		replays:   new(bench.Histogram),
		exits:     new(bench.Histogram),
	}
}

// Report returns a snapshot owned by the caller. Lost events count once overdue.
func (j *Judge) Report(now time.Time) Report {
	r := j.r
	r.Endings = maps.Clone(r.Endings)
	r.Flaws = maps.Clone(r.Flaws)
	r.Reordered = maps.Clone(r.Reordered)
	r.Examples = maps.Clone(r.Examples)
	r.Loss, r.Never = j.losses(now)
	if j.conn.replayed == backlogRoom {
		r.FullBacklogs++
	}
	r.MuteSeconds += j.conn.mute.Seconds()
	r.ClockSeconds = j.clock.offset().Seconds()
	r.Delays = make(map[string]bench.LatencyResult)
	for kind, t := range r.delays {
		r.Delays[kind] = t.Seconds()
	}
	r.Delays[AllKinds] = r.all.Seconds()
	r.ReplayDelays = r.replays.Seconds()
	r.ExitLag = r.exits.Seconds()
	r.delays = nil
	r.all = nil
	r.replays = nil
	r.exits = nil
	return r
}

// proven is the number of changes of the kinds with one of the suffixes in their name, and of the
// changes without an event; all without a suffix.
func (r Report) proven(suffixes ...string) (s bench.Share) {
	for name, loss := range r.Loss {
		is := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
		if len(suffixes) == 0 || slices.ContainsFunc(suffixes, is) {
			s.Of += loss.Of
			s.Hits += loss.Hits
		}
	}
	return bench.NewShare(s.Hits, s.Of)
}

// lossy are the kinds of which events were lost, the worst first, each with its share.
func (r Report) lossy() (list []string) {
	names := slices.SortedFunc(maps.Keys(r.Loss), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Loss[b].Share, r.Loss[a].Share), strings.Compare(a, b))
	})
	for _, name := range names {
		if s := r.Loss[name]; s.Hits > 0 {
			list = append(list, fmt.Sprintf("%s %s, %d of %d", name, s, s.Hits, s.Of))
		}
	}
	return list
}

// Ends lists the reasons for which the stream ended.
func (r Report) Ends() string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(r.Endings)) {
		parts = append(parts, fmt.Sprintf("%d× %s", r.Endings[reason], reason))
	}
	return strings.Join(parts, "; ")
}

// AllKinds is the key of Report.Delays for the events of every kind together.
const AllKinds = "all"

// late is the delay from which an event or an exit counts as late.
const late = time.Second

// delayed records the delay of an event of a kind.
func (r *Report) delayed(kind string, d time.Duration) {
	if r.delays[kind] == nil { // there are eight kinds at most
		r.delays[kind] = new(bench.Histogram)
	}
	r.delays[kind].Record(d)
	r.all.Record(d)
	if d >= late {
		r.LateEvents++
	}
}

// exited records the delay from an exit to its stamp.
func (r *Report) exited(d time.Duration) {
	r.exits.Record(d)
	if d >= late {
		r.LateExits++
	}
}
