// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// itemsField is the number of the repeated field of all four list answers.
const itemsField protowire.Number = 1

// maxListed bounds the sandboxes, and the containers, of one listing, so that a runtime whose
// streaming list does not end cannot fill the memory. It is ten times what a node of 100,000
// containers has.
const maxListed = 1 << 20

// List implements [pleg.Source]. It reads all sandboxes, then all containers, with the streaming
// list calls where the runtime has them, and returns the difference from the listing named by since
// if that is the last one it returned.
//
// Order matters, because the two calls are not one snapshot. Sandboxes are listed first: what may
// happen in between is then that a container shows up whose sandbox was created after the first
// call, and it names its pod by its label. The other way round, a pod removed in between would show
// running containers without a sandbox, which never was true. A container that is still
// unattributed makes the sandboxes be listed once more, if it is new.
func (c *Client) List(ctx context.Context, since pleg.Revision) (pleg.Listing, error) {
	select {
	case c.listing <- struct{}{}:
		defer func() { <-c.listing }()
	case <-ctx.Done():
		return pleg.Listing{}, fmt.Errorf("cri: waiting for another listing of %s: %w", c.endpoint, context.Cause(ctx))
	}
	x := c.index
	x.begin()
	c.byID.begin()
	var walker segments
	err := c.listAll(ctx, &walker, x.sandbox, x.sameSandboxes, streamPodSandboxes, listPodSandbox)
	known := len(x.strays)
	if err == nil {
		err = c.listAll(ctx, &walker, x.container, x.sameContainers, streamContainers, listContainers)
	}
	if err == nil && len(x.strays) > known {
		before := x.duplicates
		err = c.listAll(ctx, &walker, x.sandbox, x.sameSandboxes, streamPodSandboxes, listPodSandbox)
		x.duplicates = before // being listed twice is our doing
	}
	c.counter.malformed.Add(x.malformed)
	c.counter.duplicates.Add(x.duplicates)
	c.counter.unknownStates.Add(x.unknownStates)
	if err != nil {
		return pleg.Listing{}, err
	}
	listing := x.commit(since, &c.byID)
	c.byID.end()
	c.counter.unattributed.Store(int64(len(x.strays)))
	return listing, nil
}

// lister is one list call under way.
type lister struct {
	client *Client
	walker *segments
	visit  func(item []byte) bool
	// same, if set, may take a whole list at once. It reports false if it has not.
	same  func(*segments, mem.BufferSlice) bool
	items int
}

// listAll makes one list call of everything, the streaming one unless the runtime is known not to
// have it, and visits every item of the answer, unless that is in one piece and same takes it.
func (c *Client) listAll(ctx context.Context, walker *segments, visit func([]byte) bool, same func(*segments, mem.BufferSlice) bool, streaming, plain method) error {
	l := lister{client: c, walker: walker, visit: visit, same: same}
	return l.either(ctx, nil, streaming, plain)
}

// either makes the first of two calls that list the same, or the second if the runtime is known not
// to have the first. One that turns out to be unimplemented gives way to the other, whichever that
// is, so that what was learned of a runtime cannot keep it from being listed.
func (l *lister) either(ctx context.Context, req request, first, second method) error {
	known := l.client.traits.Load()
	if known.has[first].no() && !known.has[second].no() {
		first, second = second, first
	}
	err := l.call(ctx, req, first)
	if status.Code(err) != codes.Unimplemented || l.items > 0 {
		if err == nil {
			known.has[first].learn(true)
		}
		return err
	}
	known.has[first].learn(false)
	if err = l.call(ctx, req, second); err == nil || status.Code(err) == codes.Unimplemented {
		known.has[second].learn(err == nil)
	}
	return err
}

// call makes one list call, and visits every item of its answer.
func (l *lister) call(ctx context.Context, req request, m method) error {
	if m == streamPodSandboxes || m == streamContainers {
		return l.stream(ctx, req, m)
	}
	var reply borrowed
	if err := l.client.call(ctx, m, req, &reply); err != nil {
		return err
	}
	if l.same != nil && l.same(l.walker, reply.data) {
		reply.free()
		return nil
	}
	return l.take(&reply, m)
}

// stream makes one streaming list call and visits every item of its batches. A runtime without the
// call says so at the first receive.
func (l *lister) stream(ctx context.Context, req request, m method) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.client.open(ctx, m, req)
	for err == nil {
		var batch borrowed
		if err = stream.RecvMsg(&batch); err == nil {
			l.client.link.heard.Add(1)
			if err := l.take(&batch, m); err != nil {
				return err
			}
		}
	}
	l.client.link.note(ctx, err)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return l.client.explain(ctx, m, "", err)
}

// take visits every item of one list answer and frees it.
func (l *lister) take(reply *borrowed, m method) error {
	defer reply.free()
	size := reply.data.Len()
	ok := l.walker.walk(reply.data, itemsField, func(item []byte) bool {
		l.items++
		return l.items <= maxListed && l.visit(item)
	})
	switch {
	case l.items > maxListed:
		return fmt.Errorf("cri: %s on %s: %w: more than %d items", m, l.client.endpoint, ErrTooMany, maxListed)
	case !ok:
		return fmt.Errorf("cri: %s on %s: %w of %d bytes: the runtime sent what is not a list of items", m, l.client.endpoint, ErrMalformed, size)
	}
	return nil
}
