// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// RemoveSocket removes a socket that nobody listens on from a path that a server is to listen on;
// anything else there is an error, and stays. In a folder the error proposes a path of that name.
func RemoveSocket(path string, there fs.FileInfo, name string) error {
	if there.IsDir() {
		return fmt.Errorf("%s is a folder: name a path in it, such as %s", path, filepath.Join(path, name))
	}
	if there.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the way and not a socket: remove it, or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("something listens on %s already: stop it, or choose another path", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // as of a busy server's full queue
		return fmt.Errorf("nobody can tell whether something listens on %s: remove it, or choose another path: %w", path, err)
	}
	err = os.Remove(path)
	if err != nil {
		return fmt.Errorf("cannot remove the socket left behind: %w", err)
	}
	return nil
}

// ListenFailed returns the error of a server's socket, of the flag --socket, that cannot be made at
// a path, with what to do.
func ListenFailed(path string, err error) error {
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("--socket %s: there is no folder %s: make it, or name a path in another folder: %w", path, dir, err)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fmt.Errorf("--socket %s: no socket can be made in %s by this user: name a path in another folder: %w", path, dir, err)
	}
	return fmt.Errorf("--socket %s: no socket can be made there: %w", path, err)
}
