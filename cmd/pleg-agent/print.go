// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// printer is a sink that prints Events instead of storing them at a server. Safe for concurrent
// use.
type printer struct {
	json bool

	mu     sync.Mutex // owns the fields below
	out    io.Writer
	events map[string]*stored // by namespace and name, for an hour after their last write, as at a server
	writes int
	failed error // of the output
}

type stored struct {
	event eventsv1.Event
	until time.Time
}

// keptFor is how long a kube-apiserver keeps Events.
const keptFor = time.Hour

func newPrinter(out io.Writer, asJSON bool) *printer {
	return &printer{json: asJSON, out: out, events: make(map[string]*stored)}
}

// Create prints a new event.
func (p *printer) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := e.Namespace + "/" + e.Name
	if p.find(key) != nil {
		return nil, apierrors.NewAlreadyExists(eventsv1.Resource("events"), e.Name)
	}
	return p.store(key, e.DeepCopy()), nil
}

// Patch prints an event after its change.
func (p *printer) Patch(_ context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := e.Namespace + "/" + e.Name
	known := p.find(key)
	if known == nil {
		return nil, apierrors.NewNotFound(eventsv1.Resource("events"), e.Name)
	}
	before, err := json.Marshal(known.event)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, eventsv1.Event{})
	if err != nil {
		return nil, err
	}
	var changed eventsv1.Event
	if err := json.Unmarshal(after, &changed); err != nil {
		return nil, err
	}
	return p.store(key, &changed), nil
}

// Update is never called by a recorder of series.
func (p *printer) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return p.Create(ctx, e)
}

func (p *printer) find(key string) *stored {
	s := p.events[key]
	if s != nil && time.Now().After(s.until) {
		delete(p.events, key)
		return nil
	}
	return s
}

// store keeps a copy of an event, prints it, and returns it. The lock is held.
func (p *printer) store(key string, e *eventsv1.Event) *eventsv1.Event {
	now := time.Now()
	p.writes++
	if p.writes%1000 == 0 {
		for key, s := range p.events {
			if now.After(s.until) {
				delete(p.events, key)
			}
		}
	}
	e.ResourceVersion = strconv.Itoa(p.writes)
	before := p.events[key]
	p.events[key] = &stored{event: *e, until: now.Add(keptFor)}
	if before == nil || countOf(&before.event) != countOf(e) {
		p.print(now, e)
	}
	return e.DeepCopy()
}

func countOf(e *eventsv1.Event) int32 {
	if e.Series == nil {
		return 1
	}
	return e.Series.Count
}

// line is a printed Event in JSON.
type line struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	FieldPath string    `json:"fieldPath,omitempty"`
	Count     int32     `json:"count"`
	Note      string    `json:"note"`

	Annotations map[string]string `json:"annotations,omitempty"`
}

func (p *printer) print(now time.Time, e *eventsv1.Event) {
	about := e.Regarding
	var err error
	if p.json {
		err = printable.WriteJSON(p.out, line{
			Time:        now.UTC(),
			Type:        e.Type,
			Reason:      e.Reason,
			Namespace:   about.Namespace,
			Kind:        about.Kind,
			Name:        about.Name,
			FieldPath:   about.FieldPath,
			Count:       countOf(e),
			Note:        e.Note,
			Annotations: e.Annotations,
		}, "")
	} else {
		times := ""
		if n := countOf(e); n > 1 {
			times = fmt.Sprintf(" (x%d)", n)
		}
		where := strings.ToLower(about.Kind) + "/" + about.Name
		if about.Namespace != "" {
			where = about.Namespace + "/" + about.Name
		}
		_, err = fmt.Fprintf(p.out, "%s  %-7s  %-21s  %-24s  %s%s\n",
			now.Format(time.TimeOnly), e.Type, printable.Text(e.Reason),
			printable.Text(where), printable.Text(e.Note), times)
	}
	if p.failed == nil {
		p.failed = err
	}
}

// total returns the number of printed Events, and the first error of the output.
func (p *printer) total() (events int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events), p.failed
}
