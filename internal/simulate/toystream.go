// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// telling is the fate of a change's event.
type telling struct {
	no       bool          // never sent
	late     time.Duration // sent later by this time, unchanged
	twice    bool
	stale    bool          // its payload shows the earlier state of the others, under the newest stamp
	noPod    bool          // without a sandbox status
	noLoad   bool          // without a payload
	oversize bool          // breaks the stream
	lag      time.Duration // a removal announced ahead by this time
	torn     bool          // its payload shows the others' content from before their last change
	settles  time.Duration // the content changes so long after the phase
	gone     bool          // the payload does not show the ID
	again    bool          // a container recovers, as a sandbox may
}

// delivery is a claim on its way.
type delivery struct {
	due   time.Time
	claim pleg.Claim[Status]
	bad   bool
	built func() pleg.Claim[Status] // builds the claim anew when it is sent; nil if it is as of the change
}

// subscriber is a stream. The toy's mutex owns it; wake has capacity 1.
type subscriber struct {
	wake  chan struct{}
	queue []delivery
	end   error
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tells says whether the profile has an event for such a change.
func (r *toy) tells(it *toyItem, phase pleg.Phase) bool {
	switch {
	case it.kind == pleg.Sandbox && phase == pleg.PhaseRemoved:
		return r.profile.sandboxDeleted
	case phase == pleg.PhaseUnknown:
		return false
	}
	return true
}

// tell sends the event of a change, or its faulty form. The caller holds the mutex.
func (r *toy) tell(it *toyItem, phase pleg.Phase, how telling) {
	if r.down || r.mode != streamOn || how.no || !r.tells(it, phase) {
		return
	}
	d := delivery{due: time.Now().Add(how.late), claim: r.claim(it, phase, how), bad: how.oversize}
	if how.late > 0 {
		r.upset(d.due)
	}
	if r.sends {
		d.built = func() pleg.Claim[Status] { return r.claim(it, phase, how) }
	}
	r.send(d)
	if how.twice {
		d.due = d.due.Add(time.Duration(r.rng.Int64N(int64(20 * time.Millisecond))))
		r.send(d)
	}
	if it.kind == pleg.Sandbox && phase == pleg.PhaseRunning && r.profile.sandboxCreated {
		r.send(d) // CREATED and STARTED both carry READY
	}
}

// claim builds the event of a change.
func (r *toy) claim(it *toyItem, phase pleg.Phase, how telling) pleg.Claim[Status] {
	c := pleg.Claim[Status]{
		Pod:       it.pod,
		Item:      pleg.Item{ID: it.id, Kind: it.kind, Phase: phase},
		CreatedAt: r.wall(),
	}
	if how.noPod {
		c.Pod = ""
	}
	if how.noLoad {
		return c
	}
	sandbox := it.sandbox
	if it.kind == pleg.Sandbox {
		sandbox = it.id
	}
	if r.profile.payloadPod {
		sandbox = ""
	}
	c.Payload = r.podItems(it.pod, sandbox, it.id, how.stale)
	if how.gone {
		c.Payload = slices.DeleteFunc(c.Payload, func(x pleg.Item) bool { return x.ID == it.id })
	}
	pod := it.pod
	items := c.Payload
	texts := r.contents(c.Payload, it.id, how.torn)
	c.Status = advanced(pod, items, texts)
	return c
}

// advanced returns the builder of a status from a payload. If the payload shows an ID in a later
// phase than prev, the content of the ID is the payload's; all other content is prev's, which reads
// have shown.
func advanced(pod cache.UID, items []pleg.Item, texts []string) func(prev *Status) (*Status, error) {
	return func(prev *Status) (*Status, error) {
		next := &Status{UID: pod}
		for i, it := range items {
			text := texts[i]
			if prev != nil {
				at := slices.IndexFunc(
					prev.Items,
					func(p pleg.Item) bool { return p.ID == it.ID && p.Phase >= it.Phase },
				)
				if at >= 0 {
					text = prev.Texts[at]
				}
			}
			next.add(it, text)
		}
		return next, nil
	}
}

// contents returns the content of items in a payload. Torn shows the others as they were before.
func (r *toy) contents(items []pleg.Item, own string, torn bool) (texts []string) {
	for _, it := range items {
		x := r.byID[it.ID]
		version := x.version
		// No content is older than the phase beside it.
		if torn && x.id != own && version > x.since {
			version--
		}
		texts = append(texts, strconv.Itoa(version))
	}
	return texts
}

// send puts a claim on its way to whoever listens.
func (r *toy) send(d delivery) {
	r.recent = append(r.recent, d)
	if len(r.recent) > 32 {
		r.recent = r.recent[1:]
	}
	switch {
	case r.stalled:
	case len(r.subs) > 0:
		for _, s := range r.subs {
			s.put(d)
		}
	case r.profile.backlog && len(r.backlog) < 100:
		r.backlog = append(r.backlog, d)
	}
}

func (s *subscriber) put(d delivery) {
	i, _ := slices.BinarySearchFunc(s.queue, d, func(a, b delivery) int {
		if a.due.After(b.due) {
			return 1
		}
		return -1
	})
	s.queue = slices.Insert(s.queue, i, d)
	s.poke()
}

// replay sends the last n claims again.
func (r *toy) replay(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := slices.Clone(r.recent[max(0, len(r.recent)-n):])
	for _, d := range old {
		d.due = time.Now()
		d.built = nil // it is the same as before
		for _, s := range r.subs {
			s.put(d)
		}
	}
}

// lend returns a copy of the claim with memory that becomes worthless on release.
func (r *toy) lend(c pleg.Claim[Status]) pleg.Claim[Status] {
	items := slices.Clone(c.Payload)
	released := false
	c.Payload = items
	if status := c.Status; status != nil {
		c.Status = func(prev *Status) (*Status, error) {
			if released {
				return &Status{Items: []pleg.Item{{ID: "released"}}}, nil
			}
			return status(prev)
		}
	}
	c.Release = func() {
		for i := range items {
			items[i] = pleg.Item{ID: "released", Phase: pleg.PhaseRunning}
		}
		if released {
			panic("a claim is released twice")
		}
		released = true
	}
	return c
}

// say sends a claim invented by a script.
func (r *toy) say(c pleg.Claim[Status]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.CreatedAt = r.wall()
	for _, s := range r.subs {
		s.put(delivery{due: time.Now(), claim: c})
	}
}

// cutStreams ends every stream.
func (r *toy) cutStreams(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breakStreams(err)
}

func (r *toy) breakStreams(err error) {
	for _, s := range r.subs {
		s.end = err
		s.poke()
	}
	r.subs = nil
}

// Events implements [pleg.Stream].
func (r *toy) Events(ctx context.Context) iter.Seq2[pleg.Claim[Status], error] {
	return func(yield func(pleg.Claim[Status], error) bool) {
		s, err := r.subscribe()
		if err != nil {
			yield(pleg.Claim[Status]{}, err)
			return
		}
		defer r.leave(s)
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for {
			d, ok, wait, err := r.next(s)
			switch {
			case err != nil:
				yield(pleg.Claim[Status]{}, err)
				return
			case ok:
				if !yield(d.claim, nil) {
					return
				}
				r.giveWay()
				continue
			}
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-s.wake:
			case <-ctx.Done():
				yield(pleg.Claim[Status]{}, ctx.Err())
				return
			}
		}
	}
}

// giveWay lets the generator take a claim before the next comes, if the toy sends them apart: which
// claims of one instant it takes together is the scheduler's choice otherwise.
func (r *toy) giveWay() {
	if !r.apart {
		return
	}
	for range 300 { // far more turns than the generator needs
		runtime.Gosched()
	}
}

func (r *toy) subscribe() (*subscriber, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.down:
		return nil, errDown
	case r.mode == streamEOF:
		return nil, io.EOF
	case r.mode == streamUnimplemented:
		return nil, fmt.Errorf("unknown method GetContainerEvents: %w", pleg.ErrNoEvents)
	case r.mode == streamRefuse:
		return nil, errVirtual
	}
	s := &subscriber{wake: make(chan struct{}, 1)}
	if len(r.subs) == 0 && len(r.backlog) > 0 {
		for _, d := range r.backlog {
			s.put(d)
		}
		r.backlog = nil
	}
	r.subs = append(r.subs, s)
	return s, nil
}

func (r *toy) leave(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.subs, s); i >= 0 {
		r.subs = slices.Delete(r.subs, i, i+1)
	}
}

// next returns the due claim, or the waiting time for the next claim.
func (r *toy) next(s *subscriber) (d delivery, ok bool, wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.end != nil {
		return d, false, 0, s.end
	}
	if len(s.queue) == 0 {
		return d, false, time.Hour, nil
	}
	d = s.queue[0]
	if wait := time.Until(d.due); wait > 0 {
		return d, false, wait, nil
	}
	s.queue = s.queue[1:]
	if d.built != nil {
		d.claim = d.built()
	}
	d.claim = r.lend(d.claim)
	if d.bad {
		return d, false, 0, fmt.Errorf("received message larger than max: %w", errVirtual)
	}
	return d, true, 0, nil
}
