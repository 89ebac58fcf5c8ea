// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Config describes a runtime.
type Config struct {
	// Socket is the unix socket's path.
	Socket string
	// Pods and Containers, of each, run from the beginning.
	Pods, Containers int
	// Delay is how much longer a status call takes.
	Delay time.Duration
	// Streams: the runtime has the streaming list calls.
	Streams bool
}

// Request is an order to the runtime.
type Request struct {
	// Op is "uids", "usage", "exit" (N containers, of a pod each as far as there are pods, Rate a
	// second or as fast as possible), or "history" (the changes from number From on).
	Op      string
	N, Rate int
	From    uint64
}

// Reply is the answer to a Request.
type Reply struct {
	Error string
	UIDs  []string
	// CPU is what the process has used, Calls the calls so far by method, Changed the number of
	// changes of state.
	CPU         time.Duration
	Calls       map[string]uint64
	Changed     uint64
	Subscribers int
	History     []Change
}

// Change is a change of state for Watch to deliver.
type Change struct {
	ID, Kind string // what Watch calls it
	At       int64  // Unix nanoseconds
	Number   uint64 // counts all changes from the requested number on
}

// Serve is set to 1 in the environment of a process that must be the runtime, and Program names its
// program; the default is this program.
const (
	Serve   = "PEER_SERVE"
	Program = "PEER_SERVER"
)

// Runtime is the runtime's process.
type Runtime struct {
	Socket string

	dir     string
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *json.Encoder
	replies *json.Decoder
}

// StartRuntime starts a runtime, which ends with this process at the latest.
func StartRuntime(c Config) (*Runtime, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &Runtime{cmd: exec.Command(cmp.Or(os.Getenv(Program), program))}
	r.cmd.Env, r.cmd.Stderr = append(os.Environ(), Serve+"=1"), os.Stderr
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.stdin, r.orders, r.replies = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if r.dir, err = os.MkdirTemp("", "peer-"); err != nil {
		return nil, err
	}
	r.Socket = filepath.Join(r.dir, "s")
	c.Socket = r.Socket
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	if _, err := r.do(c); err != nil {
		return nil, errors.Join(err, r.End())
	}
	return r, nil
}

// Do gives the runtime an order.
func (r *Runtime) Do(order Request) (Reply, error) { return r.do(order) }

func (r *Runtime) do(order any) (reply Reply, err error) {
	if err := r.orders.Encode(order); err != nil {
		return reply, fmt.Errorf("the runtime: %w", err)
	}
	if err := r.replies.Decode(&reply); err != nil {
		return reply, fmt.Errorf("the runtime ended before it answered %+v: %w", order, err)
	}
	if reply.Error != "" {
		err = errors.New(reply.Error)
	}
	return reply, err
}

// End ends the runtime.
func (r *Runtime) End() error {
	return errors.Join(r.stdin.Close(), r.cmd.Wait(), os.RemoveAll(r.dir))
}
