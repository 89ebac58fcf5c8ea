// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package onfake

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// Stop is a time in which the process under test does not run, in a bubble of virtual time. The
// runtime goes on.
type Stop struct{ From, To time.Time }

// StopAfter returns a stop that begins after a time from now.
func StopAfter(after, long time.Duration) Stop {
	from := time.Now().Add(after)
	return Stop{from, from.Add(long)}
}

// wait returns at once, or at the end of the stop.
func (s Stop) wait() {
	now := time.Now()
	if !now.Before(s.From) && now.Before(s.To) {
		time.Sleep(s.To.Sub(now))
	}
}

// Through returns a dialer of the stopped process: what the runtime sends during the stop lies in
// the socket.
func (s Stop) Through(dial Dialer) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		s.wait()
		conn, err := dial(ctx)
		return stoppedConn{conn, s}, err
	}
}

// Meter returns the meter of the stopped process, which beats until the test's end.
func (s Stop) Meter(t testing.TB) *standstill.Meter {
	m := new(standstill.Meter)
	m.Beat(time.Now())
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		for t.Context().Err() == nil {
			time.Sleep(standstill.Every)
			s.wait()
			m.Beat(time.Now())
		}
	}()
	return m
}

// stoppedConn is a connection of a process that does not run for a time.
type stoppedConn struct {
	net.Conn
	stop Stop
}

func (c stoppedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.stop.wait()
	return n, err
}

func (c stoppedConn) Write(b []byte) (int, error) {
	c.stop.wait()
	return c.Conn.Write(b)
}
