// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// mountDead mounts a file system that answers nothing on a folder, for this thread and what it
// starts: one in user space (FUSE) whose daemon does not begin. The thread ends with the test.
func mountDead(t *testing.T, dir string) {
	t.Helper()
	runtime.LockOSThread()
	err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS)
	if err == nil {
		err = syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if err != nil {
		t.Skipf("mounts need root: %v", err)
	}
	daemon, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = daemon.Close() })
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", daemon.Fd())
	testkit.Check(t, syscall.Mount("dead", dir, "fuse", 0, options))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// TestDeadMount names paths on a dead mount in every place of the tool: each command ends with 1,
// and names the path and what to do.
func TestDeadMount(t *testing.T) {
	dir := t.TempDir()
	alive := onfake.Socket(t, testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 7}))(t))
	free := filepath.Join(t.TempDir(), "proxy.sock")
	mountDead(t, dir)
	socket := filepath.Join(dir, "cri.sock")
	kept := filepath.Join(dir, "kept")
	onAlive := []string{"run", "--endpoint", alive, "--image", fakeruntime.WorkloadImage, "--pods", "1"}
	for _, test := range []struct {
		path, setting string
		args          []string
	}{
		{socket, "", []string{"watch", "--endpoint", socket}},
		{socket, "", []string{"run", "--endpoint", socket, "--image", "any"}},
		{socket, "", []string{"stress", "--endpoint", socket, "--image", "any"}},
		{socket, "", []string{"cleanup", "--endpoint", socket}},
		{socket, "", []string{"doctor", "--check", "--endpoint", socket, "--within", "2s"}},
		{socket, "", []string{"fake", "--socket", socket}},
		{socket, "", []string{"proxy", "--endpoint", socket, "--socket", free}},
		{socket, "", []string{"proxy", "--endpoint", alive, "--socket", socket}},
		{kept, "", []string{"compare", kept}},
		{kept, "", []string{"run", "--out", kept}},
		{kept, "", []string{"watch", "--endpoint", alive, "--out", kept}},
		{kept, "", []string{"doctor", "--endpoint", alive, "--out", kept}},
		{dir, "TMPDIR=" + dir, []string{"run"}},
		{dir, "", append(onAlive, "--log-directory", dir)},
		{kept, load.StateVariable + "=" + kept, onAlive},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), endsWithin)
		program := exec.CommandContext(ctx, os.Args[0])
		program.Args = append([]string{"pleg-bench"}, test.args...)
		if test.setting != "" {
			program.Env = append(os.Environ(), test.setting)
		}
		var said bytes.Buffer
		program.Stdout, program.Stderr = &said, &said
		_ = program.Run() // the status tells
		cancel()
		status := program.ProcessState.ExitCode()
		want := "the kernel gives no answer about " + test.path
		if status != 1 || !strings.Contains(said.String(), want) {
			t.Errorf("%s %s: status %d, want 1 and %q: %s", test.setting, test.args, status, want, &said)
		}
	}
}
