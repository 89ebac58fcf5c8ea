// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// events are the subscribers of the event stream, in the order in which they came.
type events struct {
	mu          sync.Mutex // owns what follows
	subscribers []*subscriber
}

// subscriber is one call of GetContainerEvents.
type subscriber struct {
	work chan flood
	done <-chan struct{}
}

// flood is what a subscriber is to send.
type flood struct {
	count int
	// message returns event number i, without its stamp. It is called right before that is sent.
	message func(i int) []byte
	ended   chan error
}

func newEvents() *events { return new(events) }

// serve sends what subscribers are told to, until the call ends.
func (e *events) serve(ctx context.Context, send func([]byte) error) error {
	s := &subscriber{work: make(chan flood), done: ctx.Done()}
	e.mu.Lock()
	e.subscribers = append(e.subscribers, s)
	e.mu.Unlock()
	for {
		select {
		case f := <-s.work:
			err := f.run(send)
			f.ended <- err
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (f flood) run(send func([]byte) error) error {
	for i := range f.count {
		m := f.message(i)
		// The stamp comes last, so that the rest can be encoded beforehand.
		b := protowire.AppendTag(append(make([]byte, 0, len(m)+10), m...), 3, protowire.VarintType)
		if err := send(protowire.AppendVarint(b, uint64(time.Now().UnixNano()))); err != nil {
			return err
		}
	}
	return nil
}

// Subscribers returns how many have come so far, those that have gone included.
func (n *Node) Subscribers() int {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	return len(n.events.subscribers)
}

// Prepare encodes events for [Node.Flood]. Kind "known" tells what the lists show: that a container
// of a pod is running, pod by pod. Kind "exit" tells of containers exiting, each once, first one of
// every pod and then the next of every pod, with the statuses as they then are; lists must show it
// too ([Node.Exit]) before anybody lists again.
func (n *Node) Prepare(kind string, count int) error {
	var messages [][]byte
	switch kind {
	case "known":
		for i := range min(n.config.Pods, 2000) {
			messages = append(messages, event(newPod(i, n.config.Containers), i%n.config.Containers, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT))
		}
	case "exit":
		if limit := n.config.Pods * n.config.Containers; count > limit {
			return fmt.Errorf("node: %d containers cannot exit: there are %d", count, limit)
		}
		for i := range count {
			messages = append(messages, n.exit(i))
		}
	default:
		return fmt.Errorf("node: no such kind of events: %q", kind)
	}
	n.prepared = messages
	return nil
}

// Flood sends the prepared events, over and over, to one subscriber, as fast as it takes them, and
// returns when so many are sent.
func (n *Node) Flood(to, count int) error {
	messages := n.prepared
	if len(messages) == 0 {
		return errors.New("node: no events were prepared")
	}
	return n.send(to, flood{count: count, message: func(i int) []byte { return messages[i%len(messages)] }})
}

// exit encodes the event of the exit of container number i, counted as Exit does.
func (n *Node) exit(i int) []byte {
	p := newPod(i%n.config.Pods, n.config.Containers)
	for k := range i/n.config.Pods + 1 {
		p.Containers[k].State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return event(p, i/n.config.Pods, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// send has one subscriber send events, and returns when they are sent.
func (n *Node) send(to int, f flood) error {
	n.events.mu.Lock()
	if to < 0 || to >= len(n.events.subscribers) {
		n.events.mu.Unlock()
		return fmt.Errorf("node: no subscriber %d: %d have come", to, len(n.events.subscribers))
	}
	s := n.events.subscribers[to]
	n.events.mu.Unlock()
	f.ended = make(chan error, 1)
	select {
	case s.work <- f:
		return <-f.ended
	case <-s.done:
		return fmt.Errorf("node: subscriber %d has gone", to)
	}
}

// Change is the exit of a container.
type Change struct {
	ID string `json:"id"`
	At int64  `json:"at"` // Unix nanoseconds when lists began to show it
}

// Change makes the next containers exit, so many a second, tells one subscriber of each right away,
// or with a negative number nobody, and returns when that is done.
func (n *Node) Change(to, count, rate int) ([]Change, error) {
	if rate <= 0 || n.exited+count > n.config.Pods*n.config.Containers {
		return nil, fmt.Errorf("node: cannot change %d containers at %d a second: %d of %d have exited", count, rate, n.exited, n.config.Pods*n.config.Containers)
	}
	first := n.exited
	messages := make([][]byte, count)
	for i := range messages {
		messages[i] = n.exit(first + i)
	}
	changes := make([]Change, 0, count)
	start := time.Now()
	message := func(i int) []byte {
		time.Sleep(time.Duration(i)*time.Second/time.Duration(rate) - time.Since(start))
		at := first + i
		changes = append(changes, Change{ID: n.pods[at%n.config.Pods].Containers[at/n.config.Pods].Id, At: time.Now().UnixNano()})
		n.Exit(1)
		return messages[i]
	}
	if to < 0 {
		for i := range count {
			message(i)
		}
		return changes, nil
	}
	err := n.send(to, flood{count: count, message: message})
	return changes, err
}

// event encodes an event of container k of the pod, without its stamp.
func event(p Pod, k int, kind runtimeapi.ContainerEventType) []byte {
	e := &runtimeapi.ContainerEventResponse{ContainerId: p.Containers[k].Id, ContainerEventType: kind, PodSandboxStatus: p.sandboxStatus()}
	for i := range p.Containers {
		e.ContainersStatuses = append(e.ContainersStatuses, p.containerStatus(i))
	}
	return encode(e)
}
