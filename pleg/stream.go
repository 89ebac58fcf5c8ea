// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// StreamState is the state of the runtime's event stream as seen by the generator.
//
//	            open                 heard, or silent for Settle
//	Idle ----> Opening -------------------------------------> Connected
//	             ^ | ended                                      | ended
//	     retryAt | v                                            v
//	            Backoff <---------------------------------------+
//	             ^ |
//	             | | no events, or EOF at once: from a runtime that was
//	     retryAt | v never connected, or again and again
//	            Unsupported
//
// A list that succeeds after a failure ends either wait at once: the runtime is back, perhaps
// another.
//
// Opening a stream proves nothing: a runtime without the call, and a runtime at its limit, answer
// alike until the first message. A stream counts as connected once a message has come or the
// stream has lasted Settle.
type StreamState uint8

const (
	// StreamIdle: no stream is wanted; the generator is generic.
	StreamIdle StreamState = iota
	// StreamOpening: the stream was requested, and no message has come yet.
	StreamOpening
	// StreamConnected: the stream is up. Only in this state can a relist earn a longer period,
	// and a change be missed.
	StreamConnected
	// StreamBackoff: the stream was lost or could not be opened, and is opened again later.
	StreamBackoff
	// StreamUnsupported: the runtime offers no events; the generator tries again every
	// ReconnectSteady.
	StreamUnsupported

	streamStates = int(StreamUnsupported) + 1
)

var streamNames = [streamStates]string{"Idle", "Opening", "Connected", "Backoff", "Unsupported"}

// String returns the name that logs, metrics and scripts use.
func (s StreamState) String() string {
	if int(s) < streamStates {
		return streamNames[s]
	}
	return "StreamState(?)"
}

// connConfig is the stream machine's part of Config.
type connConfig struct {
	base, max, steady time.Duration // ReconnectBase, ReconnectMax, ReconnectSteady
	stableAfter       time.Duration
	settle            time.Duration
	jitter            float64
}

// conn is the state of the stream machine: a value, of which step returns the next.
type conn struct {
	state StreamState

	// attempts is the number of openings since the last connection that lasted StableAfter, or
	// since a list succeeded after a failure. The reconnect delay grows with the attempts.
	attempts int

	// deadline is when a tick has work to do: a silent stream counts as connected, or a wait is
	// over; never if no time changes the state.
	deadline instant `prove:"timers"`

	// connected is when the present connection was made, or the last; zero before the first. Reads
	// begun later saw changes that the stream should have announced.
	connected instant `prove:"begins,unjudged:marks"`

	// everConnected reports whether a stream was connected before.
	everConnected bool

	// announced reports whether the present unsupported state was announced; false in other
	// states.
	announced bool
}

// maxRestartEOFs is the number of openings without success, after a connection, up to which an
// orderly end at once is taken for a restart of the runtime. A stopping runtime ends its streams
// in order too, but not for long. A runtime with events switched off does so for ever, and so
// does a runtime that never had events and seemed connected only because its wire was frozen for
// Settle.
const maxRestartEOFs = 4

// connInput is an event of the stream machine.
type connInput uint8

const (
	// inOpen: a stream is wanted.
	inOpen connInput = iota
	// inHeard: a message has come.
	inHeard
	// inLost: the stream ended with an error.
	inLost
	// inEOF: the stream ended in order.
	inEOF
	// inNoEvents: the runtime reported no support for events.
	inNoEvents
	// inBack: a list of everything succeeded after a failure.
	inBack
	// inTick: time has passed.
	inTick

	connInputs = int(inTick) + 1
)

// connEffect is an effect of a step.
type connEffect uint8

const (
	effOpen        connEffect = 1 << iota // open the stream
	effConnected                          // the stream counts as connected: relist, so that no earlier change is missing
	effFellBack                           // a connected stream was lost: poll at the base, relist now
	effFailed                             // an opening failed
	effUnsupported                        // the runtime has no events: announce it
)

// step is the stream machine: pure, given a random number in [0, 1) for the jitter. Inputs
// without meaning in a state change nothing.
func (c conn) step(cfg *connConfig, in connInput, now instant, random float64) (conn, connEffect) {
	switch in {
	case inOpen:
		if c.state == StreamIdle {
			return c.becomeOpening(), effOpen
		}
	case inHeard:
		if c.state == StreamOpening {
			return c.becomeConnected(now), effConnected
		}
	case inBack:
		if c.state == StreamBackoff || c.state == StreamUnsupported {
			c.attempts = 0 // the attempts failed while the runtime was away
			return c.becomeOpening(), effOpen
		}
	case inTick:
		if now < c.deadline {
			return c, 0
		}
		switch c.state {
		case StreamOpening:
			return c.becomeConnected(now), effConnected
		case StreamBackoff, StreamUnsupported:
			return c.becomeOpening(), effOpen
		}
	case inLost, inEOF, inNoEvents:
		switch c.state {
		case StreamOpening:
			if in == inNoEvents ||
				in == inEOF && (!c.everConnected || c.attempts >= maxRestartEOFs) {
				return c.becomeUnsupported(cfg, now, random)
			}
			return c.becomeBackoff(cfg, now, random), effFailed
		case StreamConnected:
			if now.sub(c.connected) >= cfg.stableAfter {
				c.attempts = 0
			}
			if in == inNoEvents {
				next, eff := c.becomeUnsupported(cfg, now, random)
				return next, eff | effFellBack
			}
			return c.becomeBackoff(cfg, now, random), effFellBack
		}
	}
	return c, 0
}

// opened sets when a silent stream counts as connected. The stream has just been requested.
func (c conn) opened(cfg *connConfig, now instant) conn {
	if c.state == StreamOpening {
		c.deadline = now.add(cfg.settle)
	}
	return c
}

// becomeOpening: a stream is being opened. A silent one counts as connected later: see opened.
func (c conn) becomeOpening() conn {
	c.state = StreamOpening
	c.deadline = never
	return c
}

// becomeConnected: the stream has carried a message, or has lasted.
func (c conn) becomeConnected(now instant) conn {
	c.state = StreamConnected
	c.connected = now
	c.deadline = never
	c.everConnected = true
	c.announced = false
	return c
}

// becomeBackoff: the stream has ended, and is opened again after a delay that grows.
func (c conn) becomeBackoff(cfg *connConfig, now instant, random float64) conn {
	c.state = StreamBackoff
	c.deadline = now.add(cfg.delay(c.attempts, random))
	c.announced = false
	c.attempts++
	return c
}

// becomeUnsupported: the runtime has no events, which is announced once.
func (c conn) becomeUnsupported(cfg *connConfig, now instant, random float64) (conn, connEffect) {
	c.state = StreamUnsupported
	c.deadline = now.add(cfg.lengthen(cfg.steady, random))
	eff := effFailed
	if !c.announced {
		eff |= effUnsupported
	}
	c.announced = true
	return c, eff
}

// delay returns the delay before the stream is opened again, after the given number of openings
// without success: 0, base, 2 base, 4 base … max, then steady for ever (KEP-3386: 0, 1, 2, 4, 8,
// 16, 32, 64 s, then every 60 s).
func (cfg *connConfig) delay(attempts int, random float64) time.Duration {
	if attempts == 0 {
		return 0
	}
	d := cfg.base
	for range attempts - 1 {
		if d >= cfg.max {
			return cfg.lengthen(cfg.steady, random)
		}
		d = doubled(d, cfg.max)
	}
	return cfg.lengthen(d, random)
}

// lengthen adds the jitter, so that the agents of many nodes do not come back together.
func (cfg *connConfig) lengthen(d time.Duration, random float64) time.Duration {
	return sum(d, time.Duration(min(cfg.jitter*random*float64(d), math.MaxInt64/2)))
}

// stream is the event stream: its state machine, with the necessary delays and chance.
type stream struct {
	conn
	cfg    connConfig `prove:"-"`
	random rand.PCG   `prove:"-"`
}

// take steps the machine by an input, and returns what follows. A tick before the deadline changes
// nothing: the jitter must not depend on how often the loop turns.
func (s *stream) take(in connInput, now instant) connEffect {
	if in == inTick && now < s.deadline {
		return 0
	}
	next, eff := s.step(&s.cfg, in, now, rand.New(&s.random).Float64())
	if eff&effOpen != 0 {
		next = next.opened(&s.cfg, now)
	}
	s.conn = next
	return eff
}

// up reports whether the stream is connected.
func (c conn) up() bool { return c.state == StreamConnected }

// upSince returns when the present connection was made; zero while the stream is down.
func (c conn) upSince() instant {
	if !c.up() {
		return 0
	}
	return c.connected
}

// stepStream steps the stream machine and carries out its effects. Ended is why the stream ended,
// or nil.
func (c *core[S]) stepStream(in connInput, ended error, now instant) {
	again := c.stream.everConnected
	eff := c.stream.take(in, now)
	if eff&effOpen != 0 {
		c.out.do(action[S]{kind: actOpen})
		c.trust.opening()
	}
	if eff&effConnected != 0 { // a relist follows, so that no earlier change is missing
		if c.lists.began != now && !c.reads.beganAt(now) {
			c.stream.connected = now - 1 // a read that begins now begins after
		}
		c.trust.connected(c.stream.connected, now)
		c.out.add(countConnects, 1)
		if again {
			c.rota.reconnected(c.stream.connected)
			c.out.report(reportRestored)
		}
	}
	if eff&(effFailed|effFellBack) != 0 {
		c.out.add(countConnectErrors, 1)
	}
	if eff&effFellBack != 0 {
		c.out.report(reportLost(ended, c.trust.mute.ending))
		c.trust.revoke(now)
		c.trust.sched.askAtOnce(now)
	}
	if c.stream.state == StreamUnsupported {
		c.trust.eventsSince = 0
	}
	if eff&effUnsupported != 0 {
		c.out.report(reportUnsupported(ended))
	}
}

// reportRestored is the report of a stream that is back.
var reportRestored = Report{
	Reason: ReasonStreamRestored,
	Action: "Reconnect",
	Note:   "the runtime's container event stream is connected again",
}

// reportLost returns the report of a connected stream that has ended with the given error. Mute
// reports whether the generator has ended the stream as mute.
func reportLost(ended error, mute bool) Report {
	note := fmt.Sprintf("the runtime's container event stream was lost (%v); polling until it is back", ended)
	if mute {
		note = "the runtime's container event stream has gone silent while containers changed; opening it again"
	}
	return Report{
		Reason:  ReasonStreamLost,
		Action:  "FallBack",
		Warning: true,
		Note:    note,
	}
}

// reportUnsupported returns the report of a runtime without events. The error tells how the
// runtime said so.
func reportUnsupported(ended error) Report {
	note := fmt.Sprintf("%v; polling", ended)
	if errors.Is(ended, io.EOF) {
		note = "the runtime ends the stream of container events at once (EOF), as one does that offers none; polling"
	}
	return Report{Reason: ReasonStreamUnsupported, Action: "Poll", Note: note}
}
