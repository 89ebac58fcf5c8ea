// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
)

// result is that of a run whose changes take about as long as given.
func result(typical time.Duration, lists int) *bench.Result {
	r := &bench.Result{
		Schema: bench.Schema, OK: true, Failures: []string{},
		Runtime: bench.RuntimeResult{Name: "containerd", Version: "v2.4.2", Profile: "containerd-2"},
		Load:    bench.LoadResult{Pods: 10, Containers: 2, Rate: 100, DurationSeconds: 10},
		ComparisonResult: bench.ComparisonResult{
			PLEG: bench.PLEGResult{Mode: "evented", State: "Connected"},
			Cost: bench.CostResult{PLEGCPUSeconds: 0.4, PLEGMaxRSSBytes: 40 << 20, Relists: lists, RPCs: map[string]int{"ListContainers": lists, "ContainerStatus": 900}},
		},
		Outage: &bench.OutageResult{Kind: "restart", AtSeconds: 4, DownSeconds: 0.5},
	}
	random := rand.New(rand.NewPCG(1, uint64(typical)))
	series := bench.Series{Mode: "evented"}
	var all []time.Duration
	for i := range 1000 {
		d := time.Duration((0.5 + random.Float64()) * float64(typical))
		all = append(all, d)
		series.Points = append(series.Points, bench.Point{At: time.Duration(i) * 10 * time.Millisecond, Latency: d})
	}
	for i := range 50 {
		state := "Connected"
		if i >= 20 && i < 25 {
			state = "Backoff"
		}
		series.Samples = append(series.Samples, bench.Sample{At: float64(i) * 0.2, State: state, Lists: i / 5, Reads: i * 3, CPUSeconds: float64(i) * 0.01, HeapBytes: 30 << 20, PeriodSeconds: 1})
	}
	r.Latency = bench.Summarize(all).Seconds()
	r.Series = []bench.Series{series}
	return r
}

func save(t *testing.T, r *bench.Result, expect ...string) (*report.Saved, string) {
	t.Helper()
	list, err := report.ParseExpectations(expect, report.BlankRun())
	if err != nil {
		t.Fatal(err)
	}
	s := report.New(time.Unix(1_700_000_000, 0), []string{"pleg-bench", "run", "--fault", "</script><b>"}, r, list)
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestFiles(t *testing.T) {
	s, dir := save(t, result(time.Millisecond, 3), "latency.p99<5ms", "cost.rpcs.ContainerStatus<10", "cost.rpcs.Version=0")
	if len(s.Failures) != 2 || !strings.Contains(s.Failures[0], "it is 900") || !strings.Contains(s.Failures[1], "no such number") {
		t.Errorf("failures %q, want the calls, and what was not measured", s.Failures)
	}
	back, err := report.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if back.Sides[0].Latency.Count() != 1000 || back.Result.Latency != s.Result.Latency || len(back.Sides[0].Samples) != 50 {
		t.Errorf("what was read back differs: %+v", back)
	}
	rows, err := csv.NewReader(strings.NewReader(read(t, dir, "changes.csv"))).ReadAll()
	if err != nil || len(rows) != 1001 || !cmp.Equal(rows[0], []string{"mode", "at_seconds", "latency_seconds"}) {
		t.Errorf("changes.csv has %d rows (%v)", len(rows), err)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
	}
	if err := xml.Unmarshal([]byte(read(t, dir, "junit.xml")), &suite); err != nil || suite.Tests != 4 || suite.Failures != 2 {
		t.Errorf("junit.xml: %+v (%v), want 2 failures of 4", suite, err)
	}
	if line := read(t, dir, "benchstat.txt"); !strings.Contains(line, "BenchmarkRun/mode=evented/pods=10/rate=100 1 ") || !strings.Contains(line, " p99-sec") {
		t.Errorf("benchstat.txt: %s", line)
	}
}

// TestPage wants one file without links to anything outside, in which nothing of a run is code.
func TestPage(t *testing.T) {
	r := result(time.Millisecond, 3)
	r.Runtime.Name = "</script><img src=x>"
	_, dir := save(t, r)
	page := read(t, dir, "report.html")
	for _, bad := range []string{"<b>", "<img", "http://", "src=\"", "<link", "@import"} {
		if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org", ""), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"PASS", "Backoff", "uPlot", "runtime restart", "ListContainers", "percentiles"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestExpectations(t *testing.T) {
	r := result(time.Millisecond, 3)
	for text, kept := range map[string]bool{
		"latency.p99<5ms": true, "latency.p99<0.1ms": false, "latency_seconds.p99 <= 0.005": true, "events.missed=0": true, "events.missed>0": false,
		"cost.pleg_max_rss<64MiB": true, "cost.pleg_max_rss<1MiB": false, "ok=1": true, "load.pods>=10": true, "outage.at<5s": true, "stall.for<1s": false,
		"comparison.latency.p50<1s": false, "pleg.state=Connected": true, "runtime.name = containerd": true, "pleg.mode=generic": false,
	} {
		list, err := report.ParseExpectations([]string{text}, report.BlankRun())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := list[0].Check(r); (err == nil) != kept {
			t.Errorf("%s: %v, want kept %v", text, err, kept)
		}
	}
	for _, bad := range []string{"", "latency", "latency<", "<5", "latency<5ms", "nothing.p99<5ms", "latency.p99<5 parsecs", "latency.p99!5", "pleg.state<5", "runtime.name>=x"} {
		if _, err := report.ParseExpectations([]string{bad}, report.BlankRun()); err == nil || !strings.Contains(err.Error(), "--expect") {
			t.Errorf("%q is taken for a bound: %v", bad, err)
		}
	}
}

func TestCompare(t *testing.T) {
	a, _ := save(t, result(time.Millisecond, 3))
	again, _ := save(t, result(time.Millisecond+time.Nanosecond, 4))
	slow, _ := save(t, result(2*time.Millisecond, 60))
	sure := func(c report.Comparison) map[string]string {
		m := make(map[string]string)
		for _, d := range c.Differences {
			m[d.Name] = d.Sure
		}
		return m
	}
	for name, test := range map[string]struct {
		b    *report.Saved
		want string
	}{"the same again": {again, "same"}, "twice as slow": {slow, "differs"}} {
		c := report.Compare(a.UnderTest("a"), test.b.UnderTest("b"))
		for _, of := range []string{"change told on Watch after, p50", "change told on Watch after, p99", "lists of the whole runtime"} {
			if got := sure(c)[of]; got != test.want {
				t.Errorf("%s: %s: %s, want %s", name, of, got, test.want)
			}
		}
		if got := sure(c)["CPU"]; got != "one run each" {
			t.Errorf("CPU: %s: one run tells nothing of the spread", got)
		}
		var text bytes.Buffer
		if err := c.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	other := result(time.Millisecond, 3)
	other.Load.Pods = 99
	b, _ := save(t, other)
	if c := report.Compare(a.UnderTest("a"), b.UnderTest("b")); len(c.Unlike) != 1 || !strings.Contains(c.Unlike[0], "pods: 10 and 99") {
		t.Errorf("unlike: %q", c.Unlike)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.json": "", "other.json": `{"schema":"x"}`, "list.json": "[]"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := report.Load(path); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := report.Load(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a missing file is read")
	}
}

// stressResult is that of a stress test of three steps.
func stressResult() *bench.StressResult {
	r := &bench.StressResult{Schema: bench.StressSchema, OK: true, End: bench.EndMaxRate, Runtime: bench.RuntimeResult{Name: "crio", Version: "1.36"}, KneeRate: 90, KneeP99Seconds: 0.02}
	for i, rate := range []float64{25, 50, 100} {
		h := new(bench.Histogram)
		for k := range 100 {
			h.Record(time.Duration(k*(i+1)) * 100 * time.Microsecond)
		}
		r.Steps = append(r.Steps, bench.StressStep{Rate: rate, Achieved: 0.9 * rate, Events: 100, Latency: h.Seconds(), PLEGCPU: 0.1, Histogram: h})
	}
	return r
}

func TestStressFiles(t *testing.T) {
	list, err := report.ParseExpectations([]string{"knee_rate>50", "missed=0", "knee_p99<1ms", "end=max-rate"}, new(bench.StressResult))
	if err != nil {
		t.Fatal(err)
	}
	s := report.NewStress(time.Unix(1_700_000_000, 0), []string{"pleg-bench", "stress"}, stressResult(), list)
	if len(s.Failures) != 1 || !strings.Contains(s.Failures[0], "knee_p99<1ms, it is 20 ms") {
		t.Errorf("failures %q, want that of the latency", s.Failures)
	}
	dir := t.TempDir()
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(read(t, dir, "steps.csv"))).ReadAll()
	if err != nil || len(rows) != 4 || rows[3][0] != "100" || rows[3][1] != "90" {
		t.Errorf("steps.csv: %v (%v)", rows, err)
	}
	if text := read(t, dir, "benchstat.txt"); strings.Count(text, "BenchmarkStress/rate=") != 3 || !strings.Contains(text, "BenchmarkStressKnee 1 90 achieved/s") {
		t.Errorf("benchstat.txt: %s", text)
	}
	var back struct {
		Result    bench.StressResult `json:"result"`
		Histogram []*bench.Histogram `json:"latency_histograms"`
	}
	if err := json.Unmarshal([]byte(read(t, dir, "result.json")), &back); err != nil || len(back.Histogram) != 3 || back.Histogram[2].Count() != 100 || back.Result.KneeRate != 90 {
		t.Errorf("result.json: %+v (%v)", back, err)
	}
	if text := read(t, dir, "junit.xml"); !strings.Contains(text, `tests="5" failures="1"`) {
		t.Errorf("junit.xml: %s", text)
	}
	for _, want := range []string{"max-rate", "90/s", "most: 90/s", "uPlot"} {
		if text := read(t, dir, "report.html"); !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, err := report.Load(dir); err == nil || !strings.Contains(err.Error(), report.StressSchema) {
		t.Errorf("a stress test is taken for a run: %v", err)
	}
}

// TestComparisonPage compares two runs, and the generators of one, each read back from its folder.
func TestComparisonPage(t *testing.T) {
	r := result(time.Millisecond, 3)
	beside := result(time.Second, 10)
	r.Comparison = &bench.ComparisonResult{PLEG: bench.PLEGResult{Mode: "generic"}, Latency: beside.Latency, Cost: beside.Cost}
	r.Series = append(r.Series, bench.Series{Mode: "generic", Points: beside.Series[0].Points, Samples: beside.Series[0].Samples})
	_, a := save(t, r)
	_, b := save(t, result(2*time.Millisecond, 60))
	for _, paths := range [][]string{{a, b}, {a}} {
		x, y, err := report.LoadPair(paths...)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := report.WriteComparison(dir, []string{"pleg-bench", "compare"}, x, y); err != nil {
			t.Fatal(err)
		}
		page := read(t, dir, "report.html")
		for _, want := range []string{"change told on Watch after, p99", "differs", "one run each", "ListContainers", `"id":"quantiles"`, `"id":"scatter"`} {
			if !strings.Contains(page, want) {
				t.Errorf("%d paths: the page lacks %q", len(paths), want)
			}
		}
		if !strings.Contains(page, "0.99,") {
			t.Error("the page lacks the changes of the runs")
		}
		// The restart of one run is marked once on each of the six charts over time, those of two by name.
		one, first, second := `"text":"runtime restart"`, `"text":"A: runtime restart"`, `"text":"B: runtime restart"`
		for text, n := range map[string]int{one: 12 - 6*len(paths), first: 6*len(paths) - 6, second: 6*len(paths) - 6} {
			if got := strings.Count(page, text); got != n {
				t.Errorf("%d paths: %s is there %d times, want %d", len(paths), text, got, n)
			}
		}
	}
	if _, _, err := report.LoadPair(b); err == nil || !strings.Contains(err.Error(), "one generator") {
		t.Errorf("a run of one generator is compared with itself: %v", err)
	}
	if err := os.WriteFile(filepath.Join(b, "changes.csv"), []byte("mode,at_seconds,latency_seconds\nother,1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := report.Load(b); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("changes of no generator are read: %v", err)
	}
}

// TestNoChartStandsAlone: of charts of which two stand side by side, the last one is wide if it has no
// neighbour, and a mark over a time tells its end.
func TestNoChartStandsAlone(t *testing.T) {
	chart := func(id string, wide bool) report.Chart {
		c := report.Overtime(id, "title "+id, "s", report.Line{Name: "line"})
		c.Wide, c.Marks = wide, []report.Mark{{At: 1, To: 2, Text: "restart"}}
		return c
	}
	wide := func(charts ...report.Chart) (n int) {
		var page strings.Builder
		if err := (report.Page{Charts: charts}).Write(&page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), `"marks":[{"at":1,"to":2,"text":"restart"}]`) {
			t.Error("the page lacks the mark")
		}
		return strings.Count(page.String(), `<div class="card wide">`)
	}
	a, b, c, d := chart("a", true), chart("b", false), chart("c", false), chart("d", false)
	if n := wide(a, b, c); n != 1 {
		t.Errorf("%d wide charts of a wide one and two more, want the one", n)
	}
	if n := wide(a, b, c, d); n != 2 {
		t.Errorf("%d wide charts of a wide one and three more, want the first and the last", n)
	}
	if n := wide(b); n != 1 {
		t.Errorf("%d wide charts of one, want it", n)
	}
}
