// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Items of a toy runtime with changing content, with unreadable statuses, or missing in reads for a
// while although alive.

// spoil is how an item cannot be read.
type spoil uint8

const (
	spoilNot spoil = iota
	spoilFails
	spoilHangs
)

var errUnreadable = errors.New("the status of this item cannot be read")

// content is the item's content beside its phase.
func (x *toyItem) content() string { return strconv.Itoa(x.version) }

// rewrite changes the content of an item, without a word.
func (r *toy) rewrite(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byID[id]
	if x == nil || x.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	r.write(x)
	return nil
}

// write is rewrite, for callers that hold the mutex.
func (r *toy) write(x *toyItem) {
	x.version++
	now := time.Now()
	r.truth.Rewrite(now, x.id, x.content())
	r.upset(now)
}

// settle changes the content of an item a while after a change of its phase, like a late reason, a
// corrected exit code, or an address.
func (t *toySide) settle(w *world, id string, how telling) {
	if how.settles == 0 {
		return
	}
	phase := t.toy.phase(id)
	w.children.Go(func() {
		if sleep(w.ctx, how.settles) == nil && t.toy.phase(id) == phase {
			_ = t.toy.rewrite(id)
		}
	})
}

// spoil makes an item unreadable, or readable again.
func (r *toy) spoil(id string, how spoil) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byID[id]
	if x == nil || x.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	x.spoilt = how
	r.truth.Spoil(id, how != spoilNot)
	if how == spoilNot {
		r.release()
	}
	r.upset(time.Now())
	return nil
}

// release lets the reads of hanging items go on.
func (r *toy) release() {
	close(r.readable)
	r.readable = make(chan struct{})
}

// hide has the next n looks miss an item.
func (r *toy) hide(id string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byID[id]
	if x == nil || x.phase == pleg.PhaseRemoved || n < 0 {
		return errNoSuch
	}
	x.hidden = n
	r.upset(time.Now())
	return nil
}

// sees reports whether a look shows an item. The caller holds the mutex.
func (r *toy) sees(x *toyItem) bool {
	if x.phase == pleg.PhaseRemoved {
		return false
	}
	if x.hidden > 0 {
		x.hidden--
		r.unseen(x)
		return false
	}
	return true
}

// sought is sees for a read of statuses.
func (r *toy) sought(x *toyItem) bool {
	seen := r.sees(x)
	x.lacked = !seen && x.phase != pleg.PhaseRemoved
	return seen
}

// delivered notes the items of an answer, begun at the given time: a look with an item ends the row
// of looks without it. An answer that never comes, as of a given-up list, gives the generator
// nothing, and ends no row; nor does one that began before the last look without the item. A list
// ends no row either if a read of statuses has missed the item: lists may show gone items for ever.
func (r *toy) delivered(shows []pleg.Item, statuses bool, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range shows {
		if x := r.byID[it.ID]; x != nil {
			if (statuses || !x.lacked) && began.After(x.missed) {
				x.unseen = 0
			}
			if x.ghost {
				r.truth.Haunts(x.id)
			}
		}
	}
}

// unseen notes a look without a living item.
func (r *toy) unseen(x *toyItem) {
	x.unseen++
	x.missed = time.Now()
	r.truth.Hide(x.id, x.unseen)
	r.upset(time.Now())
}

// haunt removes a container, and lists show it for ever in its last state.
func (r *toy) haunt(id string, how telling) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byID[id]
	if x == nil || x.kind != pleg.Container || x.phase == pleg.PhaseRemoved {
		return errNoSuch
	}
	x.ghost = true
	x.haunts = x.phase
	r.truth.Haunt(id)
	r.cascade(x, pleg.PhaseRemoved, how)
	return nil // and nothing is at rest until all is calm
}

// bad runs the commands about content and bad items:
//
//	runtime update c1                  its content changes
//	runtime spoil c1 fails|hangs|not   its status cannot be read
//	runtime hide c1 N                  the next N looks do not show it
//	runtime haunt c1 [how…]            it is gone, and lists show it until all is calm
func (t *toySide) bad(what string, names []string, how telling) error {
	id := names[0]
	switch {
	case what == "update" && len(names) == 1:
		return t.toy.rewrite(id)
	case what == "spoil" && len(names) == 2:
		how, ok := map[string]spoil{"fails": spoilFails, "hangs": spoilHangs, "not": spoilNot}[names[1]]
		if !ok {
			return errUsage
		}
		return t.toy.spoil(id, how)
	case what == "haunt" && len(names) == 1:
		return t.toy.haunt(id, how)
	case what == "hide" && len(names) == 2:
		n, err := strconv.Atoi(names[1])
		if err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return t.toy.hide(id, n)
	}
	return errUsage
}

// The delay after which a read gives up a hanging item, once the other items have answered.
const (
	hungAtLeast = 250 * time.Millisecond
	hungTimes   = 4
)

// wait waits until an item can be read, and returns an error if the item fails, or hangs until the
// given time, at which the read is cut off.
func (r *toy) wait(ctx context.Context, id string, until time.Time) error {
	r.mu.Lock()
	how := spoilNot
	free := r.readable
	if x := r.byID[id]; x != nil {
		how = x.spoilt
	}
	r.mu.Unlock()
	if how == spoilNot {
		return nil
	}
	if how == spoilHangs {
		timer := time.NewTimer(max(1, time.Until(until)))
		defer timer.Stop()
		select {
		case <-free:
			return nil
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s: %w", id, errUnreadable)
}
