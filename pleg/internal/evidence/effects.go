// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

// Events is a set of events of one ID.
type Events uint8

// Events that Watch may be told.
const (
	Started Events = 1 << iota
	Died
	Removed
	// Sync: something has changed that no other event tells.
	Sync
)

// Change is a change of what the cache shows of one ID.
type Change struct {
	// ID is shown in Phase now, and was in Was: None before the first time, Gone after the last.
	ID  Shown
	Was Phase
	// Events is what Watch is to be told of the change after the cache shows it: Died before Removed.
	Events Events
	// Stamp is as in the record of the ID.
	Stamp int64
}

// Effects is what is to be done after a report. The functions of this package do nothing of it
// themselves.
type Effects struct {
	// Stored: the report's status goes into the cache, or the pod's entry goes if nothing is shown.
	Stored bool
	// Observed: the cached status is unchanged, as of the read's begin.
	Observed bool
	// Refused: an inspection was not stored, because it is older than what is known.
	Refused bool
	// Changes is what the cache shows that it did not show before.
	Changes []Change
	// Found is the IDs that a read showed further than anything had told.
	Found []Shown
	// Overruled is the IDs of which a read took a claim back, in the phase that the read showed.
	Overruled []Shown
	// Regressed counts the IDs that a read showed less far than an earlier read or ack.
	Regressed int
}

// store puts a status into the cached record, and notes the difference for Watch.
func (p *Pod) store(shows []Phase, e *Effects) {
	e.Stored = true
	if p.Listed == nil && !p.showsCached(shows) {
		p.Listed = p.CachedIDs([]Shown{})
	}
	for i := range p.IDs {
		x := &p.IDs[i]
		was := x.Cached
		x.Cached = shows[i]
		if was == None && shows[i] == Gone {
			x.Cached = None // never shown
		}
		if x.Cached == was {
			continue
		}
		events := x.untold()
		x.Told |= events
		if events == 0 && was != None {
			events = Sync
		}
		e.Changes = append(e.Changes, Change{Shown{x.Name, x.Sandbox, x.Cached}, was, events, x.Stamp})
	}
}

// untold returns the events that the cached phase tells and Watch was not told. An event tells of
// all before it: Started is not told after Died.
func (x *ID) untold() Events {
	var events Events
	switch x.Cached {
	case Running:
		if x.Told == 0 {
			events = Started
		}
	case Exited:
		if x.Told&(Died|Removed) == 0 {
			events = Died
		}
	case Gone:
		if x.Told&(Died|Removed) == 0 {
			events = Died
		}
		events |= Removed &^ x.Told
	}
	return events
}
