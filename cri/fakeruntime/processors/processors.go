// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package processors models the processors of a runtime: calls take longer the more of them are
// under way.
//
// # Model
//
// Every call under way has work. The processors are shared evenly, and each works for one call at a
// time, so that a call has at most one processor.
//
// # Concurrency
//
// All methods are safe for concurrent use. A timer drives them; no goroutine is started. Time may
// be that of a testing/synctest bubble.
//
// # Errors
//
// [Processors.Serve] returns the error of its context, and nothing else.
package processors

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Processors share the work of calls. The zero value has no processors, and its work takes no time.
type Processors struct {
	mu    sync.Mutex // owns the fields below
	n     int
	jobs  []*job
	at    time.Time // until when the jobs' work is accounted for
	timer *time.Timer
}

// job is the work of a call.
type job struct {
	left float64       // nanoseconds of a processor
	done chan struct{} // closed when the work is done
}

// Set changes the number of processors; below zero is none. With none, all work under way is done
// at once.
func (p *Processors) Set(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account()
	p.n = max(n, 0)
	if p.n == 0 {
		for _, j := range p.jobs {
			close(j.done)
		}
		p.jobs = nil
	}
	p.arm()
}

// Serve returns when the work of a call is done, or an error when its context ends.
func (p *Processors) Serve(ctx context.Context, work time.Duration) error {
	p.mu.Lock()
	if p.n == 0 || work <= 0 {
		p.mu.Unlock()
		return ctx.Err()
	}
	j := &job{left: float64(work), done: make(chan struct{})}
	p.account()
	p.jobs = append(p.jobs, j)
	p.arm()
	p.mu.Unlock()
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account()
	p.jobs = slices.DeleteFunc(p.jobs, func(other *job) bool { return other == j })
	p.arm()
	return ctx.Err()
}

// rate returns the share of a processor that each call has.
func (p *Processors) rate() float64 { return min(1, float64(p.n)/float64(len(p.jobs))) }

// account subtracts the work done since the last call, and ends the calls whose work is done.
func (p *Processors) account() {
	now := time.Now()
	if len(p.jobs) > 0 {
		done := float64(now.Sub(p.at)) * p.rate()
		p.jobs = slices.DeleteFunc(p.jobs, func(j *job) bool {
			j.left -= done
			if j.left >= 0.5 {
				return false
			}
			close(j.done)
			return true
		})
	}
	p.at = now
}

// arm sets the timer to the next end of a call's work.
func (p *Processors) arm() {
	if p.timer != nil {
		p.timer.Stop()
	}
	if len(p.jobs) == 0 {
		return
	}
	least := p.jobs[0].left
	for _, j := range p.jobs {
		least = min(least, j.left)
	}
	p.timer = time.AfterFunc(time.Duration(least/p.rate())+1, p.fire)
}

// fire is the timer's function.
func (p *Processors) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account()
	p.arm()
}
