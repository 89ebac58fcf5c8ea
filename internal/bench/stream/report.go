// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Report is the content of a stream and its flaws.
type Report struct {
	// Opened counts the connections of the stream, Endings their ends by reason.
	Opened  int            `json:"opened"`
	Endings map[string]int `json:"endings"`
	// Received counts the messages, Bytes adds up their sizes.
	Received     int `json:"received"`
	Bytes        int `json:"bytes"`
	LargestBytes int `json:"largest_bytes"`
	// ToldSomething counts the events with something new.
	ToldSomething int `json:"told_something"`
	// Replayed counts the events stamped before the stream was opened. They are expected to repeat and
	// to come late: only their form is judged.
	Replayed int `json:"replayed"`
	// Skipped counts events that never came, by type, although later events, or the stamps in their
	// payloads, show their changes while the stream was open.
	Skipped map[string]int `json:"skipped"`
	// Flaws counts events by flaw; Reordered counts those out of order by kind, such as "STOPPED
	// after DELETED"; Examples has the first of each sort.
	Flaws     map[Flaw]int    `json:"flaws"`
	Reordered map[string]int  `json:"reordered"`
	Examples  map[Flaw]string `json:"examples"`
	// Delays are the times from stamp to receipt by kind of event, such as "container STARTED";
	// ReplayDelays those of replays.
	Delays       map[string]bench.LatencyResult `json:"delay_seconds"`
	ReplayDelays bench.LatencyResult            `json:"replay_delay_seconds"`
	// ExitLag is the time from the exit of a container, by its status, to the stamp of its STOPPED.
	ExitLag bench.LatencyResult `json:"exit_lag_seconds"`
	// LateEvents counts events received a second or more after their stamp, LateExits exits stamped a
	// second or more after they happened.
	LateEvents int `json:"late_events"`
	LateExits  int `json:"late_exits"`

	delays  map[string]*bench.Histogram
	all     *bench.Histogram // of every kind
	replays *bench.Histogram
	exits   *bench.Histogram
}

func newReport() Report {
	return Report{
		Endings: make(map[string]int), Flaws: make(map[Flaw]int), Reordered: make(map[string]int), Skipped: make(map[string]int), Examples: make(map[Flaw]string),
		delays: make(map[string]*bench.Histogram), all: new(bench.Histogram), replays: new(bench.Histogram),
		exits: new(bench.Histogram),
	}
}

// Report returns a snapshot owned by the caller. Lacking events count once overdue.
func (j *Judge) Report(now time.Time) Report {
	r := j.r
	r.Endings, r.Flaws, r.Reordered, r.Examples = maps.Clone(r.Endings), maps.Clone(r.Flaws), maps.Clone(r.Reordered), maps.Clone(r.Examples)
	r.Skipped = maps.Clone(r.Skipped)
	for _, l := range j.lives {
		l.lacking(now, r.Skipped)
	}
	r.Delays = make(map[string]bench.LatencyResult)
	for kind, t := range r.delays {
		r.Delays[kind] = t.Seconds()
	}
	r.Delays[AllKinds] = r.all.Seconds()
	r.ReplayDelays = r.replays.Seconds()
	r.ExitLag = r.exits.Seconds()
	r.delays, r.all, r.replays, r.exits = nil, nil, nil, nil
	return r
}

// lacking is the number of events that never came.
func (r Report) lacking() (n int) {
	for _, k := range r.Skipped {
		n += k
	}
	return n
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
