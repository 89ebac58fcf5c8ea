// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// ExitCode returns the exit code of a container, and reports whether any status has shown the
// container as exited: a read status, or a status in an event. The code remains available after the
// container's removal, when the pod's status no longer includes the container. The client remembers
// the latest 4096 to 8192 exits. Safe for concurrent use.
//
// The code of a [pleg.ContainerDied] event is known when Watch delivers the event, unless the
// runtime removed the container before any status showed its end.
func (c *Client) ExitCode(containerID string) (code int32, ok bool) {
	c.exits.mu.Lock()
	defer c.exits.mu.Unlock()
	code, ok = c.exits.current[containerID]
	if !ok {
		code, ok = c.exits.previous[containerID]
	}
	return code, ok
}

// keptExits is the number of exits after which the older generation is dropped.
const keptExits = 4096

// exits remembers exit codes by container ID, in two generations.
type exits struct {
	mu                sync.Mutex // owns the maps
	current, previous map[string]int32
}

// note records the exit code in the status of the container with an ID.
func (e *exits) note(id string, item *containerItem) {
	if item.phase() != pleg.PhaseExited {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if code, ok := e.current[id]; ok && code == item.exitCode {
		return
	}
	if e.current == nil || len(e.current) >= keptExits {
		e.previous, e.current = e.current, emptied(e.previous)
	}
	e.current[id] = item.exitCode
}
