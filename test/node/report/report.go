// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package report keeps and prints what scenarios found: a line each for people,
// JUnit XML for CI, and a table of the measured figures for the documentation.
//
// # Model
//
// A Result is one scenario that ended: its outcome, how long it took, and the
// figures it measured, in the order in which it measured them. "Not applicable"
// is an outcome of its own: a scenario that cannot run against this runtime was
// neither passed nor silently left out.
//
// # Concurrency
//
// Plain values; the caller owns them.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// An Outcome is how a scenario ended.
type Outcome string

// The outcomes. An interrupted scenario counts as failed.
const (
	Passed        Outcome = "PASS"
	Failed        Outcome = "FAIL"
	NotApplicable Outcome = "N/A"
)

// A Figure is one measured value.
type Figure struct {
	Name  string `json:"name"`
	Value string `json:"value"` // with its unit
}

// A Result is one scenario that ended.
type Result struct {
	Name    string        `json:"name"`
	Source  string        `json:"source"` // the section or fact it comes from
	Outcome Outcome       `json:"outcome"`
	Took    time.Duration `json:"took"` // nanoseconds
	Figures []Figure      `json:"figures,omitempty"`
	// Converge is the longest that a cache took to equal the runtime. 0: no cache was compared.
	Converge time.Duration `json:"converge,omitempty"` // nanoseconds
	// Missed is how many changes agents counted as missed, and Stale how many payloads the runtime sent that told an earlier phase than one before.
	// Where Recorded is not set nobody looked for the latter.
	Missed   int  `json:"missed,omitempty"`
	Stale    int  `json:"stale,omitempty"`
	Recorded bool `json:"recorded,omitempty"`
	// Messages say why it failed or does not apply.
	Messages []string `json:"messages,omitempty"`
	// Logs is the directory with the logs that were kept. Empty: none.
	Logs string `json:"logs,omitempty"`
}

// Line tells the result in one line.
func (r Result) Line() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-4s %-24s %6.1fs", r.Outcome, r.Name, r.Took.Seconds())
	for _, f := range r.Figures {
		fmt.Fprintf(&out, "  %s=%s", f.Name, f.Value)
	}
	if r.Outcome == NotApplicable && len(r.Messages) > 0 {
		out.WriteString("  " + firstLine(r.Messages[0]))
	}
	return strings.TrimRight(out.String(), " ")
}

// WriteDetails writes what a failed scenario said, indented.
func (r Result) WriteDetails(w io.Writer) {
	if r.Outcome != Failed {
		return
	}
	for _, message := range r.Messages {
		for line := range strings.Lines(strings.TrimRight(message, "\n")) {
			fmt.Fprintf(w, "       %s\n", strings.TrimRight(line, "\n"))
		}
	}
	if r.Logs != "" {
		fmt.Fprintf(w, "       logs: %s\n", r.Logs)
	}
}

// A Suite is the results of one run.
type Suite struct {
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	// Runtime is the runtime's own name and version.
	Runtime string   `json:"runtime"`
	Results []Result `json:"results"`
}

// Count returns how many results have the outcome.
func (s *Suite) Count(outcome Outcome) int {
	n := 0
	for _, r := range s.Results {
		if r.Outcome == outcome {
			n++
		}
	}
	return n
}

// Took is the sum of the scenarios' times.
func (s *Suite) Took() time.Duration {
	var sum time.Duration
	for _, r := range s.Results {
		sum += r.Took
	}
	return sum
}

// Summary tells the run in one line.
func (s *Suite) Summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d not applicable in %v (%s)",
		s.Count(Passed), s.Count(Failed), s.Count(NotApplicable), s.Took().Round(time.Second), s.Runtime)
}

// WriteMarkdown writes the table of figures.
func (s *Suite) WriteMarkdown(w io.Writer) error {
	var out strings.Builder
	out.WriteString("| scenario | outcome | took | figures |\n|---|---|---|---|\n")
	for _, r := range s.Results {
		var figures []string
		for _, f := range r.Figures {
			figures = append(figures, f.Name+" "+f.Value)
		}
		fmt.Fprintf(&out, "| %s | %s | %.1f s | %s |\n", r.Name, r.Outcome, r.Took.Seconds(),
			strings.ReplaceAll(strings.Join(figures, " · "), "|", "\\|"))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// ReadFile reads a run that WriteJSON wrote.
func ReadFile(path string) (*Suite, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var s Suite
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("report: read %s: %w", path, err)
	}
	return &s, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// WriteJSON writes the run for machines.
func (s *Suite) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}
