// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Bounds of one direction of one stream. With no fault in the way the pipe is
// short, so that a client that does not read is felt by the runtime as it would
// be without the proxy. What faults hold is kept apart, up to maxHeld messages.
const (
	maxReady = 2
	maxHeld  = 1 << 16
)

// An item is a message on its way out.
type item struct {
	data []byte
	due  time.Time       // not before; zero: at once
	gate <-chan struct{} // not before it is closed; nil: no gate
	cut  func()          // called right before sending; nil: nothing
	seq  uint64
}

func (i *item) held() bool { return i.gate != nil || !i.due.IsZero() }

// A pipe is one direction of one stream: faults put items in, one sender takes
// them out by due time and order. mu guards all its fields.
type pipe struct {
	mu      sync.Mutex
	queue   []*item
	window  []*item // what a Reorder collects
	stamp   uint64  // of the window, so that an old timer does not flush a new one
	lastDue time.Time
	seq     uint64
	ended   bool
	err     error // what the sender returns once it has sent everything
	lost    bool  // a message was dropped
	sent    bool  // a message was taken by the sender

	wake chan struct{} // capacity 1: the queue or the end changed, wakes the sender
	room chan struct{} // capacity 1: something was sent, wakes the pump
}

func newPipe() *pipe {
	return &pipe{wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// put queues an item behind what keeps its order.
func (p *pipe) put(i *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.putLocked(i)
}

func (p *pipe) putLocked(i *item) {
	p.seq++
	i.seq = p.seq
	at, _ := slices.BinarySearchFunc(p.queue, i, func(a, b *item) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
	})
	p.queue = slices.Insert(p.queue, at, i)
	poke(p.wake)
}

// keepOrder gives an item the time before which none behind it may go.
func (p *pipe) keepOrder(i *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastDue.Before(time.Now()) {
		p.lastDue = time.Time{} // nothing waits any more
	}
	if i.due.Before(p.lastDue) {
		i.due = p.lastDue
	}
	p.lastDue = i.due
}

// collect puts an item in the window and flushes it when full, or after within.
func (p *pipe) collect(i *item, size int, within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window = append(p.window, i)
	if len(p.window) >= size {
		p.flushLocked()
		return
	}
	if len(p.window) == 1 {
		stamp := p.stamp
		time.AfterFunc(within, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.stamp == stamp {
				p.flushLocked()
			}
		})
	}
}

func (p *pipe) flushLocked() {
	for _, i := range slices.Backward(p.window) {
		p.putLocked(i)
	}
	p.window = nil
	p.stamp++
}

// dropped notes that a message was swallowed.
func (p *pipe) dropped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
}

// end says that nothing more will be put, and why.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.flushLocked()
	p.ended, p.err = true, err
	poke(p.wake)
}

// waitRoom blocks the pump while enough is on its way.
func (p *pipe) waitRoom(ctx context.Context) error {
	for {
		p.mu.Lock()
		ready := 0
		for _, i := range p.queue {
			if i.held() {
				break // and holds up those behind it
			}
			ready++
		}
		full := ready >= maxReady || len(p.queue) >= maxHeld
		p.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-p.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain sends what is put until the end, and returns the end's error.
func (p *pipe) drain(ctx context.Context, send func([]byte) error) error {
	for {
		next, wait, done, err := p.next(time.Now())
		if done {
			return err
		}
		if next != nil {
			if next.cut != nil {
				next.cut()
			}
			if err := send(next.data); err != nil {
				return err
			}
			poke(p.room)
			continue
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

// next takes the item that is due, or tells how to wait for it.
func (p *pipe) next(now time.Time) (next *item, wait func(context.Context) error, done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		silent := p.err == nil && p.lost && !p.sent
		if p.ended && !silent {
			return nil, nil, true, p.err
		}
		return nil, p.waiter(nil, nil), false, nil
	}
	head := p.queue[0]
	if head.due.After(now) {
		timer := time.NewTimer(head.due.Sub(now))
		return nil, p.waiter(timer, nil), false, nil
	}
	if head.gate != nil {
		select {
		case <-head.gate:
		default:
			return nil, p.waiter(nil, head.gate), false, nil
		}
	}
	p.queue = p.queue[1:]
	p.sent = true
	return head, nil, false, nil
}

func (p *pipe) waiter(timer *time.Timer, gate <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		var fired <-chan time.Time
		if timer != nil {
			defer timer.Stop()
			fired = timer.C
		}
		select {
		case <-p.wake:
		case <-fired:
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
}
