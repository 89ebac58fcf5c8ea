// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// slack is how long a reader may work on a message before the reader counts as not reading.
const slack = time.Second

// vital knows whether the runtime is read: whether every reading goroutine is waiting for the
// runtime, or has been at work for a moment only.
type vital struct {
	mu   sync.Mutex        // owns work, for moments only
	work map[int]time.Time // since when, by the number of the piece of work
	next int
}

func newVital() *vital { return &vital{work: make(map[int]time.Time)} }

// busy begins a piece of work.
func (v *vital) busy() (end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next++
	number := v.next
	v.work[number] = time.Now()
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.work, number)
	}
}

// reads reports whether the runtime is read.
func (v *vital) reads(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, since := range v.work {
		if now.Sub(since) > slack {
			return false
		}
	}
	return true
}

// watched returns a connection with watched reads.
func (v *vital) watched(c net.Conn) *vitalConn {
	return &vitalConn{Conn: c, vital: v, closed: make(chan struct{})}
}

// vitalConn is the connection to the runtime. gRPC reads it in a single goroutine.
type vitalConn struct {
	net.Conn
	vital  *vital
	end    func() // ends the work on the last read; owned by the reading goroutine
	closed chan struct{}
	done   atomic.Bool
}

// Read implements net.Conn.
func (c *vitalConn) Read(b []byte) (int, error) {
	if c.end != nil {
		c.end()
	}
	n, err := c.Conn.Read(b)
	c.end = nil
	if err == nil { // else nothing is read any more
		c.end = c.vital.busy()
	}
	return n, err
}

// Close implements net.Conn.
func (c *vitalConn) Close() error {
	if !c.done.Swap(true) {
		close(c.closed)
	}
	return c.Conn.Close()
}
