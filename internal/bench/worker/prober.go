// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
)

const (
	// readTimeout bounds a wait of a pod worker.
	readTimeout = time.Minute
	// maxWaiting bounds the waiting pod workers.
	maxWaiting = 1000
)

// prober stands for pod workers: at a rate, it asks the cache for a status of some pod newer than
// now.
type prober struct {
	cache *cache.Cache[cri.PodStatus]
	facts *facts
	wake  chan struct{} // capacity 1: the rate was changed

	mu     sync.Mutex // owns the fields below
	rate   float64
	waits  []time.Duration
	errors int
}

func newProber(c *cache.Cache[cri.PodStatus], seed uint64) *prober {
	return &prober{cache: c, facts: newFacts(seed), wake: make(chan struct{}, 1)}
}

func (p *prober) setRate(rate float64) {
	p.mu.Lock()
	p.rate = rate
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// results returns the waits so far, and the number of failed reads.
func (p *prober) results() (waits []time.Duration, errors int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(waits, p.waits...), p.errors
}

// run asks until ctx ends.
func (p *prober) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	waiting := make(chan struct{}, maxWaiting)
	for ctx.Err() == nil {
		p.mu.Lock()
		rate := p.rate
		p.mu.Unlock()
		if rate <= 0 {
			select {
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}
		_ = bench.Sleep(ctx, time.Duration(float64(time.Second)/rate))
		select {
		case waiting <- struct{}{}:
			group.Go(func() {
				defer func() { <-waiting }()
				p.read(ctx)
			})
		default: // all wait: the existing ones are measured
		}
	}
}

// read is a call of a pod worker.
func (p *prober) read(ctx context.Context) {
	pod, known := p.facts.pick()
	if pod == "" {
		return
	}
	callCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begun := time.Now()
	status, err := p.cache.GetNewerThan(callCtx, cache.UID(pod), begun)
	took := time.Since(begun)
	if ctx.Err() != nil {
		return // the end of the run, not an answer
	}
	if err == nil {
		p.facts.check(known, Show(cache.UID(pod), status, nil))
	}
	p.mu.Lock() // last: a counted call has been checked
	defer p.mu.Unlock()
	p.waits = append(p.waits, took)
	if err != nil {
		p.errors++
	}
}
