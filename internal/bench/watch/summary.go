// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Summary is the result of a watch. docs/json.md documents its JSON.
type Summary struct {
	// Schema is pleg-bench/watch/v1, for all lines of the watch.
	Schema string `json:"schema"`
	// Time is the end of the watch.
	Time time.Time `json:"time"`
	// Type is Summary.
	Type string `json:"type"`
	// Runtime is name and version, as the runtime says.
	Runtime string `json:"runtime"`
	// Endpoint is the runtime's socket.
	Endpoint string `json:"endpoint"`
	// Node is $NODE_NAME, else the name of the machine.
	Node string `json:"node"`
	// Printed counts the printed events.
	Printed int `json:"printed"`
	// Unfinished is why the watch could not begin; left out otherwise.
	Unfinished string `json:"unfinished,omitempty"`
	// State is the state of the stream in the end.
	State string `json:"state"`
	stream.Facts
	// Stream is the content of the runtime's stream, null with --mode generic.
	Stream *stream.Report `json:"stream"`
	// ListSeconds is how long lists took.
	ListSeconds bench.LatencyResult `json:"list_seconds"`
	// ReadSeconds is how long reads of a pod took.
	ReadSeconds bench.LatencyResult `json:"read_seconds"`
	// Calls counts calls by CRI method.
	Calls map[string]uint64 `json:"calls"`
	// Reports counts the generator's reports by reason.
	Reports map[pleg.Reason]int `json:"reports"`
	// Verdict is the worth of the stream, null without a stream (--mode generic).
	Verdict *stream.Verdict `json:"verdict"`

	// Series are the events and the generator over time, for pages.
	Series []bench.Series `json:"-"`
}

// sum prints the last lines, and sums up the observations; last is the stream's state at the end.
func (p *printer) sum(watched time.Duration, last pleg.StreamState) (*Summary, error) {
	now := time.Now()
	err := p.harvest(now)
	if p.options.Output != "json" && err == nil {
		_, err = fmt.Fprintln(p.options.Out)
	}
	st := p.generator.Stats()
	client := p.client.Stats()
	t := p.tap
	var ends []time.Time
	if t.reader != nil {
		ends = t.reader.Ends()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &Summary{
		Schema:  Schema,
		Time:    now,
		Type:    "Summary",
		Runtime: printable.Text(p.version.String()),
		Printed: p.printed,
		Series:  t.track.timeline(),
		State:   last.String(),
		Calls:   client.Calls,
		Reports: p.reports,
		Facts: stream.Facts{
			Seconds:          watched.Seconds(),
			ConnectedSeconds: p.connected.Seconds(),
			Missed:           st.MissedStarts + st.MissedExits,
			Unheard:          st.Unheard,
			MissedCreations:  st.MissedCreations,
			MissedRemovals:   st.MissedRemovals,
			MissedUnknowns:   st.MissedUnknowns,
			Overruled:        st.Overruled,
			TakenBack:        st.Regressions,
			Lists:            st.Relists,
			ListErrors:       max(st.RelistErrors-t.ownFailures(listCall, ends), 0),
			ListsHung:        t.hung[listCall],
			Reads: max(
				st.Inspections-t.readErr,
				0,
			),
			ReadErrors: max(t.readErr-t.ownFailures(readCall, ends), 0),
			ReadsHung:  t.hung[readCall],
			Malformed: int(
				client.Malformed,
			),
			ListedTwice:  int(client.Duplicates),
			Unattributed: client.Unattributed,
			UnknownPhase: t.unknown,
			Contested:    t.contested,
			Unsupported:  last == pleg.StreamUnsupported,
			Longest:      longestPeriod,
		},
		ListSeconds: t.took[listCall].Seconds(),
		ReadSeconds: t.took[readCall].Seconds(),
		Endpoint:    printable.Text(p.client.Endpoint()),
		Node:        bench.Node(),
	}
	t.facts(&s.Facts, p.closed, last == pleg.StreamConnected)
	if p.options.Mode != worker.Evented {
		if t.contested {
			s.Verdict = &stream.Verdict{
				Worth:       stream.WorthUnknown,
				Maintainers: []string{},
				Summary: "the events were left to the agent of this node, " +
					"because this runtime gives each event to one client only: --take-events judges them",
			}
		}
		return s, err
	}
	r := t.judge.Report(now)
	v := r.Conclude(s.Facts)
	s.Stream = &r
	s.Verdict = &v
	return s, err
}

// failure is the reason of a vain watch, without a single list of the runtime.
func (s *Summary) failure(t *tap) error {
	if s.Dead != "" {
		return fmt.Errorf("the runtime does not answer any more: %s", s.Dead)
	}
	if s.Lists > 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.listErr != nil:
		return fmt.Errorf("no list of the runtime succeeded: %w", t.listErr)
	case s.ListsHung > 0:
		return errors.New("no list of the runtime succeeded: it does not answer")
	}
	return errors.New("no list of the runtime has succeeded yet: watch for longer")
}

// BlankSummary is a summary with all its optional parts, for bounds on a summary.
func BlankSummary() *Summary {
	return &Summary{Stream: new(stream.Report), Verdict: new(stream.Verdict)}
}

// Schema names the form of the lines of a watch, of which the last, its summary, has it. It changes
// when a field of any changes its meaning or goes.
const Schema = "pleg-bench/watch/v1"

// Unfinished is the summary of a watch that could not begin.
func Unfinished(o Options, why string) *Summary {
	endpoint := o.Endpoint
	client, err := cri.New(cri.Config{Endpoint: endpoint, Dialer: o.Dialer})
	if err == nil { // else it stays as it was given
		endpoint = client.Endpoint()
		_ = client.Close() // it has no connection
	}
	return &Summary{
		Schema:     Schema,
		Time:       time.Now(),
		Type:       "Summary",
		Endpoint:   printable.Text(endpoint),
		Node:       bench.Node(),
		Unfinished: why,
		Calls:      map[string]uint64{},
		Reports:    map[pleg.Reason]int{},
	}
}

// Document implements [bench.Finding].
func (s *Summary) Document() bench.Document {
	d := bench.Document{
		Title: fmt.Sprintf(
			"%s, watched for %s: %s printed",
			s.Runtime,
			bench.Seconds(s.Seconds),
			bench.Count(s.Printed, "event"),
		),
		Lines:  []string{fmt.Sprintf("on %s, %s", s.Node, s.Endpoint)},
		Tables: []bench.Table{s.lines()},
	}
	if r := s.Stream; r != nil {
		if lost := lossTable(r, s.Contested); len(lost.Rows) > 0 {
			d.Tables = append(d.Tables, lost)
		}
		delays := bench.NewDelayTable("delay from stamp to here")
		for _, kind := range slices.Sorted(maps.Keys(r.Delays)) {
			delays.AddDelays(kind, r.Delays[kind])
		}
		delays.AddDelays("replays", r.ReplayDelays)
		delays.AddDelays("exit to its stamp", r.ExitLag)
		if len(delays.Rows) > 0 {
			d.Tables = append(d.Tables, delays)
		}
	}
	if v := s.Verdict; v != nil {
		d.Verdict = fmt.Sprintf("%s: %s.", strings.ToUpper(string(v.Worth)), v.Summary)
		d.Advice = v.Maintainers
		if v.Period != "" {
			d.Notes = []string{"relist period: " + v.Period + "."}
		}
		switch v.Worth {
		case stream.WorthFull:
			d.Tone = bench.Good
		case stream.WorthNone, stream.WorthPartial:
			d.Tone = bench.Bad
		}
	}
	return d
}

// Benchmarks implements [bench.Finding].
func (s *Summary) Benchmarks() []bench.Benchmark {
	figures := []bench.Figure{
		{Value: s.ListSeconds.P50, Unit: "list-p50-sec"}, {Value: s.ListSeconds.P99, Unit: "list-p99-sec"},
		{Value: s.ReadSeconds.P50, Unit: "read-p50-sec"}, {Value: s.ReadSeconds.P99, Unit: "read-p99-sec"},
	}
	if s.Stream != nil {
		d := s.Stream.Delays[stream.AllKinds]
		figures = append(
			figures,
			bench.Figure{Value: d.P50, Unit: "delay-p50-sec"},
			bench.Figure{Value: d.P99, Unit: "delay-p99-sec"},
			bench.Figure{
				Value: float64(s.Stream.Received),
				Unit:  "received",
			},
			bench.Figure{Value: float64(s.Missed + s.Unheard), Unit: "missed"},
		)
	}
	return []bench.Benchmark{{Name: "Watch", Figures: figures}}
}

// Unmeasured implements [bench.Finding].
func (s *Summary) Unmeasured() []string {
	if s.Stream != nil && s.State != pleg.StreamUnsupported.String() {
		return nil
	}
	return OfStream
}

// OfStream are the parts of a summary that need a stream.
var OfStream = []string{
	"missed",
	"unheard",
	"missed_creations",
	"missed_removals",
	"overruled",
	"connected_seconds",
	"stream",
}

// lossTable shows, for each kind of event, what was proven and what of it was lost. On a contested
// stream another client may have got what did not come here.
func lossTable(r *stream.Report, contested bool) bench.Table {
	t := bench.Table{Title: "events lost", Columns: []string{"proven", "lost", "share", "95 % interval"}}
	for _, kind := range slices.Sorted(maps.Keys(r.Loss)) {
		s := r.Loss[kind]
		t.Add(kind, "", fmt.Sprint(s.Of), fmt.Sprint(s.Hits), bench.Percent(s.Share)+" %", s.Interval())
	}
	never := "not sent"
	if contested {
		never = "none came"
	}
	for _, kind := range r.Never {
		t.Add(kind, "", "", "", never, "")
	}
	return t
}

// lives counts starts and exits.
func lives(n int) string { return bench.Count(n, "start or exit", "starts and exits") }

// lines is what was found in words.
func (s *Summary) lines() (t bench.Table) {
	row := func(name, format string, args ...any) { t.Add(name, "", fmt.Sprintf(format, args...)) }
	row(
		"lists",
		"%d of the whole runtime, %d failed, %d hung; %s of a pod, %d failed, %d hung; %s in all",
		s.Lists+s.ListErrors,
		s.ListErrors,
		s.ListsHung,
		bench.Count(s.Reads+s.ReadErrors, "read"),
		s.ReadErrors,
		s.ReadsHung,
		bench.Count(int(bench.Sum(s.Calls)), "call"),
	)
	row(
		"took",
		"lists p50 %s, p99 %s, max %s; reads of a pod p50 %s, p99 %s, max %s",
		bench.Seconds(s.ListSeconds.P50),
		bench.Seconds(s.ListSeconds.P99),
		bench.Seconds(
			s.ListSeconds.Max,
		),
		bench.Seconds(s.ReadSeconds.P50),
		bench.Seconds(s.ReadSeconds.P99),
		bench.Seconds(s.ReadSeconds.Max),
	)
	if s.Malformed+s.ListedTwice+s.Unattributed+s.UnknownPhase+s.TakenBack > 0 {
		row(
			"shown",
			"%s without a usable ID, %d listed twice, %s of no pod, %d in the state UNKNOWN, %d taken back by a later read",
			bench.Count(
				s.Malformed,
				"item",
			),
			s.ListedTwice,
			bench.Count(s.Unattributed, "container"),
			s.UnknownPhase,
			s.TakenBack,
		)
	}
	if r := s.Stream; r != nil {
		row(
			"stream",
			"%s in the end, connected for %s; opened %s%s",
			s.State,
			bench.Seconds(s.ConnectedSeconds),
			bench.Count(r.Opened, "time"),
			withSep("; ended ", r.Ends()),
		)
		row(
			"events",
			"%d received, %d told something new, %d replayed; %s, the largest %s",
			r.Received,
			r.ToldSomething,
			r.Replayed,
			bench.Bytes(uint64(r.Bytes)),
			bench.Bytes(uint64(r.LargestBytes)),
		)
		row(
			"by lists",
			"%s without an event, %d while the stream was away; %s, %s and %s of UNKNOWN without an event; %s not confirmed",
			lives(
				s.Missed,
			),
			s.Unheard,
			bench.Count(s.MissedCreations, "creation"),
			bench.Count(s.MissedRemovals, "removal"),
			bench.Count(s.MissedUnknowns, "change"),
			bench.Count(s.Overruled, "event"),
		)
		row(
			"form",
			"%s%s",
			cmp.Or(bench.Counts(r.Flaws), "no event has a flaw"),
			withSep("; reordered: ", bench.Counts(r.Reordered)),
		)
		if r.Frozen > 0 {
			row(
				"frozen",
				"this watch did not run %s, %s in all: %s not judged by their delay",
				bench.Count(r.Frozen, "time"),
				bench.Seconds(r.FrozenSeconds),
				bench.Count(r.Unjudged, "event is", "events are"),
			)
		}
	}
	if len(s.Reports) > 0 {
		row("reports", "%s", bench.Counts(s.Reports))
	}
	return t
}
