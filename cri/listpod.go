// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// ListPod implements [pleg.Source]: it lists the pod's sandboxes and containers, both calls at
// once, by the label io.kubernetes.pod.uid that the kubelet sets. What the runtime's filter lets
// through wrongly is left out.
//
// A pod that does not carry the label is also listed by the IDs of its sandboxes, as the last
// [Client.List], or an event since, showed them. So a new sandbox of such a pod is found by the
// event about it, else by the next List.
func (c *Client) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	if uid == "" {
		return pleg.Pod{}, errors.New("cri: cannot list a pod with an empty UID")
	}
	reads := append(c.sandboxReads(uid), c.containerReads(uid)...)
	found := podParts{client: c, uid: uid, pod: pleg.Pod{UID: uid}, at: make(map[string]int)}
	err := c.each(ctx, len(reads), func(ctx context.Context, i int) error { return c.readPod(ctx, reads[i], &found) })
	if err != nil {
		return pleg.Pod{}, err
	}
	return found.pod, nil
}

// maxByID bounds the sandboxes of one pod that are asked for one by one. A pod with more of them is
// picked out of a list of everything.
const maxByID = 32

// podRead is one list call with one of the filters. A container without the pod UID label is the
// pod's if its sandbox is among those.
type podRead struct {
	sandboxes  *runtimeapi.PodSandboxFilter
	containers *runtimeapi.ContainerFilter
	among      []string
}

// sandboxReads returns the calls that find all sandboxes of a pod.
func (c *Client) sandboxReads(uid cache.UID) []podRead {
	ids := c.byID.sandboxes(uid)
	if len(ids) > maxByID {
		return []podRead{{sandboxes: new(runtimeapi.PodSandboxFilter)}}
	}
	reads := []podRead{{sandboxes: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelPodUID: string(uid)}}}}
	for _, id := range ids {
		reads = append(reads, podRead{sandboxes: &runtimeapi.PodSandboxFilter{Id: id}})
	}
	return reads
}

// containerReads returns the calls that find all containers of a pod.
func (c *Client) containerReads(uid cache.UID) []podRead {
	ids := c.byID.sandboxes(uid)
	if len(ids) > maxByID {
		return []podRead{{containers: new(runtimeapi.ContainerFilter), among: ids}}
	}
	reads := []podRead{{containers: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelPodUID: string(uid)}}}}
	for _, id := range ids {
		reads = append(reads, podRead{containers: &runtimeapi.ContainerFilter{PodSandboxId: id}, among: []string{id}})
	}
	return reads
}

// podParts puts the pod together.
type podParts struct {
	client *Client // whose counts are added to
	uid    cache.UID
	mu     sync.Mutex // guards what follows
	pod    pleg.Pod
	at     map[string]int // where in pod.Items an ID is
	// sandboxOf holds the sandbox of each container.
	sandboxOf map[string]string
}

func (c *Client) readPod(ctx context.Context, read podRead, found *podParts) error {
	plain, streaming, message := listPodSandbox, streamPodSandboxes, proto.Message(&runtimeapi.ListPodSandboxRequest{Filter: read.sandboxes})
	visit := found.sandbox
	if read.containers != nil {
		plain, streaming, message = listContainers, streamContainers, &runtimeapi.ListContainersRequest{Filter: read.containers}
		visit = func(raw []byte) bool { return found.container(raw, read.among) }
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
	return l.either(ctx, req, plain, streaming)
}

// sandbox takes one listed sandbox. The caller holds mu.
func (p *podParts) sandbox(raw []byte) bool {
	var item sandboxItem
	if !item.readListed(raw) {
		return false
	}
	if item.usable() && string(item.uid()) == string(p.uid) {
		if !hasSandboxState(item.state) {
			p.client.counter.unknownStates.Add(1)
		}
		p.add(pleg.Item{ID: string(item.id), Kind: pleg.Sandbox, Phase: item.phase()}, item.meta.name, item.meta.namespace)
	}
	return true
}

// container takes one listed container; among are the sandboxes, in order, whose unlabelled
// containers are the pod's. The caller holds mu.
func (p *podParts) container(raw []byte, among []string) bool {
	var item containerItem
	if !item.readListed(raw) {
		return false
	}
	mine := string(item.labels.uid) == string(p.uid)
	if len(item.labels.uid) == 0 && len(among) > 0 {
		_, mine = slices.BinarySearch(among, string(item.sandbox))
	}
	if item.usable() && mine {
		if !hasContainerState(item.state) {
			p.client.counter.unknownStates.Add(1)
		}
		one := pleg.Item{ID: string(item.id), Kind: pleg.Container, Phase: item.phase(), Name: bounded(string(item.name))}
		p.add(one, item.labels.name, item.labels.namespace)
		if p.sandboxOf != nil {
			p.sandboxOf[string(item.id)] = string(item.sandbox)
		}
	}
	return true
}

// add takes one item of the pod. An ID that is listed twice has the later phase.
func (p *podParts) add(item pleg.Item, name, namespace []byte) {
	if p.pod.Name == "" {
		p.pod.Name = bounded(string(name))
	}
	if p.pod.Namespace == "" {
		p.pod.Namespace = bounded(string(namespace))
	}
	if i, ok := p.at[item.ID]; ok {
		p.pod.Items[i].Phase = max(p.pod.Items[i].Phase, item.Phase)
		return
	}
	p.at[item.ID] = len(p.pod.Items)
	p.pod.Items = append(p.pod.Items, item)
}
