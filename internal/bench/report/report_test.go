// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// result is that of a run with a restart.
func result() *bench.Result {
	r := &bench.Result{
		Schema:  bench.Schema,
		Runtime: bench.RuntimeResult{Name: "containerd", Version: "v2.4.2", Profile: "containerd-2"},
		Load:    bench.LoadResult{Pods: 10, Containers: 2, Rate: 100, DurationSeconds: 10, Changes: 1000},
		ComparisonResult: bench.ComparisonResult{
			PLEG:        bench.PLEGResult{Mode: "evented", State: "Connected"},
			Latency:     bench.LatencyResult{Count: 1000, P50: 0.001, P90: 0.002, P99: 0.003, Max: 0.004},
			Consistency: bench.ConsistencyResult{CheckedPods: 10},
			Cost: bench.CostResult{
				PLEGCPUSeconds:  0.4,
				PLEGMaxRSSBytes: 40 << 20,
				Relists:         3,
				RPCs:            map[string]int{"ListContainers": 3, "ContainerStatus": 900},
			},
		},
		Outage: &bench.OutageResult{AtSeconds: 4, DownSeconds: 0.5},
	}
	r.Judge(false)
	return r
}

// timeline is that of one generator.
func timeline() []bench.Series {
	s := bench.Series{Name: "evented"}
	for i := range 50 {
		state := "Connected"
		if i >= 20 && i < 25 {
			state = "Backoff"
		}
		s.Points = append(s.Points, bench.Point{float64(i) * 0.2, 0.001 * float64(i)})
		s.Samples = append(
			s.Samples,
			bench.Sample{
				At:            float64(i) * 0.2,
				State:         state,
				Lists:         i / 5,
				Reads:         i * 3,
				CPUSeconds:    float64(i) * 0.01,
				HeapBytes:     30 << 20,
				PeriodSeconds: 1,
			},
		)
	}
	return []bench.Series{s}
}

func save(t *testing.T, found bench.Finding, expect ...string) (s Saved, read func(name string) string) {
	t.Helper()
	bounds := testkit.Must(ParseExpectations(expect, BlankRun(), nil))(t)
	s = Saved{
		Kind:     "run",
		Began:    time.Unix(1_700_000_000, 0),
		Command:  []string{"pleg-bench", "</script><b>"},
		Result:   found,
		Timeline: timeline(),
		Setup:    map[string]string{"rate": "100", "fault": "[drop=0.1 cut=1]"},
	}
	s.Expect(bounds)
	dir := filepath.Join(t.TempDir(), "new", "folder")
	testkit.Check(t, s.Write(dir))
	return s, func(name string) string {
		raw := testkit.Must(os.ReadFile(filepath.Join(dir, name)))(t)
		return string(raw)
	}
}

func TestFiles(t *testing.T) {
	s, read := save(t, result(), "latency.p99<5ms", "cost.rpcs.ContainerStatus<10", "cost.rpcs.Version=0")
	if len(s.Failures) != 2 || !strings.Contains(s.Failures[0], "it is 900") ||
		!strings.Contains(s.Failures[1], "no such number") {
		t.Errorf("failures %q, want the calls, and what was not measured", s.Failures)
	}
	var back struct {
		Schema   string
		Result   bench.Result
		Timeline []bench.Series
		Failures []string `json:"expectations_failed"`
	}
	if err := json.Unmarshal([]byte(read("result.json")), &back); err != nil || back.Schema != Schema || back.Result.Latency != result().Latency ||
		len(back.Timeline[0].Points) != 50 || len(back.Timeline[0].Samples) != 50 || len(back.Failures) != 2 {
		t.Errorf("result.json: %v, schema %s, %d failures", err, back.Schema, len(back.Failures))
	}
	if text := read(BenchmarksFile); !strings.Contains(text, "fault: [drop=0.1 cut=1]\nrate: 100\nverdict: PASS\nBenchmarkRun/mode=evented 1 903 calls 0.4 cpu-sec 3 lists ") || !strings.Contains(text, " 0.003 p99-sec") {
		t.Errorf("%s: %s", BenchmarksFile, text)
	}
	testkit.Says(
		t,
		"the page",
		read(pageFile),
		"PASS",
		"it is 900",
		"3 ms",
		"<td>903</td>",
		"<td>3</td>",
		"<td>400 ms</td>",
		"Backoff",
		"uPlot",
		`"text":"runtime restart"`,
		`"points":[[0,`,
	)
}

// TestPageIsOneFile wants no link to anything outside, and nothing of a finding as code.
func TestPageIsOneFile(t *testing.T) {
	r := result()
	r.Runtime.Name = "</script><img src=x>"
	_, read := save(t, r)
	for _, bad := range []string{"<b>", "<img", "http://", "src=\"", "<link", "@import"} {
		if strings.Contains(strings.ReplaceAll(read(pageFile), "http://www.w3.org", ""), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
}

// TestNoHalfFiles: a failure in the middle, as of a full disk, leaves the files of before.
func TestNoHalfFiles(t *testing.T) {
	dir := t.TempDir()
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	testkit.Check(t, (files{"a": text("old"), "b": text("old")}).write(dir))
	full := errors.New("no space left on device")
	broken := files{
		"a": text("new"),
		"b": func(w io.Writer) error { _, _ = io.WriteString(w, "ne"); return full },
	}
	if err := broken.write(dir); !errors.Is(err, full) {
		t.Errorf("the error is %v", err)
	}
	for _, name := range []string{"a", "b"} {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != "old" {
			t.Errorf("%s holds %q (%v), want what was there before", name, raw, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestDeadFolder: files on a mount that died during the work hold up no end of the program.
func TestDeadFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		never := make(chan struct{})
		defer close(never)
		begun := time.Now()
		err := files{"a": func(io.Writer) error { <-never; return io.EOF }}.write(dir)
		unanswered, ok := errors.AsType[*deadmount.Unanswered](err)
		if !ok || unanswered.Path != dir || !strings.HasPrefix(err.Error(), "--out: ") {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(begun); took > 2*deadmount.FilesIn {
			t.Errorf("left after %v", took)
		}
	})
}

func TestExpectations(t *testing.T) {
	r := result()
	for text, kept := range map[string]bool{
		"latency.p99<5ms": true, "latency.p99<0.1ms": false, "latency_seconds.p99 <= 0.005": true, "events.missed=0": true, "events.missed>0": false,
		"cost.pleg_max_rss<64MiB": true, "cost.pleg_max_rss<1MiB": false, "ok=1": true, "load.pods>=10": true, "outage.at<5s": true,
		"comparison.latency.p50<1s": false, "pleg.state=Connected": true, "runtime.name = containerd": true, "pleg.mode=generic": false,
		// What was not measured keeps no bound.
		"freshness.p99<1s": false, "freshness.stale_reads=0": false, "event_latency.max<1s": false, "events.unseen=0": false,
	} {
		list, err := ParseExpectations([]string{text}, BlankRun(), nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := list[0].Check(r); (err == nil) != kept {
			t.Errorf("%s: %v, want kept %v", text, err, kept)
		}
	}
	for _, text := range []string{"events.missed=0", "pleg.overruled=0"} {
		polled := result()
		polled.PLEG.State = "Unsupported"
		if list, err := ParseExpectations([]string{text}, BlankRun(), nil); err != nil || list[0].Check(polled) == nil {
			t.Errorf("%s is kept where there is no stream (%v)", text, err)
		}
	}
	for _, text := range []string{"late=0", "knee_rate>=0", "missed=0"} {
		nothing := &bench.StressResult{CheckedPods: 1}
		nothing.Judge(true)
		if list, err := ParseExpectations([]string{text}, new(bench.StressResult), nil); err != nil || list[0].Check(nothing) == nil {
			t.Errorf("%s is kept by a stress test without events (%v)", text, err)
		}
	}
	for _, bad := range []string{"", "latency", "latency<", "<5", "latency<5ms", "cost.rpcs=0", "latency.p98<5ms", "nothing.p99<5ms", "latency.p99<5 parsecs", "latency.p99!5", "pleg.state<5", "runtime.name>=x", "latency.p99<NaN", "latency.p99<NaNMiB"} {
		if _, err := ParseExpectations([]string{bad}, BlankRun(), nil); err == nil || !strings.Contains(err.Error(), "--expect") {
			t.Errorf("%q is taken for a bound: %v", bad, err)
		}
	}
}

// TestPlaceOf: findings are numbered by their text, and their evidence stands below them.
func TestPlaceOf(t *testing.T) {
	for note, want := range map[string]string{
		"1. sick: it hangs.": "numbered", "12. note: x": "numbered", "   - no answer": "under", "   → kill -CONT 7": "under",
		"pod a. b differs": "", "expected missed=0, it is 25": "", "": "",
	} {
		if got := placeOf(note); got != want {
			t.Errorf("the place of %q is %q, want %q", note, got, want)
		}
	}
}
