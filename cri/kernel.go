// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// Calls to the kernel about the path of a socket. The kernel answers at once, unless the path lies
// on a dead mount: one of a network file system whose server is gone, or one in user space (FUSE)
// without its daemon. There stat and connect heed no signal and no deadline. So each such call has
// a goroutine of its own, which is left if the call takes too long.

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// connectIn is how long a connect may take, with the look at the socket before it.
	connectIn = time.Second
	// lookIn is how long a call that has met its deadline waits for a look at the socket.
	lookIn = 100 * time.Millisecond
	// settle is how long an answer is waited for at the least. After a standstill of this process
	// the time is over before an answer that is there has been taken.
	settle = 20 * time.Millisecond
	// againIn is the age of a call that hangs at which another one about its path is begun. It is
	// doubled with each that hangs: a lazy unmount brings the path back, but no call of before it, and
	// yet no more than some 20 calls hang after a year.
	againIn = time.Minute
)

// kernel makes calls about paths, one a path at a time. It is safe for concurrent use.
type kernel struct {
	// stat and connect may hang for ever.
	stat    func(path string) (os.FileInfo, error)
	connect func(ctx context.Context, path string) (net.Conn, error)

	mu    sync.Mutex
	sites map[string]*site // by path, those with a call under way
}

// system is the kernel of this machine. All clients share it: a program may make many for one path,
// one after the other.
var system = newKernel()

func newKernel() *kernel {
	return &kernel{stat: os.Stat, connect: connectUnix, sites: make(map[string]*site)}
}

// site holds the calls under way about a path. The mutex of its kernel guards it.
type site struct {
	last *ask // nil if it has ended
	hang int  // the calls before it that have not ended
}

// ask is a call about a path.
type ask struct {
	begun time.Time
	ended chan struct{} // closed at the end
	found found         // owned by the call until then
	// left is true if nobody takes what the call finds. The mutex of its kernel guards it.
	left bool
}

// found is the outcome of a call: a socket's file, nil if not known, or also a connection.
type found struct {
	socket os.FileInfo
	conn   net.Conn
	err    error
}

// dial connects to a unix socket until ctx ends, in [connectIn] at most, and returns the socket's
// file of before. Its errors explain the failure.
func (k *kernel) dial(ctx context.Context, path string) (net.Conn, os.FileInfo, error) {
	is, err := k.ask(ctx, connectIn, path, func(ctx context.Context) (is found) {
		is.socket, _ = k.stat(path) // before connecting, so that the next look sees a replacement
		is.conn, is.err = k.connect(ctx, path)
		return is
	})
	if err != nil {
		return nil, nil, err
	}
	return is.conn, is.socket, is.err
}

// look returns the file at a path, nil if there is none, or no answer in [lookIn].
func (k *kernel) look(path string) os.FileInfo {
	is, _ := k.ask(context.Background(), lookIn, path, func(context.Context) (is found) {
		is.socket, _ = k.stat(path)
		return is
	})
	return is.socket
}

// ask makes a call about a path, and waits until the call or ctx ends, for a time at most. The time
// counts from the begin of the call, and an earlier call about the path has to end first. An error
// means that there is no answer.
func (k *kernel) ask(ctx context.Context, long time.Duration, path string, call func(context.Context) found) (found, error) {
	waiting, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	mine := &ask{begun: time.Now(), ended: make(chan struct{})}
	for {
		under := k.enter(path, mine)
		if under == mine {
			break
		}
		if time.Since(under.begun) >= long || !under.ends(waiting) {
			return found{}, unanswered(ctx, path, under)
		}
	}
	go func() {
		mine.found = call(waiting)
		k.end(path, mine)
	}()
	if !mine.ends(waiting) && k.leave(mine) {
		return found{}, unanswered(ctx, path, mine)
	}
	return mine.found, nil
}

// ends reports whether a call ends before ctx.
func (a *ask) ends(ctx context.Context) bool {
	select {
	case <-a.ended:
		return true
	case <-ctx.Done():
	}
	select {
	case <-a.ended:
		return true
	case <-time.After(settle):
		return false
	}
}

// enter makes a call the one under way about a path, unless another one is: it returns the one that
// is.
func (k *kernel) enter(path string, mine *ask) *ask {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.sites[path]
	if at == nil {
		at = new(site)
		k.sites[path] = at
	}
	if at.last != nil {
		if time.Since(at.last.begun) < againIn<<at.hang {
			return at.last
		}
		at.hang++
	}
	at.last = mine
	mine.begun = time.Now()
	return mine
}

// end ends a call. A connection that nobody takes is closed.
func (k *kernel) end(path string, mine *ask) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(mine.ended)
	if mine.left && mine.found.conn != nil {
		_ = mine.found.conn.Close()
	}
	at := k.sites[path]
	if at.last == mine {
		at.last = nil
	} else {
		at.hang--
	}
	if at.last == nil && at.hang == 0 {
		delete(k.sites, path)
	}
}

// leave leaves a call, and reports false if it has just ended.
func (k *kernel) leave(mine *ask) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-mine.ended:
		return false
	default:
		mine.left = true
		return true
	}
}

// unanswered is the error about a path whose call has not ended: it names the remedy, and wraps the
// cause if ctx has ended before the time. The end of a call just begun tells nothing about the
// path.
func unanswered(ctx context.Context, path string, a *ask) error {
	since := time.Since(a.begun)
	if ctx.Err() != nil && since < lookIn {
		return fmt.Errorf("cri: cannot connect to %s: %w", path, context.Cause(ctx))
	}
	err := fmt.Errorf("cri: cannot connect to %s: the kernel gives no answer about it in %v, as on a mount whose server is gone: "+
		"name another path, or unmount it (findmnt -t nfs,nfs4,cifs,ceph,fuse lists such mounts; umount -l)", path, since.Round(lookIn))
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// connectUnix connects to a unix socket. Its errors explain the failure.
func connectUnix(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, explainDial(path, err)
	}
	return conn, nil
}
