// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// row is a line of the table.
type row struct {
	set     setting
	seen    *seen
	watch   []string
	reports []string
	metrics []string
	alerts  []string
}

// newRow returns the row of a scene, without its alerts.
func newRow(set setting, with, without *seen) *row {
	return &row{
		set:  set,
		seen: with,
		watch: slices.DeleteFunc(
			set.steady(with.watchSays()),
			func(sign string) bool { return slices.Contains(set.seldom, sign) },
		),
		reports: set.steady(with.reasons()),
		metrics: set.steady(with.moved(without)),
	}
}

// steady returns the signs of every run.
func (s setting) steady(signs []string) []string {
	return slices.DeleteFunc(signs, func(sign string) bool { return slices.Contains(s.sometimes, sign) })
}

// title names the row.
func (s setting) title() string {
	if s.set == "" {
		return s.name
	}
	if s.fromStart && !strings.Contains(s.set, "eof") && s.name != "unimplemented" {
		return s.set + ", from the start"
	}
	return s.set
}

// cell is the fault's name in the table.
func (s setting) cell() string {
	if s.set == "" {
		return s.name
	}
	return "`" + s.set + "`"
}

// guide is docs/troubleshooting.md.
type guide struct {
	// links are the anchors in the first table, by the words of their signs.
	rows []guideRow
	// sections are the texts of the sections, by anchor.
	sections map[string]string
}

type guideRow struct{ sees, anchor string }

var (
	linkCell = regexp.MustCompile(`\(#([a-z0-9-]+)\)`)
	notAWord = regexp.MustCompile(`[^a-z0-9 -]`)
)

func readGuide(t *testing.T) guide {
	raw := testkit.Must(os.ReadFile("../../docs/troubleshooting.md"))(t)
	g := guide{sections: make(map[string]string)}
	top, rest, _ := strings.Cut(string(raw), "\n## ")
	for line := range strings.Lines(top) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			if m := linkCell.FindStringSubmatch(cells[2]); m != nil {
				g.rows = append(g.rows, guideRow{cells[1], m[1]})
			}
		}
	}
	for section := range strings.SplitSeq(strings.ReplaceAll(rest, "\n### ", "\n## "), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		anchor := strings.ReplaceAll(notAWord.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		g.sections[anchor] = strings.Join(strings.Fields(text), " ")
	}
	if len(g.rows) < 5 || len(g.sections) < 5 {
		t.Fatalf(
			"docs/troubleshooting.md has %d rows and %d sections that can be read",
			len(g.rows),
			len(g.sections),
		)
	}
	return g
}

// leads returns the anchors reached from a sign.
func (g guide) leads(sees string) (anchors []string) {
	word := regexp.MustCompile(`(^|[^A-Za-z-])` + regexp.QuoteMeta(sees) + `($|[^A-Za-z-])`)
	for _, r := range g.rows {
		if word.MatchString(r.sees) {
			anchors = append(anchors, r.anchor)
		}
	}
	return anchors
}

// check applies an operator's needs to a row: the fault is not silent, or is harmless; its signs
// lead to the section about the fault, and the section names the signs.
func (r *row) check(t *testing.T, g guide) {
	t.Helper()
	title := r.set.title()
	if r.set.harmless != "" {
		if len(r.reports)+len(r.metrics)+len(r.alerts)+len(r.seen.differs) > 0 {
			t.Errorf(
				"%s is said to be harmless, and shows: reports %q, metrics %q, alerts %q, differences %q",
				title,
				r.reports,
				r.metrics,
				r.alerts,
				r.seen.differs,
			)
		}
		if len(r.watch) == 0 {
			return
		}
	} else if len(r.reports)+len(r.metrics) == 0 && (r.set.ownCall == "" || len(r.watch) == 0) {
		t.Errorf("%s is silent in an agent: nothing in reports, in metrics; watch says %q", title, r.watch)
		return
	}
	section, ok := g.sections[r.set.section]
	if !ok {
		t.Errorf("%s: docs/troubleshooting.md has no section #%s", title, r.set.section)
		return
	}
	led, found := false, false
	for _, sees := range slices.Concat(r.watch, r.reports, r.alerts) {
		led = led || slices.Contains(g.leads(sees), r.set.section)
		found = found || strings.Contains(section, sees)
	}
	for _, m := range r.metrics {
		found = found || strings.Contains(section, m)
	}
	if !led {
		t.Errorf(
			"%s: nothing of what shows leads to #%s: watch %q, reports %q, alerts %q",
			title,
			r.set.section,
			r.watch,
			r.reports,
			r.alerts,
		)
	}
	if !found {
		t.Errorf(
			"%s: the section #%s speaks of nothing that shows: watch %q, reports %q, metrics %q",
			title,
			r.set.section,
			r.watch,
			r.reports,
			r.metrics,
		)
	}
}

const columns = "| fault | what it does | watch | reports | metrics | alerts | look at |\n|---|---|---|---|---|---|---|\n"

// render returns the lines of the table below its columns.
func render(rows []*row) string {
	var b strings.Builder
	help := map[string]string{}
	for _, f := range fakeruntime.FaultList() {
		help[f.Name] = f.Help
	}
	list := func(words []string, mark string) string {
		if len(words) == 0 {
			return "–"
		}
		return mark + strings.Join(words, mark+", "+mark) + mark
	}
	for _, r := range rows {
		var look string
		if r.set.section != "" {
			look = fmt.Sprintf(
				"[%s](troubleshooting.md#%s)",
				strings.ReplaceAll(r.set.section, "-", " "),
				r.set.section,
			)
		}
		if r.set.harmless != "" {
			look = strings.TrimSuffix("harmless: "+r.set.harmless+"; "+look, "; ")
		}
		what := cmp.Or(r.set.what, help[r.set.name])
		if r.set.restartEvery > 0 {
			what += " (every 5 min)"
		}
		if r.set.ownCall != "" {
			look += "; an agent: " + r.set.ownCall
		}
		if r.set.fromStart {
			what += " (from the start)"
		}
		if r.set.profile != "" {
			what += " (" + r.set.profile + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.set.cell(), what,
			list(r.watch, ""), list(r.reports, ""), list(r.metrics, "`"), list(r.alerts, ""), look)
	}
	return b.String()
}

// standsIn reports whether a page has the row, whatever its alerts.
func (r *row) standsIn(page string) bool {
	lines := strings.Split(render([]*row{r}), "\n")
	cells := strings.Split(lines[len(lines)-2], " | ")
	return strings.Contains(page, "\n"+strings.Join(cells[:5], " | ")+" | ")
}
