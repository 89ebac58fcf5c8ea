// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// A telltale is a metric that shows a fault, with its value after a scene: moved reports whether
// the value exceeds a healthy runtime's.
type telltale struct {
	name  string
	moved func(with, without *seen) bool
}

// more is a counter that ends well above a healthy runtime's.
func more(name string) telltale {
	return telltale{name, func(with, without *seen) bool {
		return with.last(name) >= 1.5*without.last(name)+5
	}}
}

// ever is a counter that a healthy runtime leaves unchanged.
func ever(name string) telltale {
	return telltale{name, func(with, without *seen) bool { return with.last(name) > without.last(name) }}
}

// share is a counter above a share of another counter.
func share(name, of string, most float64) telltale {
	return telltale{name, func(with, _ *seen) bool { return with.last(name) > most*with.last(of) }}
}

// slower is a histogram with a mean above so many seconds.
func slower(name string, seconds float64) telltale {
	return telltale{name, func(with, _ *seen) bool {
		return with.last(name+"_sum") > seconds*with.last(name+"_count")
	}}
}

// gauge is a gauge of which every, or any, sample of the second half is as the condition says.
func gauge(name string, every bool, is func(float64) bool) telltale {
	return telltale{name, func(with, _ *seen) bool {
		values := with.sum(name)
		values = values[len(values)/2:]
		return slices.ContainsFunc(values, func(v float64) bool { return is(v) != every }) != every
	}}
}

func above(bound float64) func(float64) bool { return func(v float64) bool { return v > bound } }
func below(bound float64) func(float64) bool { return func(v float64) bool { return v < bound } }

// telltales are the metrics used by docs/troubleshooting.md.
var telltales = []telltale{
	gauge("evented_pleg_healthy", false, below(1)),
	gauge("evented_pleg_last_relist_age_seconds", false, above(480)),
	more("evented_pleg_relist_errors_total"),
	slower("kubelet_pleg_relist_duration_seconds", 1),
	more("evented_pleg_inspection_errors_total"),
	slower("kubelet_pleg_pod_relist_duration_seconds", 1),
	gauge("evented_pleg_waiters", true, above(0)),
	gauge("evented_pleg_dirty_pods", true, above(0)),
	gauge("evented_pleg_stream_state{state=\"Unsupported\"}", true, above(0)),
	gauge("evented_pleg_stream_state{state=\"Backoff\"}", false, above(0)),
	more("kubelet_evented_pleg_connection_error_count"),
	more("evented_pleg_unheard_changes_total"),
	gauge("evented_pleg_relist_period_seconds", true, below(129)),
	more("kube_pod_missed_events"),
	more("evented_pleg_overruled_claims_total"),
	ever("evented_pleg_regressions_total"),
	share("evented_pleg_stale_claims_total", "kubelet_evented_pleg_notifications_received", 0.2),
	more("evented_pleg_replayed_claims_total"),
	more("evented_pleg_discarded_claims_total"),
	slower("kubelet_evented_pleg_connection_latency_seconds", 0.05),
	gauge("kubelet_running_containers{container_state=\"unknown\"}", false, above(0)),
	more("evented_pleg_client_malformed_items_total"),
	ever("evented_pleg_client_duplicate_items_total"),
	more("evented_pleg_client_unknown_events_total"),
	more("evented_pleg_client_abandoned_connects_total"),
	gauge("evented_pleg_owed_pods", true, above(0)),
	more("evented_pleg_owed_events_total"),
	more("evented_pleg_client_unknown_states_total"),
	more("evented_pleg_client_incomplete_events_total"),
	more("evented_pleg_client_oversized_events_total"),
	more("evented_pleg_client_late_exits_total"),
	gauge("evented_pleg_client_unattributed_containers", false, above(0)),
}

// moved are the telltales that show a fault.
func (s *seen) moved(without *seen) (names []string) {
	for _, t := range telltales {
		if t.moved(s, without) {
			names = append(names, t.name)
		}
	}
	return names
}

// sum is the sum of all series of a metric until judged, sample by sample; a label can be given.
func (s *seen) sum(name string) []float64 {
	name, label, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
	all := make([]float64, int(judged/scrapeEvery))
	for series, values := range s.samples {
		if strings.HasPrefix(series, name+"{") && strings.Contains(series, label) {
			for i, v := range values {
				if i < len(all) && !math.IsNaN(v) {
					all[i] += v
				}
			}
		}
	}
	return all
}

func (s *seen) last(name string) float64 {
	all := s.sum(name)
	return all[len(all)-1]
}

// watchSays is the output of pleg-bench watch in its own words: its exit status, its verdict, its
// own reports and the generator's, the summary's lines.
func (s *seen) watchSays() (says []string) {
	add := func(when bool, words string) {
		if when {
			says = append(says, words)
		}
	}
	sum := s.summary
	add(s.err != nil, "exit 1")
	if sum.Verdict == nil || sum.Stream == nil {
		return append(says, "no verdict")
	}
	add(sum.Verdict.Worth != "full", string(sum.Verdict.Worth))
	add(strings.Contains(s.notes, "the event stream ended"), "the event stream ended")
	add(sum.ListsHung > 0, "a list of the runtime has not been answered")
	add(sum.ReadsHung > 0, "a read of a pod has not been answered")
	for _, reason := range slices.Sorted(maps.Keys(sum.Reports)) {
		says = append(says, string(reason))
	}
	add(sum.Missed > 0, "gaps")
	lost := false
	for _, loss := range sum.Stream.Loss {
		lost = lost || loss.Hits > 0
	}
	add(lost, "events lost")
	for _, flaw := range slices.Sorted(maps.Keys(sum.Stream.Flaws)) {
		says = append(says, string(flaw))
	}
	add(sum.Stream.Delays["all"].P99 >= 1, "events are late")
	add(sum.Stream.ExitLag.P50 >= 1, "exit to its stamp")
	add(sum.Stream.LargestBytes > 16<<20, "the largest")
	add(sum.Malformed > 0, "without a usable ID")
	add(sum.ListedTwice > 0, "listed twice")
	add(sum.Unattributed > 0, "of no pod")
	add(sum.TakenBack > 0, "taken back by a later read")
	add(sum.UnknownPhase > 0, "in the state UNKNOWN")
	return says
}

// reasons are the agent's reports.
func (s *seen) reasons() (reasons []string) {
	for _, r := range slices.Sorted(maps.Keys(s.reports)) {
		reasons = append(reasons, string(r))
	}
	return reasons
}
