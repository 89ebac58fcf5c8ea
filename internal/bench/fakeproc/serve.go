// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeproc

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
)

// Config is the configuration of [Serve].
type Config struct {
	// Socket is the path of the CRI socket.
	Socket string
	// Runtime is the runtime to serve. Serve closes it.
	Runtime *fakeruntime.Runtime
	// In and Out, when set, carry the calls of [Control]. Serve ends with In.
	In  io.Reader
	Out io.Writer
	// Ready, when set, is called once the socket accepts.
	Ready func()
}

// Serve serves the runtime until ctx ends, and removes its socket.
func Serve(ctx context.Context, config Config) error {
	defer config.Runtime.Close()
	lis, err := listen(config.Socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if config.In != nil {
		go func() { // ends with the parent
			defer cancel()
			_ = child.Serve(config.In, config.Out, receiver{config.Runtime}) // the methods are right
		}()
	}
	if config.Ready != nil {
		config.Ready()
	}
	return config.Runtime.Serve(ctx, lis)
}

// listen listens on a unix socket, after removing a socket without a listener.
func listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("fake: %s is in the way and not a socket: remove it, or choose another path with --socket", path)
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("fake: something listens on %s already: stop it, or choose another path with --socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("fake: cannot remove the socket left behind: %w", err)
		}
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("fake: cannot listen on %s (a unix socket's path has at most 107 bytes, in a directory that exists): %w", path, err)
	}
	return lis, nil
}
