// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// OwnMounts gives this thread, and what the thread starts, mounts of their own. The thread ends
// with the test. The test is skipped where it may not mount.
func OwnMounts(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS)
	if err == nil {
		err = syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if err != nil {
		t.Skipf("mounts need root: %v", err)
	}
}

// CoverDead mounts a file system that answers nothing on a folder, in a test with [OwnMounts]: a
// file system in user space (FUSE) whose daemon does not begin. The test is skipped without FUSE.
func CoverDead(t *testing.T, dir string) {
	t.Helper()
	daemon, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = daemon.Close() })
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", daemon.Fd())
	Check(t, syscall.Mount("dead", dir, "fuse", 0, options))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// MountDead mounts a file system that answers nothing on a folder, for this thread and what the
// thread starts: see [OwnMounts] and [CoverDead].
func MountDead(t *testing.T, dir string) {
	t.Helper()
	OwnMounts(t)
	CoverDead(t, dir)
}

// Ended is how a program ended.
type Ended struct {
	Status         int // -1: it was killed
	Stdout, Stderr string
}

// RunTogether runs programs at the same time, and returns how each ended. They are started on this
// thread, so that they have its mounts ([OwnMounts]). A program that has not ended within the time
// is killed.
func RunTogether(t *testing.T, within time.Duration, programs ...*exec.Cmd) []Ended {
	t.Helper()
	stdout := make([]bytes.Buffer, len(programs))
	stderr := make([]bytes.Buffer, len(programs))
	for n, program := range programs {
		program.Stdout = &stdout[n]
		program.Stderr = &stderr[n]
		program.WaitDelay = time.Second
		Check(t, program.Start())
		limit := time.AfterFunc(within, func() { _ = program.Process.Kill() })
		defer limit.Stop()
	}
	ended := make([]Ended, len(programs))
	for n, program := range programs {
		_ = program.Wait() // the status tells
		ended[n] = Ended{
			Status: program.ProcessState.ExitCode(),
			Stdout: stdout[n].String(),
			Stderr: stderr[n].String(),
		}
	}
	return ended
}

// KubeconfigWith returns the path of a kubeconfig whose cluster takes the server's certificate from
// a file.
func KubeconfigWith(t *testing.T, certificate string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	Check(t, os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: "`+certificate+`"}}]
`), 0o600))
	return path
}
