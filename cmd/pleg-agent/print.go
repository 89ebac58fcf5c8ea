// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// printer is a sink that prints Events instead of storing them at a server. Safe for concurrent
// use.
type printer struct {
	json bool
	// out ends at the first failed write, or when the agent ends it: then nothing is printed.
	out *cli.Outlet

	// turn has capacity 1: the goroutine that has sent to turn owns the fields below. A sync.Mutex
	// would do, but the time of a test's bubble stands still while a goroutine waits for a mutex,
	// and a write may block.
	turn   chan struct{}
	events map[string]*stored // by namespace and name, for an hour after their last write, as at a server
	writes int
	told   int   // number of Events so far
	failed error // of the output
}

type stored struct {
	event eventsv1.Event
	until time.Time
}

// keptFor is how long a kube-apiserver keeps Events.
const keptFor = time.Hour

func newPrinter(out io.Writer, asJSON bool) *printer {
	outlet, ok := out.(*cli.Outlet)
	if !ok {
		outlet = cli.NewOutlet(out)
	}
	return &printer{
		json:   asJSON,
		out:    outlet,
		turn:   make(chan struct{}, 1),
		events: make(map[string]*stored),
	}
}

// own waits for the printer's fields, and returns the function to give them back.
func (p *printer) own() (done func()) {
	p.turn <- struct{}{}
	return func() { <-p.turn }
}

// Create prints a new event.
func (p *printer) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	defer p.own()()
	key := e.Namespace + "/" + e.Name
	if p.find(key) != nil {
		return nil, apierrors.NewAlreadyExists(eventsv1.Resource("events"), e.Name)
	}
	return p.store(key, e.DeepCopy())
}

// Patch prints an event after its change.
func (p *printer) Patch(_ context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	defer p.own()()
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
	return p.store(key, &changed)
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

// store prints an event, keeps a copy, and returns the copy. An unprinted event is not kept, and so
// remains unsent. The caller owns the fields.
func (p *printer) store(key string, e *eventsv1.Event) (*eventsv1.Event, error) {
	now := time.Now()
	before := p.events[key]
	if before == nil || countOf(&before.event) != countOf(e) {
		if err := p.print(now, e); err != nil {
			return nil, err
		}
	}
	if before == nil {
		p.told++
	}
	p.writes++
	if p.writes%1000 == 0 {
		for key, s := range p.events {
			if now.After(s.until) {
				delete(p.events, key)
			}
		}
	}
	e.ResourceVersion = strconv.Itoa(p.writes)
	p.events[key] = &stored{event: *e, until: now.Add(keptFor)}
	return e.DeepCopy(), nil
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

// print prints the line of an Event.
func (p *printer) print(now time.Time, e *eventsv1.Event) error {
	about := e.Regarding
	if !p.json {
		times := ""
		if n := countOf(e); n > 1 {
			times = fmt.Sprintf("(x%d) ", n) // before the note: what ends it may be a tenant's
		}
		where := strings.ToLower(about.Kind) + "/" + nameOf(about.Name)
		if about.Namespace != "" {
			where = nameOf(about.Namespace) + "/" + nameOf(about.Name)
		}
		return p.write(fmt.Appendf(nil, "%s  %-7s  %-21s  %-24s  %s%s\n",
			now.Format(time.TimeOnly), e.Type, printable.Text(e.Reason),
			where, times, printable.Text(e.Note)))
	}
	var text bytes.Buffer
	err := printable.WriteJSON(&text, line{
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
	if err != nil {
		return err
	}
	return p.write(text.Bytes())
}

// usualName matches the names of objects that Kubernetes allows.
var usualName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,253}$`)

// nameOf returns the name of an object, which the runtime tells: one that is not of the usual form
// stands between quotes, so that its end is seen.
func nameOf(name string) string {
	if usualName.MatchString(name) {
		return name
	}
	tail := ""
	const longest = 253
	if len(name) > longest {
		tail = fmt.Sprintf("… (%d bytes)", len(name))
		name = name[:longest]
	}
	return strconv.Quote(name) + tail
}

// write writes a line, and ends the output after a failed write. The caller owns the fields.
func (p *printer) write(text []byte) error {
	_, err := p.out.Write(text)
	if err != nil && p.failed == nil {
		p.failed = fmt.Errorf("print the Events: %w", err)
		p.out.End(p.failed)
	}
	return p.failed
}

// total returns the number of printed Events, and why the output failed, if it did.
func (p *printer) total() (events int, err error) {
	defer p.own()()
	return p.told, p.failed
}
