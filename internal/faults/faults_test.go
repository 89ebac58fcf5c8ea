// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

var (
	update   = flag.Bool("update", false, "write docs/faults.md")
	promtool = flag.String("promtool", "", "path of a promtool that evaluates docs/alerts (.ci/alerts)")
)

const page = "../../docs/faults.md"

// A setting is a row: a fault, mostly of the fake runtime, and the destination of its signs.
type setting struct {
	// name is the fault's name in fakeruntime.FaultList, set the runtime's settings, including
	// faults that need another fault.
	name, set string
	// what describes a fault outside of the fake; name is the attempt then.
	what string
	// section is the section of docs/troubleshooting.md about the fault. Harmless is the reason why
	// an agent shows nothing: its cache equals the runtime in the end.
	section, harmless string
	// ownCall is the reason why an agent need not see the signs of pleg-bench watch in the
	// generator.
	ownCall string

	// sometimes are the signs in some runs only, decided by the order of goroutines.
	sometimes []string
	// seldom are the signs that watch shows in some runs only, and the reports or metrics in all.
	seldom []string

	unread    bool          // the agent ceases to read Watch, which holds so many events:
	capacity  int           // 0 is the default
	deafPeer  bool          // another client opens a stream of events and ignores it
	falseEnds time.Duration // the period of false ends from the runtime, 0 for never
	falsePods int           // of so many pods in turn; 0 is one

	profile      string // of the runtime, containerd-2 if empty
	fromStart    bool   // the fault is there before the agent
	restartEvery time.Duration
}

// Sections of docs/troubleshooting.md.
const (
	notListed   = "nothing-has-been-listed-for-minutes"
	workersHang = "pods-do-not-start-restart-or-end-pod-workers-hang"
	streamLost  = "the-stream-is-lost"
	unsupported = "the-stream-is-unsupported"
	missed      = "events-are-missed"
	contradicts = "the-runtime-contradicts-itself"
	unusable    = "what-the-runtime-sends-cannot-be-used"
	late        = "events-are-late"
	unread      = "watch-is-not-being-read"
	wasThere    = "it-was-connected-before"
	polls       = "it-polls-although-the-stream-is-connected"
	takenBack   = "events-are-taken-back"
	differs     = "the-cache-and-the-runtime-differ"
	crioSilent  = "the-stream-is-connected-and-tells-nothing-on-cri-o"
)

// podsDiffer is the sign of pleg-bench run for a bug of ours.
const podsDiffer = "pods differ between the cache and the runtime"

// takenForMute is the sign when the lost events happen to be those of two lists in a row: the
// stream counts as hanging, and is opened anew.
var takenForMute = []string{
	"the event stream ended",
	"ContainerEventStreamLost",
	"ContainerEventStreamRestored",
	"ContainerChangesUnheard",
	"kubelet_evented_pleg_connection_error_count",
	"evented_pleg_replayed_claims_total",
	"evented_pleg_stale_claims_total",
	"evented_pleg_unheard_changes_total",
	"evented_pleg_stream_state{state=\"Backoff\"}",
	"PLEGStreamFlapping",
}

// rarelyMissed is the sign of an end without an event if the removal is not announced soon after.
var rarelyMissed = []string{
	"ContainerEventsMissed",
	"gaps",
	"kube_pod_missed_events",
	"evented_pleg_relist_period_seconds",
}

// backlog is the sign of late events from a time without a listener.
var backlog = []string{
	"evented_pleg_replayed_claims_total", "evented_pleg_stale_claims_total",
	"evented_pleg_regressions_total", // of a read in the instant of a change
}

// aroundARestart are the signs of a change in the seconds of a restart, and of a list begun then.
var aroundARestart = []string{
	"partial", "ContainerChangesUnheard", "evented_pleg_unheard_changes_total",
	"taken back by a later read", "evented_pleg_regressions_total",
}

// scraped is the alert of a stream that breaks again and again, if scrapes find it connected.
var scraped = []string{"PLEGStreamFlapping"}

// left is the sign when the client leaves a hung server, and connects anew.
var left = append(
	[]string{"evented_pleg_client_abandoned_connects_total", "evented_pleg_waiters", "PLEGPodWorkersStarve"},
	takenForMute...)

// tries is how often a fault is played until its signs equal the page: the order of goroutines
// decides details, and the race detector changes the order. Stale or silent rows fail each time.
const tries = 4

const toldTheCaller = "the caller is told, and nothing has changed that a reader could miss"

var settings = []setting{
	{name: "drop", set: "drop=0.3", section: missed, sometimes: takenForMute},
	{
		name:      "drop-created",
		set:       "drop-created=0.5",
		section:   missed,
		sometimes: takenForMute,
		harmless:  "a container is seen with its start",
	},
	{name: "drop-started", set: "drop-started=0.5", section: missed, sometimes: takenForMute},
	{name: "drop-stopped", set: "drop-stopped=0.5", section: missed, sometimes: takenForMute},
	{name: "drop-deleted", set: "drop-deleted=0.5", section: missed, sometimes: takenForMute},
	{name: "duplicate", set: "duplicate=0.5", section: contradicts},
	{name: "delay", set: "delay=0.5", section: contradicts},
	{name: "delay-by", set: "delay=0.5 delay-by=30s", section: late, sometimes: takenForMute},
	// A container of containerd's does not end within the 100 ms for which the fault holds its start.
	{name: "swap-start-stop", set: "swap-start-stop=1", profile: "crio", section: contradicts},
	{name: "swap-stop-delete", set: "swap-stop-delete=1", section: contradicts},
	{
		name:     "stale",
		set:      "stale=0.5",
		section:  contradicts,
		harmless: "a payload in an earlier phase is not stored, and the pod is read",
	},
	{name: "nil-sandbox", set: "nil-sandbox=0.5", section: unusable},
	{
		name:     "bare-payload",
		set:      "bare-payload=0.5",
		harmless: "the containers beside the sandbox name the pod, which is read, and a list is made for a pod without any",
	},
	{name: "nil-statuses", set: "nil-statuses=0.5", section: unusable},
	{name: "oversize", set: "oversize=0.05", section: unusable},
	{
		name:      "oversize-bytes",
		set:       "oversize=0.05 oversize-bytes=268435456",
		section:   streamLost,
		sometimes: scraped,
	},
	{name: "invalid-event", set: "invalid-event=0.3", section: unusable, sometimes: takenForMute},
	{name: "silent-exit", set: "silent-exit=0.5", section: missed, sometimes: takenForMute},
	{
		name:      "start-error",
		set:       "start-error=0.5",
		section:   missed,
		sometimes: rarelyMissed,
		ownCall:   "its own StartContainer fails",
	},
	{name: "sandbox-error", set: "sandbox-error=0.5", harmless: toldTheCaller},

	{name: "cut", set: "cut=0.1", section: streamLost, sometimes: append(scraped, backlog...)},
	{name: "eof", set: "eof=0.1", section: streamLost, sometimes: append(scraped, backlog...)},
	{name: "stall", set: "stall=0.1", section: streamLost, sometimes: backlog},
	{name: "replay", set: "replay=1 cut=0.1", section: streamLost, sometimes: scraped},
	{name: "replay-events", set: "replay=1 cut=0.1 replay-events=3", section: streamLost, sometimes: scraped},
	{name: "eof-at-once", set: "eof-at-once=1", fromStart: true, section: unsupported},
	{name: "unimplemented", set: "unimplemented=1", fromStart: true, section: unsupported},

	{name: "restart-exit", set: "restart-exit=0.5", restartEvery: 5 * time.Minute, section: streamLost},
	{name: "exit-lag", set: "exit-lag=2s", section: late},
	{name: "clock-skew", set: "clock-skew=-90s", section: late},
	{name: "clock-skew", set: "clock-skew=90s", section: late},
	{name: "clock-step", set: "clock-step=-30s", section: late},
	{name: "clock-step-every", set: "clock-step=-30s clock-step-every=1m", section: late},

	{
		name:     "late-reason",
		set:      "late-reason=0.5",
		harmless: "the statuses are read again a moment after an end",
	},
	{name: "late-code", set: "late-code=0.5", harmless: "the statuses are read again a moment after an end"},
	{name: "late-address", set: "late-address=0.5", harmless: "the next read of statuses shows the address"},
	{
		name:     "late-by",
		set:      "late-reason=0.5 late-by=1m",
		harmless: "the next read of statuses shows the reason",
	},
	{
		name:         "lost-address",
		set:          "lost-address=0.5",
		restartEvery: 5 * time.Minute,
		section:      streamLost,
		sometimes:    aroundARestart,
	},
	{
		name:      "fail-item",
		set:       "fail-item=0.1",
		section:   workersHang,
		sometimes: []string{"evented_pleg_dirty_pods"},
	},
	{
		name:      "hang-item",
		set:       "hang-item=0.1",
		section:   workersHang,
		sometimes: []string{"evented_pleg_dirty_pods"},
	},
	{name: "no-creation-time", set: "no-creation-time=0.1", section: unusable},
	{
		name:     "bare-sandbox",
		set:      "bare-sandbox=0.5",
		harmless: "the containers beside the sandbox are read as before",
	},
	{
		name:     "stays-listed",
		set:      "stays-listed=0.5",
		harmless: "a status that is not found, twice, is believed rather than a list",
	},
	{
		name:     "work",
		set:      "work=100ms",
		section:  workersHang,
		harmless: "reads take longer, and all are answered",
	},
	{name: "processors", set: "work=100ms processors=4", harmless: "reads take longer, and all are answered"},
	{name: "throttle", set: "throttle=0.3", harmless: "reads take longer, and all are answered"},
	{
		name:      "empty-list",
		set:       "empty-list=0.1",
		section:   contradicts,
		sometimes: slices.Concat([]string{"partial"}, rarelyMissed, takenForMute),
	},
	{
		name:         "empty-start",
		set:          "empty-start=1",
		restartEvery: 5 * time.Minute,
		section:      takenBack,
		sometimes:    aroundARestart,
		seldom:       []string{"ContainerEventsOverruled"},
	},
	{
		name:     "late-write",
		set:      "late-write=0.1",
		harmless: "the caller is told nothing, and who reads sees the change when it is made",
	},
	{
		name:     "late-write-by",
		set:      "late-write=0.1 late-write-by=1m",
		harmless: "the caller is told nothing, and who reads sees the change when it is made",
	},

	{
		name:      "slow-list",
		set:       "slow-list=8s",
		section:   notListed,
		sometimes: []string{"evented_pleg_waiters", "evented_pleg_dirty_pods"},
	},
	{
		name:      "slow-sandbox-list",
		set:       "slow-sandbox-list=8s",
		section:   notListed,
		sometimes: []string{"evented_pleg_waiters", "evented_pleg_dirty_pods"},
	},
	{
		name:      "slow-container-list",
		set:       "slow-container-list=8s",
		section:   notListed,
		sometimes: []string{"evented_pleg_waiters", "evented_pleg_dirty_pods"},
	},
	{name: "slow-status", set: "slow-status=5s", section: workersHang},
	{name: "slow-container", set: "slow-container=400ms", harmless: "reads take longer, and all are answered"},
	{
		name:     "slow-write",
		set:      "slow-write=5s",
		harmless: "who reads sees each change when it happens, however long the call takes",
	},
	{
		name:      "fail-list",
		set:       "fail-list=0.8",
		section:   notListed,
		sometimes: []string{"evented_pleg_dirty_pods"},
	},
	{name: "fail-list", set: "fail-list=1", section: notListed},
	{name: "fail-status", set: "fail-status=1", section: workersHang},
	{name: "fail-write", set: "fail-write=0.3", harmless: toldTheCaller},
	{name: "fail-code", set: "fail-list=1 fail-code=Unavailable", section: notListed},
	{name: "hang-list", set: "hang-list=1", fromStart: true, section: notListed, sometimes: left},
	{name: "hang-list", set: "hang-list=1", section: notListed, sometimes: left},
	{name: "hang-sandbox-list", set: "hang-sandbox-list=1", section: notListed, sometimes: left},
	{name: "hang-container-list", set: "hang-container-list=1", section: notListed, sometimes: left},
	{name: "cut-list", set: "cut-list=1", section: notListed},
	{name: "hang-status", set: "hang-status=1", section: workersHang, sometimes: left},
	{name: "hang-write", set: "hang-write=0.2", harmless: toldTheCaller},

	{
		name:      "nil-fields",
		set:       "nil-fields=0.3",
		section:   unusable,
		sometimes: append([]string{"evented_pleg_dirty_pods"}, takenForMute...),
	},
	{
		name:      "unknown-enum",
		set:       "unknown-enum=0.3",
		section:   unusable,
		sometimes: []string{"events lost", "kubelet_running_containers{container_state=\"unknown\"}"},
	},
	{
		name: "invalid-utf8",
		set:  "invalid-utf8=0.3",
		harmless: "the broken text is none that a generator reads: " +
			"image references and annotations, in which what is no UTF-8 becomes U+FFFD. A client that decodes whole messages, as a kubelet's, fails",
	},
	{
		name:      "duplicate-id",
		set:       "duplicate-id=0.5",
		section:   contradicts,
		sometimes: []string{"evented_pleg_relist_period_seconds", "evented_pleg_stale_claims_total"},
	},
	{name: "orphan-container", set: "orphan-container=1", harmless: "a read of the pod shows no container"},

	{
		name:     "agent, Watch not read",
		what:     "the agent's sync loop hangs; its Watch holds 20 events",
		unread:   true,
		capacity: 20,
		section:  unread,
	},
	{
		name:      "eof-at-once",
		set:       "eof=1 eof-at-once=1",
		what:      "the runtime ends its stream in order, and each one that is opened",
		section:   wasThere,
		sometimes: backlog,
	},
	{
		name:      "false ends, one in 20 s",
		what:      "the stream tells that a sandbox has ended, which is ready",
		falseEnds: 20 * time.Second,
		section:   takenBack,
	},
	{
		name:      "false ends, one a second",
		what:      "the same, so often that one is in doubt at any time",
		falseEnds: time.Second,
		section:   takenBack,
		sometimes: []string{"PLEGTrustNotEarned"}, // the average period lies about at the alert's bound
	},
	{
		name:      "false ends of six pods, two a second",
		what:      "the same of six pods in turn, so often that no list finds nothing to say",
		falseEnds: 500 * time.Millisecond,
		falsePods: 6,
		section:   polls,
	},
	{
		name:     "CRI-O, a subscriber that does not read",
		what:     "another client has opened a stream of events and does not read it",
		deafPeer: true,
		profile:  "crio",
		section:  crioSilent,
	},
}

// TestEveryFaultHasARow wants a row for each fault of the fake.
func TestEveryFaultHasARow(t *testing.T) {
	for _, f := range fakeruntime.FaultList() {
		if !slices.ContainsFunc(settings, func(s setting) bool {
			return s.name == f.Name && strings.Contains(" "+s.set, " "+f.Name+"=")
		}) {
			t.Errorf("the fault %s has no row", f.Name)
		}
	}
}

// messages are the sections of docs/troubleshooting.md about what the programs say of their own
// accord: no fault of a runtime leads there.
var messages = []string{"what-the-programs-say", "about-the-runtimes-socket", "pleg-bench", "pleg-agent"}

// TestEverySectionIsTried wants a fault for each section of docs/troubleshooting.md but that of
// bugs of ours, and those of messages.
func TestEverySectionIsTried(t *testing.T) {
	guide := readGuide(t)
	if !slices.Contains(guide.leads(podsDiffer), differs) {
		t.Errorf("docs/troubleshooting.md: %q leads to %q", podsDiffer, guide.leads(podsDiffer))
	}
	for anchor := range guide.sections {
		if anchor != differs && !slices.Contains(messages, anchor) &&
			!slices.ContainsFunc(settings, func(s setting) bool { return s.section == anchor }) {
			t.Errorf("docs/troubleshooting.md, #%s: no fault has been tried that leads there", anchor)
		}
	}
}

// TestEveryFaultShows lets the runtime misbehave in each of its ways, in virtual time, and compares
// the signs in pleg-bench watch and in an agent with docs/faults.md. No fault may be silent, and
// its signs must lead to the right section of docs/troubleshooting.md. Without a promtool the test
// plays the first row of some sections, because the race detector makes some rows last minutes:
// .ci/alerts plays all rows.
func TestEveryFaultShows(t *testing.T) {
	if *update && *promtool == "" {
		t.Fatal("-update needs a -promtool, for the alerts")
	}
	all, brief := *promtool != "", []string{missed, contradicts, unusable, streamLost}
	old := testkit.Must(os.ReadFile(page))(t)
	intro, _, found := strings.Cut(string(old), columns)
	if !found {
		t.Fatalf("docs/faults.md has no table that begins with\n%s", columns)
	}
	rows := make([]*row, len(settings))
	without := map[time.Duration]*seen{}
	for _, every := range []time.Duration{0, 5 * time.Minute} {
		if every > 0 && !all {
			break // no row to be played needs it
		}
		play(t, setting{name: "none", restartEvery: every}, func(s *seen) bool {
			without[every] = s
			return false
		})
	}
	if s := without[0]; len(s.watchSays())+len(s.reports) > 0 {
		t.Errorf("a runtime without a fault shows one: watch %q, reports %q", s.watchSays(), s.reasons())
	}
	guide := readGuide(t)
	t.Run("fault", func(t *testing.T) {
		for i, set := range settings {
			if at := slices.Index(brief, set.section); at >= 0 {
				brief = slices.Delete(brief, at, at+1)
			} else if !all {
				continue
			}
			t.Run(set.title(), func(t *testing.T) {
				t.Parallel()
				same := false
				for try := 1; try <= tries && !same; try++ {
					play(t, set, func(with *seen) bool {
						rows[i] = newRow(set, with, without[set.restartEvery])
						same = rows[i].standsIn(string(old))
						return all && (same || try == tries)
					})
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	rows = slices.DeleteFunc(rows, func(r *row) bool { return r == nil })
	if *promtool != "" {
		addAlerts(t, rows)
	}
	for _, r := range rows {
		r.check(t, guide)
		if !all && !r.standsIn(string(old)) {
			t.Errorf(
				"docs/faults.md has another row than was seen (go test ./internal/faults -update -promtool=…):\n%s",
				render([]*row{r}),
			)
		}
	}
	if !all {
		return
	}
	text := intro + columns + render(rows)
	if *update {
		testkit.Check(t, os.WriteFile(page, []byte(text), 0o644))
		return
	}
	if text != string(old) {
		t.Errorf(
			"docs/faults.md is not what was seen (go test ./internal/faults -update -promtool=…):\n%s",
			cmp.Diff(strings.Split(string(old), "\n"), strings.Split(text, "\n")),
		)
	}
}
