// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guard kills this process unless the process puts the guard off in time. The guard is a timer of
// the kernel with SIGKILL: a stopped process (SIGSTOP, a debugger, the freezer of cgroup v2) runs
// nothing, but dies of the signal.
type guard struct {
	timer    int32
	patience time.Duration
}

// newGuard returns a running guard.
func newGuard(patience time.Duration) (*guard, error) {
	event := struct { // struct sigevent, 64 bytes
		value         uintptr
		signo, notify int32 // notify 0 is SIGEV_SIGNAL
		_             [48]byte
	}{signo: int32(unix.SIGKILL)}
	g := &guard{patience: patience}
	_, _, errno := unix.Syscall(
		unix.SYS_TIMER_CREATE,
		unix.CLOCK_MONOTONIC,
		uintptr(unsafe.Pointer(&event)),
		uintptr(unsafe.Pointer(&g.timer)),
	)
	if errno != 0 {
		return nil, fmt.Errorf("reader: no timer of the kernel: %w", errno)
	}
	return g, g.set()
}

// putOff gives the process its patience anew.
func (g *guard) putOff() { _ = g.set() }

func (g *guard) set() error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(g.patience))}
	_, _, errno := unix.Syscall6(
		unix.SYS_TIMER_SETTIME,
		uintptr(g.timer),
		0,
		uintptr(unsafe.Pointer(&spec)),
		0,
		0,
		0,
	)
	if errno != 0 {
		return fmt.Errorf("reader: set the timer of the kernel: %w", errno)
	}
	return nil
}
