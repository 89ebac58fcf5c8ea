// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The list calls: List of everything, and ListPod of one pod.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// itemsField is the number of the repeated field of all four list answers.
const itemsField protowire.Number = 1

// maxListItems bounds the sandboxes, and the containers, of a listing, so that an endless streaming
// list cannot fill the memory. The bound is ten times the count of a node of 100,000 containers.
const maxListItems = 1 << 20

// List implements [pleg.Source]. List reads all sandboxes, then all containers, with the streaming
// list calls where the runtime has them, and returns the difference from the listing named by since
// if that listing was the last.
//
// Order matters, because the two calls are not one snapshot. With sandboxes first, a container of a
// sandbox created after the first call may show up, and names its pod by its label. The other way
// round, a pod removed in between would show running containers without a sandbox, a state that
// never was. A new container that is still unattributed causes another list of the sandboxes.
func (c *Client) List(ctx context.Context, since pleg.Revision) (pleg.Listing, error) {
	select {
	case c.listing <- struct{}{}:
		defer func() { <-c.listing }()
	case <-ctx.Done():
		return pleg.Listing{}, fmt.Errorf("cri: waiting for another listing of %s: %w", c.endpoint, context.Cause(ctx))
	}
	x := c.index
	x.begin()
	c.unlabelled.begin()
	c.excluded.begin()
	var walker segments
	err := c.listAll(ctx, &walker, x.sandbox, streamPodSandboxes, listPodSandbox)
	known := len(x.unattributed)
	if err == nil {
		err = c.listAll(ctx, &walker, x.container, streamContainers, listContainers)
	}
	if err == nil && len(x.unattributed) > known {
		before := x.duplicates
		err = c.listAll(ctx, &walker, x.sandbox, streamPodSandboxes, listPodSandbox)
		x.duplicates = before // being listed twice is our doing
	}
	c.counter.malformed.Add(x.malformed)
	c.counter.duplicates.Add(x.duplicates)
	c.counter.unknownStates.Add(x.unknownStates)
	if err != nil {
		return pleg.Listing{}, err
	}
	listing := x.commit(since, &c.unlabelled)
	c.unlabelled.end()
	c.excluded.end()
	c.counter.unattributed.Store(int64(len(x.unattributed)))
	return listing, nil
}

// lister is a list call in flight.
type lister struct {
	client *Client
	walker *segments
	visit  func(item []byte) bool
	items  int
}

// listAll lists everything, by the streaming call unless the runtime is known to lack it, and
// visits every item of the answer.
func (c *Client) listAll(ctx context.Context, walker *segments, visit func([]byte) bool, streaming, plain method) error {
	l := lister{client: c, walker: walker, visit: visit}
	return l.withFallback(ctx, nil, streaming, plain)
}

// withFallback makes the first of two equivalent list calls, or the second if the runtime is known
// to lack the first. An unimplemented call gives way to the other, in either direction, so that a
// learned capability can never keep a runtime from being listed.
func (l *lister) withFallback(ctx context.Context, req request, first, second method) error {
	known := l.client.capabilities.Load()
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

// call makes a list call, and visits every item of its answer.
func (l *lister) call(ctx context.Context, req request, m method) error {
	if m == streamPodSandboxes || m == streamContainers {
		return l.stream(ctx, req, m)
	}
	var reply borrowed
	if err := l.client.call(ctx, m, req, &reply); err != nil {
		return err
	}
	return l.take(&reply, m)
}

// stream makes a streaming list call and visits every item of its batches. From a runtime without
// the call, the first receive returns Unimplemented.
func (l *lister) stream(ctx context.Context, req request, m method) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	stream, err := l.client.open(ctx, m, req)
	for err == nil {
		var batch borrowed
		if err = stream.RecvMsg(&batch); err == nil {
			l.client.monitor.received.Add(1)
			if err := l.take(&batch, m); err != nil {
				return err
			}
		}
	}
	l.client.monitor.observe(ctx, begun, err)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return l.client.explain(ctx, m, "", err)
}

// take visits every item of a list answer and frees the answer.
func (l *lister) take(reply *borrowed, m method) error {
	defer reply.data.Free()
	size := reply.data.Len()
	ok := l.walker.walk(reply.data, itemsField, func(item []byte) bool {
		l.items++
		return l.items <= maxListItems && l.visit(item)
	})
	switch {
	case l.items > maxListItems:
		return fmt.Errorf("cri: %s on %s: %w: more than %d items", m, l.client.endpoint, ErrTooMany, maxListItems)
	case !ok:
		return fmt.Errorf("cri: %s on %s: %w of %d bytes: the runtime sent what is not a list of items", m, l.client.endpoint, ErrMalformed, size)
	}
	return nil
}

// ListPod implements [pleg.Source]: sandboxes and containers of the pod, with both calls at once,
// by the label io.kubernetes.pod.uid set by the kubelet. Items let through by a faulty filter of
// the runtime are left out. A pod that Config.Filter refuses has no items, as in [Client.List]; one
// of which no sandbox is listed is refused if the last listing, or an event, has shown it refused.
//
// A pod without the label is also listed by the IDs of its sandboxes, known from the last
// [Client.List] or a later event. So a new sandbox of such a pod is found by its event, else by the
// next List. Who makes sandboxes and containers must give both the label, as kubelets do: what
// lacks it is missing from the pod until then, and a new pod without it may be gone for a waiter in
// GetNewerThan, whatever Generator.Calling was told.
func (c *Client) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	if uid == "" {
		return pleg.Pod{}, errors.New("cri: cannot list a pod with an empty UID")
	}
	sandboxes, containers := c.podQueries(uid)
	reads := append(sandboxes, containers...)
	found := podBuilder{
		client: c,
		uid:    uid,
		pod:    pleg.Pod{UID: uid},
		at:     make(map[string]int),
	}
	err := c.parallel(ctx, len(reads), func(ctx context.Context, i int) error { return c.queryPod(ctx, reads[i], &found) })
	if err != nil {
		return pleg.Pod{}, err
	}
	if found.refused() {
		return pleg.Pod{UID: uid}, nil
	}
	return found.pod, nil
}

// maxByID bounds the sandboxes of a pod listed by ID. A pod with more is picked out of a list of
// everything.
const maxByID = 32

// podQuery is a list call with one of the filters. A container without the pod UID label is the
// pod's if its sandbox is among ofSandboxes, which is sorted.
type podQuery struct {
	sandboxes   *runtimeapi.PodSandboxFilter
	containers  *runtimeapi.ContainerFilter
	ofSandboxes []string
}

// podQueries returns the calls that together find all sandboxes, and all containers, of a pod.
func (c *Client) podQueries(uid cache.UID) (sandboxes, containers []podQuery) {
	ids := c.unlabelled.sandboxes(uid)
	if len(ids) > maxByID {
		return []podQuery{{sandboxes: new(runtimeapi.PodSandboxFilter)}}, []podQuery{{containers: new(runtimeapi.ContainerFilter), ofSandboxes: ids}}
	}
	label := map[string]string{labelPodUID: string(uid)}
	sandboxes = []podQuery{{sandboxes: &runtimeapi.PodSandboxFilter{LabelSelector: label}}}
	containers = []podQuery{{containers: &runtimeapi.ContainerFilter{LabelSelector: label}}}
	for _, id := range ids {
		sandboxes = append(sandboxes, podQuery{sandboxes: &runtimeapi.PodSandboxFilter{Id: id}})
		containers = append(containers, podQuery{containers: &runtimeapi.ContainerFilter{PodSandboxId: id}, ofSandboxes: []string{id}})
	}
	return sandboxes, containers
}

// podBuilder puts the pod together.
type podBuilder struct {
	client *Client // for its counters
	uid    cache.UID
	mu     sync.Mutex // guards the fields below
	pod    pleg.Pod
	at     map[string]int // where in pod.Items an ID is
	// asked: the filter was asked about a sandbox of the pod; passes: about one that it lets through.
	asked, passes bool
	// sandboxOf holds the sandbox of each container.
	sandboxOf map[string]string
}

// refused reports whether the filter refuses the pod.
func (p *podBuilder) refused() bool {
	if p.asked {
		return !p.passes
	}
	return p.client.excluded.has(p.uid)
}

func (c *Client) queryPod(ctx context.Context, read podQuery, found *podBuilder) error {
	plain := listPodSandbox
	streaming := streamPodSandboxes
	message := proto.Message(&runtimeapi.ListPodSandboxRequest{Filter: read.sandboxes})
	visit := found.sandbox
	if read.containers != nil {
		plain = listContainers
		streaming = streamContainers
		message = &runtimeapi.ListContainersRequest{Filter: read.containers}
		visit = func(raw []byte) bool { return found.container(raw, read.ofSandboxes) }
	}
	req, err := proto.Marshal(message) // the requests of the two calls have the same fields
	if err != nil {
		return fmt.Errorf("cri: cannot ask for the pod %q: %w", found.uid, err)
	}
	l := lister{client: c, walker: new(segments), visit: func(raw []byte) bool {
		found.mu.Lock()
		defer found.mu.Unlock()
		return visit(raw)
	}}
	return l.withFallback(ctx, req, plain, streaming)
}

// sandbox takes a listed sandbox. The caller holds mu.
func (p *podBuilder) sandbox(raw []byte) bool {
	var item sandboxItem
	if !item.readListed(raw) {
		return false
	}
	if !item.usable() {
		p.client.counter.malformed.Add(1)
		return true
	}
	if string(item.uid()) == string(p.uid) {
		if !knownSandboxState(item.state) {
			p.client.counter.unknownStates.Add(1)
		}
		if filtered := &p.client.excluded; filtered.filter != nil && !p.passes {
			p.asked = true
			p.passes = filtered.passes(metaOfSandbox(&item, raw, labelsOfPodSandbox))
		}
		p.add(pleg.Item{ID: string(item.id), Kind: pleg.Sandbox, Phase: item.phase()}, item.meta.name, item.meta.namespace)
	}
	return true
}

// container takes a listed container; unlabelled containers of ofSandboxes, which is sorted, are
// the pod's. The caller holds mu.
func (p *podBuilder) container(raw []byte, ofSandboxes []string) bool {
	var item containerItem
	if !item.readListed(raw) {
		return false
	}
	if !item.usable() {
		p.client.counter.malformed.Add(1)
		return true
	}
	belongs := string(item.labels.uid) == string(p.uid)
	if len(item.labels.uid) == 0 && len(ofSandboxes) > 0 {
		_, belongs = slices.BinarySearch(ofSandboxes, string(item.sandbox))
	}
	if belongs {
		if !knownContainerState(item.state) {
			p.client.counter.unknownStates.Add(1)
		}
		one := pleg.Item{
			ID:    string(item.id),
			Kind:  pleg.Container,
			Phase: item.phase(),
			Name:  truncate(string(item.name)),
		}
		p.add(one, item.labels.name, item.labels.namespace)
		if p.sandboxOf != nil && validID(item.sandbox) {
			p.sandboxOf[string(item.id)] = string(item.sandbox)
		}
	}
	return true
}

// add adds an item to the pod. An ID listed twice gets the later phase; an ID is a sandbox's or a
// container's, and the sandbox stands, as in [Client.List].
func (p *podBuilder) add(item pleg.Item, name, namespace []byte) {
	if p.pod.Name == "" {
		p.pod.Name = truncate(string(name))
	}
	if p.pod.Namespace == "" {
		p.pod.Namespace = truncate(string(namespace))
	}
	if i, ok := p.at[item.ID]; ok {
		was := &p.pod.Items[i]
		switch {
		case was.Kind == item.Kind:
			was.Phase = max(was.Phase, item.Phase)
		case item.Kind == pleg.Sandbox:
			*was = item
		}
		return
	}
	p.at[item.ID] = len(p.pod.Items)
	p.pod.Items = append(p.pod.Items, item)
}
