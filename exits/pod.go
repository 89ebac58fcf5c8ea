// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// pod is the record of a pod in the runtime. The core owns it.
type pod struct {
	ref    Ref
	labels map[string]string
	// containers and sandboxes are those shown, until their absence is proved.
	containers map[string]*container
	sandboxes  map[string]*sandbox
	// loops holds the last reported end by the container's name, while a container of the name is
	// shown: the notes of equal ends in a row are equal.
	loops map[string]loop
	// madeAt is when the record was made, droppedAt when that of a container was last dropped.
	madeAt, droppedAt time.Time
	// look is the next read of the pod's status.
	look look
}

// container is the record of a container.
type container struct {
	shown Container // as the last status showed it
	// ran: the container was seen running, or its end was announced, in this run of the reporter; or
	// the run before saw its end.
	ran   bool
	stage stage
	// seenAt is when the end was first seen. It holds from stageSettling on.
	seenAt time.Time
	// since is seenAt, later by the times in which the loop did not run. The settle time and the time
	// for a read count from then.
	since time.Time
	// shownAt is when a status last showed the container, or an event told of it.
	shownAt time.Time
	unread  bool // the end is told without a read of its status, which failed
	// again: the end is told because the container was started again.
	again bool
	// endedAt is the time of the last end told; without a stamp, when the end was seen.
	endedAt time.Time
	// stale is what the runtime's client remembered of the end before when a status first showed the
	// present life, or showed that end late.
	stale exit
	// unshown: no status has shown the container, only an event has told of its end.
	unshown bool
}

// exit is what the runtime's client remembers of the end of a container.
type exit struct {
	code   int32
	reason string
	known  bool
}

// stage is how far the report of a container's end has come. If a read shows a settling container
// running, or a status shows that one was started again after its end, the container is alive
// again; otherwise the stage only advances.
type stage uint8

const (
	stageAlive    stage = iota // not known to have ended
	stageSettling              // ended; its status is read again after the settle time
	stageTold                  // reported, or not news
)

// sandbox is the record of a sandbox.
type sandbox struct {
	ready bool // shown ready before
	told  bool // its death is reported, or was ordinary
	// shownAt is when a status last showed the sandbox.
	shownAt time.Time
	// suspectedAt is when the sandbox was first shown dead under the running containers suspects;
	// zero: not so.
	suspectedAt time.Time
	suspects    []string // container IDs
}

// loop is the last reported end of a container name.
type loop struct {
	kind Kind
	code int32
	note string
	at   time.Time
}

// look is the next read of a pod's status: not wanted, due at a time, or under way.
type look struct {
	due      time.Time // zero: none
	underway bool
	place    int // in the core's heap; -1 outside
}

// sighting is a status as an input of the core.
type sighting struct {
	pod Pod
	// unreadable: the last read failed, and the status is older. A status with unread IDs is not
	// unreadable: the read has shown the rest.
	unreadable bool
	// event is the event of Watch that caused the look into the cache; zero for a read.
	event pleg.Event
	// readAfter is the time after which the read behind the status began; zero: unknown, the status is
	// from the cache. A failed read has a time, too.
	readAfter time.Time
}

// read reports whether the status was read for this sighting, with success.
func (s *sighting) read() bool { return !s.readAfter.IsZero() && !s.unreadable }

// outrun reports whether the status may be from before a time at which another status was taken:
// the read behind it had begun before. Answers wait beside events.
func (s *sighting) outrun(at time.Time) bool { return !s.readAfter.IsZero() && s.readAfter.Before(at) }

// lacks reports whether the absence of an ID from the status proves that the runtime does not have
// it any more. shownAt is when it was last shown.
func (s *sighting) lacks(id string, shownAt time.Time) bool {
	absent := s.pod.empty() || s.read() && !slices.Contains(s.pod.Unread, id)
	return absent && !s.unreadable && !s.outrun(shownAt)
}

// gone reports whether the absence of a container from the status proves its removal from the
// runtime, or an event names it.
func (s *sighting) gone(id string, shownAt time.Time) bool {
	named := s.event.Type == pleg.ContainerRemoved && s.event.ID == id
	return named || s.lacks(id, shownAt)
}

func newPod(now time.Time, ref Ref) *pod {
	return &pod{
		ref:        ref,
		madeAt:     now,
		containers: make(map[string]*container),
		sandboxes:  make(map[string]*sandbox),
		loops:      make(map[string]loop),
		look:       look{place: -1},
	}
}

// name completes the pod's names and labels.
func (p *pod) name(shown *Pod) {
	if shown.Name != "" {
		p.ref.Name = shown.Name
		p.ref.Namespace = shown.Namespace
	}
	if shown.Labels != nil {
		p.labels = shown.Labels
	}
}

// want wants a read of the pod at a time, if none is wanted earlier.
func (p *pod) want(at time.Time) {
	if p.look.due.IsZero() || at.Before(p.look.due) {
		p.look.due = at
	}
}

// end returns the end of a container, without its note.
func (p *pod) end(x *container, settled bool) End {
	c := &x.shown
	e := End{
		Pod:         p.ref,
		Labels:      p.labels,
		ID:          c.ID,
		Container:   printable(c.Name, maxName),
		Attempt:     c.Attempt,
		ExitCode:    c.ExitCode,
		CodeKnown:   c.Phase == pleg.PhaseExited,
		Reason:      printable(c.Reason, maxReason),
		Message:     printable(c.Message, maxMessage),
		StartedAt:   c.StartedAt,
		FinishedAt:  c.FinishedAt,
		MemoryLimit: c.MemoryLimit,
		Settled:     settled,
		SeenAt:      x.seenAt,
		Unread:      x.unread,
		Unshown:     x.unshown,
		Again:       x.again,
	}
	if !e.CodeKnown {
		e.ExitCode = 0
		e.Reason = ""
		e.Message = ""
		e.FinishedAt = time.Time{}
	}
	return e
}

// suspected reports whether a read must decide on a sandbox.
func (p *pod) suspected() bool {
	for _, x := range p.sandboxes {
		if !x.told && !x.suspectedAt.IsZero() {
			return true
		}
	}
	return false
}

// runs reports whether a container of the sandbox is shown running.
func runs(c *Container, sandboxID string) bool {
	return c.Phase == pleg.PhaseRunning && (c.SandboxID == sandboxID || c.SandboxID == "")
}

// drop forgets a container, and the loop of its name if no other container has the name.
func (p *pod) drop(now time.Time, id string) {
	p.droppedAt = now
	name := p.containers[id].shown.Name
	delete(p.containers, id)
	for _, x := range p.containers {
		if x.shown.Name == name {
			return
		}
	}
	delete(p.loops, name)
}
