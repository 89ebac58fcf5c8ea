// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// timeForm is the time format of a line.
const timeForm = "15:04:05.000"

// printer prints events and states. The loop owns it.
type printer struct {
	watched
	options Options
	printed int
	// reports counts the generator's reports by reason.
	reports map[pleg.Reason]int
	// connected adds up the time in which the stream was connected, until lookedAt.
	connected time.Duration
	lookedAt  time.Time

	// state, period and missed are as they were printed last, and spoke is when.
	state  pleg.StreamState
	period time.Duration
	missed int
	health string
	looked bool
	spoke  time.Time
}

// header names the columns.
func (p *printer) header() error {
	switch {
	case p.options.Output == "json":
		return nil
	case p.options.Raw:
		_, err := fmt.Fprintf(p.options.Out, rawForm, "TIME", "EVENT", "AGE", "BYTES", "OF", "POD AND WHAT THE EVENT SHOWS")
		return err
	}
	_, err := fmt.Fprintf(p.options.Out, eventForm, "TIME", "EVENT", "FROM", "DELAY", "POD, CONTAINER, ID")
	return err
}

const (
	eventForm = "%-12s  %-7s  %-5s  %8s  %s\n"
	rawForm   = "%-12s  %-8s  %8s  %6s  %-15s  %s\n"
)

// line is an event in JSON.
type line struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	UID       string    `json:"uid"`
	Container string    `json:"container,omitempty"`
	ID        string    `json:"id,omitempty"`
	ExitCode  *int32    `json:"exit_code,omitempty"`
	Source    string    `json:"source"`
	// LatencySeconds is from the runtime's stamp of the event to now; nil when a read found the
	// change.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
	State          string   `json:"state"`
}

// stateLine is a change of the generator's own state in JSON.
type stateLine struct {
	Time                time.Time `json:"time"`
	Type                string    `json:"type"`
	State               string    `json:"state"`
	RelistPeriodSeconds float64   `json:"relist_period_seconds"`
	Missed              int       `json:"missed"`
	Health              string    `json:"health,omitempty"`
}

// event prints an event.
func (p *printer) event(e pleg.Event, now time.Time) error {
	if p.options.Namespace != "" && e.Namespace != p.options.Namespace {
		return nil
	}
	p.printed++
	p.spoke = now
	l := line{
		Time: now, Type: string(e.Type), Namespace: e.Namespace, Pod: e.PodName, UID: string(e.Pod), Container: e.ContainerName, ID: e.ID,
		Source: e.Cause.String(), State: p.generator.Stats().State.String(),
	}
	if e.ID != "" {
		l.Kind = e.Kind.String()
	}
	if e.Type == pleg.ContainerDied && e.Kind == pleg.Container {
		if code, ok := p.client.ExitCode(e.ID); ok {
			l.ExitCode = new(code)
		}
	}
	late := ""
	if !e.Stamp.IsZero() {
		d := now.Sub(e.Stamp)
		l.LatencySeconds = new(d.Seconds())
		late = bench.Short(max(d, 0))
	}
	if p.options.Output == "json" {
		return json.NewEncoder(p.options.Out).Encode(l)
	}
	what := l.Kind
	if l.Container != "" {
		what = l.Container
	}
	if l.ExitCode != nil {
		what += fmt.Sprintf(" (exit %d)", *l.ExitCode)
	}
	from := "event"
	if e.Cause == pleg.CauseRead {
		from = "read"
	}
	what = strings.TrimSpace(fmt.Sprintf("%s/%s %s %.13s", cmp.Or(l.Namespace, "?"), cmp.Or(l.Pod, string(e.Pod)), what, e.ID))
	_, err := fmt.Fprintf(p.options.Out, eventForm, now.Format(timeForm), strings.TrimPrefix(l.Type, "Container"), from, late, what)
	return err
}

// look prints the content of the tap, and the changes of the generator itself.
func (p *printer) look(now time.Time) error {
	st := p.generator.Stats()
	if st.State == pleg.StreamConnected && !p.lookedAt.IsZero() {
		p.connected += now.Sub(p.lookedAt)
	}
	p.lookedAt = now
	p.tap.sample(now, st)
	if err := p.harvest(now); err != nil {
		return err
	}
	health := ""
	if err := p.generator.Health(); err != nil {
		health = err.Error()
	}
	changed := !p.looked || st.State != p.state || st.RelistPeriod != p.period || st.Missed != p.missed || health != p.health
	if !changed && (p.options.StatusEvery == 0 || now.Sub(p.spoke) < p.options.StatusEvery) {
		return nil
	}
	p.looked, p.state, p.period, p.missed, p.health, p.spoke = true, st.State, st.RelistPeriod, st.Missed, health, now
	if p.options.Output == "json" {
		if !changed {
			return nil
		}
		return json.NewEncoder(p.options.Out).Encode(stateLine{
			Time: now, Type: "State", State: st.State.String(), RelistPeriodSeconds: st.RelistPeriod.Seconds(), Missed: st.Missed, Health: health,
		})
	}
	_, err := fmt.Fprintf(p.options.Err, "%s  stream %s, period %s; %d pods, %d received, %d missed%s\n",
		now.Format(timeForm), st.State, bench.Short(st.RelistPeriod), len(p.cache.UIDs()), st.Claims, st.Missed, withSep("; unhealthy: ", health))
	return err
}

func withSep(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

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
	for _, what := range p.tap.take(now) {
		var err error
		switch what := what.(type) {
		case stream.Event:
			err = p.raw(what)
		case pleg.Report:
			err = p.report(what, now)
		case call:
			note := fmt.Sprintf("a %s has not been answered for %s", what.kind, bench.Short(now.Sub(what.begun).Round(time.Second)))
			err = p.tell(reportLine{Time: now, Warning: true, Note: note, UID: what.pod})
		case string:
			err = p.tell(reportLine{Time: now, Warning: true, Note: what})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// report prints a report of the generator's.
func (p *printer) report(r pleg.Report, now time.Time) error {
	p.reports[r.Reason] += 1 + r.Held
	l := reportLine{Time: now, Reason: string(r.Reason), Warning: r.Warning, Note: r.Note}
	if r.Pod != nil {
		l.Namespace, l.Pod, l.UID = r.Pod.Namespace, r.Pod.Name, string(r.Pod.UID)
	}
	if r.Held > 0 {
		l.Note += fmt.Sprintf(" (and %d times more since the last report of this)", r.Held)
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
		status, _ := p.cache.Get(cache.UID(l.UID)) // names the pod of a call that hangs
		about = fmt.Sprintf(" (pod %s/%s %s)", cmp.Or(l.Namespace, status.Namespace(), "?"), cmp.Or(l.Pod, status.Name(), "?"), l.UID)
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
	what.WriteString(cmp.Or(e.Namespace, "?") + "/" + cmp.Or(e.Pod, "?") + ": " + cmp.Or(strings.Join(shows, ", "), "nothing"))
	for _, flaw := range e.Flaws {
		what.WriteString("\n" + strings.Repeat(" ", 14) + "! " + flaw)
	}
	_, err := fmt.Fprintf(p.options.Out, rawForm, e.Received.Format(timeForm), cmp.Or(e.Type, "?"), age, fmt.Sprint(e.Bytes),
		strings.TrimSpace(fmt.Sprintf("%.1s %.13s", e.Kind, e.ID)), what.String())
	return err
}
