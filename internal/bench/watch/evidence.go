// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// evidence is the result of the runtime's reads, for the judge of the stream. The tap's mutex owns
// the evidence.
type evidence struct {
	// view is the runtime's content by the last list, revision the list's.
	view     map[cache.UID]pleg.Pod
	revision pleg.Revision
	// unread are the pods unreadable at the last try, with the error; items counts the unread items of
	// other pods.
	unread map[cache.UID]error
	items  map[cache.UID]int
	// invalid counts texts with invalid UTF-8.
	invalid int
	// listed is the begin of the last successful list; failing is since when lists fail, zero after a
	// successful list.
	listed  time.Time
	failing time.Time
	// leftOut is the client's count of omitted items, at the end of the last list.
	leftOut uint64
	// alive is when this process was last seen to run.
	alive time.Time
}

func newEvidence() evidence {
	return evidence{
		view:   make(map[cache.UID]pleg.Pod),
		unread: make(map[cache.UID]error),
		items:  make(map[cache.UID]int),
	}
}

const (
	// aliveEvery is how often the process notes its life; a gap of frozenFor counts as frozen.
	aliveEvery = 100 * time.Millisecond
	frozenFor  = time.Second
)

// run notes that the process runs. A time before the last note, such as the time of a tick from
// before a stop of the process, is ignored. The caller holds the mutex.
func (t *tap) run(now time.Time) {
	last := t.evidence.alive
	if now.Before(last) {
		return
	}
	t.evidence.alive = now
	if gap := now.Sub(last); !last.IsZero() && gap >= frozenFor {
		t.judge.Frozen(last, now)
		for _, c := range t.calls {
			c.begun = c.begun.Add(gap)
			c.frozen = true
		}
		t.print(
			fmt.Sprintf(
				"this watch did not run for %s: it was stopped, or had no CPU; events of that time are not judged by their delay",
				bench.Short(gap),
			),
		)
	}
}

// beat notes that the process runs.
func (t *tap) beat() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run(time.Now())
}

// list enters a successful list.
func (t *tap) list(begun time.Time, since pleg.Revision, l pleg.Listing, client cri.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.evidence
	e.listed = begun
	e.failing = time.Time{}
	before := len(e.view)
	if !l.Delta {
		clear(e.view)
	}
	usable := !l.Delta || since == e.revision
	for _, p := range l.Pods {
		e.view[p.UID] = p
		e.text(p.Name, p.Namespace)
		for _, i := range p.Items {
			e.text(i.Name)
		}
	}
	for _, uid := range l.Gone {
		delete(e.view, uid)
	}
	e.revision = l.Revision
	for uid := range e.unread {
		e.forget(uid)
	}
	for uid := range e.items {
		e.forget(uid)
	}
	const few = 4
	halved := before >= few && len(e.view) < before/2
	look := stream.Look{
		Begun: begun, Ended: time.Now(),
		Partial: halved || client.Malformed != e.leftOut || client.Unattributed > 0,
	}
	e.leftOut = client.Malformed
	if !usable {
		return
	}
	for _, p := range e.view {
		items := show(p)
		if !slices.ContainsFunc(items, func(s stream.Shown) bool { return s.Sandbox }) {
			look.Partial = true // its containers may be nobody's
			continue
		}
		look.Pods = append(look.Pods, items)
	}
	t.judge.Look(look)
}

// listedSince reports whether a list begun at a time or later has succeeded.
func (t *tap) listedSince(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.evidence.listedSince(at)
}

func (e *evidence) listedSince(at time.Time) bool { return !e.listed.Before(at) }

// forget drops the unread entries of a gone pod.
func (e *evidence) forget(uid cache.UID) {
	if _, there := e.view[uid]; !there {
		delete(e.unread, uid)
		delete(e.items, uid)
	}
}

// show turns a pod into the judge's form.
func show(p pleg.Pod) (items []stream.Shown) {
	for _, i := range p.Items {
		items = append(
			items,
			stream.Shown{ID: printable.Text(i.ID), Sandbox: i.Kind == pleg.Sandbox, Phase: i.Phase},
		)
	}
	return items
}

// text counts texts with invalid UTF-8: the client has replaced the invalid parts.
func (e *evidence) text(list ...string) {
	for _, s := range list {
		if strings.ContainsRune(s, utf8.RuneError) {
			e.invalid++
		}
	}
}

// read enters the outcome of a read of a pod's statuses.
func (t *tap) read(uid cache.UID, in pleg.Inspection[cri.PodStatus], err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return
	}
	e := &t.evidence
	delete(e.unread, uid)
	delete(e.items, uid)
	if in.Status == nil {
		if err != nil {
			e.unread[uid] = err
		}
		return
	}
	if n := len(in.Unread); n > 0 {
		e.items[uid] = n
	}
	if _, _, err := in.Status.Messages(); err != nil && strings.Contains(err.Error(), "UTF-8") {
		e.invalid++
	}
}

// failed enters the end of a failed list. The caller holds the mutex.
func (e *evidence) failed() {
	if e.failing.IsZero() {
		e.failing = time.Now()
	}
}

// facts adds the evidence to the facts; closed is when the last list was asked for. The caller
// holds the mutex.
func (t *tap) facts(f *stream.Facts, closed time.Time, connected bool) {
	e := &t.evidence
	f.UnreadPods = len(e.unread)
	for _, n := range e.items {
		f.UnreadItems += n
	}
	f.InvalidText = e.invalid
	f.Left = t.own
	switch {
	case t.silent(closed):
		f.Dead = "no list has been answered since " + t.owed.Format(time.TimeOnly)
	case connected || closed.IsZero() || e.listedSince(closed):
	case !e.failing.IsZero() && t.listErr != nil:
		f.Dead = printable.Text(
			fmt.Sprintf("no list has succeeded since %s: %v", e.failing.Format(time.TimeOnly), t.listErr),
		)
	}
}

// silent reports whether a list was owed at the end, and nothing else has come from the runtime
// since the last list was asked for, or without one for as long as a call takes that hangs. A
// stream is no sign of life: that of a frozen runtime stays open. The caller holds the mutex.
func (t *tap) silent(closed time.Time) bool {
	if closed.IsZero() {
		closed = t.closedAt.Add(-hangs)
		if t.owed.After(closed) {
			return false
		}
	}
	return !t.owed.IsZero() && t.answered.Before(closed)
}
