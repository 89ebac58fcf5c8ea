// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// Status is how a spec ended.
type Status string

// Statuses. Cut: the time of the whole part was over.
const (
	Passed Status = "passed"
	Failed Status = "failed"
	Cut    Status = "cut"
)

// Result is a run of a spec.
type Result struct {
	Status  Status
	Seconds float64
	Why     string // of a failure, in a line
}

// readResults reads ginkgo's report: the results of the specs that were selected.
func readResults(file string) (map[string]Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	type message struct {
		Message string `xml:"message,attr"`
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string   `xml:"name,attr"`
				Status  string   `xml:"status,attr"`
				Seconds float64  `xml:"time,attr"`
				Failure *message `xml:"failure"`
				Error   *message `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	results := make(map[string]Result)
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			name, spec := strings.CutPrefix(c.Name, "[It] ")
			if !spec {
				if c.Status == "failed" {
					return nil, fmt.Errorf("%s failed: %s", c.Name, cmp.Or(c.Failure, &message{}).Message)
				}
				continue
			}
			r := Result{Status: Failed, Seconds: c.Seconds}
			if m := cmp.Or(c.Failure, c.Error); m != nil {
				r.Why, _, _ = strings.Cut(m.Message, "\n")
			}
			switch c.Status {
			case "skipped", "pending":
				continue
			case "passed":
				r.Status = Passed
			case "interrupted", "timedout":
				r.Status = Cut
			}
			if strings.Contains(strings.ToLower(r.Why), "suite timeout") {
				r.Status = Cut
			}
			results[name] = r
		}
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("%s: no spec was run", file)
	}
	return results, nil
}

// Table is the results of all columns: for each spec its runs, the first among others and the rest
// alone.
type Table struct {
	Columns []string // the first is the judge
	Runs    []map[string][]Result
}

// NewTable returns a table without results.
func NewTable(columns ...string) *Table {
	t := &Table{Columns: columns}
	for range columns {
		t.Runs = append(t.Runs, make(map[string][]Result))
	}
	return t
}

// Add adds a run's results to a column.
func (t *Table) Add(column int, results map[string]Result) {
	for spec, r := range results {
		t.Runs[column][spec] = append(t.Runs[column][spec], r)
	}
}

// Specs returns the specs of all columns, sorted.
func (t *Table) Specs() []string {
	all := make(map[string]bool)
	for _, runs := range t.Runs {
		for spec := range runs {
			all[spec] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// A spec is slower if it takes that many seconds more and so many times as long.
const (
	slowerBy    = 15
	slowerTimes = 1.3
)

// Difference says how the last run of a spec in a column differs from that in the first column.
// Empty: not, or only in having been cut.
func (t *Table) Difference(column int, spec string) string {
	judge := t.Runs[0][spec]
	runs := t.Runs[column][spec]
	if len(judge) == 0 && len(runs) == 0 {
		return ""
	}
	if len(judge) == 0 || len(runs) == 0 {
		return "is missing on one side"
	}
	a := judge[len(judge)-1]
	b := runs[len(runs)-1]
	switch {
	case a.Status == Cut || b.Status == Cut:
		return ""
	case a.Status != b.Status:
		return fmt.Sprintf("%s, and %s with %s: %s%s", b.Status, a.Status, t.Columns[0], a.Why, b.Why)
	case a.Status == Passed && b.Seconds-a.Seconds > slowerBy && b.Seconds > slowerTimes*a.Seconds:
		return fmt.Sprintf("takes %.0f s, and %.0f s with %s", b.Seconds, a.Seconds, t.Columns[0])
	}
	return ""
}

// differing returns in how many columns a spec differs.
func (t *Table) differing(spec string) (n int) {
	for column := range t.Columns {
		if t.Difference(column, spec) != "" {
			n++
		}
	}
	return n
}

// median returns the median of the seconds of the passed runs.
func median(runs []Result) (float64, bool) {
	var all []float64
	for _, r := range runs {
		if r.Status == Passed {
			all = append(all, r.Seconds)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, true
}

// Write writes the table as Markdown: a summary, and a line for each spec, those that differ first.
func (t *Table) Write(out io.Writer) {
	line := func(name string, cell func(column int) string) {
		fmt.Fprintf(out, "| %s |", strings.ReplaceAll(name, "|", "/"))
		for column := range t.Columns {
			fmt.Fprintf(out, " %s |", cell(column))
		}
		fmt.Fprintln(out)
	}
	line("", func(column int) string { return t.Columns[column] })
	line("---", func(int) string { return "---:" })
	specs := t.Specs()
	count := func(name string, is func(column int, spec string, runs []Result) bool) {
		line(name, func(column int) string {
			n := 0
			for _, spec := range specs {
				if is(column, spec, t.Runs[column][spec]) {
					n++
				}
			}
			return fmt.Sprint(n)
		})
	}
	for _, status := range []Status{Passed, Failed, Cut} {
		count(string(status), func(_ int, _ string, runs []Result) bool {
			return len(runs) > 0 && runs[len(runs)-1].Status == status
		})
	}
	count("other than in the first column", func(column int, spec string, _ []Result) bool {
		return t.Difference(column, spec) != ""
	})
	count("run again alone", func(_ int, _ string, runs []Result) bool { return len(runs) > 1 })
	line("seconds of all that passed with all, medians", func(column int) string {
		var sum float64
		for _, spec := range specs {
			seconds := 0.0
			all := true
			for i := range t.Columns {
				m, ok := median(t.Runs[i][spec])
				all = all && ok
				if i == column {
					seconds = m
				}
			}
			if all {
				sum += seconds
			}
		}
		return fmt.Sprintf("%.0f", sum)
	})
	slices.SortStableFunc(specs, func(a, b string) int { return cmp.Compare(t.differing(b), t.differing(a)) })
	for _, spec := range specs {
		line(spec, func(column int) string {
			var cells []string
			for _, r := range t.Runs[column][spec] {
				cells = append(cells, fmt.Sprintf("%s %.0f s", r.Status, r.Seconds))
			}
			return strings.Join(cells, "; ")
		})
	}
}
