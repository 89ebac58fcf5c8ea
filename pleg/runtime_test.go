// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// status is the tests' pod status: the items as they were read.
type status struct {
	UID     cache.UID
	Items   []Item
	Content int // what else changes in a status
}

// toyRuntime is the smallest runtime that a generator can be tested against: a map of items with a
// stream of claims. It is a source and a stream.
type toyRuntime struct {
	mu       sync.Mutex
	pods     map[cache.UID][]Item
	subs     []chan Claim[status]
	silent   bool          // tell no claims
	noLoad   bool          // claims without payload
	delay    time.Duration // of every read
	gate     chan struct{} // List waits for its end before it looks, unless nil
	podGate  chan struct{} // ListPod likewise
	bad      string        // the ID whose status cannot be read
	content  int           // of every status, beside the phases
	misses   int           // looks to come that do not show the last item of pod p
	listErr  error
	readErr  error // of Inspect
	endErr   error // what the stream ends with when cut
	refuse   error // what opening the stream ends with at once
	cut      chan struct{}
	revision Revision
	shown    map[cache.UID][]Item // at the last List, for deltas
	delta    bool
}

func newToy() *toyRuntime {
	return &toyRuntime{pods: make(map[cache.UID][]Item), cut: make(chan struct{}), endErr: io.ErrUnexpectedEOF}
}

// set changes the phase of an ID, adding it if need be, and tells of it.
func (r *toyRuntime) set(uid cache.UID, kind Kind, id string, phase Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	items := slices.Clone(r.pods[uid])
	i := slices.IndexFunc(items, func(it Item) bool { return it.ID == id })
	switch {
	case phase == PhaseRemoved && i >= 0:
		items = slices.Delete(items, i, i+1)
	case i >= 0:
		items[i].Phase = phase
	default:
		items = append(items, Item{ID: id, Kind: kind, Phase: phase})
	}
	r.pods[uid] = items
	if len(items) == 0 {
		delete(r.pods, uid)
	}
	if !r.silent {
		r.tell(r.claim(uid, Item{ID: id, Kind: kind, Phase: phase}))
	}
}

func (r *toyRuntime) claim(uid cache.UID, it Item) Claim[status] {
	c := Claim[status]{Pod: uid, Item: it, CreatedAt: time.Now()}
	if !r.noLoad {
		items := slices.Clone(r.pods[uid])
		c.Payload = items
		c.Status = func(*status) (*status, error) { return &status{UID: uid, Items: items}, nil }
	}
	return c
}

// tell sends a claim to every subscriber.
func (r *toyRuntime) tell(c Claim[status]) {
	for _, s := range r.subs {
		s <- c
	}
}

// replay tells a claim as it is given.
func (r *toyRuntime) replay(c Claim[status]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(c)
}

// cutStreams ends every stream.
func (r *toyRuntime) cutStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.cut)
	r.cut = make(chan struct{})
}

func (r *toyRuntime) pause(ctx context.Context) error {
	if r.delay == 0 {
		return nil
	}
	select {
	case <-time.After(r.delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *toyRuntime) List(ctx context.Context, since Revision) (Listing, error) {
	if err := r.pause(ctx); err != nil {
		return Listing{}, err
	}
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate != nil {
		<-gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listErr != nil {
		return Listing{}, r.listErr
	}
	l := Listing{Total: len(r.pods)}
	if r.delta {
		l.Delta = since != 0 && since == r.revision
		r.revision++
		l.Revision = r.revision
	}
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) { // so that a test runs the same way each time
		items := r.seen(uid)
		if !l.Delta || !slices.Equal(items, r.shown[uid]) {
			l.Pods = append(l.Pods, Pod{UID: uid, Name: string(uid), Namespace: "default", Items: slices.Clone(items)})
		}
	}
	if l.Delta {
		for uid := range r.shown {
			if _, ok := r.pods[uid]; !ok {
				l.Gone = append(l.Gone, uid)
			}
		}
	}
	r.shown = make(map[cache.UID][]Item)
	for uid, items := range r.pods {
		r.shown[uid] = slices.Clone(items)
	}
	return l, nil
}

func (r *toyRuntime) ListPod(ctx context.Context, uid cache.UID) (Pod, error) {
	if err := r.pause(ctx); err != nil {
		return Pod{}, err
	}
	r.mu.Lock()
	gate := r.podGate
	r.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return Pod{}, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Pod{UID: uid, Name: string(uid), Namespace: "default", Items: slices.Clone(r.seen(uid))}, nil
}

// seen returns the items of a pod in a look.
func (r *toyRuntime) seen(uid cache.UID) []Item {
	items := r.pods[uid]
	if uid == "p" && r.misses > 0 {
		r.misses--
		return items[:len(items)-1]
	}
	return items
}

func (r *toyRuntime) Inspect(ctx context.Context, pod Pod) (Inspection[status], error) {
	if err := r.pause(ctx); err != nil {
		return Inspection[status]{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readErr != nil {
		return Inspection[status]{}, r.readErr
	}
	var readable, items []Item
	var unread []string
	for _, want := range pod.Items {
		for _, it := range r.pods[pod.UID] {
			switch {
			case it.ID != want.ID:
			case it.ID == r.bad:
				items = append(items, want)
				unread = append(unread, it.ID)
			default:
				items = append(items, it)
				readable = append(readable, it)
			}
		}
	}
	i := Inspection[status]{
		Status: &status{UID: pod.UID, Items: readable, Content: r.content},
		Pod:    Pod{UID: pod.UID, Items: items},
		Unread: unread,
	}
	if len(unread) > 0 {
		return i, errors.New("one item cannot be read")
	}
	return i, nil
}

func (r *toyRuntime) Events(ctx context.Context) iter.Seq2[Claim[status], error] {
	return func(yield func(Claim[status], error) bool) {
		r.mu.Lock()
		if r.refuse != nil {
			err := r.refuse
			r.mu.Unlock()
			yield(Claim[status]{}, err)
			return
		}
		ch, cut := make(chan Claim[status], 1000), r.cut
		r.subs = append(r.subs, ch)
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			r.subs = slices.DeleteFunc(r.subs, func(c chan Claim[status]) bool { return c == ch })
			r.mu.Unlock()
		}()
		for {
			select {
			case c := <-ch:
				if !yield(c, nil) {
					return
				}
			case <-cut:
				yield(Claim[status]{}, r.endErr)
				return
			case <-ctx.Done():
				yield(Claim[status]{}, ctx.Err())
				return
			}
		}
	}
}

func (s *status) String() string {
	items := slices.Clone(s.Items)
	slices.SortFunc(items, func(a, b Item) int { return len(a.ID) - len(b.ID) })
	return fmt.Sprintf("%s%v", s.UID, items)
}
