// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// A Point is a place on a call's way where a fault can act.
type Point int

const (
	// OnReply acts on each message from the runtime: the answer of a unary call,
	// an event of the stream.
	OnReply Point = iota
	// OnCall acts once, before the runtime hears of the call.
	OnCall
)

// A Fault selects messages and an action.
type Fault struct {
	// Method is a method's bare name, ListContainers. Empty: every method.
	Method string
	// On is where the fault acts. The zero value is OnReply.
	On Point
	// Match picks messages by their bytes. Nil: all. Not used OnCall.
	Match func(message []byte) bool
	// Skip lets the first n matches pass.
	Skip int
	// Times is how often the fault acts. 0: until Remove.
	Times int
	// Do is the action.
	Do Action
}

// An Action is Delay, Drop, Truncate, Stall, Fail or Cut.
type Action any

type (
	// Delay holds each message for a time.
	Delay struct{ For time.Duration }
	// Drop swallows the message. A call that would then end well without any reply, as a unary call
	// would, hangs until its deadline instead.
	Drop struct{}
	// Truncate drops the last byte of the message. The frame stays whole, so the decoding fails.
	Truncate struct{}
	// Stall keeps the message, and everything behind it on the same stream, until the fault is
	// removed. The runtime goes on undisturbed.
	Stall struct{}
	// Fail ends the call with the status. OnCall the runtime never hears of it; OnReply the runtime
	// has done its work.
	Fail struct {
		Code    codes.Code
		Message string
	}
	// Cut closes the client's connection, and so every call on it. With MidMessage half of the reply
	// is written first.
	Cut struct{ MidMessage bool }
)

// An Injected fault is in force until Remove.
type Injected struct {
	fault Fault
	proxy *Proxy
	gone  chan struct{} // closed by Remove: releases messages held by a Stall

	mu            sync.Mutex // owns the fields below
	matches, hits int
}

// Hits is how often the fault has acted.
func (i *Injected) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// Remove ends the fault and delivers all messages held. Further calls have no effect.
func (i *Injected) Remove() {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	if at := slices.Index(i.proxy.faults, i); at >= 0 {
		i.proxy.faults = slices.Delete(i.proxy.faults, at, at+1)
		close(i.gone)
	}
}

// takes reports whether the fault acts on this message, and counts.
func (i *Injected) takes(method string, on Point, message []byte) bool {
	f := &i.fault
	if f.On != on || f.Method != "" && f.Method != method || on == OnReply && f.Match != nil && !f.Match(message) {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.matches++
	if i.matches <= f.Skip || f.Times > 0 && i.hits >= f.Times {
		return false
	}
	i.hits++
	return true
}
