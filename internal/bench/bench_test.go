// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestSummarize(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	for _, test := range []struct {
		name string
		d    []time.Duration
		want Quantiles
	}{
		{"none", nil, Quantiles{}},
		{"one", []time.Duration{7}, Quantiles{Count: 1, P50: 7, P90: 7, P99: 7, Max: 7}},
		{"two", []time.Duration{9, 1}, Quantiles{Count: 2, P50: 1, P90: 9, P99: 9, Max: 9}},
		{"hundred", hundred, Quantiles{Count: 100, P50: 50 * time.Millisecond, P90: 90 * time.Millisecond, P99: 99 * time.Millisecond, Max: 100 * time.Millisecond}},
	} {
		if diff := cmp.Diff(test.want, Summarize(test.d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestStampFollowsTheMonotonicClock(t *testing.T) {
	now := time.Now()
	if d := Stamp(now.Add(time.Second)) - Stamp(now); d != int64(time.Second) {
		t.Errorf("a second later is %d ns later", d)
	}
	if d := Now() - time.Now().UnixNano(); d > int64(time.Second) || d < -int64(time.Second) {
		t.Errorf("Now differs from the wall clock by %v", time.Duration(d))
	}
}

func always(int64) bool { return true }

// life enters a container that starts at 100, exits at 200 and is removed at 300.
func life(l *Ledger, id string) {
	for i, state := range []pleg.Phase{pleg.PhaseCreated, pleg.PhaseRunning, pleg.PhaseExited, pleg.PhaseRemoved} {
		l.Happened(Change{Pod: "p", ID: id, State: state, At: int64(i) * 100})
	}
}

func TestLedger(t *testing.T) {
	event := func(id string, what pleg.EventType, at int64) Delivery {
		return Delivery{Pod: "p", ID: id, Type: what, At: at}
	}
	sync := func(at int64) Delivery { return Delivery{Pod: "p", Type: pleg.PodSync, At: at} }
	for _, test := range []struct {
		name      string
		delivered []Delivery
		want      Verdict
	}{
		{"every change told", []Delivery{event("c", pleg.ContainerStarted, 110), event("c", pleg.ContainerDied, 220), event("c", pleg.ContainerRemoved, 330)},
			Verdict{Deliveries: 3, Changes: 3, Latency: []time.Duration{10, 20, 30}, Begins: []int64{100, 200, 300}}},
		{"a later state tells of those before", []Delivery{event("c", pleg.ContainerDied, 250), event("c", pleg.ContainerRemoved, 310)},
			Verdict{Deliveries: 2, Changes: 3, Latency: []time.Duration{150, 50, 10}, Begins: []int64{100, 200, 300}}},
		{"a PodSync tells of all before it", []Delivery{event("c", pleg.ContainerStarted, 110), sync(350)},
			Verdict{Deliveries: 2, Syncs: 1, Changes: 3, Latency: []time.Duration{10, 150, 50}, Begins: []int64{100, 200, 300}}},
		{"a PodSync tells of nothing after it", []Delivery{event("c", pleg.ContainerStarted, 110), sync(250)},
			Verdict{Deliveries: 2, Syncs: 1, Changes: 3, Unseen: 1, Undelivered: 1, Latency: []time.Duration{10, 50}, Begins: []int64{100, 200}}},
		{"never seen", nil, Verdict{Changes: 3, Unseen: 3}},
		{"the end is owed", []Delivery{event("c", pleg.ContainerStarted, 110)},
			Verdict{Deliveries: 1, Changes: 3, Unseen: 2, Undelivered: 2, Latency: []time.Duration{10}, Begins: []int64{100}}},
		{"twice", []Delivery{event("c", pleg.ContainerStarted, 110), event("c", pleg.ContainerStarted, 120), event("c", pleg.ContainerRemoved, 300)},
			Verdict{Deliveries: 3, Duplicates: 1, Changes: 3, Latency: []time.Duration{10, 100, 0}, Begins: []int64{100, 200, 300}}},
		{"died after removed", []Delivery{event("c", pleg.ContainerRemoved, 300), event("c", pleg.ContainerDied, 310)},
			Verdict{Deliveries: 2, OutOfOrder: 1, Changes: 3, Latency: []time.Duration{200, 100, 0}, Begins: []int64{100, 200, 300}}},
		{"told before it was entered", []Delivery{event("c", pleg.ContainerStarted, 90), event("c", pleg.ContainerRemoved, 300)},
			Verdict{Deliveries: 2, Changes: 3, Latency: []time.Duration{0, 100, 0}, Begins: []int64{100, 200, 300}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger()
			life(l, "c")
			for _, d := range test.delivered {
				l.Delivered(d)
			}
			got := l.Judge(always)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if complains := test.want.Duplicates+test.want.OutOfOrder > 0; complains != (len(l.Complaints()) > 0) {
				t.Errorf("complaints: %q", l.Complaints())
			}
		})
	}
}

func TestLedgerWindow(t *testing.T) {
	l := NewLedger()
	life(l, "in")
	v := l.Judge(func(at int64) bool { return at >= 200 })
	if v.Changes != 2 || v.Unseen != 2 {
		t.Errorf("%d changes, %d unseen; want 2 of each: the start was before the window", v.Changes, v.Unseen)
	}
}

func TestLedgerInexactAndPath(t *testing.T) {
	l := NewLedger()
	l.Happened(Change{Pod: "p", ID: "c", State: pleg.PhaseRemoved, At: 100, Inexact: true})
	l.Delivered(Delivery{Pod: "p", ID: "c", Type: pleg.ContainerRemoved, At: 150, Claim: true, Stamp: 110})
	v := l.Judge(always)
	if v.Changes != 1 || v.Unseen != 0 || len(v.Latency) != 0 {
		t.Errorf("%+v: an inexact change counts and times nothing", v)
	}
	if diff := cmp.Diff([]time.Duration{40}, v.Path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
}

func TestCompare(t *testing.T) {
	ready := Item{ID: "s", Sandbox: true, State: pleg.PhaseRunning}
	running := Item{ID: "c", State: pleg.PhaseRunning, StartedAt: 5}
	exited := Item{ID: "c", State: pleg.PhaseExited, ExitCode: 3, StartedAt: 5, FinishedAt: 9}
	oom := exited
	oom.Reason = "OOMKilled"
	pod := func(items ...Item) Pod { return Pod{UID: "u", Items: items, IPs: []string{"10.0.0.1"}} }
	moved := pod(ready)
	moved.IPs = nil
	failed := pod(ready)
	failed.Err = "boom"
	for _, test := range []struct {
		name           string
		cache, runtime []Pod
		pods           int
		says           string
	}{
		{"equal in another order", []Pod{pod(ready, running)}, []Pod{pod(running, ready)}, 0, ""},
		{"no items is no pod", []Pod{{UID: "u"}}, nil, 0, ""},
		{"missing in the cache", nil, []Pod{pod(ready)}, 1, "missing in the cache"},
		{"left in the cache", []Pod{pod(ready)}, nil, 1, "gone in the runtime"},
		{"another state", []Pod{pod(ready, running)}, []Pod{pod(ready, exited)}, 1, "Exited"},
		{"another exit code", []Pod{pod(Item{ID: "c", State: pleg.PhaseExited})}, []Pod{pod(Item{ID: "c", State: pleg.PhaseExited, ExitCode: 1})}, 1, "ExitCode:1"},
		{"another name", []Pod{pod(Item{ID: "c", Name: "a"})}, []Pod{pod(Item{ID: "c", Name: "b"})}, 1, "c (b)"},
		{"another reason, which may change without an event", []Pod{pod(exited)}, []Pod{pod(oom)}, 0, ""},
		{"other IPs", []Pod{moved}, []Pod{pod(ready)}, 1, "IPs:10.0.0.1"},
		{"IPs of a pod without a ready sandbox may be kept", []Pod{pod(exited)}, []Pod{{UID: "u", Items: []Item{exited}}}, 0, ""},
		{"an error", []Pod{failed}, []Pod{pod(ready)}, 1, "boom"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods, lines := Compare(test.cache, test.runtime, 10)
			if pods != test.pods || !strings.Contains(strings.Join(lines, "\n"), test.says) {
				t.Errorf("%d pods differ: %q; want %d and %q", pods, lines, test.pods, test.says)
			}
		})
	}
	var many []Pod
	for i := range 50 {
		many = append(many, Pod{UID: string(rune('a' + i)), Items: []Item{ready}})
	}
	if pods, lines := Compare(nil, many, 3); pods != 50 || len(lines) != 3 {
		t.Errorf("%d pods and %d lines, want 50 and 3", pods, len(lines))
	}
}

// checked is a result of a run in which something was checked.
func checked() *Result {
	return &Result{
		Load:             LoadResult{Changes: 9},
		ComparisonResult: ComparisonResult{Consistency: ConsistencyResult{CheckedPods: 3}},
	}
}

func TestJudge(t *testing.T) {
	good := checked()
	good.Judge(false)
	if !good.OK || good.Failures == nil || good.Document().Tone != Good {
		t.Errorf("a run without faults is not OK: %+v", good.Failures)
	}
	for verdict, sets := range map[string][]func(*Result){
		"FAIL: ": {
			func(r *Result) { r.Consistency.Mismatches = 1 },
			func(r *Result) { r.Events.Duplicates = 1 },
			func(r *Result) { r.Events.OutOfOrder = 1 },
			func(r *Result) { r.Events.Undelivered = 1 },
			func(r *Result) { r.Freshness.StaleReads = 1 },
		},
		"NO VERDICT: ": {
			func(r *Result) { r.Consistency.CheckedPods = 0 },
			func(r *Result) { r.Load.Changes, r.Load.Broken = 0, 7 },
			func(r *Result) { r.Interrupted = true },
			func(r *Result) { r.Strangers = []string{"kube-system/dns"} },
		},
	} {
		for _, set := range sets {
			r := checked()
			set(r)
			if r.Judge(false); r.OK || len(r.Failures) != 1 || !strings.HasPrefix(r.Document().Verdict, verdict) {
				t.Errorf("%s%+v: %q", verdict, r, r.Document().Verdict)
			}
		}
	}
	missed := checked()
	missed.Events = EventsResult{Missed: 9, Owed: 3, Unseen: 4}
	if missed.Judge(false); !missed.OK {
		t.Error("missed events are the runtime's failure, not ours")
	}
	lied := checked()
	lied.Freshness.StaleReads = 1
	if lied.Judge(true); !lied.OK {
		t.Error("a read that lied on purpose was taken for a stale one")
	}
}

// sample is a complete result.
func sample() *Result {
	l := LatencyResult{Count: 100, P50: 0.0005, P90: 0.001, P99: 0.0042, Max: 1.5}
	r := &Result{
		Schema: Schema,
		Runtime: RuntimeResult{
			Name:     "containerd",
			Version:  "v2.4.2",
			Endpoint: "unix:///x",
			Profile:  "containerd-2",
		},
		Load: LoadResult{
			Pods:            3,
			Containers:      1,
			Rate:            10,
			AchievedRate:    9.9,
			DurationSeconds: 5,
			Seed:            1,
			Faults:          []string{"drop=0.1"},
			Changes:         9,
			Broken:          1,
			Errors: map[string]int{
				"StopPodSandbox": 2,
			},
			FirstErrors: map[string]string{"StopPodSandbox": "no space left on device"},
		},
		ComparisonResult: ComparisonResult{
			PLEG:        PLEGResult{Mode: "evented", State: "Connected", Relists: 4, RelistPeriodSeconds: 8},
			Events:      EventsResult{RuntimeEmitted: new(12), Received: 11, Changes: 10},
			Latency:     l,
			Freshness:   FreshnessResult{LatencyResult: l},
			Consistency: ConsistencyResult{CheckedPods: 3},
			Cost: CostResult{
				PLEGCPUSeconds:    0.25,
				RuntimeCPUSeconds: new(0.5),
				PLEGMaxRSSBytes:   24 << 20,
				RPCs:              map[string]int{"ListContainers": 4},
			},
		},
		Outage: &OutageResult{AtSeconds: 3, DownSeconds: 0.4, ReconnectedSeconds: 1.1, RelistedSeconds: 1.2},
	}
	r.Comparison = &ComparisonResult{PLEG: PLEGResult{Mode: "generic", RelistPeriodSeconds: 1}, Latency: l}
	return r
}

// text is a document as a terminal shows it, in 80 columns.
func text(t *testing.T, d Document) string {
	t.Helper()
	var b bytes.Buffer
	testkit.Check(t, d.WriteText(&b, Columns))
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > int(Columns) {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return b.String()
}

func TestDocument(t *testing.T) {
	r := sample()
	r.Judge(false)
	said := text(t, r.Document())
	testkit.Says(
		t,
		"the summary",
		strings.Join(strings.Fields(said), " "),
		"fake runtime as containerd-2",
		"3 pods × 1 container,",
		"faults drop=0.1",
		"evented",
		"generic",
		"500 µs",
		"4.20 ms",
		"24.0 MiB",
		"included: 12 of the runtime, 11 received",
		"7.5 lists a minute",
		"restarted, its containers survived",
		"StopPodSandbox failed 2 times, first: no space left on device",
		"with 100 such reads",
		"PASS: the cache equals the runtime in all of 3 pods",
	)
	r.Load.Pods = 4
	if said := text(t, r.Document()); !strings.Contains(strings.Join(strings.Fields(said), " "), "in all of 3 pods, of 4 that there should be;") {
		t.Errorf("a pod that could not be made again is not named:\n%s", said)
	}
	r.PLEG.State = "Unsupported"
	if said := text(t, r.Document()); !strings.Contains(said, "  polled  ") || !strings.Contains(strings.Join(strings.Fields(said), " "), "This runtime offers no events: the PLEG polled.") {
		t.Errorf("a runtime without events is not named:\n%s", said)
	}
	r.Consistency.Mismatches, r.Consistency.Differences = 1, []string{"pod u: wrong"}
	r.Judge(false)
	if said := text(t, r.Document()); !strings.Contains(said, "FAIL: 1 pod differs") || !strings.Contains(said, "pod u: wrong") {
		t.Errorf("a failure is not told:\n%s", said)
	}
}

// TestStressEnds: a test that measured nothing is not OK, and its figures are not there.
func TestStressEnds(t *testing.T) {
	measured := StressResult{
		End:            EndKnee,
		Steps:          []StressStep{{Rate: 50, Achieved: 49}},
		CheckedPods:    1,
		KneeRate:       49,
		KneeP99Seconds: 1.2,
		Events:         200,
		Late:           3,
	}
	said := text(t, measured.Document())
	testkit.Says(
		t,
		"the summary",
		strings.Join(strings.Fields(said), " "),
		"knee: events began to take more than a second after the last step,",
		"49 containers/s",
		"1.20 s",
		"200 container events, 3 late",
		"after them 200 3 0",
	)
	whole := measured
	whole.Steps = []StressStep{{Rate: 50, Achieved: 49, Events: 200, Late: 3}}
	if said := text(t, whole.Document()); strings.Contains(said, "after them") || !strings.Contains(said, "than a second.") {
		t.Errorf("a step has all late events:\n%s", said)
	}
	stood := whole
	stood.Steps = []StressStep{{Rate: 50, Achieved: 49, Events: 200, Late: 3, StoodSeconds: 2}}
	stood.StoodSeconds = 2
	if said := text(t, stood.Document()); !strings.Contains(said, "pleg-bench itself did not run for 2 s") {
		t.Errorf("that it did not run itself is not told:\n%s", said)
	}
	emptied := whole
	emptied.CheckedPods = 0
	emptied.Judge(false)
	if said := text(t, emptied.Document()); emptied.OK || !strings.Contains(said, "NO VERDICT: calls failed until no pod was left") {
		t.Errorf("that no pod was left is not told:\n%s", said)
	}
	for name, knee := range map[string][2]bool{ // what it says, and what is right
		"after": {measured.IsKnee(0), true},
		"none":  {measured.IsKnee(2), false},
		"whole": {whole.IsKnee(2), true},
		"stood": {stood.IsKnee(0), false},
	} {
		if knee[0] != knee[1] {
			t.Errorf("%s: a knee is %v, want %v", name, knee[0], knee[1])
		}
	}
	for _, test := range []struct {
		set         func(*StressResult)
		unsupported bool
		end         string
	}{
		{func(*StressResult) {}, false, EndKnee},
		{func(*StressResult) {}, true, EndNoEvents},
		{func(r *StressResult) { r.Events = 0 }, false, EndNothing},
		{func(r *StressResult) { r.KneeRate = 0 }, false, EndNothing},
		{func(r *StressResult) { r.End = EndInterrupted }, true, EndInterrupted},
	} {
		r := measured
		test.set(&r)
		r.Judge(test.unsupported)
		if r.End != test.end || r.OK != (test.end == EndKnee) ||
			(len(r.Unmeasured()) > 0) != (test.end == EndNoEvents || test.end == EndNothing) {
			t.Errorf("%+v: end %s, want %s; unmeasured %q", r, r.End, test.end, r.Unmeasured())
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 999: "1 µs", 1500 * time.Microsecond: "1.50 ms", 999900 * time.Microsecond: "1000 ms", 12340 * time.Millisecond: "12.3 s", 300 * time.Second: "300 s",
	} {
		if got := Short(d); got != want {
			t.Errorf("Short(%d) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[uint64]string{5: "5 B", 1536: "1.5 KiB", 3 << 20: "3.0 MiB", 2 << 30: "2.0 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	long := strings.Repeat("word ", 40) + strings.Repeat("x", 100) + " end"
	got := Columns.Fold(long, 4)
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(long), " ") {
		t.Errorf("words were lost or made: %q", got)
	}
	for i, line := range strings.Split(got, "\n") {
		if n := len([]rune(line)); n > int(Columns) && !strings.Contains(line, "xxx") {
			t.Errorf("line %d has %d columns: %q", i, n, line)
		}
		if i > 0 && !strings.HasPrefix(line, "    ") {
			t.Errorf("line %d is not indented: %q", i, line)
		}
	}
	if got := Columns.Fold("short", 4); got != "short" {
		t.Errorf("Fold changed a short line to %q", got)
	}
}

// TestNarrow: a document fits a terminal of 40 columns and more, with all that it says, and no
// number stands apart from its unit.
func TestNarrow(t *testing.T) {
	table := Table{Title: "delay from stamp to here", Columns: []string{"events", "p50", "p90", "p99", "max"}}
	for _, name := range []string{"container STARTED", "sandbox STOPPED"} {
		table.Add(name, "of those received", "1234", "244 µs", "469 µs", "1.20 s", "12.3 s")
	}
	table.Rows = append(
		table.Rows,
		Row{Of: "a measure", Name: "p50", Cells: []string{"1", "", "", "", ""}},
		Row{Of: "a measure", Name: "p99", Cells: []string{"2", "", "", "", ""}},
	)
	texts := Table{}
	texts.Add("took", "", strings.Repeat("lists p50 2.36 ms, 3 KiB; ", 9))
	d := Document{
		Title: "containerd v2.4.2, watched for 4.10 s: 48 events printed",
		Lines: []string{strings.Repeat("a line ", 20)},
		Tables: []Table{
			texts,
			table,
		},
		Story:   []string{strings.Repeat("a story ", 20)},
		Verdict: strings.Repeat("a verdict ", 20),
		Notes: []string{
			"1. " + strings.Repeat("a note ", 20),
			"   - " + strings.Repeat("evidence ", 20),
		},
		Advice: []string{strings.Repeat("advice ", 20)},
	}
	for width := Width(40); width <= Columns; width += 5 {
		var b bytes.Buffer
		testkit.Check(t, d.WriteText(&b, width))
		for line := range strings.Lines(b.String()) {
			line = strings.TrimRight(line, "\n")
			first, _, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
			if n := len([]rune(line)); width < Columns && n > int(width) || slices.Contains(units, strings.TrimRight(first, ",;")) {
				t.Errorf("width %d: a line of %d columns: %q", width, n, line)
			}
		}
		said := strings.Join(strings.Fields(b.String()), " ")
		for _, part := range []string{"1234", "12.3 s", "of those received", "a measure", "p99"} {
			if !strings.Contains(said, part) {
				t.Errorf("width %d: %q is missing:\n%s", width, part, b.String())
			}
		}
		if evidence := strings.Count(b.String(), "\n       evidence"); evidence == 0 {
			t.Errorf("width %d: the evidence is not below its begin:\n%s", width, b.String())
		}
	}
}

// TestHistogram holds quantiles against exact ones, takes what is out of bounds for the nearest,
// and knows emptiness.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var h Histogram
	if h.Seconds() != (LatencyResult{}) {
		t.Error("an empty histogram is not empty")
	}
	for range 10_000 {
		d := time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, d)
		h.Record(d)
	}
	want, got := Summarize(all).Seconds(), h.Seconds()
	for _, pair := range [][2]float64{{want.P50, got.P50}, {want.P90, got.P90}, {want.P99, got.P99}, {want.Max, got.Max}} {
		if off := pair[1]/pair[0] - 1; off < -0.02 || off > 0.02 {
			t.Errorf("%v, want %v within 2 %%", pair[1], pair[0])
		}
	}
	var odd Histogram
	odd.Record(-time.Second)
	odd.Record(48 * time.Hour)
	if s := odd.Seconds(); s.Count != 2 || s.P50 > 1e-5 || s.Max < 3590 {
		t.Errorf("%+v, want one of 1 µs and one of an hour", s)
	}
}

func TestScrape(t *testing.T) {
	got := Scrape([]byte(`# HELP a_total What a counts.
# TYPE a_total counter
a_total 7
go_goroutines 1.2e+01
b_bucket{le="1"} 3
b_bucket{le="+Inf"} 5
c{state="two words",x="} y"} 1
c{state="later"} 2 1700000000000
not_a_number word
alone

last 1`))
	want := map[string]float64{
		"a_total":                      7,
		"go_goroutines":                12,
		`b_bucket{le="1"}`:             3,
		`b_bucket{le="+Inf"}`:          5,
		`c{state="two words",x="} y"}`: 1,
		`c{state="later"}`:             2,
		"last":                         1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
