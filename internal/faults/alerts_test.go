// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// fired is the expression of the alerts fired during a scene, by the row as the instance.
const fired = `count by (alertname, instance) (max_over_time(ALERTS{alertstate="firing"}[40m]))`

// addAlerts adds the firing alerts to each row, as promtool finds them. The rows are instances of
// one fleet: promtool takes most of its time for a rule, and not for the rule's series.
func addAlerts(t *testing.T, rows []*row) {
	t.Helper()
	path := testkit.Must(filepath.Abs("../../docs/alerts/evented-pleg.yaml"))(t)
	rules := string(testkit.Must(os.ReadFile(path))(t))
	var series []map[string]string
	for i, r := range rows {
		series = append(series, r.seen.input(i, rules)...)
	}
	scenes := map[string]any{
		"rule_files":          []string{path},
		"evaluation_interval": "15s",
		"tests": []map[string]any{{
			"interval":     "15s",
			"input_series": series,
			"promql_expr_test": []map[string]any{
				{"expr": fired, "eval_time": "39m45s", "exp_samples": []any{}},
			},
		}},
	}
	raw := testkit.Must(json.Marshal(scenes))(t) // which is YAML too
	path = filepath.Join(t.TempDir(), "scenes.yaml")
	testkit.Check(t, os.WriteFile(path, raw, 0o600))
	// it fails, because alerts fire
	out, _ := exec.CommandContext(t.Context(), *promtool, "test", "rules", path).CombinedOutput()
	found := regexp.MustCompile(`alertname="(\w+)", instance="(\d+)"`).FindAllStringSubmatch(string(out), -1)
	if len(found) == 0 {
		t.Fatalf("promtool has found no alert at all:\n%.2000s", out)
	}
	for _, m := range found {
		i, err := strconv.Atoi(m[2])
		if err != nil || i >= len(rows) {
			t.Fatalf("promtool speaks of a row %s", m[2])
		}
		rows[i].alerts = append(rows[i].alerts, rows[i].set.steady([]string{m[1]})...)
		slices.Sort(rows[i].alerts)
	}
}

// input is the samples in promtool's form, as those of an instance. Series that no rule names are
// left out.
func (s *seen) input(instance int, rules string) (series []map[string]string) {
	for id, values := range s.samples {
		name, labels, _ := strings.Cut(id, "{")
		if !strings.Contains(rules, name) {
			continue
		}
		texts := make([]string, 0, len(values)+1)
		texts = append(texts, "_") // the first scrape is 15 s after the start
		for _, v := range values {
			if math.IsNaN(v) {
				texts = append(texts, "_")
			} else {
				texts = append(texts, strconv.FormatFloat(v, 'g', -1, 64))
			}
		}
		series = append(series, map[string]string{
			"series": fmt.Sprintf(`%s{instance="%d",%s`, name, instance, labels),
			"values": strings.Join(texts, " "),
		})
	}
	slices.SortFunc(
		series,
		func(a, b map[string]string) int { return strings.Compare(a["series"], b["series"]) },
	)
	return series
}
