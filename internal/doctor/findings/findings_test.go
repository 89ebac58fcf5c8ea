// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package findings

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// names are the names of terms, in order.
func names(terms []Term) (list []string) {
	for _, t := range terms {
		list = append(list, t.Name)
	}
	slices.Sort(list)
	return list
}

// TestKindsAreThoseOfDoctor compares the kinds with those that package doctor makes, and with the
// table of docs/doctor.md.
func TestKindsAreThoseOfDoctor(t *testing.T) {
	kinds := names(Kinds)
	read := func(file string) string { return string(testkit.Must(os.ReadFile("../" + file))(t)) }
	code := read("conclude.go") + read("ended.go")
	var made []string
	for _, m := range regexp.MustCompile(`ID:\s+"([a-z-]+)",\n`).FindAllStringSubmatch(code, -1) {
		made = append(made, m[1])
	}
	made = append(made, "item-hangs") // also by several
	slices.Sort(made)
	if made = slices.Compact(made); !slices.Equal(kinds, made) {
		t.Errorf("the kinds are %q, and doctor makes %q", kinds, made)
	}
	page := string(testkit.Must(os.ReadFile("../../../docs/doctor.md"))(t))
	_, table, _ := strings.Cut(page, "## The findings")
	table, _, _ = strings.Cut(table, "\n## ")
	var documented []string
	for line := range strings.Lines(table) {
		if cell, rest, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(rest, " sick") || strings.HasPrefix(rest, " costly") || strings.HasPrefix(rest, " note") {
			for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cell, -1) {
				documented = append(documented, m[1])
			}
		}
	}
	slices.Sort(documented)
	if !slices.Equal(kinds, documented) {
		t.Errorf("the kinds are %q, and docs/doctor.md has %q", kinds, documented)
	}
}

// TestAreas: each area that doctor names is known, and explained in docs/doctor.md.
func TestAreas(t *testing.T) {
	page := string(testkit.Must(os.ReadFile("../../../docs/doctor.md"))(t))
	var named []string
	for _, path := range []string{"../conclude.go", "../host_linux.go"} {
		code := string(testkit.Must(os.ReadFile(path))(t))
		for _, m := range regexp.MustCompile(`(?:why|Unseen)\["([a-z]+)"\]`).FindAllStringSubmatch(code, -1) {
			named = append(named, m[1])
		}
	}
	slices.Sort(named)
	if named = slices.Compact(named); !slices.Equal(named, names(Areas)) {
		t.Errorf("doctor names %q, want %q", named, names(Areas))
	}
	for _, a := range Areas {
		if !strings.Contains(page, "| `"+a.Name+"` |") {
			t.Errorf("docs/doctor.md does not explain the area %s", a.Name)
		}
		if Meaning(Areas, a.Name) == "" || Meaning(Areas, "attic") != "" {
			t.Errorf("the area %s has the meaning %q", a.Name, Meaning(Areas, a.Name))
		}
	}
}

// TestMetrics: pages, alerts and the dashboard name metrics that are served, docs/doctor.md
// explains each, and each has a panel.
func TestMetrics(t *testing.T) {
	served := []string{Age, Calls, Found, Period, Unseen, Worth}
	const dashboard = "../../../docs/dashboards/fleet.json"
	page := string(testkit.Must(os.ReadFile("../../../docs/doctor.md"))(t))
	board := string(testkit.Must(os.ReadFile(dashboard))(t))
	for _, name := range served {
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("docs/doctor.md does not explain %s", name)
		}
		if !strings.Contains(board, name) {
			t.Errorf("%s has no panel in %s", name, dashboard)
		}
	}
	paths := []string{"../../../docs/alerts/fleet.yaml", "../../../docs/alerts/fleet_test.yaml", dashboard}
	pages := testkit.Must(filepath.Glob("../../../docs/*.md"))(t)
	for _, path := range append(paths, pages...) {
		text := string(testkit.Must(os.ReadFile(path))(t))
		for _, name := range regexp.MustCompile(`evented_pleg_doctor_[a-z_]+`).FindAllString(text, -1) {
			if !slices.Contains(served, name) {
				t.Errorf("%s names %s, which is not served", path, name)
			}
		}
	}
}
