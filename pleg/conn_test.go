// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"testing"
	"time"
)

func testConn() *connConfig {
	return &connConfig{
		base: defaultReconnectBase, max: defaultReconnectMax, steady: defaultReconnectSteady,
		stableAfter: defaultStableAfter, settle: defaultSettle,
	}
}

// TestReconnectDelays holds the sequence that KEP-3386 asks for: retry at once, after 1, 2, 4 …
// 64 s, then every 60 s for ever.
func TestReconnectDelays(t *testing.T) {
	cfg := testConn()
	var got []int
	for n := range 12 {
		got = append(got, int(cfg.delay(n, 0.9)/time.Second))
	}
	if want := []int{0, 1, 2, 4, 8, 16, 32, 64, 60, 60, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
	cfg.jitter = 0.1
	if d := cfg.delay(3, 0.5); d != 4200*time.Millisecond {
		t.Errorf("4 s with half of a jitter of 10 %% is %v, want 4.2s", d)
	}
	cfg = &connConfig{base: 3 * time.Second, max: 10 * time.Second, steady: 5 * time.Second}
	got = got[:0]
	for n := range 6 {
		got = append(got, int(cfg.delay(n, 0)/time.Second))
	}
	if want := []int{0, 3, 6, 10, 5, 5}; !slices.Equal(got, want) {
		t.Errorf("delays to a maximum that is no power of two: %v, want %v", got, want)
	}
}

func TestConnSteps(t *testing.T) {
	const at = instant(1e12)
	connected := conn{state: StreamConnected, attempts: 3, connected: at, everConnected: true, deadline: never}
	for _, tc := range []struct {
		name  string
		from  conn
		in    connInput
		after time.Duration
		state StreamState
		eff   connEffect
		tries int
	}{
		{"a wanted stream is opened", conn{deadline: never}, inOpen, 0, StreamOpening, effOpen, 0},
		{"the first claim connects", conn{state: StreamOpening}, inHeard, 0, StreamConnected, effConnected, 0},
		{"silence for Settle connects", conn{state: StreamOpening, deadline: at}, inTick, 0, StreamConnected, effConnected, 0},
		{"less silence does not", conn{state: StreamOpening, deadline: at + 1}, inTick, 0, StreamOpening, 0, 0},
		{"a failed opening backs off", conn{state: StreamOpening}, inLost, 0, StreamBackoff, effFailed, 1},
		{"no events is unsupported", conn{state: StreamOpening}, inNoEvents, 0, StreamUnsupported, effFailed | effUnsupported, 0},
		{"EOF at once is unsupported", conn{state: StreamOpening}, inEOF, 0, StreamUnsupported, effFailed | effUnsupported, 0},
		{"EOF at once after events is a restart", conn{state: StreamOpening, everConnected: true}, inEOF, 0, StreamBackoff, effFailed, 1},
		{"one more EOF is still a restart", conn{state: StreamOpening, everConnected: true, attempts: maxRestartEOFs - 1}, inEOF, 0, StreamBackoff, effFailed, maxRestartEOFs},
		{"EOF again and again: the events were switched off", conn{state: StreamOpening, everConnected: true, attempts: maxRestartEOFs}, inEOF, 0, StreamUnsupported, effFailed | effUnsupported, maxRestartEOFs},
		{"an opening that fails otherwise says nothing of that", conn{state: StreamOpening, everConnected: true, attempts: maxRestartEOFs}, inLost, 0, StreamBackoff, effFailed, maxRestartEOFs + 1},
		{"unsupported is announced once", conn{state: StreamOpening, announced: true}, inNoEvents, 0, StreamUnsupported, effFailed, 0},
		{"a lost stream falls back", connected, inLost, time.Second, StreamBackoff, effFellBack, 4},
		{"a stable one starts over", connected, inLost, time.Minute, StreamBackoff, effFellBack, 1},
		{"EOF of a connected stream is a loss", connected, inEOF, time.Second, StreamBackoff, effFellBack, 4},
		{"events may be taken away", connected, inNoEvents, time.Second, StreamUnsupported, effFailed | effUnsupported | effFellBack, 3},
		{"backoff ends in another opening", conn{state: StreamBackoff, deadline: at}, inTick, 0, StreamOpening, effOpen, 0},
		{"unsupported is asked again", conn{state: StreamUnsupported, deadline: at}, inTick, 0, StreamOpening, effOpen, 0},
		{"a runtime that is back is asked for its stream at once", conn{state: StreamBackoff, attempts: 6, deadline: at + 1e11}, inBack, 0, StreamOpening, effOpen, 0},
		{"one that had no events may have them now", conn{state: StreamUnsupported, announced: true, deadline: at + 1e11}, inBack, 0, StreamOpening, effOpen, 0},
		{"a connected stream needs no list to be up", connected, inBack, 0, StreamConnected, 0, 3},
		{"nor does one being opened", conn{state: StreamOpening, attempts: 2, deadline: at + 1}, inBack, 0, StreamOpening, 0, 2},
		{"nor is one opened that nobody wants", conn{deadline: never}, inBack, 0, StreamIdle, 0, 0},
		{"claims in backoff are late ones", conn{state: StreamBackoff, deadline: never}, inHeard, 0, StreamBackoff, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, eff := tc.from.step(testConn(), tc.in, at.add(tc.after), 0)
			if got.state != tc.state || eff != tc.eff || got.attempts != tc.tries {
				t.Errorf("%v --%v--> %v, effects %b, attempts %d; want %v, %b, %d", tc.from.state, tc.in, got.state, eff, got.attempts, tc.state, tc.eff, tc.tries)
			}
		})
	}
}

func TestScheduleEarnsAndLosesTrust(t *testing.T) {
	s := newSchedule(time.Second, 300*time.Second)
	if s.due() != 0 {
		t.Errorf("the first relist is due at %v, want at once", s.due())
	}
	now := instant(1)
	var periods []int
	for range 11 {
		s.begun()
		s.relisted(now)
		s.lengthen(now)
		periods = append(periods, int(s.period/time.Second))
		now = s.due()
	}
	if want := []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}; !slices.Equal(periods, want) {
		t.Errorf("periods %v, want %v", periods, want)
	}
	s.ended = now
	s.reset(now)
	if due := s.due(); due != now.add(time.Second) {
		t.Errorf("after a missed event the next relist is due in %v, want a base period", due.sub(now))
	}
	// Relists made early, for waiters, earn nothing by their number.
	for range 100 {
		now = now.add(time.Millisecond)
		s.ended = now
		s.lengthen(now)
	}
	if s.period != time.Second {
		t.Errorf("100 relists in 100 ms raised the period to %v", s.period)
	}
}

func TestScheduleServesWhoAsks(t *testing.T) {
	s := newSchedule(time.Second, 300*time.Second)
	now := instant(1e9)
	s.ended = now
	s.period = 64 * time.Second
	s.ask(now.add(10 * time.Millisecond))
	if due := s.due(); due != now.add(time.Second) {
		t.Errorf("due in %v, want the base period", due.sub(now))
	}
	s.askAtOnce(now.add(20 * time.Millisecond))
	if due := s.due(); due > now.add(20*time.Millisecond) {
		t.Errorf("due in %v, want at once", due.sub(now))
	}
	s.begun()
	s.relisted(now.add(30 * time.Millisecond))
	if due := s.due(); due != now.add(64*time.Second+30*time.Millisecond) {
		t.Errorf("due in %v, want a period", due.sub(now))
	}
}
