// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package server is the runtime's process of test/peer: a [node.Node], or this project's fake
// runtime where the runtime's own work shall count, on a unix socket, told what to do on its
// standard input.
package server

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/evented-pleg/evented-pleg/test/peer/node"
)

// Config says what to serve.
type Config struct {
	// Socket is the unix socket's path.
	Socket string `json:"socket"`
	// Fake serves the fake runtime, which builds every answer, in place of a node, which has them
	// ready. It has pods only.
	Fake bool `json:"fake,omitempty"`
	// Pods, Containers (of each), Delay (of status calls) and Streams are those of [node.Config].
	Pods       int           `json:"pods"`
	Containers int           `json:"containers"`
	Delay      time.Duration `json:"delay,omitempty"`
	Streams    bool          `json:"streams,omitempty"`
}

// Request is what the server is told to do.
type Request struct {
	// Op is "uids", "usage", "exit" (N containers), "prepare" (N events of a Kind), "flood" (N of them
	// to subscriber To), "change" (N containers exit, Rate a second, and subscriber To is told of each;
	// -1 for nobody). The fake runtime knows "usage" and "history" (the changes from number From on).
	Op   string `json:"op"`
	N    int    `json:"n,omitempty"`
	To   int    `json:"to,omitempty"`
	Kind string `json:"kind,omitempty"`
	Rate int    `json:"rate,omitempty"`
	From uint64 `json:"from,omitempty"`
}

// Reply is what that came to.
type Reply struct {
	Error string        `json:"error,omitempty"`
	UIDs  []string      `json:"uids,omitempty"`
	CPU   time.Duration `json:"cpu,omitempty"`
	// Lists and Statuses count the calls so far.
	Lists       int64         `json:"lists,omitempty"`
	Statuses    int64         `json:"statuses,omitempty"`
	Subscribers int           `json:"subscribers,omitempty"`
	Changes     []node.Change `json:"changes,omitempty"`
	// Calls, Changed and History are the fake runtime's: its calls so far by method, and its changes of
	// state, how many and ("history") which.
	Calls   map[string]uint64 `json:"calls,omitempty"`
	Changed uint64            `json:"changed,omitempty"`
	History []Change          `json:"history,omitempty"`
}

// Change is a change of state of which Watch is to tell.
type Change struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // what Watch calls it
	At   int64  `json:"at"`   // Unix nanoseconds
	// Number counts all changes from the one that was asked for on.
	Number uint64 `json:"number"`
}

// Serve serves until its input ends. The first line of the input is the Config; the first reply
// says that it is being served.
func Serve() error {
	requests, replies := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	var config Config
	if err := next(requests, &config); err != nil {
		return err
	}
	l, err := net.Listen("unix", config.Socket)
	if err != nil {
		return err
	}
	defer l.Close()
	var do func(Request) Reply
	if config.Fake {
		rt, err := fakeruntime.New(fakeruntime.Config{})
		if err != nil {
			return err
		}
		defer rt.Close()
		if _, err := rt.Populate(fakeruntime.Population{Pods: config.Pods, Containers: config.Containers}); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _ = rt.Serve(ctx, l) }()
		do = func(r Request) Reply { return answerFake(rt, r) }
	} else {
		n := node.New(node.Config{
			Pods: config.Pods, Containers: config.Containers, Delay: config.Delay, Streams: config.Streams,
		})
		go func() { _ = n.Serve(l) }() // ends with the listener
		do = func(r Request) Reply { return answer(n, r) }
	}
	if err := replies.Encode(Reply{}); err != nil {
		return err
	}
	for {
		var r Request
		if err := next(requests, &r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := replies.Encode(do(r)); err != nil {
			return err
		}
	}
}

func next(r *bufio.Reader, into any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// told is what Watch calls a change to that state. It has no name for a container that was created.
var told = map[fakeruntime.State]string{
	fakeruntime.StateReady: "ContainerStarted", fakeruntime.StateRunning: "ContainerStarted",
	fakeruntime.StateNotReady: "ContainerDied", fakeruntime.StateExited: "ContainerDied", fakeruntime.StateRemoved: "ContainerRemoved",
}

func answerFake(rt *fakeruntime.Runtime, r Request) (reply Reply) {
	reply.CPU = agent.Usage()
	switch r.Op {
	case "usage":
		reply.Calls = rt.Stats().RPCs
		_, reply.Changed = rt.History(math.MaxUint64)
	case "history":
		changes, _ := rt.History(r.From)
		for _, c := range changes {
			if kind, ok := told[c.New]; ok {
				reply.History = append(reply.History, Change{ID: cmp.Or(c.ContainerID, c.SandboxID), Kind: kind, At: c.Time.UnixNano(), Number: c.Seq - r.From})
			}
		}
	default:
		reply.Error = fmt.Sprintf("server: no such request of the fake runtime: %q", r.Op)
	}
	return reply
}

func answer(n *node.Node, r Request) (reply Reply) {
	var err error
	switch r.Op {
	case "uids":
		reply.UIDs = n.UIDs()
	case "usage":
		reply.CPU = agent.Usage()
		reply.Lists, reply.Statuses = n.Calls()
		reply.Subscribers = n.Subscribers()
	case "exit":
		n.Exit(r.N)
	case "flood":
		err = n.Flood(r.To, r.N)
	case "prepare":
		err = n.Prepare(r.Kind, r.N)
	case "change":
		reply.Changes, err = n.Change(r.To, r.N, r.Rate)
	default:
		err = fmt.Errorf("server: no such request: %q", r.Op)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}
