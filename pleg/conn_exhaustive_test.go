// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"testing"
	"time"
)

// connKey is a state of the stream machine, with its times as they look from now.
type connKey struct {
	state     StreamState
	attempts  int
	due       string // the deadline: never, past, soon
	stable    bool   // connected for StableAfter
	ever, tol bool
}

func keyOf(c conn, cfg *connConfig, now instant) connKey {
	k := connKey{state: c.state, attempts: min(c.attempts, 9), due: "soon", ever: c.everConnected, tol: c.announced}
	switch {
	case c.deadline == never:
		k.due = "never"
	case c.deadline <= now:
		k.due = "past"
	}
	k.stable = c.state == StreamConnected && now.sub(c.connected) >= cfg.stableAfter
	return k
}

// TestConnExhaustive visits every state that the stream machine can reach, under every input and
// after no, some and much time, and checks each move.
func TestConnExhaustive(t *testing.T) {
	cfg := testConn()
	type node struct {
		c   conn
		now instant
	}
	seen := map[connKey]bool{}
	moves := map[[2]StreamState]int{}
	queue := []node{{conn{deadline: never}, 1}}
	seen[keyOf(queue[0].c, cfg, 1)] = true
	steps := 0
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, pass := range []time.Duration{0, 10 * time.Millisecond, cfg.settle, cfg.stableAfter, cfg.steady + cfg.max} {
			for in := range connInput(connInputs) {
				for _, random := range []float64{0, 0.999} {
					now := n.now.add(pass)
					next, eff := n.c.step(cfg, in, now, random)
					if eff&effOpen != 0 {
						next = next.opened(cfg, now)
					}
					steps++
					moves[[2]StreamState{n.c.state, next.state}]++
					if what := wrongMove(n.c, next, in, eff, now, cfg); what != "" {
						t.Errorf("%v %+v, %v after %v: %s: %+v, effects %b", n.c.state, n.c, in, pass, what, next, eff)
					}
					if k := keyOf(next, cfg, now); !seen[k] {
						seen[k] = true
						queue = append(queue, node{next, now})
					}
				}
			}
		}
	}
	t.Logf("%d states, %d steps, moves:", len(seen), steps)
	for m, n := range moves {
		t.Logf("  %v → %v: %d", m[0], m[1], n)
	}
	for s := range StreamState(streamStates) {
		reached := false
		for k := range seen {
			reached = reached || k.state == s
		}
		if !reached {
			t.Errorf("%v is not reached", s)
		}
	}
}

// legalMoves are the arrows of the picture at StreamState.
var legalMoves = map[[2]StreamState]bool{
	{StreamIdle, StreamOpening}: true, {StreamOpening, StreamConnected}: true, {StreamOpening, StreamBackoff}: true,
	{StreamOpening, StreamUnsupported}: true, {StreamConnected, StreamBackoff}: true, {StreamConnected, StreamUnsupported}: true,
	{StreamBackoff, StreamOpening}: true, {StreamUnsupported, StreamOpening}: true,
}

// waiting says that the machine waits before it opens the stream again.
func waiting(c conn) bool { return c.state == StreamBackoff || c.state == StreamUnsupported }

// wrongMove says what is wrong with a step, empty if nothing is.
func wrongMove(from, to conn, in connInput, eff connEffect, now instant, cfg *connConfig) string {
	opens := from.state != StreamOpening && to.state == StreamOpening
	connects := from.state != StreamConnected && to.state == StreamConnected
	loses := from.state == StreamConnected && to.state != StreamConnected
	fails := from.state == StreamOpening && (to.state == StreamBackoff || to.state == StreamUnsupported)
	waits := waiting(to)
	switch {
	case from.state != to.state && !legalMoves[[2]StreamState{from.state, to.state}]:
		return "there is no such arrow"
	case in == inBack && waiting(from) != opens:
		return "a runtime that is back is asked for its stream exactly when that is waited for"
	case in == inBack && opens && to.attempts != 0:
		return "what failed while the runtime was away counts"
	case opens != (eff&effOpen != 0):
		return "a stream is opened exactly when the machine begins to open one"
	case connects != (eff&effConnected != 0):
		return "it connects exactly when it says so"
	case loses != (eff&effFellBack != 0):
		return "the loss of a connection, and nothing else, falls back"
	case fails && eff&effFailed == 0:
		return "a failed opening is not reported"
	case waits && to.deadline == never:
		return "it would never be opened again"
	case waits && to.deadline > max(now, from.deadline).add(2*max(cfg.steady, cfg.max)):
		return "it would be opened too late"
	case to.state == StreamOpening && to.deadline == never:
		return "a silent stream would never count as connected"
	case to.state == StreamConnected && !to.everConnected:
		return "it forgets that it was connected"
	case from.everConnected && !to.everConnected:
		return "it forgets that it was ever connected"
	case to.attempts < 0 || to.attempts > from.attempts+1:
		return fmt.Sprintf("attempts go from %d to %d", from.attempts, to.attempts)
	case in == inEOF && from.state == StreamOpening && from.everConnected && (to.state == StreamUnsupported) != (from.attempts >= maxRestartEOFs):
		return "an EOF of a runtime that was connected is a restart, unless openings have come to nothing for some seconds"
	case from.state == to.state && from.state != StreamOpening && eff&^effFailed != 0:
		return "nothing moved, and something is to be done"
	}
	return ""
}
