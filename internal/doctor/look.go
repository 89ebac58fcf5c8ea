// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// lookIn is how long the kernel may take to look at a path: it asks no process, unless the path
// lies on a network file system or on one in user space (FUSE).
const lookIn = time.Second

// abandoned are the looks that were left because they took too long, by name, until they end. While
// a look is left no other one of the name is begun: repeated examinations would pile them up, each
// with a thread.
var abandoned = struct {
	mu    sync.Mutex
	looks map[string]int
}{looks: make(map[string]int)}

// Look calls a function that asks the kernel about what the name names, and waits for it for a
// second of this process's running. On a dead mount such a call heeds no signal and no deadline; it
// is left then, with its goroutine, and answered is false.
func Look[T any](name string, look func() T) (found T, answered bool) {
	return lookFor(context.Background(), lookIn, name, look)
}

func lookFor[T any](ctx context.Context, long time.Duration, name string, look func() T) (found T, answered bool) {
	abandoned.mu.Lock()
	hangs := abandoned.looks[name] > 0
	abandoned.mu.Unlock()
	if hangs {
		return found, false
	}
	ctx, cancel := standstill.WithTimeout(ctx, long)
	defer cancel()
	done := make(chan T, 1)
	ended := false // owned by abandoned.mu, as is gone
	gone := false
	go func() {
		done <- look()
		abandoned.mu.Lock()
		defer abandoned.mu.Unlock()
		ended = true
		if gone {
			forget(name)
		}
	}()
	select {
	case found = <-done:
		return found, true
	case <-ctx.Done():
	}
	abandoned.mu.Lock()
	defer abandoned.mu.Unlock()
	if ended { // in this moment
		return <-done, true
	}
	gone = true
	abandoned.looks[name]++
	return found, false
}

// forget ends the note of a look that was left. The caller holds the lock.
func forget(name string) {
	abandoned.looks[name]--
	if abandoned.looks[name] == 0 {
		delete(abandoned.looks, name)
	}
}

// connect dials until ctx ends, also if the dialler does not heed that: the kernel looks a socket's
// path up first. A connection that comes too late is closed.
func connect(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	done := make(chan outcome)
	go func() {
		conn, err := dial(ctx)
		select {
		case done <- outcome{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case is := <-done:
		return is.conn, is.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
