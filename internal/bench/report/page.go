// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

var (
	//go:embed page.html
	pageText string
	//go:embed uplot/uPlot.iife.min.js
	uplotScript string
	//go:embed uplot/uPlot.min.css
	uplotStyle string
)

const pageFile = "report.html"

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"uplot":  func() template.JS { return template.JS(uplotScript) }, // our own files
	"style":  func() template.CSS { return template.CSS(uplotStyle) },
	"advice": func() string { return bench.AdviceTitle },
	"place":  placeOf,
}).Parse(pageText))

// placeOf is the class of a note: numbered, or under the one before it, as its text begins.
func placeOf(note string) string {
	number, _, found := strings.Cut(note, ". ")
	_, err := strconv.Atoi(number)
	switch {
	case strings.HasPrefix(note, " "):
		return "under"
	case found && err == nil:
		return "numbered"
	}
	return ""
}

// page is a document with charts of a timeline: a single file without need of a network. Its script
// draws the charts.
type page struct {
	bench.Document
	Command  string
	Began    time.Time
	Timeline []bench.Series
}

// page returns the page of a finding.
func (s *Saved) page() page {
	p := page{
		Document: s.Result.Document().Printable(),
		Command:  printable.Text(strings.Join(s.Command, " ")),
		Began:    s.Began,
		Timeline: s.Timeline,
	}
	if len(s.Failures) > 0 {
		p.Tone = bench.Bad
		p.Notes = slices.Concat(p.Notes, printable.Texts(s.Failures))
		p.Verdict = strings.TrimSpace(p.Verdict + " Not every expectation was kept.")
	}
	return p
}

// Write writes the page.
func (p page) Write(w io.Writer) error { return pageTemplate.Execute(w, p) }
