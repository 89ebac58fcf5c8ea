// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/doctor"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// judged is why an examination beside a watch leaves the event stream alone.
const judged = "the watch beside it judges the stream"

// rounds returns the examinations beside the watch, whose metrics are served with the watch's; nil
// for none.
func (w *watched) rounds(o Options) *doctor.Rounds {
	if o.DoctorEvery == 0 {
		return nil
	}
	w.tap.listing = make(turn, 1)
	r := &doctor.Rounds{
		Every: o.DoctorEvery,
		Examine: func(ctx context.Context, within time.Duration) doctor.Report {
			return w.examine(ctx, o, within)
		},
		Tell: w.tap.examined,
	}
	w.registry.RawMustRegister(r)
	return r
}

// examine makes an examination of the runtime by a connection of this process. There is no stream,
// and the runtime ends each call at its deadline: a process that stops meanwhile holds nobody up. A
// reader's process would keep another copy of large lists in memory.
func (w *watched) examine(ctx context.Context, o Options, within time.Duration) doctor.Report {
	endpoint := w.client.Endpoint()
	socket := strings.TrimPrefix(endpoint, "unix://")
	dial := o.Dialer
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return doctor.Examine(ctx, doctor.Options{
		Endpoint: endpoint,
		Dial:     dial,
		Within:   within,
		JudgedBy: judged,
		Gentle:   true,
		Listing:  w.tap.listing.take,
		Host:     &doctor.Machine{Socket: socket, Kubelet: doctor.UsualHealthz},
		Metrics:  doctor.ListRates(doctor.UsualMetrics...),
	})
}

// turn is held during a list of the runtime: the answers of two lists at once may be more than the
// memory of a small container. Nil is always free.
type turn chan struct{}

// take waits for the turn until ctx ends, and returns how to give the turn back.
func (t turn) take(ctx context.Context) (done func()) {
	if t == nil {
		return func() {}
	}
	select {
	case t <- struct{}{}:
		return func() { <-t }
	case <-ctx.Done():
		return func() {}
	}
}

// examined gives a report to the printer: each of a sick node, and else those that differ from the
// last one in their worth.
func (t *tap) examined(r doctor.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	same := r.Worth == t.worth
	t.worth = r.Worth
	if !same || r.Worth == doctor.Sick {
		t.print(r)
	}
}

// doctorLine is an examination in JSON.
type doctorLine struct {
	// Time is now.
	Time time.Time `json:"time"`
	// Type is Doctor.
	Type string `json:"type"`
	// Doctor is the report.
	Doctor doctor.Report `json:"doctor"`
}

// examination prints a report of an examination: its findings, without the notes.
func (p *printer) examination(r doctor.Report, now time.Time) error {
	p.spoke = now
	if p.options.Output == "json" {
		return printable.WriteJSON(p.options.Out, doctorLine{Time: now, Type: "Doctor", Doctor: r}, "")
	}
	mark := map[doctor.Worth]string{doctor.Sick: "!"}[r.Worth]
	if mark == "" {
		mark = "-"
	}
	err := p.err("%s  %s doctor: %s", now.Format(timeForm), mark, r.Worth)
	for _, f := range r.Findings {
		if err != nil || f.Grade == doctor.Note && r.Worth != doctor.Unknown {
			continue
		}
		text := f.Sentence
		if f.Change != "" {
			text += " → " + f.Change
		}
		err = p.err("%*s%s", underTime, "", printable.Text(text))
	}
	return err
}
