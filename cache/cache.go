// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"slices"
	"sync"
	"time"
)

// UID is the UID of a pod.
type UID string

// entry is the cache entry of a pod.
type entry[S any] struct {
	status *S        // never nil
	err    error     // of the last read, nil after success
	at     time.Time // begin of the last look that agreed with the phases in the status
	read   time.Time // begin of the last read of all statuses, or of the failed read
	failed time.Time // begin of the latest read that has brought err, or an error before it
}

// Looks are the begins of the reads that confirm a status. A read of all statuses is a look at the
// phases, too, so Read is never later than At.
type Looks struct {
	// At is the begin of the last read that showed the phases of the status.
	At time.Time
	// Read is the begin of the last read of all statuses: no part of the status is older.
	Read time.Time
	// Began is the begin of the read that has brought the status; zero if At is. A read of some IDs,
	// which may miss others, is later than At: it is no older than any, and confirms nothing.
	Began time.Time
	// Beside reports whether the error is the entry's own, which the status does not end: the error
	// stays as old as it is.
	Beside bool
}

// Cache holds the last known status of every pod. Make one with [New].
type Cache[S any] struct {
	empty func(UID) *S
	wake  chan struct{} // capacity 1: one announcement stands for all demands

	mu         sync.RWMutex // owns the fields below
	pods       map[UID]*entry[S]
	tombstones map[UID]time.Time // begin of the read that did not show the pod; later than both global and floor
	global     time.Time         // every entry is as of this time, at least
	floor      time.Time         // no write as of an earlier time will come, by the writer's word
	waiters    map[UID][]*waiter[S]
	waiting    int
	demand     map[UID]Demand
	owned      bool // between Own and release
}

// New returns an empty cache. Empty makes the status of an unknown pod, and must not return nil; a
// nil func stands for new(S).
func New[S any](empty func(UID) *S) *Cache[S] {
	if empty == nil {
		empty = func(UID) *S { return new(S) }
	}
	return &Cache[S]{
		empty:      empty,
		wake:       make(chan struct{}, 1),
		pods:       make(map[UID]*entry[S]),
		tombstones: make(map[UID]time.Time),
		waiters:    make(map[UID][]*waiter[S]),
		demand:     make(map[UID]Demand),
	}
}

// Own makes the caller, a generator, the owner of the cache until the call of release: the owner
// alone is to write and to take demand. Own reports false, with a nil release, while the cache has
// an owner. Own keeps nobody from writing.
func (c *Cache[S]) Own() (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned {
		return nil, false
	}
	c.owned = true
	return sync.OnceFunc(func() {
		c.mu.Lock()
		c.owned = false
		c.mu.Unlock()
	}), true
}

// Get returns the last known status of the pod and the error of its last read. The status is never
// nil: an unknown pod has an empty status.
func (c *Cache[S]) Get(uid UID) (*S, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.get(uid)
}

// answer is get for a waiter. The error of a read begun before t is none to a waiter for phases: a
// list has confirmed them since.
func (c *Cache[S]) answer(uid UID, t time.Time, phases bool) (*S, error) {
	status, err := c.get(uid)
	if e := c.pods[uid]; phases && e != nil && !e.failed.After(t) {
		err = nil
	}
	return status, err
}

func (c *Cache[S]) get(uid UID) (*S, error) {
	if e := c.pods[uid]; e != nil {
		return e.status, e.err
	}
	return c.empty(uid), nil
}

// AsOf returns the start of the latest read of the pod's phases, shown or not; zero without such a
// read.
func (c *Cache[S]) AsOf(uid UID) time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.asOf(uid)
}

func (c *Cache[S]) asOf(uid UID) time.Time {
	at := c.global
	if e := c.pods[uid]; e != nil {
		return later(at, e.at)
	}
	return later(at, c.tombstones[uid])
}

// ReadAt returns the start of the latest read of all parts of the pod's status: of its statuses, or
// of anything that showed the pod gone. Zero without such a read.
func (c *Cache[S]) ReadAt(uid UID) time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.readAt(uid)
}

func (c *Cache[S]) readAt(uid UID) time.Time {
	if e := c.pods[uid]; e != nil {
		return e.read
	}
	return c.asOf(uid)
}

// confirmed returns the time that waiters for phases, or for the whole status, compare with.
func (c *Cache[S]) confirmed(uid UID, phases bool) time.Time {
	if phases {
		return c.asOf(uid)
	}
	return c.readAt(uid)
}

// newer is the only freshness predicate: a read begun after t has confirmed the phases of the
// entry, or all of it.
func (c *Cache[S]) newer(uid UID, t time.Time, phases bool) bool {
	return c.confirmed(uid, phases).After(t)
}

// Set stores the result of a read of all statuses of the pod, begun at the given time: a status, an
// error, or both. An error alone leaves the last status readable; beside a status the error is of
// the parts that could not be read. Set reports whether the write was accepted: a write older
// than the entry is refused, and so is a write without status and error.
func (c *Cache[S]) Set(uid UID, status *S, err error, at time.Time) bool {
	return c.SetLooked(uid, status, err, Looks{At: at, Read: at})
}

// SetLooked is Set for a status parts of which may be older than the last look at its phases: the
// parts of an event's payload, or of a status that was updated. Read never moves back.
func (c *Cache[S]) SetLooked(uid UID, status *S, err error, looks Looks) bool {
	at := looks.At
	if status == nil && err == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses(uid, at, later(at, looks.Began)) {
		return false
	}
	e := c.pods[uid]
	if e == nil {
		e = &entry[S]{}
		if status == nil {
			e.status = c.empty(uid)
		}
		c.pods[uid] = e
		delete(c.tombstones, uid)
	}
	if status != nil {
		e.status = status
	}
	began := looks.Read
	if !looks.Began.IsZero() {
		began = looks.Began
	}
	older := looks.Beside || !began.After(e.failed) // a look from before the error leaves it as young as it is
	if e.err == nil || !older {
		e.failed = began
	}
	e.err = err
	e.at = at
	e.read = later(e.read, looks.Read)
	c.wakePod(uid)
	return true
}

// refuses says whether a write as of the given time, from a read begun then or later, is older than
// the entry.
func (c *Cache[S]) refuses(uid UID, at, began time.Time) bool {
	if c.newer(uid, at, true) {
		return true
	}
	return c.pods[uid] == nil && c.floor.After(began)
}

// Delete forgets a pod absent from a read begun at the given time, and leaves a tombstone. Delete
// reports whether the delete was accepted: a delete older than the entry is refused. Deleting an
// unknown pod records its absence from a read, and wakes its waiters.
func (c *Cache[S]) Delete(uid UID, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses(uid, at, at) {
		return false
	}
	delete(c.pods, uid)
	if at.After(c.global) {
		c.tombstones[uid] = at
	}
	c.wakePod(uid)
	return true
}

// Observe records that a read begun at the given time found the pod's phases unchanged. Such a read
// says nothing of the other parts of the status.
func (c *Cache[S]) Observe(uid UID, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pods[uid]
	if e == nil || !at.After(e.at) {
		return
	}
	e.at = at
	c.wakePod(uid)
}

// Advance moves the global time: a read of everything, begun at the given time, is in the cache,
// with every pod found changed. The global time never moves back.
func (c *Cache[S]) Advance(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !at.After(c.global) {
		return
	}
	c.global = at
	c.prune()
	for uid := range c.waiters {
		c.wakePod(uid)
	}
}

// Prune drops older tombstones: no write as of a time before the given time will come any more.
func (c *Cache[S]) Prune(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before.After(c.floor) {
		c.floor = before
		c.prune()
	}
}

func (c *Cache[S]) prune() {
	for uid, at := range c.tombstones {
		if !at.After(c.global) || at.Before(c.floor) {
			delete(c.tombstones, uid)
		}
	}
}

// Global returns the global time.
func (c *Cache[S]) Global() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.global
}

// Len returns the number of pods held.
func (c *Cache[S]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.pods)
}

// Tombstones returns the number of deleted pods still remembered.
func (c *Cache[S]) Tombstones() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.tombstones)
}

// UIDs returns the pods held, sorted.
func (c *Cache[S]) UIDs() []UID {
	c.mu.RLock()
	uids := make([]UID, 0, len(c.pods))
	for uid := range c.pods {
		uids = append(uids, uid)
	}
	c.mu.RUnlock()
	slices.Sort(uids)
	return uids
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
