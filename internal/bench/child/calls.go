// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"errors"
	"io"
	"net/rpc"
)

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
