// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// logsPrefix begins the names of folders for logs.
	logsPrefix = "pleg-bench-logs-"
	// lockName is the file in a folder that shows whether its process lives.
	lockName = "lock"
)

// Folder is a folder for the logs of a load. The process keeps a file in the folder locked; the
// kernel unlocks the file when the process ends, however it ends.
type Folder struct {
	// Path is absolute.
	Path string
	lock *os.File
}

// MakeLogs makes a folder for the logs of a load in the folder parent, or in the folder for
// temporary files if parent is empty. The runtime must see the folder under the same path.
func MakeLogs(parent string) (f *Folder, err error) {
	dir, err := os.MkdirTemp(parent, logsPrefix)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make a folder for the run: %w", err)
	}
	f = &Folder{Path: dir}
	path := filepath.Join(dir, lockName)
	if f.lock, err = os.Create(path + ".new"); err == nil {
		// Locked before others can find the file.
		err = errors.Join(syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX), os.Rename(path+".new", path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock a folder for the run: %w", err), os.RemoveAll(dir))
	}
	return f, nil
}

// Remove removes the folder of this process.
func (f *Folder) Remove() error { return errors.Join(f.lock.Close(), os.RemoveAll(f.Path)) }

// Owner says whether the process behind a folder lives.
type Owner uint8

// States of an Owner.
const (
	// OwnerUnknown: the folder is not here, as with a process in another container.
	OwnerUnknown Owner = iota
	OwnerLives
	OwnerEnded
)

// String is for people.
func (o Owner) String() string {
	return [...]string{"cannot be seen from here", "is running", "has ended"}[o]
}

// ownerOf reports whether the process that made a folder lives.
func ownerOf(dir string) Owner {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return OwnerUnknown
	}
	defer f.Close()
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return OwnerEnded
	case errors.Is(err, syscall.EWOULDBLOCK):
		return OwnerLives
	}
	return OwnerUnknown
}

// isLogs reports whether a path is one of MakeLogs. Paths of the sandboxes of others are not.
func isLogs(dir string) bool {
	return filepath.IsAbs(dir) && strings.HasPrefix(filepath.Base(dir), logsPrefix)
}

// removeLogs removes a folder of an ended process, made by MakeLogs, with its logs. The folder's
// path comes from a runtime, so other folders and files that are no logs are left alone.
func removeLogs(dir string) error {
	if !isLogs(dir) {
		return nil
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, f := range files {
		if f.Type().IsRegular() && (strings.HasSuffix(f.Name(), logSuffix) || f.Name() == lockName) {
			errs = append(errs, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	errs = append(errs, os.Remove(dir))
	if err := errors.Join(errs...); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the containers' logs: %w", err)
	}
	return nil
}
