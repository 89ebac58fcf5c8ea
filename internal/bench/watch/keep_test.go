// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
)

// TestKeep keeps a watch of a stream with flaws, and judges it by bounds of which some are kept.
func TestKeep(t *testing.T) {
	bounds, err := report.ParseExpectations([]string{
		"lists>0", "stream.flaws.malformed=0", "stream.delay.all.p99<1us", "verdict.worth=none", "reports.RelistFailed<1", "stream.flaws.duplicate>0",
	}, watch.BlankSummary())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "kept")
	o := keepFake(t, watch.Keep{Dir: dir, Command: []string{"pleg-bench", "watch", "</script><b>"}, Expect: bounds}, 3*time.Second, "containerd-2", "duplicate=0.3")
	if !errors.Is(o.err, watch.ErrExpectation) || !strings.Contains(o.err.Error(), "p99<1us, it is") || !strings.Contains(o.err.Error(), "verdict.worth=none, it is full") {
		t.Errorf("the error is %v, want two bounds", o.err)
	}
	file := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	var kept watch.Kept
	if err := json.Unmarshal([]byte(file("result.json")), &kept); err != nil {
		t.Fatal(err)
	}
	if kept.Schema != watch.KeepSchema || len(kept.Failures) != 2 || len(kept.Samples) < 3 || kept.Summary.Stream.Received == 0 || kept.EventsKept != 1 {
		t.Errorf("result.json: %d failures, %d samples, %d received", len(kept.Failures), len(kept.Samples), kept.Summary.Stream.Received)
	}
	rows, err := csv.NewReader(strings.NewReader(file("events.csv"))).ReadAll()
	if err != nil || len(rows) != kept.Summary.Stream.Received+1 {
		t.Errorf("events.csv has %d rows for %d events (%v)", len(rows), kept.Summary.Stream.Received, err)
	}
	if text := file("junit.xml"); !strings.Contains(text, `tests="7" failures="2"`) {
		t.Errorf("junit.xml: %s", text)
	}
	if text := file("benchstat.txt"); !strings.Contains(text, "BenchmarkWatch 1 ") || !strings.Contains(text, " delay-p99-sec ") {
		t.Errorf("benchstat.txt: %s", text)
	}
	page := file("report.html")
	for _, want := range []string{"full: the stream told", "were sent twice", "Connected", "events with flaws", "ListContainers"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "</script><b>") {
		t.Error("what the user typed is code on the page")
	}
}
