// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// startTimeout is how long a child may take to begin.
const startTimeout = 20 * time.Second

// FakeFolder begins the name of the folder with the fake runtime's socket and logs.
const FakeFolder = "pleg-bench-run-"

// fake is the fake runtime of a run, a child process.
type fake struct {
	fakeproc.Control
	socket   string
	process  *child.Child
	stopping atomic.Bool // the process is meant to end

	// mu is held while history is collected, so that no change is entered twice. It owns the fields
	// below.
	mu   sync.Mutex
	last fakeproc.Report // without its changes
	lost uint64          // changes dropped by the history before they were collected
}

// startFake starts the runtime, and waits until it accepts connections. Failed is called if it ends
// unasked.
func startFake(ctx context.Context, o Options, failed func(error)) (f *fake, err error) {
	if err := deadmount.Check(os.TempDir()); err != nil {
		return nil, fmt.Errorf("make a folder for the fake runtime's socket (TMPDIR): %w", err)
	}
	dir, err := os.MkdirTemp("", FakeFolder)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the fake runtime's socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	f = &fake{socket: filepath.Join(dir, "cri.sock")}
	if f.process, err = child.Start("the fake runtime", o.FakeArgs(f.socket), o.Stderr); err != nil {
		return nil, err
	}
	ctx, cancel := standstill.WithTimeout(ctx, startTimeout)
	defer cancel()
	f.Calls = f.process.Calls
	if _, err := f.Report(ctx, 0); err != nil {
		if errors.Is(err, child.ErrEnded) {
			return nil, errors.Join(errors.New("the fake runtime did not start"), f.process.Stop(time.Second))
		}
		f.process.Kill()
		if standstill.Expired(ctx) {
			err = fmt.Errorf("the fake runtime was not ready after %v", startTimeout)
		}
		return nil, err
	}
	go func() { // ends with the process
		<-f.process.Done()
		if !f.stopping.Load() {
			failed(errors.Join(errors.New("the fake runtime ended in the middle of the run"), f.process.Err()))
		}
	}()
	return f, nil
}

func (f *fake) stop() error {
	f.stopping.Store(true)
	return errors.Join(f.process.Stop(5*time.Second), os.RemoveAll(filepath.Dir(f.socket)))
}

// collect hands over the changes since the last time.
func (f *fake) collect(ctx context.Context, enter func([]bench.Change)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.Report(ctx, f.last.Next)
	if err != nil {
		return err
	}
	enter(r.Changes)
	r.Changes = nil
	f.last = r
	f.lost += r.Dropped
	return nil
}

// totals returns the last report, and the number of lost changes.
func (f *fake) totals() (last fakeproc.Report, lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.lost
}
