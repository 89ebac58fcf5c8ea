// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSocketPath is what fits into sockaddr_un's sun_path beside its closing NUL.
const maxSocketPath = 107

// socketPath returns the path of the unix socket that an endpoint names, without touching the file
// system.
func socketPath(endpoint string) (string, error) {
	path := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, ":"); ok && !strings.Contains(scheme, "/") {
		switch {
		case scheme != "unix":
			return "", fmt.Errorf("cri: endpoint %q has scheme %q: only unix sockets are supported, write unix:///path/to/socket", endpoint, scheme)
		case strings.HasPrefix(rest, "///"):
			path = rest[2:]
		case strings.HasPrefix(rest, "//"):
			return "", fmt.Errorf("cri: endpoint %q names the host %q: a unix endpoint has three slashes, unix:///path/to/socket", endpoint, strings.SplitN(rest[2:], "/", 2)[0])
		default:
			path = rest
		}
	}
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("cri: endpoint %q is not an absolute path: write unix:///path/to/socket", endpoint)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("cri: endpoint %q holds a NUL byte: no path can", endpoint)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("cri: the socket path of endpoint %q has %d bytes: a unix socket address holds at most %d, use a shorter path or a symbolic link", endpoint, len(path), maxSocketPath)
	}
	return path, nil
}

// dialSocket connects to a unix socket and says plainly why that cannot be done.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, explainDial(path, err)
	}
	return conn, nil
}

// explainDial wraps what the operating system said of a socket with what can be done about it.
func explainDial(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cri: there is no socket %s: is the runtime running, is the path right: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cri: no permission to connect to %s: run as root, or as a member of the group that owns the socket: %w", path, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		if info, serr := os.Stat(path); serr == nil && info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("cri: %s is %s, not a socket: name the runtime's socket: %w", path, describe(info.Mode()), err)
		}
		return fmt.Errorf("cri: nothing listens on %s: the runtime is not running, or left its socket behind: %w", path, err)
	}
	return fmt.Errorf("cri: cannot connect to %s: %w", path, err)
}

// describe names what a file is.
func describe(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a regular file"
	}
	return "a special file (" + mode.Type().String() + ")"
}
