// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"sync"
	"sync/atomic"
)

// Mutex is a sync.Mutex that counts how often it was locked. A holder that changes nothing a loop
// looks at locks the mutex with LockUncounted. The zero value is an unlocked mutex.
type Mutex struct {
	mu sync.Mutex
	n  atomic.Uint64
}

// Lock locks the mutex and counts a change, before the holder makes it: a reader who has seen the
// count and locks afterwards sees the change.
func (m *Mutex) Lock() {
	m.mu.Lock()
	m.n.Add(1)
}

// LockUncounted locks the mutex for a holder that changes nothing a loop looks at, or tells of the
// change by Changed.
func (m *Mutex) LockUncounted() { m.mu.Lock() }

// Changed counts a change by a holder that has locked with LockUncounted, before Unlock.
func (m *Mutex) Changed() { m.n.Add(1) }

// Unlock unlocks the mutex.
func (m *Mutex) Unlock() { m.mu.Unlock() }

// Changes returns the number of changes, and never waits.
func (m *Mutex) Changes() uint64 { return m.n.Load() }

// RWMutex is a sync.RWMutex that counts how often it was locked for writing. The zero value is an
// unlocked mutex.
type RWMutex struct {
	mu sync.RWMutex
	n  atomic.Uint64
}

// Lock locks the mutex for writing and counts a change, before the holder makes it.
func (m *RWMutex) Lock() {
	m.mu.Lock()
	m.n.Add(1)
}

// LockUncounted locks the mutex for writing what gives no loop anything to do.
func (m *RWMutex) LockUncounted() { m.mu.Lock() }

// Unlock undoes Lock and LockUncounted.
func (m *RWMutex) Unlock() { m.mu.Unlock() }

// RLock locks the mutex for reading.
func (m *RWMutex) RLock() { m.mu.RLock() }

// RUnlock undoes RLock.
func (m *RWMutex) RUnlock() { m.mu.RUnlock() }

// Changes returns the number of changes, and never waits.
func (m *RWMutex) Changes() uint64 { return m.n.Load() }
