// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/server"
)

// process is a child that answers requests, a line of JSON each.
type process struct {
	*child.Child
	name string
	out  *bufio.Reader
}

func start(name, program string, args ...string) (*process, error) {
	c, err := child.Program(name, program, args, os.Stderr)
	if err != nil {
		return nil, err
	}
	return &process{c, name, bufio.NewReaderSize(c.Stdout(), 1<<20)}, nil
}

// ask sends a request and reads the reply into the given value.
func (p *process) ask(request, reply any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.Stdin().Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	answer, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s ended before it answered %s: %w", p.name, line, err)
	}
	return json.Unmarshal(answer, reply)
}

// end ends the child: its requests have been answered.
func (p *process) end() { _ = p.Stop(time.Minute) }

// runtimeProcess is the runtime.
type runtimeProcess struct {
	*process
	socket      string
	subscribers int // known to have come
}

// runtime starts a runtime.
func (b *bench) runtime(c server.Config) (*runtimeProcess, error) {
	b.sockets++
	c.Socket = filepath.Join(b.dir, fmt.Sprintf("%d.sock", b.sockets))
	p, err := start("the runtime", b.self, "serve")
	if err != nil {
		return nil, err
	}
	r := &runtimeProcess{process: p, socket: c.Socket}
	_, err = r.do(c)
	if err != nil {
		p.end()
	}
	return r, err
}

func (r *runtimeProcess) do(request any) (server.Reply, error) {
	var reply server.Reply
	err := r.ask(request, &reply)
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	return reply, err
}

// contestant is a started agent.
type contestant struct{ *process }

// contestant starts an agent on a runtime.
func (b *bench) contestant(name, mode string, r *runtimeProcess) (*contestant, error) {
	program, args := b.self, []string{"agent", name}
	switch name {
	case kubelet136:
		program, args = b.kubelets[0], nil
	case kubelet137:
		program, args = b.kubelets[1], nil
	}
	p, err := start(name, program, args...)
	if err != nil {
		return nil, err
	}
	c := &contestant{process: p}
	_, err = c.do(agent.Request{Op: "start", Socket: r.socket, Mode: mode})
	if err == nil && (mode == "evented" || mode == "told" || mode == "intake") {
		err = r.subscribed()
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// subscribed waits for one more subscriber.
func (r *runtimeProcess) subscribed() error {
	for range 1000 {
		usage, err := r.do(server.Request{Op: "usage"})
		if err != nil {
			return err
		}
		if usage.Subscribers > r.subscribers {
			r.subscribers = usage.Subscribers
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("nobody subscribed to the runtime's events")
}

func (c *contestant) do(request agent.Request) (agent.Reply, error) {
	var reply agent.Reply
	err := c.ask(request, &reply)
	if err == nil && reply.Error != "" {
		err = fmt.Errorf("%s: %s: %s", c.name, request.Op, reply.Error)
	}
	return reply, err
}
