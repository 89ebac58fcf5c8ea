// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Flaw is a way in which an event can be wrong.
type Flaw string

// Flaws.
const (
	// Duplicate: an event of this type came before for the same ID.
	Duplicate Flaw = "duplicate"
	// Reordered: an event of a later phase of the same ID came before.
	Reordered Flaw = "reordered"
	// StalePayload: the payload shows another container or the sandbox in a phase before a phase
	// shown earlier.
	StalePayload Flaw = "stale-payload"
	// Contradicting: the payload shows the event's own container in a phase before the announced
	// phase.
	Contradicting Flaw = "contradicting"
	// NoSandbox: the event names no pod, and is not the removal of a known sandbox.
	NoSandbox Flaw = "without-sandbox"
	// NoStatuses: an event of a present container shows no container.
	NoStatuses Flaw = "without-statuses"
	// UnknownType: the type is none of the CRI's.
	UnknownType Flaw = "unknown-type"
	// Malformed: the message is no event, or names no container.
	Malformed Flaw = "malformed"
	// StampBack: the stamp is older than an earlier event's.
	StampBack Flaw = "stamp-back"
	// FromFuture: the stamp is later than the receipt.
	FromFuture Flaw = "from-the-future"
	// NoStamp: there is no stamp.
	NoStamp Flaw = "without-stamp"
)

// DefaultMemory is the default number of remembered containers and sandboxes, at about 200 bytes
// each.
const DefaultMemory = 100_000

// life is the knowledge of an ID.
type life struct {
	phase   phase
	sandbox bool
	// seen has a bit for each announced phase; latest is the furthest phase.
	seen   uint8
	latest phase
	// skipped has a bit for each phase with an overdue event, noticed last at skippedAt, and opened
	// is the number of the latest event's connection.
	skipped   uint8
	skippedAt time.Time
	opened    int
}

// Judge judges a runtime's stream, through all its connections.
type Judge struct {
	memory int
	lives  map[string]*life
	order  []string // IDs of lives, oldest first
	opened time.Time
	stamp  time.Time // the latest stamp of an event outside replays
	r      Report
}

// New returns a judge that remembers the latest containers and sandboxes up to a number, or
// DefaultMemory for 0. After forgetting, an event counts as the first of its container.
func New(memory int) *Judge {
	if memory <= 0 {
		memory = DefaultMemory
	}
	return &Judge{memory: memory, lives: make(map[string]*life), r: newReport()}
}

// Opened enters the opening of the stream. Events stamped before are replays.
func (j *Judge) Opened(at time.Time) {
	j.opened, j.stamp = at, time.Time{}
	j.r.Opened++
}

// Ended enters the end of the stream, and the reason.
func (j *Judge) Ended(reason string) {
	const most = 20 // reasons may name addresses and times
	if _, ok := j.r.Endings[reason]; !ok && len(j.r.Endings) >= most {
		reason = "others"
	}
	j.r.Endings[reason]++
}

// Event enters a message of the stream, and returns the event with its flaws.
func (j *Judge) Event(at time.Time, raw []byte) Event {
	e, announces, ok := read(raw, at)
	j.r.Received++
	j.r.Bytes += e.Bytes
	j.r.LargestBytes = max(j.r.LargestBytes, e.Bytes)
	switch {
	case !ok:
		j.flaw(&e, Malformed, "%d bytes that are no event of a container", e.Bytes)
		return e
	case announces == unknown:
		j.flaw(&e, UnknownType, "type %s", e.Type)
		return e
	}
	l := j.lifeOf(e.ID)
	for _, i := range e.Payload {
		if i.ID == e.ID {
			l.sandbox = i.Sandbox
		}
	}
	e.Kind = "container"
	if l.sandbox {
		e.Kind = "sandbox"
	}
	replayed := j.time(&e)
	j.sequence(&e, l, announces, replayed)
	if !replayed {
		j.skips(&e, l, announces)
		l.opened = j.r.Opened
	}
	news := announces > l.phase
	l.phase = max(l.phase, announces)
	news = j.payload(&e, l, announces, replayed) || news
	if news {
		j.r.ToldSomething++
	}
	return e
}

// time judges the stamp, and says whether the event is a replay.
func (j *Judge) time(e *Event) (replayed bool) {
	if e.CreatedAt.IsZero() {
		j.flaw(e, NoStamp, "no created_at")
		return false
	}
	took := e.Received.Sub(e.CreatedAt)
	if e.CreatedAt.Before(j.opened) {
		j.r.Replayed++
		j.r.replays.Record(took)
		return true
	}
	if took < 0 {
		j.flaw(e, FromFuture, "created_at is %v ahead of the clock here", -took)
	}
	if e.CreatedAt.Before(j.stamp) {
		j.flaw(e, StampBack, "created_at is %v before that of an event that came earlier", j.stamp.Sub(e.CreatedAt))
	}
	if e.CreatedAt.After(j.stamp) {
		j.stamp = e.CreatedAt
	}
	j.r.delayed(e.Kind+" "+e.Type, took)
	return false
}

// sequence judges the event against earlier events of the same ID. A replay is expected to repeat
// and to come late.
func (j *Judge) sequence(e *Event, l *life, announces phase, replayed bool) {
	bit := uint8(1) << announces
	switch {
	case replayed:
	case l.seen&bit != 0:
		j.flaw(e, Duplicate, "%s came before", e.Type)
	case announces < l.latest:
		kind := fmt.Sprintf("%s after %s", e.Type, eventName(l.latest))
		j.r.Reordered[kind]++
		j.flaw(e, Reordered, "%s", kind)
	}
	l.seen |= bit
	l.latest = max(l.latest, announces)
}

// skips finds the events due before this event: by the stamps in its statuses of changes while the
// stream was open. An event still on its way corrects the finding.
func (j *Judge) skips(e *Event, l *life, announces phase) {
	l.skipped &^= 1 << announces
	skip := func(l *life, p phase) {
		if bit := uint8(1) << p; (l.seen|l.skipped)&bit == 0 {
			l.skipped |= bit
			l.skippedAt = e.Received
		}
	}
	for _, i := range e.Payload {
		if i.Sandbox || i.ID == "" {
			continue
		}
		shown, until := j.lifeOf(i.ID), i.phase
		if i.ID == e.ID {
			until = min(announces-1, exited)
		}
		for p := created; p <= until; p++ {
			if at := i.stamps[p]; at > 0 && time.Unix(0, at).After(j.opened) {
				skip(shown, p)
			}
		}
	}
	// A payload shows no removed containers. A container that ran, by an event on this connection,
	// has ended.
	if announces == removed && l.latest == removed && l.opened == j.r.Opened && l.seen&(1<<running) != 0 {
		skip(l, exited)
	}
}

// onItsWay is how long an awaited event may take.
const onItsWay = time.Second

// lacking adds the events lacking at a time to a count.
func (l *life) lacking(now time.Time, count map[string]int) {
	for p := created; p <= exited; p++ {
		if l.skipped&(1<<p) != 0 && now.Sub(l.skippedAt) >= onItsWay {
			count[eventName(p)]++
		}
	}
}

// eventName is the type of event that announces a phase.
func eventName(p phase) string {
	return [...]string{"?", "CREATED", "STARTED", "STOPPED", "DELETED"}[p]
}

// payload judges the event's content, and reports whether anything in it is news.
func (j *Judge) payload(e *Event, own *life, announces phase, replayed bool) (news bool) {
	sandbox, containers := false, 0
	stale := ""
	for _, i := range e.Payload {
		if i.Sandbox {
			sandbox = true
		} else {
			containers++
		}
		if i.ID == "" || i.phase == unknown {
			continue
		}
		if i.ID == e.ID {
			if announces != removed && i.phase < announces && !replayed {
				j.flaw(e, Contradicting, "%s shows its own %s %s", e.Type, e.Kind, i.Phase)
			}
			if at := i.stamps[exited]; announces == exited && at > 0 && !replayed && !e.CreatedAt.IsZero() {
				j.r.exited(e.CreatedAt.Sub(time.Unix(0, at)))
			}
			if i.phase > own.phase {
				own.phase, news = i.phase, true
			}
			continue
		}
		l := j.lifeOf(i.ID)
		l.sandbox = i.Sandbox
		switch {
		case i.phase > l.phase:
			l.phase, news = i.phase, true
		case i.phase < l.phase && !replayed && stale == "":
			stale = fmt.Sprintf("shows %s %s, which was %s before", short(i.ID), i.Phase, l.phase)
		}
	}
	if stale != "" {
		j.flaw(e, StalePayload, "%s", stale)
	}
	if !sandbox && (e.Kind != "sandbox" || announces != removed) { // a removed container has none (containerd 1.7)
		j.flaw(e, NoSandbox, "no pod_sandbox_status")
	}
	if containers == 0 && e.Kind == "container" && own.phase != removed {
		j.flaw(e, NoStatuses, "no containers_statuses")
	}
	return news
}

// flaw enters a flaw, and keeps the first of its sort as an example.
func (j *Judge) flaw(e *Event, f Flaw, format string, args ...any) {
	words := fmt.Sprintf(format, args...)
	e.Flaws = append(e.Flaws, string(f)+": "+words)
	j.r.Flaws[f]++
	if _, ok := j.r.Examples[f]; !ok {
		j.r.Examples[f] = fmt.Sprintf("%s of %s %s at %s: %s", e.Type, e.Kind, short(e.ID),
			e.Received.UTC().Format("15:04:05.000"), words)
	}
}

// lifeOf returns the knowledge of an ID; the oldest of too many is forgotten.
func (j *Judge) lifeOf(id string) *life {
	if l, ok := j.lives[id]; ok {
		return l
	}
	if len(j.order) >= j.memory {
		j.lives[j.order[0]].lacking(j.lives[j.order[0]].skippedAt.Add(onItsWay), j.r.Skipped)
		delete(j.lives, j.order[0])
		j.order = j.order[1:]
	}
	l := new(life)
	j.lives[id] = l
	j.order = append(j.order, id)
	return l
}

// short cuts an ID as runtimes' tools do.
func short(id string) string {
	const most = 13
	if len(id) > most {
		return id[:most]
	}
	return id
}

// phase is how far a container or sandbox has come. Lives only go forward.
type phase uint8

const (
	unknown phase = iota
	created
	running // of a sandbox: ready
	exited  // of a sandbox: not ready
	removed
)

func (p phase) String() string {
	return [...]string{"UNKNOWN", "CREATED", "RUNNING", "EXITED", "REMOVED"}[p]
}

// phaseOf is the phase announced by an event of a type, unknown for a type outside the CRI.
func phaseOf(t runtimeapi.ContainerEventType) phase {
	switch t {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return created
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return running
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return exited
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return removed
	}
	return unknown
}

// typeName is the CRI's name of a type without its prefix and suffix, such as STARTED.
func typeName(t runtimeapi.ContainerEventType) string {
	return strings.TrimSuffix(strings.TrimPrefix(t.String(), "CONTAINER_"), "_EVENT")
}

// Item is a container or sandbox in an event's payload.
type Item struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Sandbox bool   `json:"sandbox,omitempty"`
	Phase   string `json:"phase"`

	phase phase
	// stamps are those of a container's status, by the phase begun then; 0 for none.
	stamps [exited + 1]int64
}

// Event is a message of the stream, parsed, with the judge's findings.
type Event struct {
	// Received is the time of receipt.
	Received time.Time `json:"received"`
	// Type is the CRI's, such as STARTED; a number if the CRI has no such type; empty if the message
	// is no event.
	Type string `json:"event"`
	ID   string `json:"id"`
	// Kind is container or sandbox.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	// CreatedAt is the runtime's stamp, the zero time if there is none.
	CreatedAt time.Time `json:"created_at"`
	// AgeSeconds is the time from CreatedAt to Received, nil without a stamp.
	AgeSeconds *float64 `json:"age_seconds"`
	// Bytes is the size of the message.
	Bytes int `json:"bytes"`
	// Payload is the rest of the event's content, the sandbox first.
	Payload []Item `json:"payload"`
	// Flaws are the flaws of the event, in words.
	Flaws []string `json:"flaws,omitempty"`
}

// read parses a message. It returns false if the message is no event.
func read(raw []byte, at time.Time) (e Event, of phase, ok bool) {
	e = Event{Received: at, Bytes: len(raw)}
	var m runtimeapi.ContainerEventResponse
	if proto.Unmarshal(raw, &m) != nil {
		return e, unknown, false
	}
	e.ID, e.Type, of = m.GetContainerId(), typeName(m.GetContainerEventType()), phaseOf(m.GetContainerEventType())
	if n := m.GetCreatedAt(); n > 0 {
		e.CreatedAt = time.Unix(0, n).UTC()
		e.AgeSeconds = new(at.Sub(e.CreatedAt).Seconds())
	}
	if s := m.GetPodSandboxStatus(); s != nil {
		e.Namespace, e.Pod, e.UID = s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), s.GetMetadata().GetUid()
		p := exited
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			p = running
		}
		e.Payload = append(e.Payload, Item{ID: s.GetId(), Sandbox: true, phase: p, Phase: p.String()})
	}
	for _, c := range m.GetContainersStatuses() {
		p := unknown
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_CREATED:
			p = created
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			p = running
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			p = exited
		}
		e.Payload = append(e.Payload, Item{ID: c.GetId(), Name: c.GetMetadata().GetName(), phase: p, Phase: p.String(),
			stamps: [...]int64{created: c.GetCreatedAt(), running: c.GetStartedAt(), exited: c.GetFinishedAt()}})
	}
	return e, of, e.ID != ""
}
