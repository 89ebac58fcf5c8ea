// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAnotherBuildTakesPart: this very program stands beside itself in every kind of row.
func TestAnotherBuildTakesPart(t *testing.T) {
	b := newBench(t)
	b.before, b.agents, b.idle = b.self, []string{floorName, oursName}, 50*time.Millisecond
	if err := b.joinBefore(); err != nil {
		t.Fatal(err)
	}
	if want := []string{floorName, beforeName, oursName}; !slices.Equal(b.agents, want) {
		t.Fatalf("%v take part, want %v", b.agents, want)
	}
	if got, want := b.among(oursName, kubelet136), []string{beforeName, oursName}; !slices.Equal(got, want) {
		t.Errorf("of ours and a kubelet %v take part, want %v", got, want)
	}
	if err := b.relistOf("relist", small, "small", slices.Clone(b.agents), 3); err != nil {
		t.Fatal(err)
	}
	if err := b.idleNode(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*result{
		b.of("relist", "small", beforeName), b.of("relist", "small", oursName),
		b.of("idle", "later/50ms/generic", beforeName), b.of("idle", "from-start/50ms/evented", beforeName),
	} {
		if len(r.Values[unitCPU]) == 0 || r.median(unitWall) <= 0 {
			t.Errorf("%s, %s, %s: %v", r.Row, r.Case, r.Agent, r.Values)
		}
	}
}

func TestOursIsHeldAgainstAnotherBuildByRounds(t *testing.T) {
	b := new(bench)
	b.of("memory", "containers=10/all", beforeName).Values[unitHeap] = []float64{100, 200, 0, 400}
	b.of("memory", "containers=10/all", oursName).Values[unitHeap] = []float64{110, 180, 1, 400, 7}
	b.of("latency", "generic", oursName).Values["lost"] = []float64{0}
	b.of("latency", "generic", beforeName).Values["lost"] = []float64{0}
	var out strings.Builder
	if err := b.beforeMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n| row, case | measure | before | ours | ours : before | range |\n|---|---|---|---|---|---|\n" +
			"| memory, containers 10, all | heap per container | 150 B | 110 B | 1.000 | 0.900 to 1.100 |\n",
		"| latency, generic | changes nobody told | 0 | 0 |  |  |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks\n%s\n%s", want, out.String())
		}
	}
}

func TestWhatIsNoProgramDoesNotTakePart(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program, agents, want string
	}{
		{filepath.Join(t.TempDir(), "none"), oursName, "no such file"},
		{text, oursName, "is no program"},
		{t.TempDir(), oursName, "is no program"},
		{program, floorName, "not among the -agents"},
	} {
		b := &bench{before: c.program, agents: []string{c.agents}}
		if err := b.joinBefore(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s beside %s: %v, want %q", c.program, c.agents, err, c.want)
		}
	}
}

func TestEveryOtherRoundGoesTheOtherWay(t *testing.T) {
	all := []string{"a", "b", "c"}
	for round, want := range []string{"a b c", "c b a", "a b c"} {
		if got := strings.Join(turns(all, round), " "); got != want {
			t.Errorf("in round %d the turns are %s, want %s", round, got, want)
		}
	}
}
