// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package exits

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lock takes the lock of a ledger for this process. The lock is on an empty file beside the ledger,
// which each write replaces. If another process has the lock, lock returns errInUse at once.
// The file stays: were it removed, two processes could each lock a file of their own.
func lock(path string) (*os.File, error) {
	return flock(path, os.O_RDWR|os.O_CREATE, syscall.LOCK_EX)
}

// probe returns errInUse if a process has the lock of a ledger. It makes no file.
func probe(path string) error {
	file, err := flock(path, os.O_RDONLY, syscall.LOCK_SH)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// flock opens the file of the lock, following no link, and locks the file.
func flock(path string, flags, how int) (*os.File, error) {
	file, err := os.OpenFile(path+lockSuffix, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	err = uninterrupted(func() error { return syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errInUse
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// uninterrupted makes a call again if a signal has interrupted it. NFS and FUSE let the signals
// through by which the Go runtime stops its threads.
func uninterrupted(call func() error) error {
	for {
		err := call()
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
