// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/node/sweep"
)

// A run's directory holds a lock that its supervisor keeps for as long as it
// lives. A directory whose lock is free belongs to a supervisor that was killed
// with SIGKILL, the one end that it cannot clean up after.
const lockName = "supervisor.lock"

// newBase makes a run's directory, claimed from the moment on at which it has a run's name: a directory that has the name and is not claimed is swept
// by whoever starts next.
func newBase(parent string) (string, error) {
	made, err := os.MkdirTemp(parent, "new-"+prefix)
	if err != nil {
		return "", err
	}
	base := filepath.Join(parent, strings.TrimPrefix(filepath.Base(made), "new-"))
	// The runtime drops privileges for nobody, but containers pass through.
	return base, errors.Join(os.Chmod(made, 0o711), claim(made), os.Rename(made, base))
}

// claim takes the lock of a run's directory until this process ends.
func claim(base string) error {
	fd, err := syscall.Open(filepath.Join(base, lockName), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
}

// sweepAbandoned sweeps the runs whose supervisor is gone.
func sweepAbandoned() {
	dirs, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			continue // not a run's, or just being made
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			fmt.Fprintln(os.Stderr, "node-e2e: sweeping an abandoned run:", dir)
			ctx, cancel := context.WithTimeout(context.Background(), sweepLimit)
			if err := (sweep.Target{Dir: dir, Cgroup: filepath.Base(dir)}).Sweep(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "node-e2e:", err)
			}
			cancel()
		}
		lock.Close()
	}
}
