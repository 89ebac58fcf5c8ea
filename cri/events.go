// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// One event from the stream to its consumer: received into pooled memory, parsed, made a claim,
// decoded if asked for, and released.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Events implements [pleg.Stream] with CRI GetContainerEvents. The iterator may be ranged over any
// number of times, each time with a subscription of its own. The consumer must not pause: some
// runtimes block on a subscriber that does not read.
//
// containerd 1.7 delivers each event to a single subscriber: a second one, in any process, takes
// events away from the first. Both then find those changes with lists. Other runtimes deliver every
// event to every subscriber.
//
// The last pair's error is io.EOF as such for an orderly end, which is also how CRI-O signals that
// its events are turned off. The error matches pleg.ErrNoEvents if the runtime lacks the call, and
// ErrMalformed if a message is not an event. An event of an unknown type, of a later CRI, is
// counted and makes a claim in pleg.PhaseUnknown, which claims nothing and causes a read of its
// pod.
func (c *Client) Events(ctx context.Context) iter.Seq2[pleg.Claim[PodStatus], error] {
	return func(yield func(pleg.Claim[PodStatus], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var names interner
		stream, err := c.open(ctx, getContainerEvents, nil)
		for err == nil {
			p := newEventBuffer()
			if err = stream.RecvMsg(p); err != nil {
				p.release()
				break
			}
			if c.config.OnEvent != nil {
				c.config.OnEvent(p.message())
			}
			c.monitor.received.Add(1)
			e, ok := readEvent(p.message())
			if !ok {
				yield(pleg.Claim[PodStatus]{}, fmt.Errorf("cri: %s on %s: %w of %d bytes", getContainerEvents, c.endpoint, ErrMalformed, len(p.message())))
				return
			}
			if len(p.message()) > kubeletMaxMessage {
				c.counter.oversized.Add(1)
			}
			claim, ok := c.claim(&e, &names, p)
			if claim.Release == nil {
				p.release() // not referred to by the claim
			}
			if ok && !yield(claim, nil) {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			err = io.EOF
		case status.Code(err) == codes.Unimplemented:
			err = truncateError(err)
			suspicion := getContainerEvents.suspicion(status.Convert(err))
			err = fmt.Errorf("cri: %s on %s%s: %w: %w", getContainerEvents, c.endpoint, suspicion, pleg.ErrNoEvents, err)
		default:
			err = c.explain(ctx, getContainerEvents, "", err)
		}
		yield(pleg.Claim[PodStatus]{}, err)
	}
}

// kubeletMaxMessage is the largest message accepted by a kubelet's own client, in bytes.
const kubeletMaxMessage = 16 << 20

// lateExitAfter is the delay from the end of a container to its event, by the runtime's clock, from
// which the event counts as late. containerd's usual delay is a tenth.
const lateExitAfter = time.Second

// event holds the needed fields of a CRI ContainerEventResponse. The slices alias the message.
type event struct {
	raw       []byte
	id        []byte
	kind      runtimeapi.ContainerEventType
	createdAt int64
	// sandboxRaw is the encoded status of the sandbox, nil if the event has none, and merged if it came
	// in parts; sandbox holds its fields.
	sandboxRaw []byte
	merged     bool
	sandbox    sandboxItem
	// containers is how many container statuses follow.
	containers int
}

// readEvent parses an encoded event, and reports false if the event is malformed.
func readEvent(raw []byte) (e event, ok bool) {
	e.raw = raw
	f := fields{rest: raw}
	for f.next() {
		switch {
		case f.isBytes(1):
			e.id = f.data
		case f.isVarint(2):
			e.kind = runtimeapi.ContainerEventType(f.varint)
		case f.isVarint(3):
			e.createdAt = int64(f.varint)
		case f.isBytes(4):
			e.sandboxRaw = mergeOccurrence(e.sandboxRaw, f.data, &e.merged)
		case f.isBytes(5):
			e.containers++
		}
	}
	return e, !f.malformed && (e.sandboxRaw == nil || e.sandbox.read(e.sandboxRaw, labelsOfPodSandboxStatus))
}

// containerStatuses yields the encoded container statuses.
func (e *event) containerStatuses(yield func([]byte) bool) {
	for f := (fields{rest: e.raw}); f.next(); {
		if f.isBytes(5) && !yield(f.data) {
			return
		}
	}
}

// claim returns the claim made by an event, whose message lies in p, or false if the event is to be
// skipped. A claim with a payload owns p.
func (c *Client) claim(e *event, names *interner, p *eventBuffer) (pleg.Claim[PodStatus], bool) {
	var claim pleg.Claim[PodStatus]
	if !validID(e.id) {
		c.counter.malformed.Add(1)
		return claim, false
	}
	if criphase.OfEvent(e.kind, pleg.Container) == pleg.PhaseUnknown {
		c.counter.unknownEvents.Add(1)
	}
	if e.sandboxRaw != nil && e.sandbox.usable() && c.excluded.refusesSandbox(&e.sandbox, e.sandboxRaw) {
		return claim, false
	}
	claim.Item.ID = names.intern(e.id)
	claim.CreatedAt = timestamp(e.createdAt)
	if n := e.containers + 1; cap(p.payload) < n && n <= maxKeptPayload {
		p.payload = make([]pleg.Item, 0, n)
	}
	uid := p.takeSandbox(c, e, names)
	if len(p.payload) > 0 && p.payload[0].ID == claim.Item.ID {
		claim.Item.Kind = pleg.Sandbox
	}
	uid = p.takeContainers(c, e, names, uid)
	switch {
	case len(uid) > 0 || !e.sandbox.usable():
	case len(e.sandbox.metaRaw) > 0:
		uid = e.sandbox.id // of a client without UIDs
	default: // nothing names the pod, which a list may name
		p.drop()
	}
	if len(uid) > 0 {
		claim.Pod = names.internUID(uid)
		if e.sandbox.usable() && !e.sandbox.labelled() {
			c.unlabelled.hint(claim.Pod, names.intern(e.sandbox.id))
		}
		if !e.sandbox.usable() && c.excluded.has(claim.Pod) { // no sandbox was asked about
			return pleg.Claim[PodStatus]{}, false
		}
	}
	claim.Item.Phase = criphase.OfEvent(e.kind, claim.Item.Kind)
	needsStatus := claim.Item.Phase != pleg.PhaseRemoved && claim.Item.Phase != pleg.PhaseUnknown
	if needsStatus && (e.sandboxRaw == nil || claim.Item.Kind == pleg.Container && e.containers == 0) {
		c.counter.incomplete.Add(1)
	}
	p.pod = claim.Pod
	if len(p.payload) > 0 {
		claim.Payload = p.payload
		claim.Status = p.boundStatus
		claim.Release = p.boundRelease
	}
	return claim, true
}

// takeSandbox takes the sandbox of an event, if any, into the empty payload, and returns the UID of
// its pod; nil if the sandbox does not name it.
func (b *eventBuffer) takeSandbox(c *Client, e *event, names *interner) (uid []byte) {
	if e.sandboxRaw == nil {
		return nil
	}
	s := &e.sandbox
	ofSandbox, _ := c.statusShapes()
	b.parts = append(b.parts, rawStatus{raw: e.sandboxRaw, shape: ofSandbox})
	if !s.usable() {
		c.counter.malformed.Add(1)
		b.unusable = true
		return nil
	}
	b.payload = append(b.payload, pleg.Item{ID: names.intern(s.id), Kind: pleg.Sandbox, Phase: s.phase()})
	return s.named()
}

// maxStatuses bounds the container statuses of an event, or of an answer about a sandbox, that are
// kept: five bytes of a message become a hundred in memory. No pod has as many containers.
const maxStatuses = 1 << 14

// takeContainers takes the containers of an event into the payload, and returns the UID of the pod:
// the given one, else that which the event's own container names, else the first that another
// names. An event with too many has no payload.
func (b *eventBuffer) takeContainers(c *Client, e *event, names *interner, uid []byte) []byte {
	_, ofContainer := c.statusShapes()
	if e.containers > maxStatuses {
		c.counter.malformed.Add(1)
		b.drop()
	}
	fromSandbox := len(uid) > 0
	for raw := range e.containerStatuses {
		var item containerItem
		if !item.readStatus(raw) || !item.usable() {
			c.counter.malformed.Add(1)
			b.unusable = true
			continue
		}
		isOwn := string(item.id) == string(e.id)
		if !fromSandbox && len(item.labels.uid) > 0 && (len(uid) == 0 || isOwn) {
			uid = item.labels.uid
		}
		if e.containers > maxStatuses {
			continue
		}
		b.parts = append(b.parts, rawStatus{raw: raw, shape: ofContainer})
		id := names.intern(item.id)
		b.payload = append(b.payload, pleg.Item{ID: id, Kind: pleg.Container, Phase: item.phase()})
		c.exits.note(id, &item, origin{own: isOwn, stamp: e.createdAt})
		stopped := e.kind == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && isOwn
		known := e.createdAt > 0 && item.finishedAt > 0 // else the difference may overflow
		if stopped && known && e.createdAt-item.finishedAt >= int64(lateExitAfter) {
			c.counter.lateExits.Add(1)
		}
	}
	return uid
}

// drop leaves the event without a payload.
func (b *eventBuffer) drop() {
	b.unusable = true
	b.payload = b.payload[:0]
	b.parts = b.parts[:0]
}

// eventBuffer is the memory of one event: the message, and the data that its claim refers to. Most
// statuses in events are never asked for, so the memory circulates: from the pool to Events, with
// the claim to its consumer, and back at the claim's release. Without the pool, garbage collection
// of unused messages was a third of the cost of an event.
//
// The holder of the claim owns its event buffer.
type eventBuffer struct {
	raw     *[]byte // of messagePool
	pod     cache.UID
	payload []pleg.Item
	parts   []rawStatus // the statuses in raw, not checked before they are asked for
	// unusable: a status in raw cannot be read, or has no valid ID.
	unusable bool

	// The methods status and release, bound once, because binding allocates.
	boundStatus  func(prev *PodStatus) (*PodStatus, error)
	boundRelease func()
}

// maxKeptPayload bounds the payload that an event buffer keeps for the next event.
const maxKeptPayload = 64

var (
	eventBufferPool sync.Pool // of *eventBuffer
	// messagePool has sizes closer to those of events than the transport's own pool, so that waiting
	// claims hold on to little more memory than they need.
	messagePool = mem.NewTieredBufferPool(1<<10, 3<<9, 2<<10, 3<<10, 4<<10, 6<<10, 8<<10, 12<<10, 16<<10, 32<<10, 64<<10)
)

func newEventBuffer() *eventBuffer {
	if p, ok := eventBufferPool.Get().(*eventBuffer); ok {
		return p
	}
	p := new(eventBuffer)
	p.boundStatus = p.status
	p.boundRelease = p.release
	return p
}

// fill takes a received message.
func (b *eventBuffer) fill(data mem.BufferSlice) {
	b.raw = messagePool.Get(data.Len())
	data.CopyTo(*b.raw)
}

// message returns the message.
func (b *eventBuffer) message() []byte { return *b.raw }

// status builds the pod's status on prev: see [pleg.Claim]. A part in prev is taken as it is, as
// events repeat the statuses of all containers of their pod, and copying them was a third of the
// cost of an exit; every other part gets memory of its own. A malformed or incomplete part of the
// payload is an error: the rest would be shown for as long as its phases are right, without names,
// addresses or exit codes.
func (b *eventBuffer) status(prev *PodStatus) (*PodStatus, error) {
	if b.unusable {
		return nil, b.malformed()
	}
	known := indexParts(prev, len(b.parts))
	statuses := make([][]byte, len(b.parts))
	for i, part := range b.parts {
		statuses[i] = known.notEarlier(b.payload[i])
		if statuses[i] == nil {
			statuses[i] = part.copied()
		}
		if statuses[i] == nil {
			return nil, b.malformed()
		}
	}
	var made struct { // in one allocation
		pod     PodStatus
		encoded encodedStatus
	}
	sandboxes := 0
	if b.payload[0].Kind == pleg.Sandbox {
		sandboxes = 1
	}
	made.encoded.sandboxes = statuses[:sandboxes:sandboxes]
	made.encoded.containers = statuses[sandboxes:]
	made.pod = PodStatus{uid: b.pod, encoded: &made.encoded}
	if prev != nil {
		made.pod.name = prev.name
		made.pod.namespace = prev.namespace
	}
	return &made.pod, nil
}

// malformed returns the error of an event of which a status cannot be stored.
func (b *eventBuffer) malformed() error {
	return fmt.Errorf("cri: a status in an event of pod %s: %w", printable(string(b.pod)), ErrMalformed)
}

// release returns the event buffer, which must not be used afterwards.
func (b *eventBuffer) release() {
	if b.raw != nil {
		messagePool.Put(b.raw)
	}
	clear(b.payload)
	clear(b.parts)
	b.raw = nil
	b.pod = ""
	b.payload = b.payload[:0]
	b.parts = b.parts[:0]
	b.unusable = false
	if max(cap(b.payload), cap(b.parts)) > maxKeptPayload {
		b.payload = nil
		b.parts = nil
	}
	eventBufferPool.Put(b)
}

// internerSize is the number of strings after which an interner starts over; twice as many may be
// held.
const internerSize = 8192

// interner gives equal bytes the same string, in memory of its own, so that repeated texts are
// allocated once and an ID does not keep its event alive. An interner remembers the strings since
// it last started over, and of those before the ones used since. A single goroutine owns each
// interner.
type interner struct{ current, previous map[string]string }

func (n *interner) intern(b []byte) string {
	if s, ok := n.current[string(b)]; ok { // does not allocate
		return s
	}
	s, ok := n.previous[string(b)]
	if !ok {
		s = string(b)
	}
	if n.current == nil || len(n.current) >= internerSize {
		n.previous, n.current = n.current, emptied(n.previous)
	}
	n.current[s] = s
	return s
}

// emptied returns a map without entries: the given one unless nil, because a new one has to grow.
func emptied[V any](old map[string]V) map[string]V {
	if old == nil {
		return make(map[string]V)
	}
	clear(old)
	return old
}

// internName interns a name, truncated if long.
func (n *interner) internName(name []byte) string {
	if len(name) > maxText || !utf8.Valid(name) {
		return truncate(string(name))
	}
	return n.intern(name)
}

func (n *interner) internUID(b []byte) cache.UID { return cache.UID(n.intern(b)) }
