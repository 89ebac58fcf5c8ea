// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"sync"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// reader reads Watch.
type reader struct {
	w    *world
	done chan struct{}
	mu   sync.Mutex
	gate chan struct{} // non-nil while the reader stalls
	poke chan struct{}
}

func newReader(w *world, ch <-chan pleg.Event) *reader {
	r := &reader{w: w, done: make(chan struct{}), poke: make(chan struct{}, 1)}
	go r.run(ch)
	return r
}

func (r *reader) run(ch <-chan pleg.Event) {
	defer close(r.done)
	for {
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		if gate != nil {
			<-gate
			continue
		}
		select {
		case e, ok := <-ch:
			if !ok {
				return
			}
			r.w.heard(e)
		case <-r.poke:
		}
	}
}

func (r *reader) stalled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate != nil
}

// stall makes the reader stop reading, or go on.
func (r *reader) stall(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case yes && r.gate == nil:
		r.gate = make(chan struct{})
	case !yes && r.gate != nil:
		close(r.gate)
		r.gate = nil
	}
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

func (r *reader) finish() {
	r.stall(false)
	<-r.done
}

// heard takes an event from Watch.
func (w *world) heard(e pleg.Event) {
	w.oracle.event(e)
	w.outcome.heard(e)
	w.toldMu.Lock()
	if w.opts.Trace {
		line := fmt.Sprintf("%s %s", e.Pod, e.Type)
		if e.ID != "" {
			line += " " + w.side.name(e.ID)
		}
		w.told = append(w.told, line)
	}
	worker := w.workers[e.Pod]
	w.toldMu.Unlock()
	if worker != nil {
		worker.kick()
	}
}
