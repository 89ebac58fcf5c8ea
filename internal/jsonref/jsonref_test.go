// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package jsonref

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

var update = flag.Bool("update", false, "write docs/json.md")

const (
	repo = "../.."
	page = repo + "/docs/json.md"
	head = `# The JSON of pleg-bench

` + "`-o json`" + ` of each command, and ` + "`result.json`" + ` of ` + "`--out`" + `. Fields are only ever added while ` + "`schema`" + ` stays the
same. Durations are seconds; ` + "`null`" + ` is what cannot be known; an optional field is left out when empty.
*Judged* counts fail [a run](pleg-bench.md#what-is-judged).

A command that ends with status 1, 3 or 130 has printed its document, however early it failed: ` + "`unfinished`" + `, or
` + "`no_verdict`" + ` of a run, or ` + "`not_looked_at`" + ` of doctor, says why nothing was found. A wrong command line, status 2,
prints none. This page is written from the Go types by
` + "`go test ./internal/jsonref -update`" + `.
`
)

var roots = []Root{
	{"run", "One object.", "internal/bench", "Result"},
	{"stress", "One object.", "internal/bench", "StressResult"},
	{
		"watch",
		"One object a line, all on standard output, told apart by `type`. The last is the summary:",
		"internal/bench/watch",
		"Summary",
	},
	{"watch: a lifecycle event", "A line for each event of the PLEG:", "internal/bench/watch", "line"},
	{
		"watch: the state",
		"A line for each change of the PLEG's own state:",
		"internal/bench/watch",
		"stateLine",
	},
	{
		"watch: a report",
		"A line for what an agent would tell, and for what `watch` itself tells:",
		"internal/bench/watch",
		"reportLine",
	},
	{
		"watch: a message",
		"A line for each message of the stream, with `--raw`:",
		"internal/bench/watch",
		"rawLine",
	},
	{
		"watch: an examination",
		"A line for an examination, with `--doctor-every`: each of a sick node, and else those with another worth than the last:",
		"internal/bench/watch",
		"doctorLine",
	},
	{"doctor", "One object.", "internal/doctor", "Report"},
	{"proxy", "One object.", "cmd/pleg-bench", "proxyReport"},
	{"fleet verdict", "One object.", "cmd/pleg-bench-fleet", "Verdict"},
	{"fleet run", "One object.", "cmd/pleg-bench-fleet", "LoadReport"},
	{"result.json", "What `--out` keeps of each command:", "internal/bench/report", "Saved"},
}

// TestPage compares docs/json.md with the types.
func TestPage(t *testing.T) {
	got := testkit.Must(Render(repo, head, roots))(t)
	if *update {
		testkit.Check(t, os.WriteFile(page, []byte(got), 0o644))
	}
	want := testkit.Must(os.ReadFile(page))(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/json.md is not current: go test ./internal/jsonref -update (-page +types):\n%s", diff)
	}
}

func sectionOf(page, title string) string {
	_, section, _ := strings.Cut(page, "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestPageHasTheKeys compares the page with what encoding/json writes, which shares no code with
// Render.
func TestPageHasTheKeys(t *testing.T) {
	text := string(testkit.Must(os.ReadFile(page))(t))
	for title, value := range map[string]any{
		"run": bench.Result{}, "stress": bench.StressResult{}, "watch": watch.Summary{}, "doctor": doctor.Report{}, "result.json": report.Saved{},
		"LatencyResult": bench.LatencyResult{}, "ComparisonResult": bench.ComparisonResult{},
	} {
		section := sectionOf(text, title)
		for _, embedded := range regexp.MustCompile(`(?m)^\| here \| \[(\w+)\]`).FindAllStringSubmatch(section, -1) {
			section += sectionOf(text, embedded[1])
		}
		var told, optional []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)[^`]*` \\| ([^|]*)").FindAllStringSubmatch(section, -1) {
			told = append(told, row[1])
			if strings.Contains(row[2], "optional") {
				optional = append(optional, row[1])
			}
		}
		var keys map[string]any
		testkit.Check(t, json.Unmarshal(testkit.Must(json.Marshal(value))(t), &keys))
		for key := range keys {
			if !slices.Contains(told, key) {
				t.Errorf("%s: %s is missing", title, key)
			}
		}
		for _, key := range told {
			if _, ok := keys[key]; !ok && !slices.Contains(optional, key) {
				t.Errorf("%s: there is no %s", title, key)
			}
		}
	}
	for _, key := range []string{"events.*.dropped", "calls.*.hung", "cuts"} {
		if !strings.Contains(text, "| `"+key+"` |") {
			t.Errorf("proxy: %s is missing", key)
		}
	}
}

// TestErrors wants every field without a comment named, and types that cannot be followed.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	source := "package p\n\ntype R struct {\n\tBare int `json:\"bare\"`\n\t// Odd is odd.\n\tOdd chan int `json:\"odd\"`\n\t// Fine is fine.\n\tFine []map[string]*int `json:\"fine,omitempty\"`\n}\n"
	testkit.Check(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o644))
	got, err := Render(dir, "", []Root{{Title: "r", Dir: ".", Type: "R"}})
	if err == nil || !strings.Contains(err.Error(), "R.Bare has no comment") ||
		!strings.Contains(err.Error(), "ChanType cannot be followed") {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(got, "| `fine` | list of map of int or null, optional | fine |") {
		t.Errorf("the page is %s", got)
	}
}
