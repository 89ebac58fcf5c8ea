// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	long := strings.Repeat("word ", 40) + strings.Repeat("x", 100) + " end"
	got := Fold(long, 4)
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(long), " ") {
		t.Errorf("words were lost or made: %q", got)
	}
	for i, line := range strings.Split(got, "\n") {
		if n := len([]rune(line)); n > Columns && !strings.Contains(line, "xxx") {
			t.Errorf("line %d has %d columns: %q", i, n, line)
		}
		if i > 0 && !strings.HasPrefix(line, "    ") {
			t.Errorf("line %d is not indented: %q", i, line)
		}
	}
	if got := Fold("short", 4); got != "short" {
		t.Errorf("Fold changed a short line to %q", got)
	}
}
