// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package deadmount bounds calls about paths that may lie on a dead mount: one of a network file
// system whose server is gone, or one in user space (FUSE) without its daemon.
//
// # Model
//
// The kernel answers about a path at once, unless the path lies on such a mount. There a call such
// as stat, open or connect heeds no signal and no deadline. [Ask] makes a call, and leaves it, with
// its goroutine, if it takes too long. While a call about a path is left no other one about the
// path is begun: looks that are repeated would pile up, each with a thread. [Check] asks whether
// the kernel answers about a path at all, before calls that nobody bounds.
//
// # Concurrency
//
// All functions are safe for concurrent use. Time in which this process does not run does not
// count.
//
// # Errors
//
// [Unanswered] names the path, and says what to do.
package deadmount

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

const (
	// LookIn is how long a look at a path may take.
	LookIn = time.Second
	// FilesIn is how long it may take to read or write some files: disks may be slow.
	FilesIn = 30 * time.Second
)

// Unanswered is the error of a call that was left.
type Unanswered struct {
	// Path is what the call was about.
	Path string
	// Long is how long the call was waited for.
	Long time.Duration
}

// Error names the path and the remedy.
func (u *Unanswered) Error() string {
	return fmt.Sprintf(
		"the kernel gives no answer about %s in %v, as on a mount whose server is gone: "+
			"name another path, or unmount it (findmnt -t nfs,nfs4,cifs,ceph,fuse lists such mounts; umount -l)",
		u.Path, u.Long,
	)
}

// left are the calls that were left, by path, until they end.
var left = struct {
	mu    sync.Mutex
	calls map[string]int
}{calls: make(map[string]int)}

// Ask makes a call about a path, and waits for it for [LookIn]. Answered is false if the call was
// left, or was not begun because of an earlier one.
func Ask[T any](path string, call func() T) (found T, answered bool) {
	return AskFor(LookIn, path, call)
}

// AskFor is [Ask] for another time.
func AskFor[T any](long time.Duration, path string, call func() T) (found T, answered bool) {
	left.mu.Lock()
	hangs := left.calls[path] > 0
	left.mu.Unlock()
	if hangs {
		return found, false
	}
	ctx, cancel := standstill.WithTimeout(context.Background(), long)
	defer cancel()
	done := make(chan T, 1)
	ended := false // owned by left.mu, as is gone
	gone := false
	go func() {
		done <- call()
		left.mu.Lock()
		defer left.mu.Unlock()
		ended = true
		if gone {
			forget(path)
		}
	}()
	select {
	case found = <-done:
		return found, true
	case <-ctx.Done():
	}
	left.mu.Lock()
	defer left.mu.Unlock()
	if ended { // in this moment
		return <-done, true
	}
	gone = true
	left.calls[path]++
	return found, false
}

// forget ends the note of a call that was left. The caller holds the lock.
func forget(path string) {
	left.calls[path]--
	if left.calls[path] == 0 {
		delete(left.calls, path)
	}
}

// Do is [AskFor] for a call that fails: the error is the call's, or [Unanswered].
func Do(long time.Duration, path string, call func() error) error {
	err, answered := AskFor(long, path, call)
	if !answered {
		return &Unanswered{Path: path, Long: long}
	}
	return err
}

// Check returns [Unanswered] if the kernel gives no answer about a path. Any answer will do, also
// that nothing is there.
func Check(path string) error {
	return Do(LookIn, path, func() error {
		_, _ = os.Stat(path)
		return nil
	})
}

// Dial connects until ctx ends, also if the dialler does not heed that: the kernel looks a socket's
// path up first. A connection that comes too late is closed.
func Dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
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
