// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "slices"

// ghosts are the IDs of a pod that lists show, and of which the last read has shown no status. A
// runtime may list IDs for ever that are gone. So lists do not end the doubt about a ghost, and the
// second read without the status is believed, whatever lists show meanwhile. Of reads by ID, which
// follow no list of the pod, it is the third.
//
// A nil *ghosts has none. Ghosts are not changed once made.
type ghosts struct {
	ids idSet

	// lacked are the IDs without a status in the last read: ghosts, if the next read lacks them too.
	lacked []string
}

// ghostsListed returns the ghosts after a read of a pod as listed, which has shown no status of the
// given IDs.
func ghostsListed(lacks []string) *ghosts {
	if len(lacks) == 0 {
		return nil
	}
	return &ghosts{ids: setOf(lacks), lacked: lacks}
}

// readByID returns the ghosts after a read by ID, which has shown no status of the given IDs. A
// list that has ended meanwhile may have shown them.
func (g *ghosts) readByID(lacks []string) *ghosts {
	if len(lacks) == 0 {
		return nil
	}
	next := &ghosts{lacked: lacks}
	if g != nil {
		next.ids = setOf(both(lacks, g.lacked))
	}
	return next
}

// has reports whether an ID is a ghost.
func (g *ghosts) has(id string) bool {
	return g != nil && g.ids.has(id)
}

// any reports whether there are ghosts.
func (g *ghosts) any() bool {
	return g != nil && len(g.ids.ids) > 0
}

// haunted reports whether the record has a ghost. A list that agrees with the record confirms
// nothing of the pod.
func (p *pod) haunted() bool {
	return p.ghosts.any() && slices.ContainsFunc(p.items, func(x *item) bool { return p.ghosts.has(x.id) })
}
