// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/embed"
)

// The pages with figures of what is installed.
const (
	embedPage = "../../docs/embed.md"
	kepPage   = "../../docs/kep/README.md"
	kepYAML   = "../../docs/kep/kep.yaml"
)

// pageText returns a page.
func pageText(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	check(t, err)
	return string(text)
}

// number returns the number that a page writes with commas between thousands; nothing is zero.
func number(written string) int {
	n, _ := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(written), ",", ""))
	return n
}

// far reports whether a written number is more than a tenth off.
func far(written, counted int) bool {
	return max(written, counted)-min(written, counted) > counted/10
}

// partLines are the lines of a part of the series: code, tests, changed in files of the tree.
type partLines [3]int

// countedParts returns the lines of each part of the series, in its order.
func countedParts(t *testing.T) (parts []partLines) {
	t.Helper()
	var report bytes.Buffer
	check(t, writeSeries(t.Context(), newTree(t, methods136), t.TempDir(), &report))
	for line := range strings.Lines(report.String()) {
		var name string
		var of partLines
		_, err := fmt.Sscanf(line, "%s %d lines of code, %d of tests, %d changed", &name, &of[0], &of[1], &of[2])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		parts = append(parts, of)
	}
	if len(parts) != len(commits) {
		t.Fatalf("%d parts are counted, want %d", len(parts), len(commits))
	}
	return parts
}

// TestLinesInTheDocument compares the lines of each part with the tables of docs/embed.md and of
// the KEP, and their sums with the KEP's text. They may be a tenth off.
func TestLinesInTheDocument(t *testing.T) {
	parts := countedParts(t)
	for _, page := range []string{embedPage, kepPage} {
		_, table, found := strings.Cut(pageText(t, page), "| | code | tests | changed |\n|---|---:|---:|---:|\n")
		if !found {
			t.Errorf("%s has no table of the parts", page)
			continue
		}
		rows := strings.Split(table, "\n")
		for i, counted := range parts {
			cells := strings.Split(rows[i], "|")
			if len(cells) != 6 {
				t.Fatalf("%s has no row for %s: %q", page, patchName(i), rows[i])
			}
			for j, n := range counted {
				if written := number(cells[2+j]); far(written, n) {
					t.Errorf("%s has %d lines, and %s says %d in %q", patchName(i), n, page, written, rows[i])
				}
			}
		}
	}
}

// TestSumsInTheKEP compares the sums of lines in the KEP's text.
func TestSumsInTheKEP(t *testing.T) {
	parts := countedParts(t)
	var core, generator, lists, tests int
	for i, c := range commits {
		if c.part == partCore {
			core = parts[i][0]
		}
		switch c.part {
		case partCache, partCore, partAdapter, partGate:
			generator += parts[i][0]
		case partLedger, partLists:
			lists += parts[i][0]
		}
		tests += parts[i][1]
	}
	page := strings.Join(strings.Fields(pageText(t, kepPage)), " ")
	for _, want := range []struct {
		said    string // with a group for the number
		counted int
	}{
		{`([\d,]+) lines of code for the generator`, generator},
		{`and ([\d,]+) for lists`, lists},
		{`([\d,]+) lines of tests`, tests},
		{`the core's ([\d,]+) lines`, core},
		{`part one has ([\d,]+) lines of code`, generator},
	} {
		m := regexp.MustCompile(want.said).FindStringSubmatch(page)
		switch {
		case m == nil:
			t.Errorf("the KEP does not say %q", want.said)
		case far(number(m[1]), want.counted):
			t.Errorf("the KEP says %q, and %d lines are counted", m[0], want.counted)
		}
	}
	if want := inWords[len(commits)] + " commits"; !strings.Contains(page, want) {
		t.Errorf("the KEP does not say %q", want)
	}
}

// inWords are the numbers that the text writes as words.
var inWords = map[int]string{8: "eight", 9: "nine", 10: "ten"}

// TestContentsOfTheKEP wants the headings of the KEP in its table of contents, as upstream's
// hack/update-toc.sh writes them: down to the fifth level.
func TestContentsOfTheKEP(t *testing.T) {
	page := pageText(t, kepPage)
	_, rest, _ := strings.Cut(page, "<!-- toc -->\n")
	contents, _, _ := strings.Cut(rest, "<!-- /toc -->")
	var want strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^(##{1,4}) (.*)$`).FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[2]), "")
		anchor = strings.ReplaceAll(anchor, " ", "-")
		fmt.Fprintf(&want, "%s- [%s](#%s)\n", strings.Repeat("  ", len(m[1])-2), m[2], anchor)
	}
	if diff := cmp.Diff(want.String(), contents); diff != "" {
		t.Errorf("the contents (-headings +contents): %s", diff)
	}
}

// TestGatesAndMetricsOfTheKEP wants every gate and every metric that the patches add in kep.yaml.
func TestGatesAndMetricsOfTheKEP(t *testing.T) {
	listed := pageText(t, kepYAML)
	gate := regexp.MustCompile(`(?m)^\+\t(\w+) +featuregate\.Feature = `)
	metric := regexp.MustCompile(`(?m)^\+\t\w+Key += "(\w+)"`)
	var gates, metrics int
	for _, name := range patches {
		patch, err := fs.ReadFile(embed.Sources, "kubelet/"+name)
		check(t, err)
		for _, m := range gate.FindAllStringSubmatch(string(patch), -1) {
			gates++
			if !strings.Contains(listed, "  - name: "+m[1]+"\n") {
				t.Errorf("kep.yaml does not list the gate %s", m[1])
			}
		}
		for _, m := range metric.FindAllStringSubmatch(string(patch), -1) {
			metrics++
			if !strings.Contains(listed, "  - kubelet_"+m[1]+"\n") {
				t.Errorf("kep.yaml does not list the metric kubelet_%s", m[1])
			}
		}
	}
	if gates < 4 || metrics < 14 {
		t.Errorf("the patches add %d gates and %d metrics: is the test in its place?", gates, metrics)
	}
}

// TestDaysInTheDocument wants the CPU-seconds a node-day and the ratio of each row of the table of
// an idle node to follow from the other cells of the row, and the KEP's rows to be of that table.
func TestDaysInTheDocument(t *testing.T) {
	page := pageText(t, embedPage)
	_, table, _ := strings.Cut(page, "| runtime, pods | kubelet | daemon | shims | both | CPU-s a node-day |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	pair := regexp.MustCompile(`([\d.]+) → ([\d.]+)`)
	rows := strings.Split(table, "\n")[1:]
	if len(rows) < 9 {
		t.Fatalf("the table has %d rows: is the test in its place?", len(rows))
	}
	said := make(map[string]bool) // a ratio and CPU-seconds
	for _, row := range rows {
		var stock, ours float64
		cells := strings.Split(row, "|")
		for _, m := range pair.FindAllStringSubmatch(row, -1) {
			of, _ := strconv.ParseFloat(m[1], 64)
			to, _ := strconv.ParseFloat(m[2], 64)
			stock += of
			ours += to
		}
		days := int(math.Round((stock-ours)*86.4/10)) * 10 // ms/s are 86.4 s a day each
		if len(cells) != 8 || number(cells[6]) != days {
			t.Errorf("%q: %.1f → %.1f ms/s are %d CPU-seconds a day", row, stock, ours, days)
			continue
		}
		ratio, _ := strconv.ParseFloat(strings.Trim(cells[5], " *"), 64)
		if math.Abs(ratio-ours/stock) > 0.01 {
			t.Errorf("%q: the ratio is %.3f", row, ours/stock)
		}
		said[fmt.Sprintf("%.2f, %d", ratio, days)] = true
	}
	row := regexp.MustCompile(`(?m)^\| .* → .* \| ([\d.]+) \| (\d+) \|$`)
	kept := row.FindAllStringSubmatch(pageText(t, kepPage), -1)
	if len(kept) < 5 {
		t.Errorf("the KEP's table has %d rows: is the test in its place?", len(kept))
	}
	for _, m := range kept {
		if !said[m[1]+", "+m[2]] {
			t.Errorf("the KEP says %q, and docs/embed.md does not", m[0])
		}
	}
}
