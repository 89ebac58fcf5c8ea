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
// removed the container before any status showed its end, or its status cannot be read: then the
// pod's status names the container in [PodStatus.Unread], and a [pleg.PodSync] of the pod follows
// once it can. Ask again then. A runtime may correct both a moment after the end; what a read has
// shown, no earlier event takes back.
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

// exit is the end of a container, as the status shows it that counts.
type exit struct {
	code   int32
	reason string
	// read: the status was read. Else it came with an event, or with a status that was kept from one.
	read bool
	// at, by the runtime's clock in ns: of a status that was read, when the container ended; of one in
	// an event, the event's stamp. 0 if not known.
	at int64
}

// origin tells where a status is from that shows an end. The zero origin is a status kept from an
// earlier read or event, which tells only what nobody has told.
type origin struct {
	read  bool  // the status was read
	own   bool  // it came with an event of the very container
	stamp int64 // of that event, or of another container's; in ns, 0 if not known
}

// corrects reports whether an end shown by a status from there holds against a known one. A runtime
// may correct an end, and its events wait in a backlog: of two events the later stamp counts, of
// one stamp the container's own; a read counts against every event, unless the container has ended
// once more since.
func (o origin) corrects(known exit, finishedAt int64) bool {
	switch {
	case o.read:
		return true
	case o == origin{}:
		return false
	case known.read:
		return known.at > 0 && finishedAt > known.at
	}
	return o.stamp > known.at || o.own && o.stamp == known.at
}

// exits remembers ends by container ID, in two generations.
type exits struct {
	mu                sync.Mutex // owns the maps
	current, previous map[string]exit
}

// note records the end in the status of the container with an ID, unless what is known of the end
// holds against where the status is from.
func (e *exits) note(id string, item *containerItem, from origin) {
	if item.phase() != pleg.PhaseExited {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known, isYoung := e.current[id]
	isKnown := isYoung
	if !isYoung {
		known, isKnown = e.previous[id]
	}
	if !isKnown || from.corrects(known, item.finishedAt) {
		known = known.replaced(item, from)
	} else if isYoung {
		return
	}
	if !isYoung {
		e.makeRoom()
	}
	e.current[id] = known // what is asked for again stays young
}

// replaced returns the end that a status shows, in place of one known before.
func (x exit) replaced(item *containerItem, from origin) exit {
	now := exit{
		code:   item.exitCode,
		reason: x.reason,
		read:   from.read,
		at:     from.stamp,
	}
	if now.reason != string(item.reason) {
		now.reason = reasonOf(item.reason)
	}
	if from.read {
		now.at = item.finishedAt
	}
	return now
}

// makeRoom has the young generation become the old one once it is full.
func (e *exits) makeRoom() {
	if e.current == nil || len(e.current) >= keptExits {
		e.previous, e.current = e.current, emptied(e.previous)
	}
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
