// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite the rules.yaml of the Prometheus operator")

// rulesFiles are the objects of the Prometheus operator with alerts of docs/alerts.
var rulesFiles = []struct {
	path, name string
	alerts     []string
}{
	{"../../deploy/prometheus-operator/rules.yaml", "pleg-watch", []string{"fleet", "evented-pleg"}},
	{"../../deploy/agent/prometheus-operator/rules.yaml", "pleg-agent", []string{"agent"}},
}

const rulesHead = `# SPDX-FileCopyrightText: The Evented PLEG Authors
# SPDX-License-Identifier: Apache-2.0
#
# Generated from docs/alerts: go test ./test/fleet -run TestRules -update
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: %s}
spec:
  groups:
`

func read(t *testing.T, path string) string {
	t.Helper()
	raw := testkit.Must(os.ReadFile(path))(t)
	return string(raw)
}

// TestRules compares the operators' rules with the alerts of docs/alerts; with -update it rewrites
// the rules.
func TestRules(t *testing.T) {
	for _, file := range rulesFiles {
		var want strings.Builder
		fmt.Fprintf(&want, rulesHead, file.name)
		for _, name := range file.alerts {
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
			testkit.Check(t, os.WriteFile(file.path, []byte(want.String()), 0o644))
			continue
		}
		if diff := cmp.Diff(want.String(), read(t, file.path)); diff != "" {
			t.Errorf("%s is out of date; run this test with -update (-want +got):\n%s", file.path, diff)
		}
	}
}

// TestOperators checks that the objects of each folder reach an operator's Prometheus: the chart
// selects them by a label, and kube-prometheus reads no namespace without a role.
func TestOperators(t *testing.T) {
	for _, file := range rulesFiles {
		folder := filepath.Dir(file.path)
		kustomization := read(t, folder+"/kustomization.yaml")
		files := []string{"podmonitor.yaml", "rules.yaml", "role.yaml"}
		for _, want := range append(files, "release: kube-prometheus-stack") {
			if !strings.Contains(kustomization, want) {
				t.Errorf("%s/kustomization.yaml has no %q", folder, want)
			}
		}
		role, err := os.ReadFile(folder + "/role.yaml")
		for _, account := range []string{"prometheus-k8s", "kube-prometheus-stack-prometheus"} {
			if err != nil || !strings.Contains(string(role), "name: "+account+",") {
				t.Errorf("%s/role.yaml binds no role to %s (%v)", folder, account, err)
			}
		}
	}
}

// TestAlertsAreExplained checks that each alert of the watch and of the agent has a test, and a row
// with its severity in the page of its file.
func TestAlertsAreExplained(t *testing.T) {
	form := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)\}`)
	for _, name := range []string{"fleet", "agent"} {
		rules := read(t, "../../docs/alerts/"+name+".yaml")
		tests := read(t, "../../docs/alerts/"+name+"_test.yaml")
		alerts := form.FindAllStringSubmatch(rules, -1)
		if len(alerts) == 0 || len(alerts) != strings.Count(rules, "- alert: ") {
			t.Fatalf("%s.yaml: %d alerts have a severity", name, len(alerts))
		}
		for _, alert := range alerts {
			if !strings.Contains(tests, alert[1]) {
				t.Errorf("%s_test.yaml does not name the alert %s", name, alert[1])
			}
			page := "docs/" + name + ".md"
			if row := "\n| " + alert[1] + " | " + alert[2] + " |"; !strings.Contains(read(t, "../../"+page), row) {
				t.Errorf("%s has no row %q", page, row)
			}
		}
	}
}
