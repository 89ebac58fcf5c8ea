// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the generated table in docs/metrics.md")

const (
	metricsDoc = "../docs/metrics.md"
	tableBegin = "<!-- begin generated: go test ./metrics -run TestTable -update -->\n"
	tableEnd   = "<!-- end generated -->\n"
)

// table renders every metric as a row of Markdown.
func table() string {
	return "## Of the generator\n\n" + section(pushed, gauges) +
		"\n## Of the CRI client\n\n" + section(nil, clientCounters) + "\n## Of the Event recorder\n\n" + section(nil, eventsMetrics)
}

func section(reported []definition, gauges []gaugeDefinition) string {
	var b strings.Builder
	b.WriteString("| metric | type | meaning | what it tells |\n|---|---|---|---|\n")
	row := func(d definition) {
		name := "`" + d.name + "`"
		if d.label != "" {
			name = "`" + d.name + "{" + d.label + "}`"
		}
		if d.kubelet() {
			name += "<br>(`" + d.registeredName(true) + "`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, strings.ToLower(string(d.kind)), d.help, d.guidance)
	}
	for _, d := range reported {
		row(d)
	}
	for _, g := range gauges {
		row(g.definition)
	}
	return b.String()
}

// TestTable compares the table of docs/metrics.md with the definitions; with -update it rewrites
// the table.
func TestTable(t *testing.T) {
	raw, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), tableBegin)
	if !ok {
		t.Fatalf("%s has no line %q", metricsDoc, tableBegin)
	}
	got, tail, ok := strings.Cut(rest, tableEnd)
	if !ok {
		t.Fatalf("%s has no line %q", metricsDoc, tableEnd)
	}
	if *update {
		if err := os.WriteFile(metricsDoc, []byte(head+tableBegin+table()+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table(), got); diff != "" {
		t.Errorf("%s is out of date; run this test with -update (-want +got):\n%s", metricsDoc, diff)
	}
}

// served returns every name in a scrape, series of histograms included.
func served() map[string]bool {
	names := make(map[string]bool)
	add := func(d definition) {
		for _, omit := range []bool{false, true} {
			names[d.registeredName(omit)] = true
			if d.kind == histogram {
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					names[d.registeredName(omit)+suffix] = true
				}
			}
		}
	}
	for _, d := range pushed {
		add(d)
	}
	for _, g := range slices.Concat(gauges, clientCounters, eventsMetrics) {
		add(g.definition)
	}
	return names
}

// metricName matches our metric names in prose and expressions.
var metricName = regexp.MustCompile(`\b(?:kubelet|kube_pod|evented_pleg|event_recorder)_[a-z_]*[a-z]\b`)

func checkNames(t *testing.T, where, text string) {
	t.Helper()
	names := served()
	for _, name := range metricName.FindAllString(text, -1) {
		if !names[name] {
			t.Errorf("%s names %s, which is not served", where, name)
		}
	}
}

// TestDocsNameOnlyServedMetrics reads every page under docs for names of metrics.
func TestDocsNameOnlyServedMetrics(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages under docs: %v", err)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		checkNames(t, page, string(raw))
	}
}

// TestAlerts checks that alerts use only served names, and that each has a runbook, an explanation
// and a test. The links themselves are internal/archtest's.
func TestAlerts(t *testing.T) {
	read := func(path string) string {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	rules, tests := read("../docs/alerts/evented-pleg.yaml"), read("../docs/alerts/evented-pleg_test.yaml")
	checkNames(t, "alerts", rules)
	checkNames(t, "the alerts' tests", tests)
	pages := map[string]string{"docs/metrics.md": read(metricsDoc), "docs/troubleshooting.md": read("../docs/troubleshooting.md"), "the tests": tests}
	alerts := regexp.MustCompile(`(?m)^  - alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Fatalf("%d alerts, want ten at least", len(alerts))
	}
	for _, alert := range alerts {
		for name, page := range pages {
			if !strings.Contains(page, alert[1]) {
				t.Errorf("%s does not name the alert %s", name, alert[1])
			}
		}
	}
	if n := strings.Count(rules, "/docs/troubleshooting.md#"); n != len(alerts) {
		t.Errorf("%d links to a section for %d alerts", n, len(alerts))
	}
}

// TestDashboards checks that the Grafana dashboards are valid JSON, that their panels have
// expressions of served names only, and that each metric has a panel.
func TestDashboards(t *testing.T) {
	boards, err := filepath.Glob("../docs/dashboards/*.json")
	if err != nil || len(boards) < 2 {
		t.Fatalf("dashboards: %v, %v", boards, err)
	}
	for _, board := range boards {
		t.Run(filepath.Base(board), func(t *testing.T) { checkDashboard(t, board) })
	}
	hasPanels(t, "../docs/dashboards/events.json", definitions(eventsMetrics))
	hasPanels(t, "../docs/dashboards/evented-pleg.json", slices.Concat(pushed, definitions(gauges), definitions(clientCounters)))
}

func definitions(gauges []gaugeDefinition) (list []definition) {
	for _, g := range gauges {
		list = append(list, g.definition)
	}
	return list
}

// hasPanels checks that a dashboard shows each of the metrics under every name.
func hasPanels(t *testing.T, path string, list []definition) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shown := metricName.FindAllString(string(raw), -1)
	for _, d := range list {
		for _, omit := range []bool{false, true} {
			name := d.registeredName(omit)
			if !slices.Contains(shown, name) && !slices.Contains(shown, name+"_bucket") {
				t.Errorf("%s: %s has no panel", path, name)
			}
		}
	}
}

func checkDashboard(t *testing.T, path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID                 int
			Title, Description string
			GridPos            struct{ H, W, X, Y int }
			Targets            []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) == 0 {
		t.Fatalf("dashboard lacks a title, a uid or panels")
	}
	ids, described := make(map[int]bool), make(map[string]string)
	for _, p := range board.Panels {
		if other, ok := described[p.Description]; ok && p.Description != "" {
			t.Errorf("panel %q has the description of panel %q", p.Title, other)
		}
		described[p.Description] = p.Title
		if ids[p.ID] {
			t.Errorf("panel id %d is used twice", p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.W == 0 || p.GridPos.H == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q does not fit the grid: %+v", p.Title, p.GridPos)
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no targets", p.Title)
		}
		for _, target := range p.Targets {
			if !metricName.MatchString(target.Expr) {
				t.Errorf("panel %q: expression %q names no metric", p.Title, target.Expr)
			}
			if n := strings.Count(target.Expr, "(") - strings.Count(target.Expr, ")"); n != 0 {
				t.Errorf("panel %q: expression %q has unbalanced parentheses", p.Title, target.Expr)
			}
		}
	}
	checkNames(t, path, string(raw))
}
