// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, cases string) (map[string]Result, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "junit.xml")
	report := "<testsuites><testsuite>" + cases + "</testsuite></testsuites>"
	if err := os.WriteFile(file, []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}
	return readResults(file)
}

func TestReadResults(t *testing.T) {
	got, err := read(t, `<testcase name="[SynchronizedBeforeSuite]" status="passed" time="9"/>
		<testcase name="[It] a" status="passed" time="1.5"/>
		<testcase name="[It] b" status="failed" time="2"><failure message="no pod&#xA;more"/></testcase>
		<testcase name="[It] c" status="interrupted" time="3"><error message="Interrupted"/></testcase>
		<testcase name="[It] d" status="failed" time="4"><failure message="A suite timeout occurred"/></testcase>
		<testcase name="[It] e" status="skipped" time="0"/>`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Result{
		"a": {Passed, 1.5, ""}, "b": {Failed, 2, "no pod"},
		"c": {Cut, 3, "Interrupted"}, "d": {Cut, 4, "A suite timeout occurred"},
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s is %+v, want %+v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d specs, want %d", len(got), len(want))
	}
	for cases, want := range map[string]string{
		`<testcase name="[SynchronizedBeforeSuite]" status="failed"><failure message="no kubelet"/></testcase>`: "no kubelet",
		`<testcase name="[It] e" status="skipped"/>`:                                                            "no spec",
	} {
		if _, err := read(t, cases); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", cases, err, want)
		}
	}
}

func TestDifference(t *testing.T) {
	for name, c := range map[string]struct {
		stock, ours []Result
		want        string
	}{
		"same":             {[]Result{{Passed, 20, ""}}, []Result{{Passed, 30, ""}}, ""},
		"slower":           {[]Result{{Passed, 34, ""}}, []Result{{Passed, 64, ""}}, "takes 64 s"},
		"long, not slower": {[]Result{{Passed, 200, ""}}, []Result{{Passed, 220, ""}}, ""},
		"faster":           {[]Result{{Passed, 64, ""}}, []Result{{Passed, 34, ""}}, ""},
		"fails":            {[]Result{{Passed, 5, ""}}, []Result{{Failed, 5, "no pod"}}, "no pod"},
		"fails on both":    {[]Result{{Failed, 5, "x"}}, []Result{{Failed, 90, "y"}}, ""},
		"cut":              {[]Result{{Passed, 5, ""}}, []Result{{Cut, 5, ""}}, ""},
		"agrees again": {[]Result{{Passed, 5, ""}, {Passed, 5, ""}},
			[]Result{{Failed, 5, ""}, {Passed, 6, ""}}, ""},
		"only one": {nil, []Result{{Passed, 5, ""}}, "one side"},
	} {
		table := NewTable("stock", "ours")
		for i, runs := range [][]Result{c.stock, c.ours} {
			for _, r := range runs {
				table.Add(i, map[string]Result{"spec": r})
			}
		}
		got := table.Difference(1, "spec")
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	table := NewTable("stock", "ours")
	table.Add(0, map[string]Result{"a": {Passed, 10, ""}, "b": {Passed, 4, ""}})
	table.Add(1, map[string]Result{"a": {Passed, 50, ""}, "b": {Failed, 4, "no pod"}})
	table.Add(0, map[string]Result{"a": {Passed, 12, ""}})
	table.Add(1, map[string]Result{"a": {Passed, 12, ""}})
	var out strings.Builder
	table.Write(&out)
	for _, want := range []string{
		"| passed | 2 | 1 |", "| failed | 0 | 1 |", "| run again alone | 1 | 1 |",
		"| other than in the first column | 0 | 1 |",
		"| seconds of all that passed with all, medians | 11 | 31 |",
		"| a | passed 10 s; passed 12 s | passed 50 s; passed 12 s |",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if rows := out.String(); strings.Index(rows, "| b | passed 4 s | failed 4 s |") > strings.Index(rows, "| a |") {
		t.Errorf("the specs do not begin with that which differs:\n%s", rows)
	}
}
