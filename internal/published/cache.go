// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Cache is a cache of statuses in which the newest time wins.
type Cache[S any] struct {
	empty func(cache.UID) *S

	mu      sync.Mutex // owns the fields below
	entries map[cache.UID]*entry[S]
	global  time.Time
	changed chan struct{} // closed and replaced at every change
	waiting int
}

type entry[S any] struct {
	status *S
	err    error
	at     time.Time
}

// NewCache returns an empty cache.
func NewCache[S any](empty func(cache.UID) *S) *Cache[S] {
	return &Cache[S]{empty: empty, entries: make(map[cache.UID]*entry[S]), changed: make(chan struct{})}
}

// Get returns the stored status, or an empty status.
func (c *Cache[S]) Get(uid cache.UID) (*S, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(uid)
}

func (c *Cache[S]) get(uid cache.UID) (*S, error) {
	if e := c.entries[uid]; e != nil {
		return e.status, e.err
	}
	return c.empty(uid), nil
}

// AsOf returns the time attributed to the entry.
func (c *Cache[S]) AsOf(uid cache.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asOf(uid)
}

func (c *Cache[S]) asOf(uid cache.UID) time.Time {
	if e := c.entries[uid]; e != nil && e.at.After(c.global) {
		return e.at
	}
	return c.global
}

// GetNewerThan waits for an entry with a time after t.
func (c *Cache[S]) GetNewerThan(ctx context.Context, uid cache.UID, t time.Time) (*S, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	defer func() { c.waiting-- }()
	for !c.asOf(uid).After(t) {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			s, _ := c.get(uid)
			return s, context.Cause(ctx)
		}
	}
	return c.get(uid)
}

// set stores a status unless the entry's time is after at.
func (c *Cache[S]) set(uid cache.UID, status *S, err error, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[uid]; e != nil && e.at.After(at) {
		return false
	}
	c.entries[uid] = &entry[S]{status, err, at}
	c.wake()
	return true
}

func (c *Cache[S]) delete(uid cache.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, uid)
	c.wake()
}

func (c *Cache[S]) advance(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.global = at
	c.wake()
}

func (c *Cache[S]) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Global returns the global time.
func (c *Cache[S]) Global() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.global
}

// UIDs returns the pods stored, sorted.
func (c *Cache[S]) UIDs() []cache.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	uids := make([]cache.UID, 0, len(c.entries))
	for uid := range c.entries {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// Waiting returns the number of blocked GetNewerThan calls.
func (c *Cache[S]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}
