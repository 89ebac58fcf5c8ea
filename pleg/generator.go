// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Generator generates pod lifecycle events and keeps a cache of pod statuses. Make one with [New].
type Generator[S any] struct {
	cfg   Config[S] // with defaults; read only
	clock clock
	mail  *mailbox[S]
	acks  *ackBox
	core  *core[S]     // belongs to the goroutine that is in Run
	exec  *executor[S] // likewise
	wake  chan struct{}

	journal func(in input[S], now instant, do *todo[S]) // sees what the core is told and wants done; in tests

	mu       sync.Mutex // owns what follows; never held while anything blocks
	ran      bool
	requests map[request]struct{}
	snapshot snapshot
}

// New checks the configuration and returns a generator that Run starts. Errors name every field
// that cannot work.
func New[S any](cfg Config[S]) (*Generator[S], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	g := &Generator[S]{
		cfg:      cfg,
		clock:    clock{epoch: time.Now()},
		mail:     newMailbox[S](cfg.MailboxMax),
		acks:     newAckBox(cfg.MailboxMax),
		wake:     make(chan struct{}, 1),
		requests: make(map[request]struct{}),
	}
	g.core = newCore(&g.cfg, g.clock, seed)
	g.exec = newExecutor(&g.cfg, g.clock, g.core)
	g.snapshot.stats = g.core.stats()
	return g, nil
}

// Watch returns the channel of pod lifecycle events, of size Config.Capacity. It is closed when Run
// returns. A reader that falls behind loses detail, never news: pods whose events found it full are
// owed one PodSync each, delivered as soon as there is room.
func (g *Generator[S]) Watch() <-chan Event { return g.exec.out.ch }

// HasSynced says that the cache holds the whole runtime: a list of everything has been applied, and
// the status of every pod that it showed was read, or the error recorded. Once true it stays true.
// Safe for concurrent use.
func (g *Generator[S]) HasSynced() bool { return !g.Stats().GlobalTime.IsZero() }

// RequestRelist wants the pod read now, whatever the relist period is; an empty UID wants
// everything listed. It does not wait: use the cache's GetNewerThan for that. Safe for concurrent
// use; without effect when Run is over.
func (g *Generator[S]) RequestRelist(uid cache.UID) { g.request(request{uid: uid}) }

// RequestReinspect wants the pod's statuses read, even if no phase has changed: now, or a base
// period after the last time that this was wanted of the pod. Watch then tells of the pod, with a
// PodSync if nothing else has changed. Safe for concurrent use; without effect when Run is over.
func (g *Generator[S]) RequestReinspect(uid cache.UID) { g.request(request{uid: uid, inspect: true}) }

func (g *Generator[S]) request(r request) {
	g.mu.Lock()
	if !g.ran || g.snapshot.running {
		g.requests[r] = struct{}{} // requests of one pod merge, so there are no more than pods asked for in one turn of the loop
	}
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// takeRequests returns the requests made since it was last called.
func (g *Generator[S]) takeRequests() map[request]struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.requests) == 0 {
		return nil
	}
	taken := g.requests
	g.requests = make(map[request]struct{})
	return taken
}

// Run generates events until ctx ends, and then returns nil once everything that it started has
// ended. A generator runs once; a second call returns [ErrAlreadyRun]. The calls of Source and
// Stream get a context that ends with ctx.
func (g *Generator[S]) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.ran {
		g.mu.Unlock()
		return ErrAlreadyRun
	}
	g.ran = true
	g.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	l := newLoop(g, ctx)
	l.run()
	cancel()
	l.children.Wait()
	close(g.exec.out.ch)
	g.acks.close()
	g.mu.Lock()
	g.snapshot.running = false
	clear(g.requests)
	g.mu.Unlock()
	return nil
}
