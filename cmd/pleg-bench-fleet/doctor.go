// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/doctor/findings"
)

// Doctor sums up the findings of "watch --doctor-every" on the nodes, from their metrics.
type Doctor struct {
	// Well counts nodes whose last examination found nothing of the grade sick where it looked.
	Well int `json:"well"`
	// Sick counts nodes whose last examination found something of the grade sick.
	Sick int `json:"sick"`
	// Unknown counts nodes whose last examination came to no result.
	Unknown int `json:"unknown"`
	// Waiting counts nodes before their first examination.
	Waiting int `json:"waiting"`
	// Overdue counts nodes whose last examination is older than two periods; Overdue nodes are in none
	// of the other counts.
	Overdue int `json:"overdue"`
	// Without counts nodes with metrics of a watch without examinations, such as an old version.
	Without int `json:"without"`
	// Findings are the kinds of findings within the window, the gravest and most frequent first.
	Findings []FleetFinding `json:"findings"`
	// Unseen are the areas that examinations could not look at.
	Unseen []FleetUnseen `json:"not_looked_at"`
}

// FleetFinding is a kind of finding with its nodes.
type FleetFinding struct {
	// ID names the kind, as in the report of doctor.
	ID string `json:"id"`
	// Grade is sick or costly.
	Grade string `json:"grade"`
	// Means explains the kind; empty for a kind of a later version.
	Means string `json:"means,omitempty"`
	// Nodes counts the nodes with the finding at any time within the window.
	Nodes int `json:"nodes"`
	// Now counts those with the finding by their last examination.
	Now int `json:"now"`
	// Examples are names of such nodes, at most 30, those with the finding now first.
	Examples []string `json:"examples"`
}

// FleetUnseen is an area that could not be looked at, with the number of nodes.
type FleetUnseen struct {
	// Area is an area, as in the report of doctor.
	Area string `json:"area"`
	// Means explains the area; empty for an area of a later version.
	Means string `json:"means,omitempty"`
	// Nodes counts the nodes.
	Nodes int `json:"nodes"`
}

// examined has the metrics of a node about its examinations.
type examined struct {
	// runs: the node's watch examines. overdue: not for two periods.
	runs, overdue bool
	worth         string
	found         map[finding]bool // within the window; true for the last examination's
	unseen        []string
}

// finding is a kind of finding with its grade.
type finding struct{ id, grade string }

// enter enters a finding; present reports whether the last examination has the finding.
func (e *examined) enter(id, grade string, present bool) {
	if e.found == nil {
		e.found = make(map[finding]bool)
	}
	key := finding{id, grade}
	e.found[key] = e.found[key] || present
}

// doctorQueries are the queries of doctor's findings.
func (s source) doctorQueries() []nodeQuery {
	p := s.promql()
	enter := func(now bool) func(*node, model.Metric) {
		return func(n *node, labels model.Metric) {
			n.enter(string(labels["finding"]), string(labels["grade"]), now)
		}
	}
	late := p.series(findings.Age) + " > bool 2 * " + p.series(findings.Period) + " + 120"
	return []nodeQuery{
		words(p.each("max", p.lately(findings.Found), "finding", "grade"), enter(false)),
		words(p.each("max", p.series(findings.Found), "finding", "grade"), enter(true)),
		words(p.each("max", p.series(findings.Worth), "worth"),
			func(n *node, labels model.Metric) { n.worth = string(labels["worth"]) }),
		words(p.each("max", p.series(findings.Unseen), "area"),
			func(n *node, labels model.Metric) { n.unseen = append(n.unseen, string(labels["area"])) }),
		number(p.each("max", late), func(n *node, v float64) {
			n.runs = true
			n.overdue = v > 0
		}),
	}
}

// grades are the grades in metrics, the gravest first.
var grades = []findings.Term{
	{Name: "sick"},
	{Name: "costly"},
}

// mostExamples bounds the nodes of a kind of finding.
const mostExamples = 30

// diagnose sums the examinations of nodes up.
func diagnose(nodes []*node) Doctor {
	d := Doctor{Findings: []FleetFinding{}, Unseen: []FleetUnseen{}}
	found := make(map[finding]*FleetFinding)
	earlier := make(map[finding][]string) // nodes with the finding before their last examination
	unseen := make(map[string]int)
	for _, n := range nodes {
		for kind, now := range n.found {
			f := found[kind]
			if f == nil {
				f = &FleetFinding{
					ID:       kind.id,
					Grade:    kind.grade,
					Means:    findings.Meaning(findings.Kinds, kind.id),
					Examples: []string{},
				}
				found[kind] = f
			}
			f.Nodes++
			if !now {
				earlier[kind] = append(earlier[kind], n.name)
				continue
			}
			f.Now++
			f.Examples = append(f.Examples, n.name)
		}
		d.add(n, unseen)
	}
	for kind, f := range found {
		f.Examples = append(f.Examples, earlier[kind]...)
		f.Examples = f.Examples[:min(len(f.Examples), mostExamples)]
		d.Findings = append(d.Findings, *f)
	}
	slices.SortFunc(d.Findings, func(a, b FleetFinding) int {
		return cmp.Or(
			cmp.Compare(findings.Place(grades, a.Grade), findings.Place(grades, b.Grade)),
			cmp.Compare(b.Now, a.Now),
			cmp.Compare(b.Nodes, a.Nodes),
			strings.Compare(a.ID, b.ID),
			strings.Compare(a.Grade, b.Grade),
		)
	})
	for area, n := range unseen {
		means := findings.Meaning(findings.Areas, area)
		d.Unseen = append(d.Unseen, FleetUnseen{Area: area, Means: means, Nodes: n})
	}
	slices.SortFunc(d.Unseen, func(a, b FleetUnseen) int {
		first := findings.Place(findings.Areas, a.Area)
		second := findings.Place(findings.Areas, b.Area)
		return cmp.Or(cmp.Compare(first, second), strings.Compare(a.Area, b.Area))
	})
	return d
}

// add counts a node, unless the node is silent, and the areas not looked at there.
func (d *Doctor) add(n *node, unseen map[string]int) {
	switch {
	case n.silent != "":
		return
	case !n.runs && n.worth == "":
		d.Without++
		return
	case n.overdue:
		d.Overdue++
		return
	case n.worth == "":
		d.Waiting++
		return
	case n.worth == "sick":
		d.Sick++
	case n.worth == "well":
		d.Well++
	default:
		d.Unknown++
	}
	for _, area := range n.unseen {
		unseen[area]++
	}
}

// ran is the number of nodes with an examination.
func (d Doctor) ran() int { return d.Well + d.Sick + d.Unknown }

// summary is the outcome in words, empty if no watch examines.
func (d Doctor) summary() string {
	if d.ran()+d.Waiting+d.Overdue == 0 {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "doctor: %d sick of %s examined", d.Sick, bench.Count(d.ran(), "node"))
	for _, part := range []struct {
		n    int
		does string
	}{
		{d.Unknown, "without a result"},
		{d.Waiting, "yet to be examined"},
		{d.Overdue, "not examined for long"},
		{d.Without, "whose watch does not examine"},
	} {
		if part.n > 0 {
			fmt.Fprintf(&text, "; %d %s", part.n, part.does)
		}
	}
	return text.String()
}

// notLookedAt names the areas in which nothing was found because nobody looked.
func (d Doctor) notLookedAt() string {
	var parts []string
	for _, u := range d.Unseen {
		what := cmp.Or(u.Means, u.Area)
		parts = append(parts, fmt.Sprintf("%s (%s)", what, bench.Count(u.Nodes, "node")))
	}
	return strings.Join(parts, ", ")
}

// examplesShown bounds the nodes named in the text for a finding.
const examplesShown = 5

// where names nodes with the finding.
func (f FleetFinding) where() string {
	shown := f.Examples[:min(len(f.Examples), examplesShown)]
	text := fmt.Sprintf("%s: %s", f.ID, strings.Join(shown, ", "))
	if more := f.Nodes - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// document adds the examinations to a verdict's document.
func (d Doctor) document(to *bench.Document) {
	if text := d.summary(); text != "" {
		to.Lines = append(to.Lines, text)
	}
	if len(d.Findings) > 0 {
		table := bench.Table{Title: "doctor's findings", Columns: []string{"grade", "nodes", "now"}}
		for _, f := range d.Findings {
			table.Add(f.ID, f.Means, f.Grade, fmt.Sprint(f.Nodes), fmt.Sprint(f.Now))
			to.Notes = append(to.Notes, f.where())
		}
		to.Tables = append(to.Tables, table)
		to.Notes = append(to.Notes,
			"The evidence of a finding is in the log of the node's watch, in lines of the type Doctor.")
	}
	if text := d.notLookedAt(); text != "" {
		to.Notes = append(to.Notes, "Not looked at by doctor: "+text+".")
	}
}
