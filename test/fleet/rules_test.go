// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite deploy/prometheus-operator/rules.yaml")

// rulesFile is the object of the Prometheus operator with the alerts of docs/alerts.
const rulesFile = "../../deploy/prometheus-operator/rules.yaml"

const rulesHead = `# SPDX-FileCopyrightText: The Evented PLEG Authors
# SPDX-License-Identifier: Apache-2.0
#
# Generated from docs/alerts: go test ./test/fleet -run TestRules -update
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: pleg-watch}
spec:
  groups:
`

func read(t *testing.T, path string) string {
	t.Helper()
	raw := testkit.Must(os.ReadFile(path))(t)
	return string(raw)
}

// TestRules compares the operator's rules with the alerts of docs/alerts; with -update it rewrites
// the rules.
func TestRules(t *testing.T) {
	var want strings.Builder
	want.WriteString(rulesHead)
	for _, name := range []string{"fleet", "evented-pleg"} {
		_, groups, ok := strings.Cut(read(t, "../../docs/alerts/"+name+".yaml"), "\ngroups:\n")
		if !ok {
			t.Fatalf("%s.yaml has no groups", name)
		}
		for line := range strings.Lines(groups) {
			if line != "\n" {
				line = "  " + line
			}
			want.WriteString(line)
		}
	}
	if *update {
		testkit.Check(t, os.WriteFile(rulesFile, []byte(want.String()), 0o644))
		return
	}
	if diff := cmp.Diff(want.String(), read(t, rulesFile)); diff != "" {
		t.Errorf("%s is out of date; run this test with -update (-want +got):\n%s", rulesFile, diff)
	}
}

// TestFleetAlerts checks that each alert has a test and an explanation.
func TestFleetAlerts(t *testing.T) {
	pages := map[string]string{}
	for _, path := range []string{"docs/fleet.md", "docs/alerts/fleet_test.yaml"} {
		pages[path] = read(t, "../../"+path)
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "../../docs/alerts/fleet.yaml"), -1)
	if len(alerts) == 0 {
		t.Fatal("docs/alerts/fleet.yaml has no alerts")
	}
	for _, alert := range alerts {
		for path, page := range pages {
			if !strings.Contains(page, alert[1]) {
				t.Errorf("%s does not name the alert %s", path, alert[1])
			}
		}
	}
}
