// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// ErrUnread is why an output was left while a write was under way.
var ErrUnread = errors.New("nobody reads the output: its last lines are lost; " +
	"read it to its end, or send it to a file")

// unreadFor is how long a write may take once the program is asked to end.
const unreadFor = 5 * time.Second

// Outlet is an output whose writes hold up no end: a full pipe that nobody reads takes no write,
// and a write heeds no signal. Safe for concurrent use.
type Outlet struct {
	w io.Writer
	// turn has room for one, who writes. A sync.Mutex would do, but a bubble's time stands still while
	// goroutines wait for one.
	turn chan struct{}
	// asked is closed when the program is asked to end; nil for never. Execute sets it.
	asked <-chan struct{}
	// failed is why a write failed first, for Execute: not every command asks.
	failed atomic.Pointer[error]
	// usable ends with End.
	usable context.Context
	end    context.CancelCauseFunc
}

// NewOutlet returns an outlet to a writer.
func NewOutlet(w io.Writer) *Outlet {
	usable, end := context.WithCancelCause(context.Background())
	return &Outlet{
		w:      w,
		turn:   make(chan struct{}, 1),
		usable: usable,
		end:    end,
	}
}

// File returns the file behind an outlet, nil for another writer.
func (o *Outlet) File() *os.File {
	f, _ := o.w.(*os.File)
	return f
}

// Usable returns a context that ends with the output, and has why as its cause.
func (o *Outlet) Usable() context.Context { return o.usable }

// End ends the output: a write under way is left, and it and all others fail with the cause, by
// default ErrUnread.
func (o *Outlet) End(cause error) {
	if cause == nil {
		cause = ErrUnread
		if f := o.File(); f != nil {
			cause = &fs.PathError{Op: "write", Path: f.Name(), Err: ErrUnread}
		}
	}
	o.end(cause)
}

// failure returns why a write failed, nil if none did.
func (o *Outlet) failure() error {
	err := o.failed.Load()
	if err == nil {
		return nil
	}
	return *err
}

// Write writes, and waits for the reader. Once the program is asked to end it waits for unreadFor
// and ends the output then. The goroutine of a write that is left stays behind.
func (o *Outlet) Write(b []byte) (n int, err error) {
	defer func() {
		if err != nil {
			o.failed.CompareAndSwap(nil, &err)
		}
	}()
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-o.usable.Done():
	}
	if o.usable.Err() != nil {
		return 0, context.Cause(o.usable)
	}
	type outcome struct {
		n   int
		err error
	}
	written := make(chan outcome, 1)
	text := bytes.Clone(b) // the caller's may change once it is left
	go func() {
		n, err := o.w.Write(text)
		written <- outcome{n, err}
	}()
	asked := o.asked
	var late <-chan time.Time
	for {
		select {
		case is := <-written:
			return is.n, is.err
		case <-o.usable.Done():
			return 0, context.Cause(o.usable)
		case <-asked:
			asked = nil
			late = time.After(unreadFor)
		case <-late:
			o.End(nil)
		}
	}
}
