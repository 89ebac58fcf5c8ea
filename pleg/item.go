// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// phaseNone is the phase of an ID not yet shown.
const phaseNone = Phase(0xff)

// item is one sandbox or container in the status of a pod. Only records.show makes and moves
// items. What events and own calls report of an ID is written by announce and retract; no status
// and no freshness depends on it.
type item struct {
	// id is the ID. Records.create writes id, pod and kind, once.
	id string

	// name is for events and people, and empty until a read has the name. Only records.show writes it.
	name string `prove:"-"`

	// pod is the pod that shows the ID. An ID shown in two pods has an item in each.
	pod *pod

	// sighting is when looks have shown the ID, or have not. Records writes it: see sights, doubt
	// misses, and show, sighted and doubt trust.
	sighting

	// stamp is the runtime's time of the event that has reported claimed, in Unix nanoseconds; zero if
	// none. Whoever raises claimed writes stamp.
	stamp int64 `prove:"-"`

	// The small fields stand together: a node has many items.

	// mark is the last comparison of records that met the ID. Only the comparisons write mark; one
	// from before is never equal to records.marks.
	mark uint32 `prove:"-"`

	// kind is the kind of the ID.
	kind Kind

	// shown is the phase in the pod's status: PhaseUnknown if the runtime did not know. Only
	// records.advance writes shown. A dropped item keeps its last.
	shown Phase

	// phase is shown, or the phase before PhaseUnknown was shown: a later phase is news, an earlier one
	// a regression. PhaseRemoved once the item is dropped. Only records.advance writes phase, and the
	// counts of records with it.
	phase Phase

	// sent are the events sent, a bit each: each event of a life is sent once. Only move.due adds a
	// bit, and none is ever taken away: records.create takes them over from a removed ID that is back.
	sent uint8

	// unshown reports whether the item could not be read, and is missing in the status. Whoever looks
	// at the pod by then does not see the item, also after an event of before: the next status with
	// the item is told of. Only pod.conceal sets unshown, beside an error, and pod.reveal ends it.
	unshown bool

	// recovered reports whether reads have shown the ID run after its end. It may end again, and
	// nothing tells an event of this end from one of the end before: payloads do not count. Only
	// revive sets recovered, for good.
	recovered bool

	// back reports, of a dropped item, whether reads have shown the ID again, which has another item
	// now. Only records.returned sets back, for good: no item of a pod has it.
	back bool

	// claimed is the furthest phase reported by an event or an own call; PhaseUnknown if none was. A
	// read that refutes the report takes the phase back. Only announce raises claimed, and retract
	// sets it to phase. The item of an ID that another pod shows too begins with the claim of that
	// one.
	claimed Phase

	// cause is of the claimed phase: CauseRead until anything was reported. Announce writes cause with
	// claimed, and disown takes an own call back.
	cause Cause
}

// announce notes that an event or an own call has reported a phase of the ID.
func (x *item) announce(e *expectation) {
	if e.phase > x.claimed || e.phase == x.claimed && e.cause == CauseAck {
		x.claimed = e.phase
		x.cause = e.cause
		x.stamp = e.stamp
	}
}

// retract notes that a read has refuted the reports beyond the present phase.
func (x *item) retract() { x.claimed = x.phase }

// revive notes that a read has shown an earlier phase than one before: what was reported of the
// later phases is undone. What is still to be judged is announced by evidence.resolve.
func (x *item) revive() {
	x.retract()
	x.recovered = true
}

// disown notes that the agent's own call has reported something without effect: see pod.teardown.
func (x *item) disown() { x.cause = CauseRead }

// announced returns the furthest phase an event or an own call has reported.
func (x *item) announced() Phase { return x.claimed }

// busy reports whether an own call about the pod is under way.
func (x *item) busy() bool { return x.pod.calls > 0 }

// mistaken reports whether the ID was called removed and is back.
func (x *item) mistaken() bool { return x.back }

// title names the ID for people.
func (x *item) title() string {
	name := x.id
	if x.name != "" {
		name = x.name + " (" + x.id + ")"
	}
	return x.kind.String() + " " + name + " of pod " + x.pod.title()
}

// move is what a report has changed of an item.
type move struct {
	of     *item
	before Phase // the phase before; phaseNone if the ID is new

	// turned reports whether the runtime has lost the state of the ID, or has found it again.
	turned bool

	// back reports whether the report shows an earlier phase, or an ID that was removed.
	back bool

	// died and event are the events that Watch has not had of this life: died goes first. Empty
	// if none is due.
	died  bool
	event EventType
}

// tells reports whether an event of its own tells of the move.
func (m *move) tells() bool { return m.died || m.event != "" }

// The events of one life, for item.sent.
const (
	sentStarted uint8 = 1 << iota
	sentDied
	sentRemoved
)

// due enters the events that Watch is due for an item that has come to a later phase, each once
// in a life.
func (m *move) due() {
	x := m.of
	once := func(unless, sends uint8) bool {
		if x.sent&unless != 0 {
			return false
		}
		x.sent |= sends
		return true
	}
	switch x.phase {
	case PhaseRunning:
		if once(sentStarted|sentDied|sentRemoved, sentStarted) {
			m.event = ContainerStarted
		}
	case PhaseExited:
		if once(sentDied|sentRemoved, sentDied) {
			m.event = ContainerDied
		}
	case PhaseRemoved:
		m.died = m.before != PhaseExited && once(sentDied|sentRemoved, sentDied)
		if once(sentRemoved, sentRemoved) {
			m.event = ContainerRemoved
		}
	}
}

// untold reports whether Watch is due a PodSync for the move, because no event of its own tells
// of it. The creation of a container is told by nothing, as in the kubelet.
func (m *move) untold() bool {
	if m.turned || m.back {
		return !m.tells()
	}
	switch m.of.phase {
	case PhaseRunning, PhaseExited, PhaseRemoved:
		return m.event == ""
	}
	return false
}
