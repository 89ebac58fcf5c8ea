// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/junit"
)

func example() *Suite {
	return &Suite{
		Name: "node-e2e", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Runtime: "containerd v2.4.2",
		Results: []Result{
			{
				Name: "01-lifecycle", Source: "KEP-3386 Test Plan", Outcome: Passed, Took: 1500 * time.Millisecond,
				Figures: []Figure{{"events", "12"}, {"latency", "0.40/1.20/3.00ms(n=12)"}},
			},
			{
				Name: "03-recovery", Source: "KEP-3386", Outcome: Failed, Took: 2 * time.Second,
				Messages: []string{"want <exited> & got running\nsecond line", "control \x01 character"}, Logs: "build/logs/03",
			},
			{Name: "04-restart", Source: "KEP-3386", Outcome: NotApplicable, Messages: []string{"needs to restart the runtime"}},
		},
	}
}

func TestLine(t *testing.T) {
	want := []string{
		"PASS 01-lifecycle                1.5s  events=12  latency=0.40/1.20/3.00ms(n=12)",
		"FAIL 03-recovery                 2.0s",
		"N/A  04-restart                  0.0s  needs to restart the runtime",
	}
	var got []string
	for _, r := range example().Results {
		got = append(got, r.Line())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if got, want := example().Summary(), "1 passed, 1 failed, 1 not applicable in 4s (containerd v2.4.2)"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	var details strings.Builder
	for _, r := range example().Results {
		r.WriteDetails(&details)
	}
	for _, want := range []string{"want <exited>", "second line", "logs: build/logs/03"} {
		if !strings.Contains(details.String(), want) {
			t.Errorf("details lack %q:\n%s", want, details.String())
		}
	}
}

func TestJUnitCanBeRead(t *testing.T) {
	var out strings.Builder
	if err := example().WriteJUnit(&out); err != nil {
		t.Fatal(err)
	}
	var got junit.Suite
	if err := xml.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if got.Tests != 3 || got.Failures != 1 || got.Skipped != 1 || len(got.Cases) != 3 {
		t.Fatalf("counts %+v", got)
	}
	failure := got.Cases[1].Failure
	if failure == nil || failure.Message != "want <exited> & got running" || !strings.Contains(failure.Text, "second line") {
		t.Errorf("failure %+v", failure)
	}
	if strings.ContainsRune(out.String(), 1) {
		t.Error("a control character is in the XML")
	}
	properties := got.Cases[0].Properties
	if diff := cmp.Diff(junit.Property{Name: "events", Value: "12"}, properties[1]); diff != "" {
		t.Errorf("figure (-want +got):\n%s", diff)
	}
}

func TestMarkdown(t *testing.T) {
	var out strings.Builder
	if err := example().WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	if want := "| 01-lifecycle | PASS | 1.5 s | events 12 · latency 0.40/1.20/3.00ms(n=12) |"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in:\n%s", want, out.String())
	}
}

func TestQuantiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := Quantiles(hundred), "50.0/99.0/100ms(n=100)"; got != want {
		t.Errorf("Quantiles = %q, want %q", got, want)
	}
}
