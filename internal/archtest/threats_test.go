// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatsHaveTests wants a test that exists in each line of the tables of threats.
func TestThreatsHaveTests(t *testing.T) {
	have := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	eachFile(t, func(path string) {
		switch {
		case strings.HasSuffix(path, "_test.go"):
			for _, match := range function.FindAllSubmatch(read(t, path), -1) {
				have[string(match[1])] = true
			}
		case strings.HasSuffix(path, ".txtar"):
			have[filepath.Base(path)] = true
		}
	})
	named := regexp.MustCompile("`([^`]+)`")
	lines := 0
	table := false
	for line := range strings.Lines(string(read(t, root+"/docs/threat-model.md"))) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 || strings.HasPrefix(line, "|---") {
			table = table && strings.HasPrefix(line, "|---")
			continue
		}
		if strings.TrimSpace(cells[3]) == "test" {
			table = true
			continue
		}
		if !table {
			continue
		}
		lines++
		tests := named.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, match := range tests {
			if !have[match[1]] {
				t.Errorf("there is no %s: %s", match[1], line)
			}
		}
	}
	if lines < 15 {
		t.Errorf("%d lines of threats", lines)
	}
}
