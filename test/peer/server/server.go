// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package server is the runtime's process of test/peer: this project's fake runtime on a unix
// socket, controlled on its standard input.
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/test/peer/agent"
)

// The sizes of the statuses, in bytes: a pod with the labels, annotations and mounts of a
// kubelet's.
const (
	containerBytes = 1850
	sandboxBytes   = 1200
)

// runtime is the fake runtime and what is left to exit.
type runtime struct {
	*fakeruntime.Runtime
	uids    []string
	running []string // containers, one of every pod, then the next of every pod
}

func start(c agent.Config) (*runtime, error) {
	profile, err := fakeruntime.ProfileByName(fakeruntime.DefaultProfile)
	if err != nil {
		return nil, err
	}
	if !c.Streams {
		profile.StreamBatch = 0
	}
	rt, err := fakeruntime.New(fakeruntime.Config{
		Profile: profile, Faults: fakeruntime.Faults{SlowStatus: c.Delay}, ContainerBytes: containerBytes, SandboxBytes: sandboxBytes,
	})
	if err != nil {
		return nil, err
	}
	if _, err := rt.Populate(fakeruntime.Population{Pods: c.Pods, Containers: c.Containers}); err != nil {
		rt.Close()
		return nil, err
	}
	r := &runtime{Runtime: rt}
	pods := rt.Truth().Pods
	for _, p := range pods {
		r.uids = append(r.uids, p.UID)
	}
	for i := range c.Containers {
		for _, p := range pods {
			r.running = append(r.running, p.Sandboxes[0].Containers[i].ID)
		}
	}
	return r, nil
}

// Serve serves until its input ends. The first line of the input is the Config; the first reply
// confirms the service.
func Serve() error {
	requests, replies := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var config agent.Config
	if err := requests.Decode(&config); err != nil {
		return err
	}
	l, err := net.Listen("unix", config.Socket)
	if err != nil {
		return err
	}
	r, err := start(config)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = r.Serve(ctx, l) }() // ends with ctx
	var reply agent.Reply
	for {
		if err := replies.Encode(reply); err != nil {
			return err
		}
		var request agent.Request
		if err := requests.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if reply, err = r.do(request); err != nil {
			reply.Error = err.Error()
		}
	}
}

// told is Watch's name of a change to the state, none for a created container.
var told = map[fakeruntime.State]string{
	fakeruntime.StateReady: "ContainerStarted", fakeruntime.StateRunning: "ContainerStarted",
	fakeruntime.StateNotReady: "ContainerDied", fakeruntime.StateExited: "ContainerDied", fakeruntime.StateRemoved: "ContainerRemoved",
}

func (r *runtime) do(request agent.Request) (reply agent.Reply, err error) {
	switch request.Op {
	case "uids":
		reply.UIDs = r.uids
	case "usage":
		stats := r.Stats()
		reply.CPU, reply.Calls, reply.Subscribers = agent.Usage(), stats.RPCs, len(stats.Subscribers)
		_, reply.Changed = r.History(math.MaxUint64)
	case "exit":
		return reply, r.exit(request.N, request.Rate)
	case "history":
		changes, _ := r.History(request.From)
		for _, c := range changes {
			if kind, ok := told[c.New]; ok {
				reply.History = append(reply.History, agent.Change{
					ID: cmp.Or(c.ContainerID, c.SandboxID), Kind: kind, At: c.Time.UnixNano(), Number: c.Seq - request.From,
				})
			}
		}
	default:
		err = fmt.Errorf("server: no such request: %q", request.Op)
	}
	return reply, err
}

// exit makes the next containers exit, so many a second, or as fast as possible.
func (r *runtime) exit(n, rate int) error {
	if n > len(r.running) {
		return fmt.Errorf("server: %d containers cannot exit: %d are left", n, len(r.running))
	}
	begin := time.Now()
	for i, id := range r.running[:n] {
		if rate > 0 {
			time.Sleep(time.Duration(i)*time.Second/time.Duration(rate) - time.Since(begin))
		}
		if err := r.Exit(id, 0); err != nil {
			return err
		}
	}
	r.running = r.running[n:]
	return nil
}
