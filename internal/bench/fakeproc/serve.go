// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeproc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// Config is the configuration of [Serve].
type Config struct {
	// Socket is the path of the CRI socket.
	Socket string
	// Control is the path of the control socket; empty for none.
	Control string
	// Runtime is the runtime to serve. Serve closes it.
	Runtime *fakeruntime.Runtime
	// Ready, when set, is called once both sockets accept.
	Ready func()
}

// Serve serves the runtime until ctx ends, and removes its sockets.
func Serve(ctx context.Context, config Config) error {
	defer config.Runtime.Close()
	lis, err := listen(config.Socket)
	if err != nil {
		return err
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	group.Go(func() {
		err := config.Runtime.Serve(ctx, lis)
		cancel(err)
	})
	if config.Control != "" {
		controlLis, err := listen(config.Control)
		if err != nil {
			cancel(nil)
			group.Wait()
			return err
		}
		server := &http.Server{Handler: control{config.Runtime}.handler(), ReadHeaderTimeout: 5 * time.Second}
		group.Go(func() {
			if err := server.Serve(controlLis); !errors.Is(err, http.ErrServerClosed) {
				cancel(err)
			}
		})
		group.Go(func() {
			<-ctx.Done()
			_ = server.Close()
		})
	}
	if config.Ready != nil {
		config.Ready()
	}
	<-ctx.Done()
	group.Wait()
	if err := context.Cause(ctx); outer.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
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
