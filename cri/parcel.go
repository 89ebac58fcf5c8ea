// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// parcel is the memory of one event: the message, and what its claim refers to. Most statuses that
// events carry are never asked for, so the memory goes round: from the pool to Events, with the
// claim to its consumer, and back when that releases it. A third of the cost of an event was the
// garbage collector's, for messages of which nothing was kept.
//
// Whoever holds the claim owns its parcel.
type parcel struct {
	raw     *[]byte // of eventBuffers
	pod     cache.UID
	payload []pleg.Item

	// The methods status and release, bound once, because binding allocates.
	boundStatus  func() (*PodStatus, error)
	boundRelease func()
}

// maxKeptPayload bounds the payload that a parcel keeps for the next event.
const maxKeptPayload = 64

var (
	parcels sync.Pool // of *parcel
	// eventBuffers are closer to the size of events than the transport's own pool, so that claims
	// which wait hold on to little more than they need.
	eventBuffers = mem.NewTieredBufferPool(1<<10, 3<<9, 2<<10, 3<<10, 4<<10, 6<<10, 8<<10, 12<<10, 16<<10, 32<<10, 64<<10)
)

func newParcel() *parcel {
	if p, ok := parcels.Get().(*parcel); ok {
		return p
	}
	p := new(parcel)
	p.boundStatus, p.boundRelease = p.status, p.release
	return p
}

// fill takes a received message.
func (p *parcel) fill(data mem.BufferSlice) {
	p.raw = eventBuffers.Get(data.Len())
	data.CopyTo(*p.raw)
}

// message returns the message.
func (p *parcel) message() []byte { return *p.raw }

// status builds the status that the event carries, in memory of its own.
func (p *parcel) status() (*PodStatus, error) { return statusOfEvent(*p.raw, p.pod) }

// release gives the parcel back. It must not be used afterwards.
func (p *parcel) release() {
	if p.raw != nil {
		eventBuffers.Put(p.raw)
	}
	clear(p.payload)
	p.raw, p.pod, p.payload = nil, "", p.payload[:0]
	if cap(p.payload) > maxKeptPayload {
		p.payload = nil
	}
	parcels.Put(p)
}
