// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
)

// FakeRuntime is the first argument with which the calling program's binary must call [ServeFake].
const FakeRuntime = "fake-runtime"

// fake is the fake runtime in a process of its own.
type fake struct {
	path    string
	control fakeproc.Control
	child   *child.Child
	next    uint64 // change to ask for
}

// startFake serves the fake runtime in the folder.
func startFake(dir string) (*fake, error) {
	f := &fake{path: filepath.Join(dir, "cri")}
	var err error
	if f.child, err = child.Start("the fake runtime", []string{FakeRuntime, f.path}, os.Stderr); err != nil {
		return nil, err
	}
	f.control = fakeproc.Control{Calls: f.child.Calls}
	if _, err := f.control.Report(context.Background(), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("the fake runtime did not start: %w", err), f.close())
	}
	return f, nil
}

// ServeFake is the work of a program called with [FakeRuntime] as its first argument. Args are the
// arguments after it.
func ServeFake(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("scene: a socket is wanted")
	}
	rt, err := fakeruntime.New(fakeruntime.Config{HistoryLimit: 1_000_000})
	if err != nil {
		return err
	}
	return fakeproc.Serve(ctx, fakeproc.Config{
		Socket:  args[0],
		Runtime: rt,
		In:      os.Stdin,
		Out:     os.Stdout,
	})
}

func (f *fake) socket() string { return f.path }

func (f *fake) logs() string { return "" }

func (f *fake) news(ctx context.Context) ([]bench.Change, error) {
	r, err := f.control.Report(ctx, f.next)
	if err != nil {
		return nil, err
	}
	if r.Dropped > 0 {
		return nil, fmt.Errorf("the history has lost %d changes", r.Dropped)
	}
	f.next = r.Next
	return r.Changes, nil
}

func (f *fake) restart(ctx context.Context) error {
	return f.control.Restart(ctx, fakeproc.Outage{Down: time.Second, Initializing: 500 * time.Millisecond})
}

func (f *fake) disturb(ctx context.Context, how disturbance) error {
	return f.control.SetFaults(ctx, map[disturbance]fakeruntime.Faults{
		cut: {Cut: 1}, deaf: {Stall: 1}, silent: {Drop: 1},
	}[how])
}

func (f *fake) usage(ctx context.Context) (spent, map[string]uint64, error) {
	r, err := f.control.Report(ctx, 1<<62)
	return spent{daemon: r.CPUSeconds}, r.Stats.RPCs, err
}

func (f *fake) close() error {
	return f.child.Stop(5 * time.Second)
}
