// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// mix is a bijection of 64 bits that spreads every input bit over the output (the finalizer of the
// SplitMix64 generator).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ids makes unique identifiers. They depend on the seed and on the number of earlier identifiers:
// the first half of each is a bijection of a counter. The runtime's mutex guards it.
type ids struct {
	seed uint64
	n    uint64
}

// hex64 returns the next container or sandbox ID: 64 hexadecimal digits.
func (g *ids) hex64() string {
	g.n++
	var raw []byte
	x := mix(g.n ^ g.seed)
	for i := range 4 {
		raw = binary.BigEndian.AppendUint64(raw, x)
		x = mix(x ^ bits.RotateLeft64(g.seed, i+1))
	}
	return hex.EncodeToString(raw)
}

// uid returns the next pod UID, in the form of a UUID.
func (g *ids) uid() string {
	s := g.hex64()
	return s[:8] + "-" + s[8:12] + "-4" + s[13:16] + "-8" + s[17:20] + "-" + s[20:32]
}

// hash hashes a text and some numbers, for decisions that must not depend on the order of
// goroutines.
func hashOf(seed uint64, text string, more ...uint64) uint64 {
	h := mix(seed)
	for i := 0; i < len(text); i++ {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	for _, m := range more {
		h = mix(h ^ m)
	}
	return mix(h)
}

// roll decides whether a fault of the given probability strikes the thing named by text and more.
// kind keeps the faults independent.
func (rt *Runtime) roll(kind rollKind, p float64, text string, more ...uint64) bool {
	if p <= 0 {
		return false
	}
	h := hashOf(rt.cfg.Seed^mix(uint64(kind)+1), text, more...)
	return float64(h>>11)/(1<<53) < p
}

type rollKind uint64

const (
	rollDrop rollKind = iota
	rollDuplicate
	rollDelay
	rollSwapStart
	rollSwapStop
	rollStale
	rollNilSandbox
	rollNilStatuses
	rollOversize
	rollInvalidEvent
	rollSilentExit
	rollStartError
	rollSandboxError
	rollCut
	rollEOF
	rollStall
	rollReplay
	rollEOFAtOnce
	rollUnimplemented
	rollRestartExit
	rollFail
	rollHang
	rollNilFields
	rollUnknownEnum
	rollInvalidUTF8
	rollDuplicateID
	rollOrphan
	rollCutList
	rollDropCreated
	rollDropStarted
	rollDropStopped
	rollDropDeleted
	rollLateReason
	rollLateCode
	rollLateAddress
	rollLostAddress
	rollFailItem
	rollHangItem
	rollNoCreationTime
	rollBareSandbox
	rollEmptyList
	rollEmptyStart
	rollLateWrite
	rollStaysListed
	rollThrottle
	rollBarePayload
	rollHangOneList
)

// ipOf is the nth address of 198.18.0.0/15, reserved for tests, so that probes of a pod reach no
// real host; .0 and .255 of each /24 are skipped.
func ipOf(n uint64) string {
	last := n%254 + 1
	n /= 254
	return fmt.Sprintf("198.%d.%d.%d", 18+n/256%2, n%256, last)
}
