// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestVerdictGathersDoctor judges the recorded fleet: two nodes are examined, one of them is sick
// and the other was earlier, one is overdue, and the watch of another is an old one.
func TestVerdictGathersDoctor(t *testing.T) {
	args := []string{"verdict", "--prometheus", prometheusServer(t), "--window", "15m", "--trusted", "8s", "--by", "pool", "--selector", `job="pleg-watch"`}
	status, stdout, stderr := fleet(append(args, "-o", "json", "--expect", "doctor.sick=0", "--expect", "doctor.well=1")...)
	if status != 3 || !strings.Contains(stderr, "doctor.sick=0") || strings.Contains(stderr, "doctor.well") {
		t.Errorf("status %d: %s", status, stderr)
	}
	var v Verdict
	testkit.Check(t, json.Unmarshal([]byte(stdout), &v))
	want := Doctor{
		Well:    1,
		Sick:    1,
		Overdue: 1,
		Without: 1,
		Findings: []FleetFinding{
			{ID: "item-hangs", Grade: "sick", Means: "a container or sandbox hangs", Nodes: 2, Now: 1, Examples: []string{"n-b", "n-a"}},
			{ID: "stats-collector", Grade: "costly", Means: "containerd collects all statistics every second", Nodes: 2, Now: 2, Examples: []string{"n-a", "n-b"}},
		},
		Unseen: []FleetUnseen{
			{Area: "processes", Means: "shims and the CPU of the runtime", Nodes: 2},
			{Area: "kubelet", Means: "the kubelet's health", Nodes: 2},
		},
	}
	if diff := cmp.Diff(want, v.Doctor); diff != "" {
		t.Errorf("doctor (-want +got):\n%s", diff)
	}
	if v.Worth != "partial" || len(v.Named) != 3 {
		t.Errorf("the worth is %s with %d nodes named: findings must not change it", v.Worth, len(v.Named))
	}
	_, stdout, _ = fleet(args...)
	testkit.Says(t, "the text", strings.Join(strings.Fields(stdout), " "),
		"doctor: 1 sick of 2 nodes examined; 1 not examined for long; 1 whose watch does not examine",
		"item-hangs sick 2 1 a container or sandbox hangs", "item-hangs: n-b, n-a ",
		"Not looked at by doctor: shims and the CPU of the runtime (2 nodes), the kubelet's health (2 nodes).",
		"in lines of the type Doctor")
}

// TestDiagnose holds the sums against fleets without doctor, of a later version, and with many
// nodes.
func TestDiagnose(t *testing.T) {
	text := func(nodes ...*node) (Doctor, string) {
		v := judge(nodes, time.Now(), time.Hour, time.Minute)
		var b bytes.Buffer
		testkit.Check(t, v.Document().WriteText(&b, bench.Columns))
		return v.Doctor, strings.Join(strings.Fields(b.String()), " ")
	}
	d, said := text(&node{name: "old", state: "Connected"}, &node{name: "gone", silent: "its scrape fails", examined: examined{worth: "sick"}})
	if d.Without != 1 || d.ran() != 0 || strings.Contains(said, "doctor") {
		t.Errorf("old watches: %+v, %s", d, said)
	}
	d, said = text(
		&node{name: "a", examined: examined{runs: true}},
		&node{name: "b", examined: examined{runs: true, worth: "unknown"}},
		&node{name: "c", examined: examined{runs: true, worth: "well", found: map[finding]bool{{"gremlins", "dire"}: true}, unseen: []string{"attic"}}},
	)
	if d.Waiting != 1 || d.Unknown != 1 || d.Well != 1 || d.Findings[0].Means != "" {
		t.Errorf("%+v", d)
	}
	testkit.Says(t, "the text", said, "0 sick of 2 nodes examined; 1 without a result; 1 yet to be examined", "gremlins dire 1 1 ", "gremlins: c ", "attic (1 node)")
	var many []*node
	for i := range 100 {
		many = append(many, &node{name: fmt.Sprintf("n%02d", i), examined: examined{runs: true, worth: "sick", found: map[finding]bool{
			{"disk-full", "sick"}: i >= 90, {"polled", "costly"}: true, {"call-slow", "sick"}: i < 50,
		}}})
	}
	d, said = text(many...)
	var order []string
	for _, f := range d.Findings {
		order = append(order, fmt.Sprint(f.ID, " ", f.Nodes, " ", f.Now, " ", len(f.Examples), " ", f.Examples[0]))
	}
	if diff := cmp.Diff([]string{"call-slow 100 50 30 n00", "disk-full 100 10 30 n90", "polled 100 100 30 n00"}, order); diff != "" {
		t.Errorf("the order of findings (-want +got):\n%s", diff)
	}
	testkit.Says(t, "the text", said, "disk-full sick 100 10 a file system is full", "disk-full: n90, n91, n92, n93, n94 and 95 more")
}
