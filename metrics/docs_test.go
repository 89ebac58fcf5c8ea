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

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// table renders every metric as a row of Markdown.
func table() string {
	return "## Of the generator\n\n" + section(slices.Concat(pushed, gauges)) +
		"\n## Of the CRI client\n\n" + section(clientCounters) + "\n## Of the Event recorder\n\n" + section(eventsMetrics)
}

func section(list []definition) string {
	var b strings.Builder
	b.WriteString("| metric | type | meaning, and what its values tell |\n|---|---|---|\n")
	for _, d := range list {
		name := "`" + d.name + "`"
		if d.label != "" {
			name = "`" + d.name + "{" + d.label + "}`"
		}
		if d.kubelet() {
			name += "<br>(`" + d.registeredName(true) + "`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s |\n", name, strings.ToLower(string(d.kind)), d.help, d.guidance)
	}
	return b.String()
}

// TestTable compares the table of docs/metrics.md with the definitions; with -update it rewrites
// the table.
func TestTable(t *testing.T) {
	head, rest, ok := strings.Cut(read(t, metricsDoc), tableBegin)
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
	for _, d := range slices.Concat(pushed, gauges, clientCounters, eventsMetrics) {
		for _, omit := range []bool{false, true} {
			names[d.registeredName(omit)] = true
			if d.kind == histogram {
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					names[d.registeredName(omit)+suffix] = true
				}
			}
		}
	}
	for name := range ofKubelet() {
		names[name] = true
	}
	return names
}

// keyOfKubelet matches the name of a metric that a patch of embed/kubelet adds to the kubelet's.
var keyOfKubelet = regexp.MustCompile(`(?m)^\+\t\w+Key += "(\w+)"$`)

// ofKubelet returns the names of the metrics that a kubelet serves besides, with the generator in
// it.
func ofKubelet() map[string]bool {
	names := make(map[string]bool)
	for _, patch := range []string{"kubelet.patch", "lists.patch"} {
		text, _ := os.ReadFile(filepath.Join("../embed/kubelet", patch))
		for _, key := range keyOfKubelet.FindAllSubmatch(text, -1) {
			names[kubeletPrefix+string(key[1])] = true
		}
	}
	return names
}

// TestMetricsOfAKubelet checks that docs/embed.md has each metric that the patches add, and that
// all that they register has the kubelet's subsystem.
func TestMetricsOfAKubelet(t *testing.T) {
	page := read(t, "../docs/embed.md")
	all := ofKubelet()
	if len(all) < 14 {
		t.Errorf("the patches add %d metrics, want the generator's 12 and those of lists", len(all))
	}
	for name := range all {
		if !strings.Contains(page, name) {
			t.Errorf("docs/embed.md does not name %s", name)
		}
	}
	for _, patch := range []string{"kubelet.patch", "lists.patch"} {
		text := read(t, filepath.Join("../embed/kubelet", patch))
		made := strings.Count(text, "Opts{\n")
		for want, n := range map[string]int{
			"Subsystem:      KubeletSubsystem,": made,
			"StabilityLevel: metrics.ALPHA,":    made,
			"legacyregistry.MustRegister(":      made,
		} {
			if got := len(regexp.MustCompile(`(?m)^\+.*`+regexp.QuoteMeta(want)).FindAllString(text, -1)); got != n {
				t.Errorf("%s: %d lines with %q, want one for each of %d metrics", patch, got, want, n)
			}
		}
	}
}

// metricName matches our metric names in prose and expressions.
var metricName = regexp.MustCompile(`\b(?:kubelet|kube_pod|evented_pleg|event_recorder)_[a-z_]*[a-z]\b`)

// ofDoctor begins the names that pleg-bench watch serves beside the generator's. Another module,
// internal, has them and checks them.
const ofDoctor = "evented_pleg_doctor_"

func checkNames(t *testing.T, where, text string) {
	t.Helper()
	names := served()
	for _, name := range metricName.FindAllString(text, -1) {
		if !names[name] && !strings.HasPrefix(name, ofDoctor) {
			t.Errorf("%s names %s, which is not served", where, name)
		}
	}
}

// TestDocsNameOnlyServedMetrics reads every page under docs, and the KEP, for names of metrics.
func TestDocsNameOnlyServedMetrics(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages under docs: %v", err)
	}
	for _, page := range append(pages, "../docs/kep/README.md", "../docs/kep/kep.yaml") {
		checkNames(t, page, read(t, page))
	}
}

// TestAlerts checks that alerts use only served names, and that each has a runbook, an explanation
// and a test. The links themselves are internal/archtest's.
func TestAlerts(t *testing.T) {
	rules, tests := read(t, "../docs/alerts/evented-pleg.yaml"), read(t, "../docs/alerts/evented-pleg_test.yaml")
	checkNames(t, "alerts", rules)
	checkNames(t, "the alerts' tests", tests)
	pages := map[string]string{"docs/metrics.md": read(t, metricsDoc), "docs/troubleshooting.md": read(t, "../docs/troubleshooting.md"), "the tests": tests}
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
	severities := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)\}`).FindAllStringSubmatch(rules, -1)
	for _, alert := range severities {
		row := regexp.MustCompile(`(?m)^\| ` + alert[2] + `: .*\b` + alert[1] + `\b`)
		if !row.MatchString(pages["docs/metrics.md"]) {
			t.Errorf("docs/metrics.md does not name %s among those of the severity %s", alert[1], alert[2])
		}
	}
	if n := strings.Count(rules, "/docs/troubleshooting.md#"); n != len(alerts) {
		t.Errorf("%d links to a section for %d alerts", n, len(alerts))
	}
}

// TestAlertsOfKubelets checks that each series of the alerts of kubelets leaves out the jobs of the
// watch and of pleg-agent, which manage no pods.
func TestAlertsOfKubelets(t *testing.T) {
	const others = `{job!~"(.+/)?pleg-(watch|agent)"`
	rules := read(t, "../docs/alerts/evented-pleg.yaml")
	series := metricName.FindAllStringIndex(rules, -1)
	if len(series) < 30 {
		t.Fatalf("%d series, want thirty at least", len(series))
	}
	for _, at := range series {
		if !strings.HasPrefix(rules[at[1]:], others) {
			t.Errorf("%s lacks %s", rules[at[0]:at[1]], others)
		}
	}
}

// TestKEPStressReadsTheOneSecondBucket: KEP-3386, stress test, looks for "distinct latency values
// in its 1-second bucket".
func TestKEPStressReadsTheOneSecondBucket(t *testing.T) {
	if !slices.Contains(latencyBuckets, 1) {
		t.Errorf("no bucket ends at 1 s: %v", latencyBuckets)
	}
}

// dashboard is the part of a Grafana dashboard read here.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

// dashboards returns the dashboards and their texts, by file name.
func dashboards(t *testing.T) (boards map[string]dashboard, texts map[string]string) {
	t.Helper()
	paths, err := filepath.Glob("../docs/dashboards/*.json")
	if err != nil || len(paths) < 2 {
		t.Fatalf("dashboards: %v, %v", paths, err)
	}
	boards, texts = make(map[string]dashboard), make(map[string]string)
	for _, path := range paths {
		var board dashboard
		text := read(t, path)
		if err := json.Unmarshal([]byte(text), &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		boards[filepath.Base(path)], texts[filepath.Base(path)] = board, text
	}
	return boards, texts
}

// TestDashboards checks that the Grafana dashboards are valid JSON with served names only, and that
// each metric has a panel under every name.
func TestDashboards(t *testing.T) {
	_, texts := dashboards(t)
	for name, text := range texts {
		checkNames(t, name, text)
	}
	for name, list := range map[string][]definition{"events.json": eventsMetrics, "evented-pleg.json": slices.Concat(pushed, gauges, clientCounters)} {
		shown := metricName.FindAllString(texts[name], -1)
		for _, d := range list {
			for _, omit := range []bool{false, true} {
				metric := d.registeredName(omit)
				if !slices.Contains(shown, metric) && !slices.Contains(shown, metric+"_bucket") {
					t.Errorf("%s: %s has no panel", name, metric)
				}
			}
		}
	}
}
