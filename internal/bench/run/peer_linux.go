// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"net"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// peerCPU returns the CPU time of the process that listens on the socket, nil if unknown.
func peerCPU(socket string) *processCPU {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || credErr != nil {
		return nil
	}
	process, err := procfs.NewProc(int(cred.Pid))
	if err != nil || cred.Pid == 1 { // with socket activation the listener is systemd
		return nil
	}
	stat, err := process.Stat()
	if err != nil {
		return nil
	}
	return &processCPU{process: fmt.Sprintf("%d since %d", cred.Pid, stat.Starttime), seconds: stat.CPUTime()}
}
