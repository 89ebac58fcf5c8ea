// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// fields walks the fields of one encoded message, in the order in which they were sent. Fields of
// any number and type may appear any number of times. For a singular field the last occurrence
// holds; occurrences of a singular message are merged, which is what reading one after the other
// into the same variables does.
type fields struct {
	rest []byte
	// num and wire are the present field's number and type.
	num  protowire.Number
	wire protowire.Type
	// varint is the value of a field of type VarintType.
	varint uint64
	// data is the value of a field of type BytesType. It aliases the message.
	data []byte
	// bad says that the walk ended because the message is malformed.
	bad bool
}

// next moves to the next field. It reports false at the end of the message, and where the message
// is malformed.
func (f *fields) next() bool {
	b := f.rest
	if len(b) == 0 {
		return false
	}
	tag, n := uint64(b[0]), 1
	if tag >= 0x80 {
		if tag, n = protowire.ConsumeVarint(b); n < 0 {
			return f.fail()
		}
	}
	b = b[n:]
	if number := tag >> 3; number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return f.fail()
	}
	f.num, f.wire = protowire.Number(tag>>3), protowire.Type(tag&7)
	switch f.wire {
	case protowire.BytesType:
		size, n := uint64(0), 1
		if len(b) > 0 && b[0] < 0x80 {
			size = uint64(b[0])
		} else if size, n = protowire.ConsumeVarint(b); n < 0 {
			return f.fail()
		}
		b = b[n:]
		if size > uint64(len(b)) {
			return f.fail()
		}
		f.data, f.rest = b[:size:size], b[size:]
	case protowire.VarintType:
		if len(b) > 0 && b[0] < 0x80 {
			f.varint, f.rest = uint64(b[0]), b[1:]
			return true
		}
		if f.varint, n = protowire.ConsumeVarint(b); n < 0 {
			return f.fail()
		}
		f.rest = b[n:]
	default:
		if n = protowire.ConsumeFieldValue(f.num, f.wire, b); n < 0 {
			return f.fail()
		}
		f.rest = b[n:]
	}
	return true
}

func (f *fields) fail() bool {
	f.bad, f.rest = true, nil
	return false
}

// isBytes and isVarint report whether the present field is number n and of that type. A known
// number of another type is an unknown field, as it is for the generated decoder.
func (f *fields) isBytes(n protowire.Number) bool { return f.num == n && f.wire == protowire.BytesType }
func (f *fields) isVarint(n protowire.Number) bool {
	return f.num == n && f.wire == protowire.VarintType
}

// mapEntry reads one entry of a map<string, string>. A missing key or value is the empty string.
func mapEntry(b []byte) (key, value []byte, ok bool) {
	// What serializers write: the key, then the value, both shorter than 128 bytes.
	if len(b) >= 4 && b[0] == 1<<3|byte(protowire.BytesType) && b[1] < 0x80 {
		if k := 2 + int(b[1]); k+2 <= len(b) && b[k] == 2<<3|byte(protowire.BytesType) && b[k+1] < 0x80 && k+2+int(b[k+1]) == len(b) {
			return b[2:k:k], b[k+2:], true
		}
	}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			key = f.data
		case f.isBytes(2):
			value = f.data
		}
	}
	return key, value, !f.bad
}

// sandboxPhase returns the phase that a CRI PodSandboxState means.
func sandboxPhase(state int32) pleg.Phase {
	switch state {
	case 0: // SANDBOX_READY
		return pleg.PhaseRunning
	case 1: // SANDBOX_NOTREADY
		return pleg.PhaseExited
	}
	return pleg.PhaseUnknown
}

// containerPhase returns the phase that a CRI ContainerState means.
func containerPhase(state int32) pleg.Phase {
	switch state {
	case 0: // CONTAINER_CREATED
		return pleg.PhaseCreated
	case 1: // CONTAINER_RUNNING
		return pleg.PhaseRunning
	case 2: // CONTAINER_EXITED
		return pleg.PhaseExited
	}
	return pleg.PhaseUnknown // CONTAINER_UNKNOWN, and what later versions of the CRI may add
}

// hasSandboxState and hasContainerState report whether the CRI has such a state.
func hasSandboxState(state int32) bool   { return state >= 0 && state <= 1 }
func hasContainerState(state int32) bool { return state >= 0 && state <= 3 }

// stateOf and stateOfContainer are the inverse of sandboxPhase and containerPhase for the phases
// that those return.
func stateOf(phase pleg.Phase) int32 {
	switch phase {
	case pleg.PhaseRunning:
		return 0
	case pleg.PhaseExited:
		return 1
	}
	return -1
}

func stateOfContainer(phase pleg.Phase) int32 {
	switch phase {
	case pleg.PhaseCreated:
		return 0
	case pleg.PhaseRunning:
		return 1
	case pleg.PhaseExited:
		return 2
	}
	return 3
}

// merged returns what one more occurrence of a singular message makes of it. Encoded messages are
// merged by putting them one after the other.
func merged(before, occurrence []byte) []byte {
	if before == nil {
		return occurrence
	}
	return append(before[:len(before):len(before)], occurrence...)
}
