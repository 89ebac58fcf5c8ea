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

// fired is the expression of the alerts fired during the scene of a row.
const fired = `label_replace(count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[40m])), "row", "%d", "", "")`

// addAlerts adds the firing alerts to each row, as promtool finds them.
func addAlerts(t *testing.T, rows []*row) {
	t.Helper()
	rules := testkit.Must(filepath.Abs("../../docs/alerts/evented-pleg.yaml"))(t)
	var tests []map[string]any
	for i, r := range rows {
		tests = append(tests, map[string]any{
			"interval":     "15s",
			"input_series": r.seen.input(),
			"promql_expr_test": []map[string]any{
				{"expr": fmt.Sprintf(fired, i), "eval_time": "39m45s", "exp_samples": []any{}},
			},
		})
	}
	// which is YAML too
	raw := testkit.Must(json.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "15s", "tests": tests}))(t)
	path := filepath.Join(t.TempDir(), "scenes.yaml")
	testkit.Check(t, os.WriteFile(path, raw, 0o600))
	// it fails for each alert that fires
	out, _ := exec.CommandContext(t.Context(), *promtool, "test", "rules", path).CombinedOutput()
	found := regexp.MustCompile(`alertname="(\w+)", row="(\d+)"`).FindAllStringSubmatch(string(out), -1)
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

// input is the samples in promtool's form.
func (s *seen) input() (series []map[string]string) {
	for name, values := range s.samples {
		if strings.Contains(name, "_bucket") && !strings.Contains(name, "connection_latency") {
			continue // used by no alert
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
		series = append(series, map[string]string{"series": name, "values": strings.Join(texts, " ")})
	}
	slices.SortFunc(
		series,
		func(a, b map[string]string) int { return strings.Compare(a["series"], b["series"]) },
	)
	return series
}
