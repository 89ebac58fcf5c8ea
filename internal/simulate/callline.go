// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"sync"
)

// callLine serialises the agent's calls about an ID. Safe for concurrent use.
type callLine struct {
	mu    sync.Mutex
	calls map[string]chan struct{} // closed when the last call about an ID is over
}

// queue makes a call wait for the earlier call about the same ID.
func (l *callLine) queue(id string) (before <-chan struct{}, done chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[string]chan struct{})
	}
	if last := l.calls[id]; last != nil {
		select {
		case <-last:
		default:
			before = last
		}
	}
	done = make(chan struct{})
	l.calls[id] = done
	return before, done
}

// finish waits for the calls under way.
func (l *callLine) finish() {
	l.mu.Lock()
	calls := slices.Collect(maps.Values(l.calls))
	l.mu.Unlock()
	for _, over := range calls {
		<-over
	}
}
