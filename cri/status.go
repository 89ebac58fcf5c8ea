// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
)

// PodStatus is what the runtime said of one pod. It is immutable and safe for use by several
// goroutines at once; what its methods return is shared and must not be changed. It keeps the
// runtime's bytes and decodes them when they are first asked for, so a status that nobody reads
// costs next to nothing. The zero value is the status of a pod of which nothing is known.
type PodStatus struct {
	uid             cache.UID
	name, namespace string // as the listing had them, for pods whose sandboxes do not tell
	body            *body
	kept            []string // the IPs that KeepIPs kept
}

// messages is what the runtime sent of a pod.
type messages struct {
	sandboxes  [][]byte // CRI PodSandboxStatus each
	containers [][]byte // CRI ContainerStatus each
	// sandboxOf holds the sandbox of each container, nil if there is no more than one sandbox.
	sandboxOf map[string]string
}

// body is the encoded side of a status, and what was decoded of it.
type body struct {
	messages
	// shared says that several of them lie in one piece of memory.
	shared bool

	onceSandboxes  sync.Once
	sandboxList    []SandboxStatus
	sandboxErr     error
	onceContainers sync.Once
	containerList  []ContainerStatus
	containerErr   error
}

// EmptyStatus returns the status of a pod of which nothing is known, as cache.New wants it.
func EmptyStatus(uid cache.UID) *PodStatus { return &PodStatus{uid: uid} }

// UID returns the pod's UID.
func (s *PodStatus) UID() cache.UID { return s.uid }

// Name returns the pod's name, empty if the runtime does not tell it.
func (s *PodStatus) Name() string {
	name, _ := s.names()
	return name
}

// Namespace returns the pod's namespace, empty if the runtime does not tell it.
func (s *PodStatus) Namespace() string {
	_, namespace := s.names()
	return namespace
}

// names returns what the newest sandbox that tells it says, else what the listing said, else the
// labels of the containers: a status is read later than the listing, and is what RequestReinspect
// reads.
func (s *PodStatus) names() (name, namespace string) {
	for _, sandbox := range s.Sandboxes() {
		name, namespace = or(name, sandbox.Name), or(namespace, sandbox.Namespace)
	}
	name, namespace = or(name, s.name), or(namespace, s.namespace)
	if name == "" || namespace == "" {
		for _, container := range s.Containers() {
			name, namespace = or(name, container.Labels[labelPodName]), or(namespace, container.Labels[labelPodNamespace])
		}
	}
	return name, namespace
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// IPs returns the pod's addresses, the primary one first: those of the newest ready sandbox, else
// those that were kept from an earlier status (see [KeepIPs]), else what the newest sandbox that
// has any still shows.
func (s *PodStatus) IPs() []string {
	sandboxes := s.Sandboxes()
	for _, sandbox := range sandboxes {
		if sandbox.Ready() {
			return sandbox.IPs
		}
	}
	if len(s.kept) > 0 {
		return s.kept
	}
	for _, sandbox := range sandboxes {
		if len(sandbox.IPs) > 0 {
			return sandbox.IPs
		}
	}
	return nil
}

// Sandboxes returns the pod's sandboxes, the newest first.
func (s *PodStatus) Sandboxes() []SandboxStatus {
	if s.body == nil {
		return nil
	}
	b := s.body
	b.onceSandboxes.Do(func() {
		for _, raw := range b.sandboxes {
			sandbox, ok := decodeSandbox(raw)
			if !ok {
				b.sandboxErr = fmt.Errorf("cri: the status of sandbox %s of pod %s: %w", sandbox.ID, s.uid, ErrMalformed)
			}
			b.sandboxList = append(b.sandboxList, sandbox)
		}
		slices.SortStableFunc(b.sandboxList, func(x, y SandboxStatus) int {
			return newest(x.CreatedAt, y.CreatedAt, x.ID, y.ID)
		})
	})
	return b.sandboxList
}

// Containers returns the pod's containers, the newest first: of containers of one name, the first
// is the present one.
func (s *PodStatus) Containers() []ContainerStatus {
	if s.body == nil {
		return nil
	}
	b := s.body
	b.onceContainers.Do(func() {
		only := ""
		if sandboxes := s.Sandboxes(); len(sandboxes) == 1 {
			only = sandboxes[0].ID
		}
		for _, raw := range b.containers {
			container, ok := decodeContainer(raw)
			if !ok {
				b.containerErr = fmt.Errorf("cri: the status of container %s of pod %s: %w", container.ID, s.uid, ErrMalformed)
			}
			container.SandboxID = only
			if b.sandboxOf != nil {
				container.SandboxID = b.sandboxOf[container.ID]
			}
			b.containerList = append(b.containerList, container)
		}
		slices.SortStableFunc(b.containerList, func(x, y ContainerStatus) int {
			return newest(x.CreatedAt, y.CreatedAt, x.ID, y.ID)
		})
	})
	return b.containerList
}

// Err decodes the status and says whether parts of it were unreadable. Those parts are missing from
// what the other methods return.
func (s *PodStatus) Err() error {
	if s.body == nil {
		return nil
	}
	s.Sandboxes()
	s.Containers()
	return errors.Join(s.body.sandboxErr, s.body.containerErr)
}

// Messages decodes the status into the CRI's own types, for what the other methods leave out. The
// result is the caller's. Order is the runtime's. Unlike the other methods it fails on text that is
// not valid UTF-8.
func (s *PodStatus) Messages() ([]*runtimeapi.PodSandboxStatus, []*runtimeapi.ContainerStatus, error) {
	if s.body == nil {
		return nil, nil, nil
	}
	sandboxes := make([]*runtimeapi.PodSandboxStatus, len(s.body.sandboxes))
	containers := make([]*runtimeapi.ContainerStatus, len(s.body.containers))
	for i, raw := range s.body.sandboxes {
		sandboxes[i] = new(runtimeapi.PodSandboxStatus)
		if err := proto.Unmarshal(raw, sandboxes[i]); err != nil {
			return nil, nil, fmt.Errorf("cri: a sandbox status of pod %s: %w: %w", s.uid, ErrMalformed, err)
		}
	}
	for i, raw := range s.body.containers {
		containers[i] = new(runtimeapi.ContainerStatus)
		if err := proto.Unmarshal(raw, containers[i]); err != nil {
			return nil, nil, fmt.Errorf("cri: a container status of pod %s: %w: %w", s.uid, ErrMalformed, err)
		}
	}
	return sandboxes, containers, nil
}

// String returns the status in one line, for logs.
func (s *PodStatus) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s(%s) ips=%v", s.Namespace(), s.Name(), s.uid, s.IPs())
	for _, sandbox := range s.Sandboxes() {
		fmt.Fprintf(&b, " sandbox:%.12s=%s", sandbox.ID, sandbox.Phase)
	}
	for _, container := range s.Containers() {
		fmt.Fprintf(&b, " %s:%.12s=%s", container.Name, container.ID, container.Phase)
		if !container.FinishedAt.IsZero() {
			fmt.Fprintf(&b, "(%d)", container.ExitCode)
		}
	}
	return b.String()
}

// statusOfEvent returns the status that an encoded event carries, in memory of its own. It fails if
// a part of the payload is malformed or incomplete: what is left would be shown for as long as its
// phases are right, without names, addresses or exit codes.
func statusOfEvent(raw []byte, uid cache.UID) (*PodStatus, error) {
	e, ok := readEvent(raw)
	if !ok {
		return nil, fmt.Errorf("cri: an event of pod %s: %w", uid, ErrMalformed)
	}
	size := 0
	parts := make([]part, 0, 1+e.containers)
	take := func(raw []byte, of *shape, good bool) bool {
		p, ok := examine(raw, of)
		size += len(raw) - p.unknown
		parts = append(parts, p)
		return ok && good
	}
	if e.sandboxRaw != nil && !take(e.sandboxRaw, shapeOfSandboxStatus(), e.sandbox.usable()) {
		return nil, fmt.Errorf("cri: an event of pod %s: the status of sandbox %q: %w", uid, bounded(string(e.sandbox.id)), ErrMalformed)
	}
	for raw := range e.containerStatuses {
		var item containerItem
		if ok := item.readStatus(raw); !take(raw, shapeOfContainerStatus(), ok && item.usable()) {
			return nil, fmt.Errorf("cri: an event of pod %s: the status of container %q: %w", uid, bounded(string(item.id)), ErrMalformed)
		}
	}
	b := &body{shared: true}
	own := make([]byte, 0, size)
	for i, p := range parts {
		from := len(own)
		if p.unknown == 0 {
			own = append(own, p.raw...)
		} else {
			own = p.shape.appendKnown(own, p.raw)
		}
		if i == 0 && e.sandboxRaw != nil {
			b.sandboxes = append(b.sandboxes, own[from:len(own):len(own)])
		} else {
			b.containers = append(b.containers, own[from:len(own):len(own)])
		}
	}
	return &PodStatus{uid: uid, body: b}, nil
}
