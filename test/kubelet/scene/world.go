// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
)

// FakeRuntime is the first argument with which the calling program's binary must call [ServeFake].
const FakeRuntime = "fake-runtime"

// Variant is one kubelet to play with.
type Variant struct {
	Name, Binary string
	Gates        map[string]bool
	// Ours says that the evented PLEG is in it and on.
	Ours bool
}

// World is a node with its runtime.
type World struct {
	Variant Variant
	Kubelet *standalone.Kubelet
	Control *fakeproc.Control
	node    *standalone.Node
	tracker *Tracker
	dir     string
	fake    *child.Child
	there   map[string]bool // pods whose manifests are there
	full    []string        // the pods of a full node
	serial  int             // of the next batch of names
}

// NewWorld starts the runtime and the kubelet. The folder, in the system's temporary one because its sockets need short names, goes with Close.
func NewWorld(ctx context.Context, v Variant) (w *World, err error) {
	dir, err := os.MkdirTemp("", "kn")
	if err != nil {
		return nil, err
	}
	w = &World{Variant: v, dir: dir, there: make(map[string]bool)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	socket, control := filepath.Join(dir, "cri"), filepath.Join(dir, "control")
	if w.fake, err = child.Start("the fake runtime", []string{FakeRuntime, socket, control}, os.Stderr); err != nil {
		return w, err
	}
	if line, err := bufio.NewReader(w.fake.Stdout()).ReadString('\n'); err != nil {
		return w, fmt.Errorf("the fake runtime did not start: %q, %w", line, err)
	}
	w.Control = fakeproc.NewControl(control)
	if w.node, err = standalone.NewNode(standalone.Config{Dir: dir, RuntimeEndpoint: socket}); err != nil {
		return w, err
	}
	if err = w.StartKubelet(ctx); err != nil {
		return w, err
	}
	w.tracker = newTracker(w.node.PodsSocket())
	return w, nil
}

// ServeFake is what a program does that was called with [FakeRuntime] as its first argument. Args are what comes after that.
func ServeFake(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("scene: two sockets are wanted")
	}
	rt, err := fakeruntime.New(fakeruntime.Config{HistoryLimit: 1_000_000})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return fakeproc.Serve(ctx, fakeproc.Config{Socket: args[0], Control: args[1], Runtime: rt, Ready: func() {
		fmt.Println("ready")
		go func() { // ends with the parent
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}})
}

// StartKubelet starts the kubelet, at first or after it was killed.
func (w *World) StartKubelet(ctx context.Context) (err error) {
	gates := map[string]bool{"PodsAPI": true}
	for name, on := range w.Variant.Gates {
		gates[name] = on
	}
	w.Kubelet, err = w.node.Start(ctx, w.Variant.Binary, gates)
	return err
}

// Close ends everything and removes the folder.
func (w *World) Close() error {
	var errs []error
	if w.tracker != nil {
		w.tracker.close()
	}
	if w.Kubelet != nil && w.Kubelet.Alive() {
		errs = append(errs, w.Kubelet.Stop())
	}
	if w.Control != nil {
		w.Control.Close()
	}
	if w.fake != nil {
		errs = append(errs, w.fake.Stop(5*time.Second))
	}
	if keep := os.Getenv("KUBELET_E2E_KEEP"); keep != "" {
		errs = append(errs, os.Rename(filepath.Join(w.dir, "kubelet.log"), filepath.Join(keep, filepath.Base(w.dir)+".log")))
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// history returns all that has happened.
func (w *World) history(ctx context.Context) ([]bench.Change, error) {
	r, err := w.Control.Report(ctx, 0)
	if err == nil && r.Dropped > 0 {
		err = fmt.Errorf("the history has lost its first %d changes", r.Dropped)
	}
	return r.Changes, err
}

// eventually waits until what returns nil, or returns what it returned last.
func eventually(ctx context.Context, within time.Duration, what func() error) error {
	end := time.Now().Add(within)
	for {
		err := what()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %w", within, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
