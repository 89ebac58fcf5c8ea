// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var promtool = flag.String("promtool", "", "path of a promtool that evaluates the dashboards' queries (.ci/alerts)")

// query is an expression of a dashboard, under the name of a recording rule.
type query struct{ record, board, panel, expr string }

// queries returns the expressions of all dashboards with Grafana's variables filled in.
func queries(t *testing.T) []query {
	t.Helper()
	boards, _ := dashboards(t)
	var list []query
	for _, name := range slices.Sorted(maps.Keys(boards)) {
		for _, p := range boards[name].Panels {
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "5m", "$instance", ".*").Replace(target.Expr)
				list = append(list, query{fmt.Sprintf("query:%d", len(list)), name, p.Title, expr})
			}
		}
	}
	return list
}

// seriesOf returns the growing series of a definition.
func seriesOf(d definition) []map[string]string {
	pairs := []string{`job="n"`, `instance="a"`}
	for _, label := range d.labels() {
		value := "x"
		if label == "state" {
			value = "Connected"
		}
		pairs = append(pairs, fmt.Sprintf(`%s="%s"`, label, value))
	}
	labels := strings.Join(pairs, ",")
	series := func(name, labels string) map[string]string {
		values := "0+1x80"
		if d.kind == gauge {
			values = "1x80"
		}
		return map[string]string{"series": fmt.Sprintf("%s{%s}", name, labels), "values": values}
	}
	name := d.registeredName(false)
	if d.kind != histogram {
		return []map[string]string{series(name, labels)}
	}
	return []map[string]string{
		series(name+"_bucket", labels+`,le="0.1"`), series(name+"_bucket", labels+`,le="+Inf"`), series(name+"_count", labels), series(name+"_sum", labels),
	}
}

// doctorSeries returns a growing series of each metric of doctor's that docs/doctor.md explains,
// with all the labels that one of them has.
func doctorSeries(t *testing.T) (list []map[string]string) {
	t.Helper()
	rows := regexp.MustCompile("(?m)^\\| `("+ofDoctor+"[a-z_]+)` \\|").FindAllStringSubmatch(read(t, "../docs/doctor.md"), -1)
	if len(rows) < 6 {
		t.Fatalf("docs/doctor.md explains %d metrics of doctor's, want six at least", len(rows))
	}
	for _, row := range rows {
		labels := `{job="n",instance="a",finding="item-hangs",grade="sick",worth="sick",area="disks"}`
		list = append(list, map[string]string{"series": row[1] + labels, "values": "1+1x80"})
	}
	return list
}

// TestQueries lets Prometheus evaluate every query of the dashboards on series of every served
// metric: each must have a result. Without -promtool only the rules and series are written.
func TestQueries(t *testing.T) {
	dir := t.TempDir()
	var rules, samples []map[string]any
	for _, q := range queries(t) {
		if strings.Contains(q.expr, "$") {
			t.Errorf("%s, panel %q: a variable is left in %s", q.board, q.panel, q.expr)
		}
		rules = append(rules, map[string]any{"record": q.record, "expr": q.expr})
		samples = append(samples, map[string]any{
			"expr": fmt.Sprintf(`label_replace(count({__name__="%s"}) > bool 0, "panel", "%s", "", "")`, q.record, q.board+": "+q.panel), "eval_time": "15m",
			"exp_samples": []map[string]any{{"labels": fmt.Sprintf(`{panel="%s"}`, q.board+": "+q.panel), "value": 1}},
		})
	}
	input := doctorSeries(t)
	for _, d := range slices.Concat(pushed, gauges, clientCounters, eventsMetrics) {
		input = append(input, seriesOf(d)...)
	}
	write := func(name string, v any) string {
		raw, err := json.Marshal(v) // which is YAML too
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("rules.yaml", map[string]any{"groups": []any{map[string]any{"name": "dashboards", "rules": rules}}})
	tests := write("tests.yaml", map[string]any{
		"rule_files": []string{"rules.yaml"}, "evaluation_interval": "15s",
		"tests": []any{map[string]any{"interval": "15s", "input_series": input, "promql_expr_test": samples}},
	})
	if len(samples) < 20 {
		t.Errorf("%d queries, want those of two dashboards", len(samples))
	}
	if *promtool == "" {
		return
	}
	cmd := exec.CommandContext(t.Context(), *promtool, "test", "rules", tests)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
