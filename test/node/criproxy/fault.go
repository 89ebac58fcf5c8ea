// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"errors"
	"fmt"
	"path"
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

// A Fault says what happens to which messages.
type Fault struct {
	// Method is a method's bare name, ListContainers. Empty: every method.
	Method string
	// On is where it acts. The zero value is OnReply.
	On Point
	// Match picks messages by their bytes. Nil: all. Not used OnCall.
	Match func(message []byte) bool
	// Skip lets the first n matches pass.
	Skip int
	// Times is how often it acts. 0: until it is removed.
	Times int
	// Do is what happens.
	Do Action
}

// An Action is one of Delay, Drop, Duplicate, Reorder, Truncate, Stall, Fail and
// Cut.
type Action interface{ validate(Point) error }

// Delay holds each message for For, and for a random time up to Jitter more.
// Without Jitter the order is kept.
type Delay struct{ For, Jitter time.Duration }

// Drop swallows the message. A call that would then end well without any reply,
// as a unary call would, hangs until its deadline instead.
type Drop struct{}

// Duplicate sends Copies more of the message, right behind it.
type Duplicate struct{ Copies int }

// Reorder collects Window messages, or as many as come within Within of the
// first, and sends them last first.
type Reorder struct {
	Window int
	Within time.Duration
}

// Truncate keeps all of the message but its last byte, which no decoder takes for
// whole. The frame around it stays whole, so it is the decoding that fails.
type Truncate struct{}

// Stall keeps the message, and with it everything behind it on the same stream,
// until the fault is removed. The runtime goes on undisturbed.
type Stall struct{}

// Fail ends the call with the status. OnCall the runtime never hears of it;
// OnReply it did what was asked and nobody is told.
type Fail struct {
	Code    codes.Code
	Message string
}

// Cut closes the client's connection, and so every call on it. With MidMessage
// about half of the message is written first.
type Cut struct{ MidMessage bool }

func (a Delay) validate(Point) error {
	if a.For < 0 || a.Jitter < 0 || a.For+a.Jitter == 0 {
		return fmt.Errorf("Delay{For: %v, Jitter: %v}: one must be above 0, and none below", a.For, a.Jitter)
	}
	return nil
}

func (Drop) validate(on Point) error { return messagesOnly("Drop", on) }

func (a Duplicate) validate(on Point) error {
	if a.Copies < 1 {
		return fmt.Errorf("Duplicate{Copies: %d}: want at least 1", a.Copies)
	}
	return messagesOnly("Duplicate", on)
}

func (a Reorder) validate(on Point) error {
	if a.Window < 2 || a.Within <= 0 {
		return fmt.Errorf("Reorder{Window: %d, Within: %v}: want a window of at least 2 and a time above 0", a.Window, a.Within)
	}
	return messagesOnly("Reorder", on)
}

func (Truncate) validate(on Point) error { return messagesOnly("Truncate", on) }

func (Stall) validate(Point) error { return nil }

func (a Fail) validate(Point) error {
	if a.Code == codes.OK {
		return errors.New("Fail{Code: OK}: want an error code")
	}
	return nil
}

func (a Cut) validate(on Point) error {
	if a.MidMessage && on != OnReply {
		return errors.New("Cut{MidMessage: true}: only a reply can be cut in its middle")
	}
	return nil
}

func messagesOnly(name string, on Point) error {
	if on == OnCall {
		return fmt.Errorf("%s acts on messages: set On to OnReply", name)
	}
	return nil
}

func (f Fault) validate() error {
	if f.Do == nil {
		return errors.New("criproxy: the fault does nothing: set Do")
	}
	if f.On < OnReply || f.On > OnCall {
		return fmt.Errorf("criproxy: On is %d; want OnReply or OnCall", f.On)
	}
	if f.Skip < 0 || f.Times < 0 {
		return fmt.Errorf("criproxy: Skip %d and Times %d must not be below 0", f.Skip, f.Times)
	}
	if err := f.Do.validate(f.On); err != nil {
		return fmt.Errorf("criproxy: %w", err)
	}
	return nil
}

// An Injected fault is one that is in force. mu guards its counts.
type Injected struct {
	fault Fault
	proxy *Proxy
	gone  chan struct{} // closed by Remove: what a Stall holds is let go

	mu      sync.Mutex
	matches int
	hits    int
}

// Hits is how often the fault has acted.
func (i *Injected) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// Remove ends the fault. What it holds is delivered. It may be called again.
func (i *Injected) Remove() { i.proxy.remove(i) }

// takes reports whether the fault acts on this message, and counts.
func (i *Injected) takes(method string, on Point, message []byte) bool {
	f := &i.fault
	if f.On != on || f.Method != "" && f.Method != path.Base(method) {
		return false
	}
	if on != OnCall && f.Match != nil && !f.Match(message) {
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
