// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// WriteMatrix writes a table of scenarios by runtimes: the outcome and, where a cache was compared, the longest time until it equalled the
// runtime; below them what was missed and which stale payloads were seen. A scenario that a run left out is a dash.
func WriteMatrix(w io.Writer, suites []*Suite) error {
	var out strings.Builder
	row := func(name string, cell func(*Suite) string) {
		fmt.Fprintf(&out, "| %s |", name)
		for _, s := range suites {
			fmt.Fprintf(&out, " %s |", cell(s))
		}
		out.WriteByte('\n')
	}
	row("scenario", func(s *Suite) string { return s.Runtime })
	out.WriteString("|---|" + strings.Repeat("---|", len(suites)) + "\n")
	for _, name := range scenarios(suites) {
		row(name, func(s *Suite) string { return s.cell(name) })
	}
	row("all", func(s *Suite) string {
		return fmt.Sprintf("%d of %d pass, %.0f s", s.Count(Passed), len(s.Results), s.Took().Seconds())
	})
	row("missed", func(s *Suite) string { return s.named(func(r Result) int { return r.Missed }) })
	row("stale payloads seen", func(s *Suite) string { return s.named(func(r Result) int { return r.Stale }) })
	_, err := io.WriteString(w, out.String())
	return err
}

// scenarios are the names of all results, in order.
func scenarios(suites []*Suite) []string {
	var names []string
	for _, s := range suites {
		for _, r := range s.Results {
			if !slices.Contains(names, r.Name) {
				names = append(names, r.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (s *Suite) cell(name string) string {
	for _, r := range s.Results {
		switch {
		case r.Name != name:
		case r.Outcome == Passed && r.Converge > 0:
			return short(r.Converge)
		case r.Outcome == Passed:
			return "pass"
		default:
			return "**" + string(r.Outcome) + "**"
		}
	}
	return "–"
}

// named tells a count of all scenarios, and of which they are.
func (s *Suite) named(count func(Result) int) string {
	sum := 0
	var of []string
	for _, r := range s.Results {
		if n := count(r); n > 0 {
			sum += n
			of = append(of, fmt.Sprintf("%s: %d", r.Name[:min(2, len(r.Name))], n))
		}
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(of, ", "))
}

// short tells a time to be read in a table.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
