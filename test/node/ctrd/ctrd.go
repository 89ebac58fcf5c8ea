// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package ctrd runs a private containerd under one directory.
//
// # Model
//
// A Daemon is a containerd that may be started, stopped, killed and started
// again; its root, state, sockets and shims stay under Config.Base, and pods
// outlive it as they do on a node. It is ready when the workload image is
// imported (first start) and a list is answered (every start). Tearing down for
// good is package sweep's work, by directory.
//
// # Concurrency
//
// One goroutine drives a Daemon: Start and Stop must not overlap. Alive, PID
// and Endpoint may be called from anywhere.
//
// # Errors
//
// An error of Start carries the last lines of containerd's log.
package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// maxBase bounds the length of the directory's path, in bytes: a shim's socket
// adds 67 to it, and the kernel takes no socket path above 107.
const maxBase = 40

// Config says where a Daemon lives.
type Config struct {
	// Base is the daemon's directory: absolute, short, existing.
	Base string
	// Components are the programs to run.
	Components components.Set
	// Archive is the workload image as package image packs it; Image its name.
	Archive, Image string
}

// A Daemon is one private containerd.
type Daemon struct {
	config Config

	mu       sync.Mutex // guards the fields below
	process  *os.Process
	ended    chan struct{} // closed once the process is reaped
	imported bool
}

// New writes the configuration. It starts nothing.
func New(c Config) (*Daemon, error) {
	if !filepath.IsAbs(c.Base) || len(c.Base) > maxBase {
		return nil, fmt.Errorf("ctrd: the directory %q must be absolute and at most %d bytes, or the sockets under it cannot be bound", c.Base, maxBase)
	}
	for _, dir := range []string{"cni/bin", "cni/conf", "s"} {
		if err := os.MkdirAll(filepath.Join(c.Base, dir), 0o711); err != nil {
			return nil, fmt.Errorf("ctrd: %w", err)
		}
	}
	text, err := configFor(c)
	if err != nil {
		return nil, fmt.Errorf("ctrd: write the configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.Base, "config.toml"), []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("ctrd: %w", err)
	}
	return &Daemon{config: c}, nil
}

// Endpoint is the address of the CRI socket.
func (d *Daemon) Endpoint() string { return "unix://" + d.socket() }

// LogPath is where containerd's log goes, over all its starts.
func (d *Daemon) LogPath() string { return filepath.Join(d.config.Base, "containerd.log") }

func (d *Daemon) socket() string { return filepath.Join(d.config.Base, "c.sock") }

// PID is the daemon's process ID, or 0 while it is down.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.aliveLocked() {
		return 0
	}
	return d.process.Pid
}

// Alive reports whether the process runs.
func (d *Daemon) Alive() bool { return d.PID() != 0 }

func (d *Daemon) aliveLocked() bool {
	if d.ended == nil {
		return false
	}
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// Start starts containerd and waits until it is ready or ctx ends.
func (d *Daemon) Start(ctx context.Context) error {
	if err := d.spawn(); err != nil {
		return err
	}
	if err := d.ready(ctx); err != nil {
		return fmt.Errorf("ctrd: %w\nthe end of its log:\n%s", err, d.logTail(12))
	}
	return nil
}

// Spawn starts containerd without waiting for it.
func (d *Daemon) Spawn() error { return d.spawn() }

func (d *Daemon) spawn() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.aliveLocked() {
		return errors.New("ctrd: already started")
	}
	log, err := os.OpenFile(d.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("ctrd: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(d.config.Components.Containerd(), "--config", filepath.Join(d.config.Base, "config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = d.config.Base
	// runc is looked for on PATH in some code paths, BinaryName or not.
	cmd.Env = append(os.Environ(), "PATH="+d.config.Components.Dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("ctrd: start containerd: %w", err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_ = cmd.Wait()
	}()
	d.process, d.ended = cmd.Process, ended
	return nil
}

// ready waits for the image import, which needs every plugin, and for a list.
func (d *Daemon) ready(ctx context.Context) error {
	for !d.imported {
		out, err := d.importImage(ctx)
		if err == nil {
			d.imported = true
			break
		}
		if !d.Alive() {
			return errors.New("containerd ended at its start")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the image import did not succeed in time: %w: %s", err, strings.TrimSpace(string(out)))
		case <-time.After(100 * time.Millisecond):
		}
	}
	client, err := crikit.Dial(crikit.Options{Endpoint: d.Endpoint()})
	if err != nil {
		return err
	}
	defer client.Close()
	return client.WaitReady(ctx)
}

func (d *Daemon) importImage(ctx context.Context) ([]byte, error) {
	return Import(ctx, d.config.Components, d.Endpoint(), d.config.Archive)
}

// Import loads an image archive into the CRI's namespace of a containerd.
func Import(ctx context.Context, set components.Set, endpoint, archive string) ([]byte, error) {
	socket := strings.TrimPrefix(endpoint, "unix://")
	cmd := exec.CommandContext(ctx, set.Ctr(), "-a", socket, "--connect-timeout", "2s", "-n", "k8s.io",
		"images", "import", "--local", "--snapshotter", "overlayfs", archive)
	return cmd.CombinedOutput()
}

// Stop sends the signal and waits until the process is gone. Containers and
// shims live on. After ctx it is killed.
func (d *Daemon) Stop(ctx context.Context, signal syscall.Signal) error {
	d.mu.Lock()
	process, ended, alive := d.process, d.ended, d.aliveLocked()
	d.mu.Unlock()
	if !alive {
		return nil
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ctrd: signal containerd: %w", err)
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		_ = process.Kill()
		<-ended
		return fmt.Errorf("ctrd: containerd did not end at %v, and was killed: %w", signal, context.Cause(ctx))
	}
}

func (d *Daemon) logTail(n int) string {
	data, err := os.ReadFile(d.LogPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
