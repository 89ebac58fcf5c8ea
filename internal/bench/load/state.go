// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// StateVariable names the folder of the records of runs. A program in a container sets it to a
// folder of the host, so that a later one finds what it has left.
const StateVariable = "PLEG_BENCH_STATE"

// stateFolders are the folders for records, the preferred one first: one alone if the environment
// names it.
func stateFolders() []string {
	if named := os.Getenv(StateVariable); named != "" {
		return []string{named}
	}
	var list []string
	if os.Geteuid() == 0 {
		list = append(list, "/run/pleg-bench")
	}
	if own := os.Getenv("XDG_RUNTIME_DIR"); own != "" {
		list = append(list, filepath.Join(own, "pleg-bench"))
	}
	return append(list, filepath.Join(os.TempDir(), "pleg-bench-"+strconv.Itoa(os.Geteuid())))
}

// openState opens the folder for records, which is made first if create is set. A folder that
// another user could have made or can write is an error.
func openState(create bool) (*os.Root, error) {
	var errs []error
	for _, path := range stateFolders() {
		root, err := openPrivate(path, create)
		if err == nil {
			return root, nil
		}
		if errors.Is(err, errNotPrivate) {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

var errNotPrivate = errors.New(
	"is not a folder that only its user, who is the user of this program, can write: " +
		"name another one with " + StateVariable,
)

// openPrivate opens a folder of this user's alone.
func openPrivate(path string, create bool) (*os.Root, error) {
	if err := deadmount.Check(path); err != nil {
		return nil, fmt.Errorf("the folder for the records of runs (%s): %w", StateVariable, err)
	}
	const tries = 10 // the last process that leaves the folder removes it
	for range tries {
		if create {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return nil, err
			}
		}
		root, err := os.OpenRoot(path)
		if errors.Is(err, fs.ErrNotExist) && create {
			continue
		}
		if err != nil {
			return nil, err
		}
		named, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) && create {
			_ = root.Close()
			continue
		}
		opened, statErr := root.Stat(".")
		if err := errors.Join(err, statErr); err != nil {
			return nil, errors.Join(err, root.Close())
		}
		_, _, owner := identity(opened)
		const others = 0o022
		if !os.SameFile(named, opened) || owner != os.Geteuid() || opened.Mode().Perm()&others != 0 {
			return nil, errors.Join(fmt.Errorf("%s %w", path, errNotPrivate), root.Close())
		}
		return root, nil
	}
	return nil, fmt.Errorf("%s is removed again and again", path)
}

// identity returns what identifies a file, and its owner.
func identity(info fs.FileInfo) (device, inode uint64, owner int) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, -1
	}
	return uint64(s.Dev), s.Ino, int(s.Uid)
}
