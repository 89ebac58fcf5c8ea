// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// A read of the statuses of one pod: the IDs to read and the statuses to reuse, the calls, and the
// resulting status.

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Inspect implements [pleg.Source]. Inspect reads the status of every sandbox of the pod, and of
// every container missing from the PodSandboxStatus answers. A timestamp in such an answer proves
// nothing: containerd 2.0.0 to 2.0.2 sets the timestamp and leaves the statuses out. Only the
// presence of the very container counts. So CRI-O with events on needs one call a sandbox, others
// one a sandbox and one a container, concurrently within Config.MaxStatusCalls.
//
// IDs that the runtime no longer has are left out. Any other failure fails the inspection; the
// error names the call and the ID.
func (c *Client) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[PodStatus], error) {
	return c.Update(ctx, pod, nil)
}

// Update implements [pleg.Updater]: statuses in prev are reused for the sandboxes and containers of
// pod with an unchanged phase, and the others are read: an exited container costs one call, however
// many run beside it. Where PodSandboxStatus answers include container statuses, several changed
// containers are read with one call a sandbox. Changes without a change of phase (resources,
// annotations) are read by Inspect only, the method behind a generator's RequestReinspect.
func (c *Client) Update(ctx context.Context, pod pleg.Pod, prev *PodStatus) (pleg.Inspection[PodStatus], error) {
	in := inspection{client: c, pod: pod}
	in.plan(prev)
	if err := in.run(ctx); err != nil {
		return pleg.Inspection[PodStatus]{}, err
	}
	return in.result(), nil
}

// inspection is a read of one pod's statuses.
type inspection struct {
	client *Client
	pod    pleg.Pod
	// sandboxes and containers are the IDs to read; reused holds the earlier statuses of the other
	// IDs.
	sandboxes, containers []string
	reused                statusMessages
	multipleSandboxes     bool
	// sandboxStatuses and containerStatuses hold the encoded statuses by the index of their ID, nil
	// if the runtime has none.
	sandboxStatuses, containerStatuses [][]byte
	// bundled holds the container statuses in each sandbox's answer.
	bundled   [][][]byte
	sandboxOf map[string]string
}

// plan divides the pod's IDs into those to read and those to take over from prev, which may be nil.
func (in *inspection) plan(prev *PodStatus) {
	old := prev.parts()
	var sandboxes []string // all
	for _, item := range in.pod.Items {
		raw, ok := old[pleg.Item{ID: item.ID, Kind: item.Kind, Phase: item.Phase}]
		if item.Kind == pleg.Sandbox {
			sandboxes = append(sandboxes, item.ID)
			if ok {
				in.reused.sandboxes = append(in.reused.sandboxes, raw)
			} else {
				in.sandboxes = append(in.sandboxes, item.ID)
			}
			continue
		}
		if ok {
			in.reused.containers = append(in.reused.containers, raw)
		} else {
			in.containers = append(in.containers, item.ID)
		}
	}
	in.multipleSandboxes = len(sandboxes) > 1
	if len(in.containers) > len(sandboxes) && !in.client.capabilities.Load().fillsStatuses.no() {
		in.sandboxes, in.reused.sandboxes = sandboxes, nil // they may bring them all along
	}
	if len(in.sandboxes)+len(in.containers) < len(in.pod.Items) {
		in.reused.sandboxOf = prev.encoded.sandboxOf
	}
}

// unattributed reports whether the sandbox of any container of the pod is missing from the earlier
// status.
func (in *inspection) unattributed() bool {
	return slices.ContainsFunc(in.pod.Items, func(item pleg.Item) bool {
		return item.Kind == pleg.Container && in.reused.sandboxOf[item.ID] == ""
	})
}

// parts returns the reusable statuses, each in memory of its own: a status that shared the message
// of its arrival would keep the whole message alive.
func (s *PodStatus) parts() map[pleg.Item][]byte {
	if s == nil || s.encoded == nil {
		return nil
	}
	b := s.encoded
	found := make(map[pleg.Item][]byte, len(b.sandboxes)+len(b.containers))
	put := func(id []byte, kind pleg.Kind, phase pleg.Phase, raw []byte) {
		if phase == pleg.PhaseUnknown {
			return
		}
		if b.shared {
			raw = slices.Clone(raw)
		}
		found[pleg.Item{ID: string(id), Kind: kind, Phase: phase}] = raw
	}
	for _, raw := range b.sandboxes {
		var item sandboxItem
		if item.read(raw, labelsOfPodSandboxStatus) {
			put(item.id, pleg.Sandbox, item.phase(), raw)
		}
	}
	for _, raw := range b.containers {
		var item containerItem
		if item.readStatus(raw) {
			put(item.id, pleg.Container, item.phase(), raw)
		}
	}
	return found
}

func (in *inspection) run(ctx context.Context) error {
	c := in.client
	known := c.capabilities.Load()
	in.sandboxStatuses, in.bundled = make([][]byte, len(in.sandboxes)), make([][][]byte, len(in.sandboxes))
	in.containerStatuses = make([][]byte, len(in.containers))
	sandboxes, containers := len(in.sandboxes), 0
	if known.fillsStatuses.no() || sandboxes == 0 {
		containers = len(in.containers) // nothing to wait for
	}
	extra := 0
	if in.multipleSandboxes && in.unattributed() {
		extra = 1 // a ContainerStatus does not name its sandbox
	}
	err := c.parallel(ctx, sandboxes+containers+extra, func(ctx context.Context, i int) error {
		switch {
		case i < sandboxes:
			return in.readSandbox(ctx, i)
		case i < sandboxes+containers:
			return in.readContainer(ctx, i-sandboxes)
		}
		return in.readMembership(ctx)
	})
	if err != nil || len(in.containers) == 0 {
		return err
	}
	covered := in.bundledIDs()
	if slices.ContainsFunc(in.sandboxStatuses, func(raw []byte) bool { return raw != nil }) {
		known.fillsStatuses.learn(len(covered) > 0)
	}
	if containers > 0 {
		return nil
	}
	var missing []int
	for i, id := range in.containers {
		if _, ok := covered[id]; !ok {
			missing = append(missing, i)
		}
	}
	return c.parallel(ctx, len(missing), func(ctx context.Context, i int) error { return in.readContainer(ctx, missing[i]) })
}

// bundledIDs returns the IDs of the containers with a status in a sandbox's answer.
func (in *inspection) bundledIDs() map[string]struct{} {
	var ids map[string]struct{}
	for _, statuses := range in.bundled {
		for _, raw := range statuses {
			var item containerItem
			if item.readStatus(raw) {
				if ids == nil {
					ids = make(map[string]struct{})
				}
				ids[string(item.id)] = struct{}{}
			}
		}
	}
	return ids
}

// status makes a status call and returns the encoded status, nil if the runtime does not have the
// ID, and the whole container statuses in the same answer.
func (in *inspection) status(ctx context.Context, m method, id string) (raw []byte, containers [][]byte, err error) {
	c := in.client
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("cri: waiting to call %s of %s on %s: %w", m, id, c.endpoint, context.Cause(ctx))
	}
	var reply owned
	req := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	if err := c.invoke(ctx, m, req, &reply); err != nil {
		if status.Code(err) == codes.NotFound {
			return nil, nil, nil
		}
		return nil, nil, c.explain(ctx, m, id, err)
	}
	return c.readStatus(m, id, reply.data)
}

// readStatus takes the answer to a status call: see [inspection.status].
func (c *Client) readStatus(m method, id string, reply []byte) (raw []byte, containers [][]byte, err error) {
	fail := func(format string, args ...any) ([]byte, [][]byte, error) {
		return nil, nil, fmt.Errorf("cri: %s of %s on %s: "+format, append([]any{m, id, c.endpoint}, args...)...)
	}
	parts := []checkedStatus{{}} // first the status asked for
	bad := false
	f := fields{rest: reply}
	for f.next() {
		switch {
		case f.isBytes(1):
			raw = mergeOccurrence(raw, f.data)
		case f.isBytes(3) && m == podSandboxStatus:
			var item containerItem
			p, ok := checkStatus(f.data, shapeOfContainerStatus())
			if !ok || !item.readStatus(f.data) || !item.usable() {
				c.counter.malformed.Add(1) // read by its own ID if needed
				continue
			}
			if !knownContainerState(item.state) {
				c.counter.unknownStates.Add(1)
			}
			parts = append(parts, p)
		case f.isBytes(2): // info
			_, _, ok := mapEntry(f.data)
			bad = bad || !ok
		}
	}
	if f.malformed || bad {
		return fail("%w of %d bytes", ErrMalformed, len(reply))
	}
	if raw == nil {
		return fail("the answer holds no status")
	}
	var (
		shape                *shape
		subject              []byte // the ID in the status
		readable, knownState bool
	)
	if m == podSandboxStatus {
		var item sandboxItem
		shape, readable = shapeOfSandboxStatus(), item.read(raw, labelsOfPodSandboxStatus)
		subject, knownState = item.id, knownSandboxState(item.state)
	} else {
		var item containerItem
		shape, readable = shapeOfContainerStatus(), item.readStatus(raw)
		subject, knownState = item.id, knownContainerState(item.state)
	}
	if readable && string(subject) != id {
		return fail("the answer is about %q", truncate(string(subject)))
	}
	if !knownState {
		c.counter.unknownStates.Add(1)
	}
	var ok bool
	if parts[0], ok = checkStatus(raw, shape); !ok && parts[0].whole {
		return fail("%w: no metadata or no creation time", ErrMalformed)
	} else if !ok {
		return fail("%w of %d bytes: a part of the status cannot be read", ErrMalformed, len(reply))
	}
	kept := retain(parts, len(reply))
	return kept[0], kept[1:], nil
}

func (in *inspection) readSandbox(ctx context.Context, i int) (err error) {
	in.sandboxStatuses[i], in.bundled[i], err = in.status(ctx, podSandboxStatus, in.sandboxes[i])
	return err
}

func (in *inspection) readContainer(ctx context.Context, i int) (err error) {
	in.containerStatuses[i], _, err = in.status(ctx, containerStatus, in.containers[i])
	return err
}

// readMembership finds out which container belongs to which of several sandboxes.
func (in *inspection) readMembership(ctx context.Context) error {
	found := podBuilder{client: in.client, uid: in.pod.UID, at: make(map[string]int), sandboxOf: make(map[string]string)}
	_, queries := in.client.podQueries(in.pod.UID)
	for _, read := range queries {
		if err := in.client.queryPod(ctx, read, &found); err != nil {
			return err
		}
	}
	in.sandboxOf = found.sandboxOf
	return nil
}

// result builds the status from the read and the reused parts.
func (in *inspection) result() pleg.Inspection[PodStatus] {
	body := &encodedStatus{statusMessages: statusMessages{sandboxOf: in.sandboxOf}}
	if body.sandboxOf == nil && in.multipleSandboxes {
		body.sandboxOf = in.reused.sandboxOf
	}
	for _, statuses := range in.bundled {
		body.shared = body.shared || len(statuses) > 0
	}
	pod := pleg.Pod{UID: in.pod.UID, Name: in.pod.Name, Namespace: in.pod.Namespace, Items: make([]pleg.Item, 0, len(in.pod.Items))}
	for _, raw := range slices.Concat(in.reused.sandboxes, in.sandboxStatuses) {
		var item sandboxItem
		if raw != nil && item.read(raw, labelsOfPodSandboxStatus) {
			body.sandboxes = append(body.sandboxes, raw)
			pod.Items = append(pod.Items, pleg.Item{ID: string(item.id), Kind: pleg.Sandbox, Phase: item.phase()})
		}
	}
	at := make(map[string]int, len(in.containers))
	add := func(raw []byte, id string) {
		var item containerItem
		if !item.readStatus(raw) {
			return // no stored status
		}
		if id == "" {
			id = string(item.id)
		}
		in.client.exits.note(id, &item)
		if len(item.labels.uid) > 0 && string(item.labels.uid) != string(pod.UID) {
			return // another pod's
		}
		// Several answers may show the same container, none older than this inspection: the later phase
		// holds.
		if j, ok := at[id]; ok {
			if k := len(pod.Items) - len(body.containers) + j; item.phase() >= pod.Items[k].Phase {
				pod.Items[k].Phase, body.containers[j] = item.phase(), raw
			}
			return
		}
		at[id] = len(body.containers)
		body.containers = append(body.containers, raw)
		pod.Items = append(pod.Items, pleg.Item{ID: id, Kind: pleg.Container, Phase: item.phase(), Name: nameOfStatus(raw)})
	}
	for _, raw := range in.reused.containers {
		add(raw, "")
	}
	for i, raw := range in.containerStatuses {
		if raw != nil {
			add(raw, in.containers[i])
		}
	}
	for _, statuses := range in.bundled {
		for _, raw := range statuses {
			add(raw, "")
		}
	}
	return pleg.Inspection[PodStatus]{
		Status: &PodStatus{uid: pod.UID, name: pod.Name, namespace: pod.Namespace, encoded: body},
		Pod:    pod,
	}
}
