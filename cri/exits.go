// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Exit returns the exit code of a container and the runtime's reason (OOMKilled, Error, …), and
// reports whether any status has shown the container as exited: a read status, or a status in an
// event. Both remain available after the container's removal, when the pod's status no longer
// includes the container. The client remembers the latest 4096 to 8192 exits. Exit asks no runtime,
// and waits for nothing. Safe for concurrent use.
//
// Of a [pleg.ContainerDied] event they are known when Watch delivers the event, unless the runtime
// removed the container before any status showed its end. A runtime may correct both a moment after
// the end.
func (c *Client) Exit(containerID string) (code int32, reason string, ok bool) {
	c.exits.mu.Lock()
	defer c.exits.mu.Unlock()
	e, ok := c.exits.current[containerID]
	if !ok {
		e, ok = c.exits.previous[containerID]
	}
	return e.code, e.reason, ok
}

// ExitCode returns the exit code of a container: see [Client.Exit].
func (c *Client) ExitCode(containerID string) (code int32, ok bool) {
	code, _, ok = c.Exit(containerID)
	return code, ok
}

// keptExits is the number of exits after which the older generation is dropped.
const keptExits = 4096

// exit is the end of a container.
type exit struct {
	code   int32
	reason string
}

// exits remembers ends by container ID, in two generations.
type exits struct {
	mu                sync.Mutex // owns the maps
	current, previous map[string]exit
}

// note records the end in the status of the container with an ID.
func (e *exits) note(id string, item *containerItem) {
	if item.phase() != pleg.PhaseExited {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.current[id]
	if ok && known.code == item.exitCode && known.reason == string(item.reason) {
		return
	}
	if e.current == nil || len(e.current) >= keptExits {
		e.previous, e.current = e.current, emptied(e.previous)
	}
	e.current[id] = exit{code: item.exitCode, reason: reasonOf(item.reason)}
}

// reasonOf returns the runtime's reason, which nobody has checked, no longer than any other text.
// The reasons of all runtimes are kept once.
func reasonOf(reason []byte) string {
	for _, known := range [...]string{"Completed", "Error", "OOMKilled"} {
		if string(reason) == known {
			return known
		}
	}
	return truncate(string(reason))
}
