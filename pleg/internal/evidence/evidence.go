// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

// Phase is how far an ID has come. The order matters: a later phase is greater.
type Phase uint8

const (
	// None: never heard of; in a claim, no claim.
	None Phase = iota
	// Unknown: shown, but the runtime does not know the state (CRI CONTAINER_UNKNOWN).
	Unknown
	// Created: a container that has not been started.
	Created
	// Running: a running container or a ready sandbox.
	Running
	// Exited: an ended container or a sandbox that is not ready.
	Exited
	// Gone: the runtime does not have the ID; in a read, not shown.
	Gone
)

// String returns the name that tests and logs use.
func (p Phase) String() string {
	names := [...]string{"none", "unknown", "created", "running", "exited", "gone"}
	if int(p) < len(names) {
		return names[p]
	}
	return "phase(?)"
}

// Live says that a phase is shown to readers: the ID is there.
func (p Phase) Live() bool { return p != None && p != Gone }

// shown maps a phase to what a reader sees: an ID never heard of looks like an ID that is gone.
func shown(p Phase) Phase {
	if p == None {
		return Gone
	}
	return p
}

// Time is a moment of a monotonic clock that moves with every input, so that no two inputs have the
// same. Zero is before everything.
type Time int64

// Evidence is all that is kept of what was reported of one ID.
type Evidence struct {
	// Seen is what reads and the agent's own calls bear out.
	Seen Phase
	// To is when the latest of those ended: a read that began before may have looked earlier.
	To Time
	// Claim is what the stream told beyond Seen; None once borne out or overruled.
	Claim Phase
	// At is when the stream first told of Claim.
	At Time
}

// Belief is the phase that is thought to be true. A claim alone makes nothing known.
func (e Evidence) Belief() Phase {
	if e.Seen == None {
		return None
	}
	return max(e.Seen, e.Claim)
}

// verdict says what a read did to the evidence of one ID.
type verdict uint8

const (
	// found: the read advanced the ID beyond all that the stream had told.
	found verdict = 1 << iota
	// overruled: the read took a claim back.
	overruled
	// regressed: the read shows less than an earlier read or ack bore out.
	regressed
)

// weigh adds what a read shows of an ID to its evidence. Cut is the instant one grace before the
// read began.
func (e Evidence) weigh(shows Phase, from, cut, now Time) (Evidence, verdict) {
	was := e
	later := from > e.To // the read looked after all that bore out Seen
	aged := cut >= e.At  // the read began a grace after the claim
	switch {
	case shows == Unknown:
		if e.Seen == None {
			e.Seen, e.To = Unknown, now
		}
		return e, 0
	case shows == Gone && e.Seen == None:
		if e.Claim != Gone && aged {
			e.Claim, e.At = None, 0
		}
		return e, 0 // a claimed removal is kept: another read under way may have looked before
	case shows == Gone && !later && e.Seen != Gone:
		return e, 0 // the read may have looked before the ID was made
	case shows > e.Seen, shows < e.Seen && later:
		e.Seen, e.To = shows, now
	case shows == e.Seen:
		e.To = now
	}
	if e.Claim != None && (shows >= e.Claim || e.Seen >= e.Claim || aged) {
		e.Claim, e.At = None, 0
	}
	return e, was.judge(e, shows)
}

// judge says what has become of the evidence, given what the read showed.
func (e Evidence) judge(next Evidence, shows Phase) verdict {
	var v verdict
	if next.Seen > e.Seen && next.Seen > e.Claim {
		v |= found
	}
	if next.Seen < e.Seen {
		v |= regressed
	}
	if e.Claim != None && next.Claim == None && shows < e.Claim && next.Seen < e.Claim {
		v |= overruled
	}
	return v
}

// claimed adds a claim of the stream.
func (e Evidence) claimed(phase Phase, now Time) Evidence {
	if phase > e.Seen && phase > e.Claim {
		e.Claim, e.At = phase, now
	}
	return e
}

// acked adds a call of the agent's own that returned without error.
func (e Evidence) acked(phase Phase, now Time) Evidence {
	if phase >= e.Seen {
		e.Seen, e.To = phase, now
	}
	if e.Claim <= e.Seen {
		e.Claim, e.At = None, 0
	}
	return e
}
