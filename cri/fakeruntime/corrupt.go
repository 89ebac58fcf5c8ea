// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import "google.golang.org/protobuf/encoding/protowire"

// corruption is the fault of a reply.
type corruption struct {
	nilFields, enum, utf8, duplicate, orphan bool
	call, pick                               uint64
}

func (rt *Runtime) corruption(method string, call uint64) corruption {
	rt.lock()
	defer rt.mu.Unlock()
	f := &rt.faults
	return corruption{
		nilFields: rt.roll(rollNilFields, f.NilFields, method, call),
		enum:      rt.roll(rollUnknownEnum, f.UnknownEnum, method, call),
		utf8:      rt.roll(rollInvalidUTF8, f.InvalidUTF8, method, call),
		duplicate: rt.roll(rollDuplicateID, f.DuplicateID, method, call),
		orphan:    method != "ContainerStatus" && rt.roll(rollOrphan, f.OrphanContainer, method, call),
		call:      call,
		pick:      hashOf(rt.cfg.Seed, method, call),
	}
}

// victim is the struck item, -1 for none.
func (bad corruption) victim(n int) int {
	if n == 0 || !(bad.nilFields || bad.enum || bad.utf8 || bad.duplicate) {
		return -1
	}
	return int(bad.pick % uint64(n))
}

// spoil appends a wrong state and a wrong text to an item: of a repeated field, the last value
// counts.
func (bad corruption) spoil(b []byte, stateField, textField protowire.Number) []byte {
	if bad.enum {
		b = appendInt(b, stateField, 77)
	}
	if bad.utf8 {
		b = appendString(b, textField, "\xff\xfe broken")
	}
	return b
}

// orphan is a container of an absent sandbox.
func (rt *Runtime) orphan(call uint64) *container {
	g := ids{seed: hashOf(rt.cfg.Seed, "orphan", call)}
	sb := &sandbox{
		id:        g.hex64(),
		name:      "orphan",
		namespace: "default",
		uid:       g.uid(),
	}
	c := &container{
		id:        g.hex64(),
		name:      "orphan",
		sb:        sb,
		tail:      &tail{},
		image:     WorkloadImage,
		imageRef:  WorkloadImage,
		createdAt: 1,
	}
	c.labels = c.withPodLabels(nil)
	c.encode()
	return c
}
