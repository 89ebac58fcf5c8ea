// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	longPeriod   = 300 * time.Second
	globalPeriod = 5 * time.Second
	maxRetries   = 5
)

// PLEG is the published algorithm.
type PLEG[S any] struct {
	source pleg.Source[S]
	stream pleg.Stream[S]
	cache  *Cache[S]
	base   time.Duration
	out    chan pleg.Event
	relist chan struct{} // capacity 1

	mu      sync.Mutex // owns the fields below
	evented bool
	known   map[cache.UID]pleg.Pod
	again   map[cache.UID]bool
	relists int
}

// New returns a PLEG to be started by Run.
func New[S any](source pleg.Source[S], stream pleg.Stream[S], c *Cache[S], base time.Duration, capacity int) *PLEG[S] {
	return &PLEG[S]{
		source: source, stream: stream, cache: c, base: base, out: make(chan pleg.Event, capacity), relist: make(chan struct{}, 1),
		evented: true, known: make(map[cache.UID]pleg.Pod), again: make(map[cache.UID]bool),
	}
}

// Run polls and listens until ctx ends.
func (p *PLEG[S]) Run(ctx context.Context) error {
	var children sync.WaitGroup
	children.Go(func() { p.poll(ctx) })
	children.Go(func() { p.listen(ctx) })
	children.Go(func() { p.advance(ctx) })
	children.Wait()
	close(p.out)
	return nil
}

// Watch returns the events.
func (p *PLEG[S]) Watch() <-chan pleg.Event { return p.out }

// RequestRelist wants a relist.
func (p *PLEG[S]) RequestRelist(cache.UID) { p.wake() }

// RequestReinspect wants the pod inspected at the next relist.
func (p *PLEG[S]) RequestReinspect(uid cache.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again[uid] = true
}

// Health never complains.
func (p *PLEG[S]) Health() error { return nil }

// Stats returns the few available counts.
func (p *PLEG[S]) Stats() pleg.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := pleg.Stats{Relists: p.relists, RelistPeriod: p.period(), Pods: len(p.known)}
	if p.evented {
		s.State = pleg.StreamConnected
	}
	return s
}

func (p *PLEG[S]) period() time.Duration {
	if p.evented {
		return longPeriod
	}
	return p.base
}

func (p *PLEG[S]) wake() {
	select {
	case p.relist <- struct{}{}:
	default:
	}
}

// poll relists every period.
func (p *PLEG[S]) poll(ctx context.Context) {
	for ctx.Err() == nil {
		p.list(ctx)
		p.mu.Lock()
		period := p.period()
		p.mu.Unlock()
		timer := time.NewTimer(period)
		select {
		case <-timer.C:
		case <-p.relist:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// advance moves the global time to now, whatever was read.
func (p *PLEG[S]) advance(ctx context.Context) {
	ticker := time.NewTicker(globalPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		evented := p.evented
		p.mu.Unlock()
		if evented {
			p.cache.advance(time.Now())
		}
	}
}

// list reads everything, inspects changed pods, stores them and sends their events.
func (p *PLEG[S]) list(ctx context.Context) {
	begun := time.Now()
	l, err := p.source.List(ctx, 0)
	if err != nil {
		return
	}
	now := make(map[cache.UID]pleg.Pod, len(l.Pods))
	for _, pod := range l.Pods {
		now[pod.UID] = pod
	}
	p.mu.Lock()
	p.relists++
	old, again := p.known, p.again
	p.known, p.again = now, make(map[cache.UID]bool)
	p.mu.Unlock()
	for uid, before := range old {
		if _, ok := now[uid]; !ok {
			p.cache.delete(uid)
			for _, e := range changes(before, pleg.Pod{UID: uid}) {
				p.send(e)
			}
		}
	}
	for uid, pod := range now {
		events := changes(old[uid], pod)
		if len(events) == 0 && !again[uid] {
			continue
		}
		got, err := p.source.Inspect(ctx, pod)
		if ctx.Err() != nil {
			return
		}
		if !p.cache.set(uid, got.Status, err, begun) {
			continue
		}
		for _, e := range events {
			p.send(e)
		}
	}
	p.cache.advance(begun)
}

// changes returns the events between two listings of a pod. A new phase Created has an empty type:
// it needs an inspection and is not sent.
func changes(before, after pleg.Pod) []pleg.Event {
	var events []pleg.Event
	add := func(it pleg.Item, t pleg.EventType) {
		events = append(events, pleg.Event{Pod: after.UID, Type: t, ID: it.ID, Kind: it.Kind})
	}
	find := func(p pleg.Pod, id string) (pleg.Phase, bool) {
		for _, it := range p.Items {
			if it.ID == id {
				return it.Phase, true
			}
		}
		return 0, false
	}
	for _, it := range after.Items {
		if phase, ok := find(before, it.ID); ok && phase == it.Phase {
			continue
		}
		switch it.Phase {
		case pleg.PhaseRunning:
			add(it, pleg.ContainerStarted)
		case pleg.PhaseExited:
			add(it, pleg.ContainerDied)
		default:
			add(it, "")
		}
	}
	for _, it := range before.Items {
		if _, ok := find(after, it.ID); ok {
			continue
		}
		if it.Phase != pleg.PhaseExited {
			add(it, pleg.ContainerDied)
		}
		add(it, pleg.ContainerRemoved)
	}
	return events
}

// listen takes the stream's events, opening it again at once a few times.
func (p *PLEG[S]) listen(ctx context.Context) {
	for range maxRetries {
		for claim, err := range p.stream.Events(ctx) {
			if err != nil {
				break
			}
			p.take(claim)
		}
		if ctx.Err() != nil {
			return
		}
		p.wake()
	}
	p.mu.Lock()
	p.evented = false
	p.mu.Unlock()
	p.wake()
}

// take stores an event's payload under the runtime's stamp, and sends its event.
func (p *PLEG[S]) take(c pleg.Claim[S]) {
	if c.Pod == "" {
		return
	}
	add := func(t pleg.EventType) {
		p.send(pleg.Event{Pod: c.Pod, Type: t, ID: c.Item.ID, Kind: c.Item.Kind, Stamp: c.CreatedAt})
	}
	if c.Item.Phase == pleg.PhaseRemoved && c.Item.Kind == pleg.Sandbox {
		p.cache.delete(c.Pod)
	} else if c.Status != nil {
		status, err := c.Status()
		if !p.cache.set(c.Pod, status, err, c.CreatedAt) {
			return
		}
	}
	switch c.Item.Phase {
	case pleg.PhaseRunning:
		add(pleg.ContainerStarted)
	case pleg.PhaseExited:
		add(pleg.ContainerDied)
	case pleg.PhaseRemoved:
		add(pleg.ContainerDied)
		add(pleg.ContainerRemoved)
	}
}

// send hands an event to Watch if there is room.
func (p *PLEG[S]) send(e pleg.Event) {
	if e.Type == "" {
		return
	}
	select {
	case p.out <- e:
	default:
	}
}
