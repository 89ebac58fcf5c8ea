// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"net"
	"sync"
	"time"
)

// process is where the runtime's process is in its life.
type process uint8

const (
	processUp       process = iota // serves
	processDown                    // no process: connections are refused
	processStarting                // listens, and answers every call with notInitialized
)

const (
	notInitialized = "server is not initialized yet"
	brokenStream   = "error reading from server: EOF"
)

// Down kills the runtime's process: connections and streams break, the backlog of events is gone,
// and until [Runtime.Up] nobody can connect. Containers live on; nobody sees their changes, and
// ended containers show as EXITED 255 Unknown afterwards. With Faults.RestartExit some end right
// now.
func (rt *Runtime) Down() {
	rt.lock()
	defer rt.mu.Unlock()
	rt.down()
}

func (rt *Runtime) down() {
	if rt.closed || rt.process == processDown {
		return
	}
	rt.process = processDown
	rt.endIncarnation()
	rt.incarnation = make(chan struct{})
	rt.resetHub()
	restarts := uint64(rt.restarts)
	rt.restarts++
	for _, c := range rt.store.containers.list {
		if c.state == StateRunning && rt.roll(rollRestartExit, rt.faults.RestartExit, c.id, restarts) {
			rt.exit(c, exitUnknown, "Unknown", "")
		}
	}
	for _, sb := range rt.store.sandboxes.list {
		if sb.state == StateReady && rt.roll(rollLostAddress, rt.faults.LostAddress, sb.id, restarts) {
			sb.ip = ""
			rt.written(sb)
		}
	}
}

// Up starts the runtime's process again: it accepts connections at once, and answers every call
// with Unavailable until initializing is over.
func (rt *Runtime) Up(initializing time.Duration) {
	rt.lock()
	defer rt.mu.Unlock()
	rt.up(initializing)
}

func (rt *Runtime) up(initializing time.Duration) {
	if rt.closed || rt.process != processDown {
		return
	}
	rt.process = processStarting
	life := rt.incarnation
	rt.sched.after(initializing, func() {
		if rt.incarnation == life && rt.process == processStarting {
			rt.ready()
		}
	})
	rt.sched.runDue() // at once without a time to initialize
}

// ready answers calls from now on. Unseen ends are found now, and dated now, as in containerd.
func (rt *Runtime) ready() {
	rt.process = processUp
	rt.fresh = map[string]bool{}
	now := rt.stamp()
	for _, c := range rt.unseen {
		c.view.finishedAt = max(now, c.startedAt)
	}
	rt.unseen = nil
}

// Restart is Down, and Up after the time. It returns at once.
func (rt *Runtime) Restart(down, initializing time.Duration) {
	rt.lock()
	defer rt.mu.Unlock()
	rt.down()
	life := rt.incarnation
	rt.sched.after(down, func() {
		if rt.incarnation == life {
			rt.up(initializing)
		}
	})
	rt.sched.runDue() // at once without a time to be down
}

// endIncarnation breaks everything tied to this process. The connections are first: calls that
// hang end with the incarnation, and a process that was killed answers none of them.
func (rt *Runtime) endIncarnation() {
	for l := range rt.listeners {
		l.breakAll()
	}
	close(rt.incarnation)
}

// listener hands out connections that can all be broken at once, and refuses new connections while
// the runtime is down.
type listener struct {
	net.Listener
	rt *Runtime

	mu    sync.Mutex // guards the fields below; may be taken with the runtime's mutex held, not the other way around
	conns map[*conn]struct{}
	// closed: what is accepted still came in at the last moment.
	closed bool
}

type conn struct {
	net.Conn
	l *listener
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tracked := l.admit(c); tracked != nil {
			return tracked, nil
		}
		c.Close()
	}
}

func (l *listener) admit(c net.Conn) net.Conn {
	l.rt.lock()
	defer l.rt.mu.Unlock()
	if l.rt.process == processDown {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	tracked := &conn{c, l}
	l.conns[tracked] = struct{}{}
	return tracked
}

// Close implements net.Listener, and breaks the connections: a server that is stopped waits for the
// first bytes of each new client, two minutes for one that says nothing.
func (l *listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.Listener.Close()
	l.breakAll()
	return err
}

func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// breakAll closes the connections under the feet of the server. The closing itself is the
// connection's own, which does not call back.
func (l *listener) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Conn.Close()
	}
	clear(l.conns)
}
