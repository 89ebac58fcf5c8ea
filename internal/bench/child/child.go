// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package child runs the processes of a benchmark run.
//
// # Model
//
// A child is this program with other arguments. It answers calls on its standard input and output
// (see [Serve] and [Ask]), and ends when its input ends, so that it outlives its parent by a moment
// at most. Each child has its own process group: Ctrl-C reaches the parent alone, which ends its
// children in order.
//
// # Concurrency
//
// A [Child] is safe for concurrent use.
//
// # Errors
//
// [Child.Stop] returns how a child ended, unless it was killed on purpose.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// Child is a process that answers calls on its standard input and output.
type Child struct {
	Calls
	*Process
	name   string
	stdout io.Closer
}

// Start starts this program with other arguments. Its standard error goes to stderr, or to the file
// behind it.
func Start(name string, args []string, stderr io.Writer) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program to start it as %s: %w", name, err)
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = stderr
	if outlet, ok := stderr.(interface{ File() *os.File }); ok && outlet.File() != nil {
		cmd.Stderr = outlet.File() // no copy by this process, which Wait would wait for
	}
	return Run(name, cmd)
}

// Run starts a program that answers calls.
func Run(name string, cmd *exec.Cmd) (*Child, error) {
	c := &Child{name: name}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// Not StdoutPipe: Wait would close it under the feet of its reader.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd.Stdout = w
	c.stdout = r
	if c.Process, err = Spawn(cmd); err != nil {
		_ = r.Close()
		_ = w.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	_ = w.Close()
	c.Calls = NewCalls(r, stdin)
	return c, nil
}

// Err returns how the child ended: nil for exit status 0 or a kill on purpose. Call Err after Done
// is closed.
func (c *Child) Err() error {
	if c.err == nil || c.killed.Load() {
		return nil
	}
	return fmt.Errorf("%s: %w", c.name, c.err)
}

// Kill kills the child like kill -9, and waits for its end.
func (c *Child) Kill() {
	_ = c.Process.Kill()
	_ = c.stdout.Close()
}

// Stop asks the child to end, kills the child after the grace, and returns how the child ended. A
// time in which this process does not run is no part of the grace.
func (c *Child) Stop(grace time.Duration) error {
	over, cancel := standstill.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = c.Close()
	select {
	case <-c.Done():
	case <-over.Done():
		c.Kill()
		return fmt.Errorf("%s did not end within %v and was killed", c.name, grace)
	}
	return c.Err()
}

// service is the name of a child's methods for net/rpc.
const service = "Child"

// ErrEnded is the error of a call to a child that has ended, or closed its output.
var ErrEnded = errors.New("the child has ended")

// pipes are a child's standard input and output, from either side.
type pipes struct {
	io.Reader
	io.Writer
	io.Closer
}

// Serve answers calls of the methods of receiver, by net/rpc, until in ends and all are answered.
func Serve(in io.Reader, out io.Writer, receiver any) error {
	server := rpc.NewServer()
	if err := server.RegisterName(service, receiver); err != nil {
		return err
	}
	server.ServeConn(pipes{in, out, io.NopCloser(in)})
	return nil
}

// Calls makes calls of a served receiver. They may be concurrent.
type Calls struct{ client *rpc.Client }

// NewCalls returns the calls of a receiver that writes to in and reads from out.
func NewCalls(in io.Reader, out io.WriteCloser) Calls {
	return Calls{rpc.NewClient(pipes{in, out, out})}
}

// Close ends what the receiver reads.
func (c Calls) Close() error { return c.client.Close() }

// Ask makes a call, and returns its answer.
func Ask[A any](ctx context.Context, c Calls, method string, argument any) (A, error) {
	var answer, none A
	select {
	case call := <-c.client.Go(service+"."+method, argument, &answer, make(chan *rpc.Call, 1)).Done:
		if _, refused := errors.AsType[rpc.ServerError](call.Error); call.Error != nil && !refused {
			return none, ErrEnded
		}
		return answer, call.Error
	case <-ctx.Done():
		return none, context.Cause(ctx) // the answer may still be written
	}
}

// Tell makes a call without an answer.
func Tell(ctx context.Context, c Calls, method string, argument any) error {
	_, err := Ask[bool](ctx, c, method, argument)
	return err
}
