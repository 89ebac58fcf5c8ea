// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// reportLine is a report, or another notice about the runtime, in JSON.
type reportLine struct {
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	// Reason is the reason of an agent's Kubernetes Event for the report; empty for the watch's own
	// reports.
	Reason    string `json:"reason,omitempty"`
	Warning   bool   `json:"warning"`
	Note      string `json:"note"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// rawLine is a message of the stream in JSON.
type rawLine struct {
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	stream.Event
}

// harvest prints the content of the tap.
func (p *printer) harvest(now time.Time) error {
	h := p.tap.take(now)
	for _, e := range h.raw {
		if err := p.raw(e); err != nil {
			return err
		}
	}
	for _, note := range h.notes {
		if err := p.tell(reportLine{Time: now, Warning: true, Note: note}); err != nil {
			return err
		}
	}
	for _, c := range h.hanging {
		note := fmt.Sprintf("a %s has not been answered for %s", c.kind, bench.Short(now.Sub(c.begun).Round(time.Second)))
		if err := p.tell(reportLine{Time: now, Warning: true, Note: note, UID: c.pod}); err != nil {
			return err
		}
	}
	for _, r := range h.reports {
		if err := p.report(r, now); err != nil {
			return err
		}
	}
	if h.lost > 0 {
		return p.tell(reportLine{Time: now, Warning: true, Note: fmt.Sprintf("%d messages and reports were not printed: the output is too slow for them", h.lost)})
	}
	return nil
}

// report prints a report of the generator's; a repeated report is printed now and then with its
// number.
func (p *printer) report(r pleg.Report, now time.Time) error {
	p.reports[r.Reason] += 1 + r.Held
	l := reportLine{Time: now, Reason: string(r.Reason), Warning: r.Warning, Note: r.Note}
	if r.Pod != nil {
		l.Namespace, l.Pod, l.UID = r.Pod.Namespace, r.Pod.Name, string(r.Pod.UID)
	}
	key := l.Reason + "\x00" + l.UID + "\x00" + l.Note
	if r.Held > 0 {
		l.Note += fmt.Sprintf(" (and %d times more since the last report of this)", r.Held)
	}
	before := p.repeats[key]
	switch {
	case before == nil:
		if len(p.repeats) >= maxReports {
			clear(p.repeats)
		}
		p.repeats[key] = &repeat{at: now}
	case now.Sub(before.at) < repeatEvery:
		before.n++
		return nil
	default:
		if before.n > 0 {
			l.Note += fmt.Sprintf(" (and %d times more since %s)", before.n, before.at.Format(timeForm))
		}
		before.at, before.n = now, 0
	}
	return p.tell(l)
}

// tell prints a line other than an event.
func (p *printer) tell(l reportLine) error {
	l.Type = "Report"
	p.spoke = l.Time
	if p.options.Output == "json" {
		return json.NewEncoder(p.options.Out).Encode(l)
	}
	mark := "-"
	if l.Warning {
		mark = "!"
	}
	about := ""
	if l.UID != "" {
		n := p.names[cache.UID(l.UID)]
		about = fmt.Sprintf(" (pod %s/%s %s)", or(or(l.Namespace, n.namespace), "?"), or(or(l.Pod, n.pod), "?"), l.UID)
	}
	if l.Reason != "" {
		l.Reason += ": "
	}
	_, err := fmt.Fprintf(p.options.Err, "%s  %s %s%s%s\n", l.Time.Format(timeForm), mark, l.Reason, l.Note, about)
	return err
}

// raw prints a message of the stream unchanged.
func (p *printer) raw(e stream.Event) error {
	if p.options.Namespace != "" && e.Namespace != "" && e.Namespace != p.options.Namespace {
		return nil
	}
	p.printed++
	p.spoke = e.Received
	if p.options.Output == "json" {
		return json.NewEncoder(p.options.Out).Encode(rawLine{Time: e.Received, Type: "Raw", Event: e})
	}
	age := "?"
	if e.AgeSeconds != nil {
		d := time.Duration(*e.AgeSeconds * float64(time.Second))
		if age = bench.Short(d.Abs()); d < 0 {
			age = "-" + age
		}
	}
	var shows []string
	for _, i := range e.Payload {
		name := fmt.Sprintf("%.7s", i.ID)
		if i.Name != "" {
			name = i.Name + " " + name
		}
		if i.Sandbox {
			name = "sandbox " + name
		}
		shows = append(shows, name+" "+i.Phase)
	}
	var what strings.Builder
	what.WriteString(or(e.Namespace, "?") + "/" + or(e.Pod, "?") + ": " + or(strings.Join(shows, ", "), "nothing"))
	for _, flaw := range e.Flaws {
		what.WriteString("\n" + strings.Repeat(" ", 14) + "! " + flaw)
	}
	_, err := fmt.Fprintf(p.options.Out, rawForm, e.Received.Format(timeForm), or(e.Type, "?"), age, fmt.Sprint(e.Bytes),
		strings.TrimSpace(fmt.Sprintf("%.1s %.13s", e.Kind, e.ID)), what.String())
	return err
}
