// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// timeForm is the time format of a line.
const timeForm = "15:04:05.000"

// printer prints events and states. The loop owns it.
type printer struct {
	watched
	options Options
	printed int
	// closed is when the last list was asked for, zero without one.
	closed time.Time
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
	// stated is when look printed the state last; look writes it.
	stated time.Time
}

// header names the columns.
func (p *printer) header() error {
	switch {
	case p.options.Output == "json":
		return nil
	case p.options.Raw:
		return p.out(rawForm, "TIME", "EVENT", "AGE", "BYTES", "OF", "POD AND WHAT THE EVENT SHOWS")
	}
	return p.out(eventForm, "TIME", "EVENT", "FROM", "DELAY", "POD, CONTAINER, ID")
}

const (
	eventForm = "%-12s  %-7s  %-5s  %8s  %s"
	rawForm   = "%-12s  %-8s  %8s  %6s  %-15s  %s"
	// underTime is the column below the end of a line's time, where its continuation begins.
	underTime = 14
)

// out writes a line to the output.
func (p *printer) out(format string, args ...any) error {
	return writeLine(p.options.Out, p.options.OutColumns, format, args...)
}

// err writes a line beside the output.
func (p *printer) err(format string, args ...any) error {
	return writeLine(p.options.Err, p.options.ErrColumns, format, args...)
}

func writeLine(w io.Writer, width bench.Width, format string, args ...any) error {
	_, err := fmt.Fprintln(w, width.Fold(fmt.Sprintf(format, args...), underTime))
	return err
}

// line is an event in JSON.
type line struct {
	// Time is when the event was printed.
	Time time.Time `json:"time"`
	// Type is ContainerStarted, ContainerDied, ContainerRemoved or PodSync.
	Type string `json:"type"`
	// Kind is container or sandbox; empty for a PodSync.
	Kind string `json:"kind,omitempty"`
	// Namespace is the pod's.
	Namespace string `json:"namespace,omitempty"`
	// Pod is the pod's name.
	Pod string `json:"pod,omitempty"`
	// UID is the pod's.
	UID string `json:"uid"`
	// Container is the container's name.
	Container string `json:"container,omitempty"`
	// ID is that of the container or sandbox.
	ID string `json:"id,omitempty"`
	// ExitCode is that of a container that died, if it is known.
	ExitCode *int32 `json:"exit_code,omitempty"`
	// Source is claim for an event of the runtime, else read.
	Source string `json:"source"`
	// LatencySeconds is from the runtime's stamp of the event to now; left out when a read found the
	// change.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
	// State is that of the stream.
	State string `json:"state"`
}

// stateLine is a change of the generator's own state in JSON.
type stateLine struct {
	// Time is now.
	Time time.Time `json:"time"`
	// Type is State.
	Type string `json:"type"`
	// State is that of the stream.
	State string `json:"state"`
	// RelistPeriodSeconds is the relist period.
	RelistPeriodSeconds float64 `json:"relist_period_seconds"`
	// Missed counts the starts and exits without an event so far.
	Missed int `json:"missed"`
	// Health is why the PLEG is not healthy.
	Health string `json:"health,omitempty"`
}

// event prints an event.
func (p *printer) event(e pleg.Event, now time.Time) error {
	if p.options.Namespace != "" && e.Namespace != p.options.Namespace {
		return nil
	}
	p.printed++
	if p.options.Quiet {
		return nil
	}
	p.spoke = now
	l := line{
		Time:      now,
		Type:      string(e.Type),
		Namespace: printable.Text(e.Namespace),
		Pod:       printable.Text(e.PodName),
		UID:       printable.Text(string(e.Pod)),
		Container: printable.Text(e.ContainerName),
		ID:        printable.Text(e.ID),
		Source:    e.Cause.String(),
		State:     p.generator.Stats().State.String(),
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
		return printable.WriteJSON(p.options.Out, l, "")
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
	what = strings.TrimSpace(
		fmt.Sprintf("%s/%s %s %.13s", cmp.Or(l.Namespace, "?"), cmp.Or(l.Pod, l.UID), what, l.ID),
	)
	return p.out(eventForm, now.Format(timeForm), strings.TrimPrefix(l.Type, "Container"), from, late, what)
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
		health = printable.Text(err.Error())
	}
	changed := !p.looked || st.State != p.state || st.RelistPeriod != p.period || st.Missed != p.missed ||
		health != p.health
	if p.options.Quiet && p.looked && now.Sub(p.stated) < quietEvery {
		return nil
	}
	if !changed && (p.options.StatusEvery == 0 || now.Sub(p.spoke) < p.options.StatusEvery) {
		return nil
	}
	p.looked = true
	p.state = st.State
	p.period = st.RelistPeriod
	p.missed = st.Missed
	p.health = health
	p.spoke = now
	p.stated = now
	if p.options.Output == "json" {
		if !changed {
			return nil
		}
		return printable.WriteJSON(p.options.Out, stateLine{
			Time:                now,
			Type:                "State",
			State:               st.State.String(),
			RelistPeriodSeconds: st.RelistPeriod.Seconds(),
			Missed:              st.Missed,
			Health:              health,
		}, "")
	}
	return p.err(
		"%s  stream %s, period %s; %s, %d received, %d missed%s",
		now.Format(
			timeForm,
		),
		st.State,
		bench.Short(st.RelistPeriod),
		bench.Count(len(p.cache.UIDs()), "pod"),
		st.Claims,
		st.Missed,
		withSep("; unhealthy: ", health),
	)
}

func withSep(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// reportLine is a report, or another notice about the runtime, in JSON.
type reportLine struct {
	// Time is now.
	Time time.Time `json:"time"`
	// Type is Report.
	Type string `json:"type"`
	// Reason is the reason of an agent's Kubernetes Event for the report; empty for the watch's
	// own reports.
	Reason string `json:"reason,omitempty"`
	// Warning is the type of that Event: Warning, or Normal.
	Warning bool `json:"warning"`
	// Note says what happened.
	Note string `json:"note"`
	// Namespace is the pod's, if one is concerned.
	Namespace string `json:"namespace,omitempty"`
	// Pod is the pod's name.
	Pod string `json:"pod,omitempty"`
	// UID is the pod's.
	UID string `json:"uid,omitempty"`
}

// rawLine is a message of the stream in JSON.
type rawLine struct {
	// Time is the time of receipt.
	Time time.Time `json:"time"`
	// Type is Raw.
	Type string `json:"type"`
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
		case doctor.Report:
			err = p.examination(what, now)
		case call:
			note := fmt.Sprintf(
				"a %s has not been answered for %s",
				what.kind,
				bench.Short(now.Sub(what.begun).Round(time.Second)),
			)
			err = p.tell(reportLine{
				Time:    now,
				Warning: true,
				Note:    note,
				UID:     what.pod,
			})
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
	l := reportLine{
		Time:    now,
		Reason:  string(r.Reason),
		Warning: r.Warning,
		Note:    r.Note,
	}
	if r.Pod != nil {
		l.Namespace = r.Pod.Namespace
		l.Pod = r.Pod.Name
		l.UID = string(r.Pod.UID)
	}
	if r.Held > 0 {
		l.Note += fmt.Sprintf(" (and %s more since the last report of this)", bench.Count(r.Held, "time"))
	}
	return p.tell(l)
}

// tell prints a line other than an event.
func (p *printer) tell(l reportLine) error {
	l.Type = "Report"
	l.Note = printable.Text(l.Note)
	uid := cache.UID(l.UID)
	l.Namespace = printable.Text(l.Namespace)
	l.Pod = printable.Text(l.Pod)
	l.UID = printable.Text(l.UID)
	p.spoke = l.Time
	if p.options.Output == "json" {
		return printable.WriteJSON(p.options.Out, l, "")
	}
	mark := "-"
	if l.Warning {
		mark = "!"
	}
	about := ""
	if l.UID != "" {
		status, _ := p.cache.Get(uid) // names the pod of a call that hangs
		namespace := printable.Text(status.Namespace())
		name := printable.Text(status.Name())
		about = fmt.Sprintf(
			" (pod %s/%s %s)",
			cmp.Or(l.Namespace, namespace, "?"),
			cmp.Or(l.Pod, name, "?"),
			l.UID,
		)
	}
	if l.Reason != "" {
		l.Reason += ": "
	}
	return p.err("%s  %s %s%s%s", l.Time.Format(timeForm), mark, l.Reason, l.Note, about)
}

// raw prints a message of the stream unchanged.
func (p *printer) raw(e stream.Event) error {
	if p.options.Namespace != "" && e.Namespace != "" && e.Namespace != p.options.Namespace {
		return nil
	}
	p.printed++
	p.spoke = e.Received
	if p.options.Output == "json" {
		return printable.WriteJSON(p.options.Out, rawLine{Time: e.Received, Type: "Raw", Event: e}, "")
	}
	age := "?"
	if e.AgeSeconds != nil {
		d := time.Duration(*e.AgeSeconds * float64(time.Second))
		age = bench.Short(d.Abs())
		if d < 0 {
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
	what := cmp.Or(
		e.Namespace,
		"?",
	) + "/" + cmp.Or(
		e.Pod,
		"?",
	) + ": " + cmp.Or(
		strings.Join(shows, ", "),
		"nothing",
	)
	err := p.out(rawForm, e.Received.Format(timeForm), cmp.Or(e.Type, "?"), age, fmt.Sprint(e.Bytes),
		strings.TrimSpace(fmt.Sprintf("%.1s %.13s", e.Kind, e.ID)), what)
	for _, flaw := range e.Flaws {
		err = cmp.Or(err, p.out("%*s! %s", underTime, "", flaw))
	}
	return err
}
