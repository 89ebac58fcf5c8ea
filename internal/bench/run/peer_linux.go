// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"net"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// peerCPU returns the ID of the process that listens on the socket, and its CPU time in seconds; no
// ID if unknown.
func peerCPU(socket string) (pid int, seconds float64) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, 0
	}
	var cred *unix.Ucred
	err = raw.Control(
		func(fd uintptr) { cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) },
	)
	if err != nil || cred == nil || cred.Pid == 1 { // with socket activation the listener is systemd
		return 0, 0
	}
	process, err := procfs.NewProc(int(cred.Pid))
	if err != nil {
		return 0, 0
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, 0
	}
	return process.PID, stat.CPUTime()
}
