// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// deadKernel is a kernel that answers nothing until it is revived, as about a dead mount.
type deadKernel struct {
	*kernel
	revive chan struct{}
	// conn is what a connect makes.
	conn net.Conn

	mu    sync.Mutex // guards the fields below
	calls int
	hang  int
}

func newDeadKernel() *deadKernel {
	d := &deadKernel{kernel: newKernel(), revive: make(chan struct{})}
	d.stat = func(string) (os.FileInfo, error) {
		d.count(1, 1)
		<-d.revive
		d.count(0, -1)
		return nil, os.ErrNotExist
	}
	d.connect = func(context.Context, string) (net.Conn, error) {
		if d.conn == nil {
			return nil, os.ErrNotExist
		}
		return d.conn, nil
	}
	return d
}

func (d *deadKernel) count(calls, hang int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls += calls
	d.hang += hang
}

// hanging returns how many calls were made, and how many of them hang.
func (d *deadKernel) hanging() (calls, hang int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls, d.hang
}

var namesTheMount = []string{"/dead/cri.sock", "the kernel gives no answer", "name another path", "umount -l"}

// TestDialOnADeadMount: Dial ends with its context, after a second at the latest, and leaves one
// look at the most, however often it is called.
func TestDialOnADeadMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		defer close(dead.revive)
		for range 5 {
			begun := time.Now()
			_, err := dialClient(t.Context(), Config{Endpoint: "/dead/cri.sock"}, dead.kernel)
			wantError(t, err, namesTheMount...)
			if took := time.Since(begun); took > connectIn+settle {
				t.Errorf("Dial took %v", took)
			}
		}
		if calls, _ := dead.hanging(); calls != 1 {
			t.Errorf("%d looks are left, want 1", calls)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		defer close(dead.revive)
		ctx, cancel := context.WithTimeout(t.Context(), connectIn/2)
		defer cancel()
		_, err := dialClient(ctx, Config{Endpoint: "/dead/cri.sock"}, dead.kernel)
		wantError(t, err, namesTheMount...)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's end", err)
		}
	})
}

// TestCallsOnADeadMount: a call of a client whose socket gives no answer fails after a second at
// the latest, also one without a deadline, and Close waits for nothing.
func TestCallsOnADeadMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		defer close(dead.revive)
		c := must(newClient(Config{Endpoint: "/dead/cri.sock"}, dead.kernel))(t)
		for range 5 {
			begun := time.Now()
			_, err := c.List(t.Context(), 0)
			wantError(t, err, namesTheMount...)
			if status.Code(err) != codes.Unavailable {
				t.Errorf("code %v", status.Code(err))
			}
			if took := time.Since(begun); took > connectIn+reconnectWait {
				t.Errorf("a call took %v", took)
			}
		}
		if calls, _ := dead.hanging(); calls != 1 {
			t.Errorf("%d looks are left, want 1", calls)
		}
		begun := time.Now()
		check(t, c.Close())
		if took := time.Since(begun); took > 0 {
			t.Errorf("Close took %v", took)
		}
	})
}

// TestAMountThatDiesLater: a call that has met its deadline waits shortly for a look at the socket,
// and other calls not at all, while the connection is used.
func TestAMountThatDiesLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	check(t, os.WriteFile(path, nil, 0o600))
	socket := must(os.Stat(path))(t)
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		defer close(dead.revive)
		ours, theirs := net.Pipe()
		defer theirs.Close()
		m := &connMonitor{kernel: dead.kernel, path: path}
		m.connected(ours, socket)
		late := func(most time.Duration) {
			begun := time.Now()
			m.timedOut(begun, hungWait)
			if took := time.Since(begun); took > most {
				t.Errorf("a call that has met its deadline takes %v more, want %v", took, most)
			}
		}
		var calls sync.WaitGroup
		calls.Go(func() { late(lookIn + settle) })
		synctest.Wait() // it looks
		begun := time.Now()
		m.observe(t.Context(), begun, status.Error(codes.Internal, "broken"))
		m.connected(ours, socket)
		if took := time.Since(begun); took > 0 {
			t.Errorf("others wait for the look for %v", took)
		}
		calls.Wait()
		late(0)
		time.Sleep(hungWait) // or it is the same miss
		late(0)
		if calls, _ := dead.hanging(); calls != 1 {
			t.Errorf("%d looks are left, want 1", calls)
		}
		if m.abandoned.Load() != 0 {
			t.Error("a connection that works was closed")
		}
		time.Sleep(hungTime)
		late(0)
		if m.abandoned.Load() != 1 {
			t.Error("a connection that hangs was kept")
		}
	})
}

// TestHungLooksAreBounded: another look is begun after a time that doubles, or a path would never
// come back of which an old look never ends.
func TestHungLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		most := 1
		for begun := time.Now(); time.Since(begun) < 24*time.Hour; time.Sleep(30 * time.Second) {
			_, _, err := dead.dial(t.Context(), "/dead/cri.sock")
			wantError(t, err, namesTheMount...)
			_, hang := dead.hanging()
			for time.Since(begun) > againIn<<(most-1) {
				most++
			}
			if hang > most {
				t.Fatalf("%d looks hang after %v, want %d", hang, time.Since(begun), most)
			}
		}
		if _, hang := dead.hanging(); hang < 2 {
			t.Errorf("no other look was begun within a day")
		}
		close(dead.revive)
		synctest.Wait()
		if _, hang := dead.hanging(); hang != 0 || len(dead.sites) != 0 {
			t.Errorf("%d looks hang, and %d paths are known, after the end", hang, len(dead.sites))
		}
	})
}

// TestALateConnectionIsClosed, and the path is asked about again as soon as it answers.
func TestALateConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		ours, theirs := net.Pipe()
		dead.conn = ours
		_, _, err := dead.dial(t.Context(), "/dead/cri.sock")
		wantError(t, err, namesTheMount...)
		close(dead.revive)
		if _, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Error("the late connection is open")
		}
		synctest.Wait()
		if _, _, err := dead.dial(t.Context(), "/dead/cri.sock"); err != nil {
			t.Errorf("after the revival: %v", err)
		}
	})
}

// TestACancelledDialBlamesNoMount: the caller's own end tells nothing about the path.
func TestACancelledDialBlamesNoMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := newDeadKernel()
		defer close(dead.revive)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := dead.dial(ctx, "/dead/cri.sock")
		const want = "cri: cannot connect to /dead/cri.sock: context canceled"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}
