// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The comparison of two statuses by content, as encoded.

import (
	"bytes"
	"hash/maphash"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// SameStatus reports whether two statuses of a pod hold the same sandboxes and containers with the
// same fields, for the Same of a pleg.Config. Order says nothing, neither of messages nor of the
// fields in a message: runtimes encode maps at random. Fields unknown to the CRI are ignored.
// Nothing is decoded. Sameness is certain up to a collision of digests of 64 bits, if no map has a
// key twice. A reported difference is certain if the messages are encoded as serializers do: with
// no field twice that is no list, no key twice, and no number in more bytes than it needs.
func SameStatus(a, b *PodStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	var none encodedStatus
	x := a.encoded
	y := b.encoded
	if x == nil {
		x = &none
	}
	if y == nil {
		y = &none
	}
	return sameMessages(x.sandboxes, y.sandboxes, shapeOfSandboxStatus()) &&
		sameMessages(x.containers, y.containers, shapeOfContainerStatus())
}

// sameMessages reports whether two lists hold the same messages of a shape in any order.
func sameMessages(a, b [][]byte, of *shape) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.EqualFunc(a, b, bytes.Equal) {
		return true // nearly always
	}
	var x, y uint64
	for i := range a {
		x += scrambled(of.digest(a[i]))
		y += scrambled(of.digest(b[i]))
	}
	return x == y
}

var digestSeed = maphash.MakeSeed()

// digest returns a digest of the known fields of a message, and of the messages in them, that does
// not depend on the order of fields. In a message that has a field twice which is no list, order
// counts: the digest is that of its bytes.
func (s *shape) digest(raw []byte) uint64 {
	var sum, singular uint64
	f := fields{rest: raw}
	for before := raw; f.next(); before = f.rest {
		k := s.field(&f)
		if k.known && !k.several {
			if singular&(1<<f.num) != 0 {
				return scrambled(maphash.Bytes(digestSeed, raw))
			}
			singular |= 1 << f.num
		}
		switch {
		case !k.known:
		case k.message != nil:
			sum += scrambled(uint64(f.num) + scrambled(k.message.digest(f.data)))
		case !k.several && f.isZero():
			// as if absent; an empty element of a list counts
		default:
			sum += scrambled(maphash.Bytes(digestSeed, before[:len(before)-len(f.rest)]))
		}
	}
	return sum
}

// isZero reports whether the field has the value of an absent one.
func (f *fields) isZero() bool {
	switch f.wire {
	case protowire.VarintType:
		return f.varint == 0
	case protowire.BytesType:
		return len(f.data) == 0
	}
	return false
}

// scrambled spreads the bits of a digest, so that sums of digests do not cancel.
func scrambled(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
