// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"sync"
	"testing/synctest"
	"time"
)

// within runs commands between the steps of a turn of the generator's loop. The loop stands still
// meanwhile, each command takes a nanosecond, and the goroutine of the history runs the commands.
// The zero value is ready.
type within struct {
	mu    sync.Mutex
	wait  []inTurn      // commands before their step
	due   []inTurn      // commands of the step at which the loop stands
	stood chan struct{} // signals a standing loop; capacity 1
	gate  chan struct{} // closed when the loop may go on; nil unless the loop stands
}

// inTurn is such a command, run after so many steps.
type inTurn struct {
	steps int
	words []string
}

// step is called by the loop between two steps.
func (h *within) step() {
	h.mu.Lock()
	var later []inTurn
	for _, c := range h.wait {
		c.steps--
		if c.steps > 0 {
			later = append(later, c)
		} else {
			h.due = append(h.due, c)
		}
	}
	h.wait = later
	if len(h.due) == 0 {
		h.mu.Unlock()
		return
	}
	gate := make(chan struct{})
	h.gate = gate
	h.stood <- struct{}{}
	h.mu.Unlock()
	<-gate
}

// add has a command run after so many steps.
func (h *within) add(steps int, words []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait = append(h.wait, inTurn{steps, words})
}

// stands returns the commands of the step at which the loop stands.
func (h *within) stands() (due []inTurn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	due = h.due
	h.due = nil
	return due
}

// release lets the loop go on.
func (h *within) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate != nil {
		close(h.gate)
		h.gate = nil
		<-h.stood
	}
}

// drop forgets all commands and lets the loop go on.
func (h *within) drop() {
	h.mu.Lock()
	h.wait = nil
	h.due = nil
	h.mu.Unlock()
	h.release()
}

// quiet waits until nothing more happens without time passing. While the loop stands within a turn,
// quiet runs the commands due there.
func (w *world) quiet() {
	synctest.Wait()
	for {
		due := w.within.stands()
		if len(due) == 0 {
			return
		}
		w.oracle.stands()
		for _, c := range due {
			if c.words[0] == "pause" {
				_ = w.pause(c.words[1:])
			} else {
				_ = w.act(c.words[0], c.words[1:])
			}
			synctest.Wait()
			time.Sleep(time.Nanosecond) // the next command is later
		}
		w.within.release()
		synctest.Wait()
	}
}

// sleep lets time pass.
func (w *world) sleep(d time.Duration) { w.sleepUnless(d, nil) }

// nap lets time pass, at most d: until a promise must have been kept, so that a promise kept late
// is not taken for one that was kept.
func (w *world) nap(d time.Duration) {
	select {
	case <-w.hurt:
	default:
	}
	w.sleepUnless(min(d, w.oracle.dueIn()), w.hurt)
}

// sleepUnless lets time pass until something comes.
func (w *world) sleepUnless(d time.Duration, comes <-chan struct{}) {
	for until := time.Now().Add(d); ; {
		timer := time.NewTimer(max(1, time.Until(until)))
		select {
		case <-timer.C:
			return
		case <-comes:
			timer.Stop()
			return
		case <-w.within.stood:
			w.within.stood <- struct{}{}
			timer.Stop()
			w.quiet()
		}
	}
}
