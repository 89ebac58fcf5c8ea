// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Summary is what a watch found. Its JSON is documented in docs/pleg-bench.md.
type Summary struct {
	Time time.Time `json:"time"`
	// Type is Summary.
	Type    string  `json:"type"`
	Runtime string  `json:"runtime"`
	Seconds float64 `json:"seconds"`
	// ConnectedSeconds is how long the stream was connected.
	ConnectedSeconds float64 `json:"connected_seconds"`
	Printed          int     `json:"printed"`
	// State is that of the stream in the end.
	State string `json:"state"`
	// Stream is what the runtime's stream told, nil with --mode generic.
	Stream *stream.Report `json:"stream"`
	// Missed counts starts and exits that reads found and no event told of; MissedCreations and
	// MissedRemovals likewise.
	Missed int `json:"missed"`
	// Unheard counts starts and exits that reads found while the stream was down.
	Unheard         int `json:"unheard"`
	MissedCreations int `json:"missed_creations"`
	MissedRemovals  int `json:"missed_removals"`
	// Overruled counts what events told and reads did not confirm.
	Overruled int `json:"overruled"`
	// Lists and Reads count successful lists of the whole runtime and reads of one pod; those failed or
	// hung for 3 s are apart.
	Lists      int `json:"lists"`
	ListErrors int `json:"list_errors"`
	ListsHung  int `json:"lists_hung"`
	Reads      int `json:"reads"`
	ReadErrors int `json:"read_errors"`
	ReadsHung  int `json:"reads_hung"`
	// ListSeconds and ReadSeconds are how long they took.
	ListSeconds bench.LatencyResult `json:"list_seconds"`
	ReadSeconds bench.LatencyResult `json:"read_seconds"`
	Calls       map[string]uint64   `json:"calls"`
	// Malformed counts listed items without a usable ID, ListedTwice those that a list showed twice,
	// Unattributed the containers of the last list that belong to no pod, UnknownPhase the items of all
	// reads in the state UNKNOWN, TakenBack what one read showed and a later one took back.
	Malformed    uint64 `json:"malformed"`
	ListedTwice  uint64 `json:"listed_twice"`
	Unattributed int    `json:"unattributed"`
	UnknownPhase int    `json:"unknown_state"`
	TakenBack    int    `json:"taken_back"`
	// Reports counts the generator's reports by reason.
	Reports map[pleg.Reason]int `json:"reports"`
	// Verdict is what the stream is worth, nil if the user asked for no stream (--mode generic).
	Verdict *stream.Verdict `json:"verdict"`
}

// sum sums up what was seen.
func (p *printer) sum(watched time.Duration, runtime string, client cri.Stats) Summary {
	now := time.Now()
	_ = p.harvest(now) // what came last; a failure to write comes back with the summary
	st := p.generator.Stats()
	t := p.tap
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Summary{
		Time: now, Type: "Summary", Runtime: runtime, Seconds: watched.Seconds(), ConnectedSeconds: p.connected.Seconds(), Printed: p.printed,
		State: st.State.String(), Missed: st.Missed, Unheard: st.Unheard, MissedCreations: st.MissedCreations, MissedRemovals: st.MissedRemovals, Overruled: st.Overruled,
		Lists: st.Relists, ListErrors: st.RelistErrors, ListsHung: t.hung[listCall],
		Reads: st.Inspections - t.readErr, ReadErrors: t.readErr, ReadsHung: t.hung[readCall], Calls: client.Calls, Reports: p.reports,
	}
	s.Reads = max(s.Reads, 0)
	s.ListSeconds, s.ReadSeconds = t.took[listCall].Seconds(), t.took[readCall].Seconds()
	s.Malformed, s.ListedTwice, s.Unattributed = client.Malformed, client.Duplicates, client.Unattributed
	s.UnknownPhase, s.TakenBack = t.unknown, st.Regressions
	if p.options.Mode != worker.Evented {
		if t.contested {
			s.Verdict = &stream.Verdict{Worth: stream.WorthUnknown, Maintainers: []string{}, Summary: "the events were left to the agent of this node, " +
				"because this runtime gives each event to one client only: --take-events judges them"}
		}
		return s
	}
	r := t.judge.Report(now)
	v := r.Conclude(stream.Facts{
		Watched: watched, Connected: p.connected, Lists: s.Lists, ListErrors: s.ListErrors, ListsHung: s.ListsHung,
		Reads: s.Reads, ReadErrors: s.ReadErrors, ReadsHung: s.ReadsHung,
		Missed: s.Missed, Unheard: s.Unheard, Contested: t.contested, MissedCreations: s.MissedCreations, MissedRemovals: s.MissedRemovals, Overruled: s.Overruled,
		Unusable: int(s.Malformed), ListedTwice: int(s.ListedTwice), Unknown: s.UnknownPhase, Unattributed: s.Unattributed,
		Unsupported: st.State == pleg.StreamUnsupported, Longest: longestPeriod,
	})
	s.Stream, s.Verdict = &r, &v
	return s
}

// failure is why a watch was in vain: it has not seen the runtime once.
func (s Summary) failure(t *tap) error {
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

// summary prints a summary.
func (p *printer) summary(s Summary) error {
	if p.options.Output == "json" {
		if err := json.NewEncoder(p.options.Out).Encode(s); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	}
	_, err := io.WriteString(p.options.Out, s.text())
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// text writes the summary for people, in 80 columns.
func (s Summary) text() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		b.WriteString(bench.Fold(fmt.Sprintf("%-9s ", name)+fmt.Sprintf(format, args...), 10) + "\n")
	}
	fmt.Fprintf(&b, "\n%s, watched for %s: %s printed\n", s.Runtime, short(s.Seconds), bench.Count(s.Printed, "event"))
	for _, l := range s.lines() {
		if l[0] == reportsLine && s.Stream != nil {
			writeDelays(&b, s.Stream)
		}
		row(l[0], "%s", l[1])
	}
	if len(s.Reports) == 0 && s.Stream != nil {
		writeDelays(&b, s.Stream)
	}
	if v := s.Verdict; v != nil {
		b.WriteString("\n" + bench.Fold(fmt.Sprintf("VERDICT   %s: %s.", v.Worth, v.Summary), 10) + "\n")
		if v.Period != "" {
			row("relists", "%s.", v.Period)
		}
		if len(v.Maintainers) > 0 {
			b.WriteString("\nFor those who maintain the runtime:\n")
		}
		for _, m := range v.Maintainers {
			b.WriteString(bench.Fold("- "+m+".", 2) + "\n")
		}
	}
	return b.String()
}

// reportsLine is the name of the last line, that of the generator's reports.
const reportsLine = "reports"

// lines are what was found in words, each with its name.
func (s Summary) lines() (list [][2]string) {
	row := func(name, format string, args ...any) {
		list = append(list, [2]string{name, fmt.Sprintf(format, args...)})
	}
	row("lists", "%d of the whole runtime, %d failed, %d hung; %d reads of a pod, %d failed, %d hung; %d calls in all",
		s.Lists, s.ListErrors, s.ListsHung, s.Reads, s.ReadErrors, s.ReadsHung, total(s.Calls))
	row("took", "lists p50 %s, p99 %s, max %s; reads of a pod p50 %s, p99 %s, max %s", short(s.ListSeconds.P50), short(s.ListSeconds.P99),
		short(s.ListSeconds.Max), short(s.ReadSeconds.P50), short(s.ReadSeconds.P99), short(s.ReadSeconds.Max))
	if s.Malformed+s.ListedTwice+uint64(s.Unattributed+s.UnknownPhase+s.TakenBack) > 0 {
		row("shown", "%d items without a usable ID, %d listed twice, %d containers of no pod, %d in the state UNKNOWN, %d taken back by a later read",
			s.Malformed, s.ListedTwice, s.Unattributed, s.UnknownPhase, s.TakenBack)
	}
	if r := s.Stream; r != nil {
		row("stream", "%s in the end, connected for %s; opened %s%s", s.State, short(s.ConnectedSeconds), times(r.Opened), ends(r.Endings))
		row("events", "%d received, %d told something new, %d replayed; %s, the largest %s", r.Received, r.ToldSomething, r.Replayed,
			bench.Bytes(uint64(r.Bytes)), bench.Bytes(uint64(r.LargestBytes)))
		row("gaps", "%d starts and exits without an event, and %d more while the stream was away; %d creations, %d removals; %d events not confirmed",
			s.Missed, s.Unheard, s.MissedCreations, s.MissedRemovals, s.Overruled)
		row("left out", "%s", or(skipped(r), "no event"))
		row("flaws", "%s", or(flaws(r), "none"))
	}
	if len(s.Reports) > 0 {
		var parts []string
		for _, reason := range slices.Sorted(maps.Keys(s.Reports)) {
			parts = append(parts, fmt.Sprintf("%s %d", reason, s.Reports[reason]))
		}
		row(reportsLine, "%s", strings.Join(parts, ", "))
	}
	return list
}

func short(seconds float64) string {
	return bench.Short(time.Duration(seconds * float64(time.Second)))
}

// writeDelays writes the table of delays.
func writeDelays(b *strings.Builder, r *stream.Report) {
	if r.Delays[stream.AllKinds].Count+r.ReplayDelays.Count == 0 {
		return
	}
	line := func(name string, q bench.LatencyResult) {
		if q.Count == 0 {
			return
		}
		fmt.Fprintf(b, "          %-20s %8d %9s %9s %9s %9s\n", name, q.Count, short(q.P50), short(q.P90), short(q.P99), short(q.Max))
	}
	fmt.Fprintf(b, "%-9s %-20s %8s %9s %9s %9s %9s\n", "delay", "from stamp to here", "events", "p50", "p90", "p99", "max")
	for _, kind := range slices.Sorted(maps.Keys(r.Delays)) {
		line(kind, r.Delays[kind])
	}
	line("replays", r.ReplayDelays)
	line("exit to its stamp", r.ExitLag)
}

func skipped(r *stream.Report) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Skipped[name], name))
	}
	return withSep("events that later ones and statuses show to be lacking: ", strings.Join(parts, ", "))
}

func flaws(r *stream.Report) string {
	var parts []string
	for _, f := range slices.Sorted(maps.Keys(r.Flaws)) {
		part := fmt.Sprintf("%d %s", r.Flaws[f], f)
		if f == stream.Reordered {
			var kinds []string
			for _, k := range slices.Sorted(maps.Keys(r.Reordered)) {
				kinds = append(kinds, fmt.Sprintf("%d %s", r.Reordered[k], k))
			}
			part += " (" + strings.Join(kinds, ", ") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func ends(endings map[string]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(endings)) {
		parts = append(parts, fmt.Sprintf("%d× %s", endings[why], why))
	}
	return withSep("; ended ", strings.Join(parts, ", "))
}

func total(calls map[string]uint64) (n uint64) {
	for _, c := range calls {
		n += c
	}
	return n
}
