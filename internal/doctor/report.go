// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a node's container runtime, read-only, and reports its faults.
//
// # Model
//
// [Examine] collects [Facts]: it makes a kubelet's calls to the runtime, each with a deadline of
// its own, listens to the event stream meanwhile, and looks at the machine ([Host]). [Conclude], a
// pure function, turns facts into a [Report]: findings, each a sentence with its evidence and the
// command or line of configuration against the cause. An examination changes nothing on the node,
// and makes no call beyond a kubelet's own reads.
//
// # Concurrency
//
// Examine returns when all its goroutines have ended, and a moment after its time at the latest.
//
// # Errors
//
// An unreachable runtime is a finding. A part without an examination is a finding too, with the
// grade [Note], or the worth [Unknown] if nothing could be examined.
package doctor

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/doctor/findings"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// Schema is the version of the JSON of a [Report].
const Schema = "evented-pleg.io/doctor/v1"

// Worth is the outcome of an examination.
type Worth string

// Outcomes.
const (
	// Well: no finding of the grade Ill.
	Well Worth = "well"
	Sick Worth = "sick"
	// Unknown: the runtime could not be examined from here, which proves nothing about the runtime.
	Unknown Worth = "unknown"
)

// Grade is how much a finding matters.
type Grade string

// Grades, from the gravest.
const (
	// Ill: pods are not started, ended or seen as they should be.
	Ill Grade = "sick"
	// Costly: all works, at a cost avoidable by a line of configuration.
	Costly Grade = "costly"
	// Note: worth knowing, or not examined.
	Note Grade = "note"
)

// Finding is something found.
type Finding struct {
	// ID names the kind of finding, such as item-hangs; an ID does not change between versions.
	ID string `json:"id"`
	// Grade is sick, costly or note.
	Grade Grade `json:"grade"`
	// Sentence is the finding in words.
	Sentence string `json:"sentence"`
	// Evidence is the measured or read facts, a text a line.
	Evidence []string `json:"evidence"`
	// Change is the command or the line of configuration against the cause, empty if there is none.
	Change string `json:"change,omitempty"`
}

// Report is the result of an examination.
type Report struct {
	// Schema is evented-pleg.io/doctor/v1.
	Schema string `json:"schema"`
	// Time is the begin of the examination.
	Time time.Time `json:"time"`
	// Node is the machine's name.
	Node string `json:"node"`
	// Endpoint is the runtime's socket.
	Endpoint string `json:"endpoint"`
	// Runtime is name and version, empty if the runtime did not say.
	Runtime string `json:"runtime"`
	// Worth is well, sick or unknown.
	Worth Worth `json:"worth"`
	// Seconds is how long the examination took.
	Seconds float64 `json:"seconds"`
	// Findings are in the order of their grades, the gravest first.
	Findings []Finding `json:"findings"`
	// Unseen are the areas invisible from here; the verdict does not cover them.
	Unseen []Unseen `json:"not_looked_at"`
	// Calls are the kinds of calls made.
	Calls []Call `json:"calls"`
	// Pods counts the listed pods, -1 without a list.
	Pods int `json:"pods"`
	// Containers counts the listed containers, -1 without a list.
	Containers int `json:"containers"`
	// Running counts the running containers, -1 without a list.
	Running int `json:"running"`
	// Events counts the events received, those of before the examination included.
	Events int `json:"events"`

	// lag is how late this program got the CPU at most, in seconds.
	lag float64
}

// Interrupted is the report of an examination that was ended in the middle: nothing was found wrong
// until then, which is no verdict.
func (r Report) Interrupted(why error) Report {
	r.Worth = Unknown
	unseen := []Unseen{{"items", why.Error()}}
	for _, u := range r.Unseen {
		if u.Area != "items" {
			unseen = append(unseen, u)
		}
	}
	r.Unseen = unseen
	return r
}

// Unseen is an area invisible from here.
type Unseen struct {
	// Area is items, events, processes, clients, disks, clock, pressure, kubelet or rates.
	Area string `json:"area"`
	// Why says why not.
	Why string `json:"why"`
}

// Call is a kind of call to the runtime.
type Call struct {
	// Method is that of the CRI.
	Method string `json:"method"`
	// Count counts the calls.
	Count int `json:"count"`
	// Failed counts those answered with an error.
	Failed int `json:"failed"`
	// Hung counts those without an answer in time.
	Hung int `json:"hung"`
	// MaxSeconds is the slowest answer. A slow call is made once more, which is not counted, and the
	// quicker answer counts.
	MaxSeconds float64 `json:"max_seconds"`
	// UsualSeconds is the longest time of such an answer on a quiet node with as many items.
	UsualSeconds float64 `json:"usual_seconds"`
	// Error is the first error.
	Error string `json:"error,omitempty"`

	// doneSeconds is MaxSeconds of the successful calls.
	doneSeconds float64
}

// Line is the report in one line, for a plugin of the node problem detector. Its columns are
// bounded.
func (r Report) Line(columns int) string {
	text := "the container runtime is well"
	switch {
	case r.Worth == Well && r.empty():
		text = "the container runtime answers, and lists no pod and no container"
	case r.Worth == Sick && len(r.Findings) > 0:
		text = r.Findings[0].Sentence + whyDead(r.Findings[0])
		if more := r.count(Ill) - 1; more > 0 {
			text = fmt.Sprintf("(1 of %d) %s", more+1, text)
		}
	case r.Worth == Unknown:
		text = "the container runtime could not be examined"
		for _, f := range r.Findings {
			if f.ID == "forbidden" {
				text = f.Sentence
			}
		}
	}
	runes := []rune(printable.Text(text))
	if len(runes) > columns {
		runes = append(runes[:columns-1], '…')
	}
	return string(runes)
}

// whyDead is why nobody answers at a socket, in the words for which a line has room.
func whyDead(f Finding) string {
	if f.ID != "runtime-dead" {
		return ""
	}
	evidence := strings.Join(f.Evidence, " ")
	switch {
	case strings.Contains(evidence, syscall.ENOENT.Error()):
		return ": no such file"
	case strings.Contains(evidence, syscall.ECONNREFUSED.Error()):
		return ": refused"
	}
	return ""
}

// count counts the findings of a grade.
func (r Report) count(g Grade) (n int) {
	for _, f := range r.Findings {
		if f.Grade == g {
			n++
		}
	}
	return n
}

// empty reports whether the runtime lists nothing.
func (r Report) empty() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == "lists-empty" })
}

// Document implements [bench.Finding].
func (r Report) Document() bench.Document {
	title := r.Node
	if r.Runtime != "" {
		title += ": " + r.Runtime
	}
	d := bench.Document{
		Title: fmt.Sprintf("%s on %s, examined for %s", title, r.Endpoint, bench.Seconds(r.Seconds)),
		Tone:  map[Worth]bench.Tone{Well: bench.Good, Sick: bench.Bad}[r.Worth],
	}
	if r.Pods >= 0 {
		d.Lines = []string{
			fmt.Sprintf(
				"%s, %s (%d running); %s received",
				bench.Count(r.Pods, "pod"),
				bench.Count(r.Containers, "container"),
				r.Running,
				bench.Count(r.Events, "event"),
			),
		}
	}
	calls := bench.Table{Title: "calls", Columns: []string{"made", "failed", "hung", "longest", "usual"}}
	for _, c := range r.Calls {
		calls.Add(
			c.Method,
			"",
			fmt.Sprint(c.Count),
			fmt.Sprint(c.Failed),
			fmt.Sprint(c.Hung),
			bench.Seconds(c.MaxSeconds),
			bench.Seconds(c.UsualSeconds),
		)
	}
	if len(r.Calls) > 0 {
		d.Tables = append(d.Tables, calls)
	}
	switch r.Worth {
	case Sick:
		d.Verdict = fmt.Sprintf("SICK: %s.", bench.Count(r.count(Ill), "finding"))
	case Well:
		d.Verdict = "WELL: the runtime does what a kubelet asks of it."
		if r.empty() {
			d.Verdict = "WELL: the runtime answers, and lists nothing that could be looked at."
		}
	default:
		d.Verdict = "UNKNOWN: the runtime could not be examined from here."
	}
	for i, f := range r.Findings {
		d.Notes = append(d.Notes, fmt.Sprintf("%d. %s: %s.", i+1, f.Grade, f.Sentence))
		for _, e := range f.Evidence {
			d.Notes = append(d.Notes, "   - "+e)
		}
		if f.Change != "" {
			d.Notes = append(d.Notes, "   → "+f.Change)
		}
	}
	for _, u := range r.Unseen {
		d.Notes = append(
			d.Notes,
			fmt.Sprintf("Not looked at: %s: %s.", findings.Meaning(findings.Areas, u.Area), u.Why),
		)
	}
	return d
}

// Benchmarks implements [bench.Finding].
func (r Report) Benchmarks() []bench.Benchmark {
	var figures []bench.Figure
	for _, c := range r.Calls {
		figures = append(
			figures,
			bench.Figure{Value: c.MaxSeconds, Unit: strings.ToLower(c.Method) + "-max-sec"},
		)
	}
	return []bench.Benchmark{{Name: "Doctor", Figures: figures}}
}

// Unmeasured implements [bench.Finding].
func (r Report) Unmeasured() []string {
	if r.Pods >= 0 {
		return nil
	}
	return []string{"pods", "containers", "running", "events"}
}

// sorted puts the gravest findings first, and keeps the order of each grade.
func sorted(list []Finding) []Finding {
	order := []Grade{Ill, Costly, Note}
	slices.SortStableFunc(
		list,
		func(a, b Finding) int { return slices.Index(order, a.Grade) - slices.Index(order, b.Grade) },
	)
	return list
}
