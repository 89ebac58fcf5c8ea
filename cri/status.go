// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// A stored status from the runtime's bytes to its readers: PodStatus, and the merge KeepIPs.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// PodStatus is the runtime's status of one pod. A PodStatus is immutable and safe for concurrent
// use; results of its methods are shared and must not be changed. The runtime's bytes are kept and
// decoded on first use, so a status without readers costs next to nothing. The zero value is the
// status of a pod of which nothing is known.
type PodStatus struct {
	uid             cache.UID
	name, namespace string // from the listing, for pods with nameless sandboxes
	encoded         *encodedStatus
	keptIPs         []string // the IPs kept by KeepIPs
}

// statusMessages are the encoded statuses of a pod.
type statusMessages struct {
	sandboxes  [][]byte // CRI PodSandboxStatus each
	containers [][]byte // CRI ContainerStatus each
	// sandboxOf holds the sandbox of each container, nil for a pod with at most one sandbox.
	sandboxOf map[string]string
}

// encodedStatus is the encoded side of a status, with its decoded parts.
type encodedStatus struct {
	statusMessages
	// shared: several messages lie in the same allocation.
	shared bool

	onceSandboxes  sync.Once
	sandboxList    []SandboxStatus
	sandboxErr     error
	onceContainers sync.Once
	containerList  []ContainerStatus
	containerErr   error
}

// EmptyStatus returns the status of a pod of which nothing is known, for cache.New.
func EmptyStatus(uid cache.UID) *PodStatus { return &PodStatus{uid: uid} }

// UID returns the pod's UID.
func (s *PodStatus) UID() cache.UID { return s.uid }

// Name returns the pod's name, empty if not known.
func (s *PodStatus) Name() string {
	name, _ := s.names()
	return name
}

// Namespace returns the pod's namespace, empty if not known.
func (s *PodStatus) Namespace() string {
	_, namespace := s.names()
	return namespace
}

// names returns the names in the newest sandbox that has any, else in the listing, else in the
// labels of the containers: a status is read later than the listing, and only statuses are read for
// RequestReinspect.
func (s *PodStatus) names() (name, namespace string) {
	for _, sandbox := range s.Sandboxes() {
		name, namespace = cmp.Or(name, sandbox.Name), cmp.Or(namespace, sandbox.Namespace)
	}
	name, namespace = cmp.Or(name, s.name), cmp.Or(namespace, s.namespace)
	if name == "" || namespace == "" {
		for _, container := range s.Containers() {
			name, namespace = cmp.Or(name, container.Labels[labelPodName]), cmp.Or(namespace, container.Labels[labelPodNamespace])
		}
	}
	return name, namespace
}

// IPs returns the pod's addresses, the primary one first: the addresses of the newest ready
// sandbox, else those kept from an earlier status (see [KeepIPs]), else those of the newest sandbox
// with any.
func (s *PodStatus) IPs() []string {
	sandboxes := s.Sandboxes()
	for _, sandbox := range sandboxes {
		if sandbox.Ready() {
			return sandbox.IPs
		}
	}
	if len(s.keptIPs) > 0 {
		return s.keptIPs
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
	if s.encoded == nil {
		return nil
	}
	b := s.encoded
	b.onceSandboxes.Do(func() {
		for _, raw := range b.sandboxes {
			sandbox, ok := decodeSandbox(raw)
			if !ok {
				b.sandboxErr = fmt.Errorf("cri: the status of sandbox %s of pod %s: %w", sandbox.ID, s.uid, ErrMalformed)
			}
			b.sandboxList = append(b.sandboxList, sandbox)
		}
		slices.SortStableFunc(b.sandboxList, func(x, y SandboxStatus) int {
			return newestFirst(x.CreatedAt, y.CreatedAt, x.ID, y.ID)
		})
	})
	return b.sandboxList
}

// Containers returns the pod's containers, the newest first: the first container of a name is the
// present one.
func (s *PodStatus) Containers() []ContainerStatus {
	if s.encoded == nil {
		return nil
	}
	b := s.encoded
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
			return newestFirst(x.CreatedAt, y.CreatedAt, x.ID, y.ID)
		})
	})
	return b.containerList
}

// Err decodes the status and reports unreadable parts, which are missing from the results of the
// other methods.
func (s *PodStatus) Err() error {
	if s.encoded == nil {
		return nil
	}
	s.Sandboxes()
	s.Containers()
	return errors.Join(s.encoded.sandboxErr, s.encoded.containerErr)
}

// Messages decodes the status into the CRI's own types, for fields without a method. The result
// belongs to the caller, in the runtime's order. Unlike the other methods, Messages fails on text
// that is not valid UTF-8.
func (s *PodStatus) Messages() ([]*runtimeapi.PodSandboxStatus, []*runtimeapi.ContainerStatus, error) {
	if s.encoded == nil {
		return nil, nil, nil
	}
	sandboxes := make([]*runtimeapi.PodSandboxStatus, len(s.encoded.sandboxes))
	containers := make([]*runtimeapi.ContainerStatus, len(s.encoded.containers))
	for i, raw := range s.encoded.sandboxes {
		sandboxes[i] = new(runtimeapi.PodSandboxStatus)
		if err := proto.Unmarshal(raw, sandboxes[i]); err != nil {
			return nil, nil, fmt.Errorf("cri: a sandbox status of pod %s: %w: %w", s.uid, ErrMalformed, err)
		}
	}
	for i, raw := range s.encoded.containers {
		containers[i] = new(runtimeapi.ContainerStatus)
		if err := proto.Unmarshal(raw, containers[i]); err != nil {
			return nil, nil, fmt.Errorf("cri: a container status of pod %s: %w: %w", s.uid, ErrMalformed, err)
		}
	}
	return sandboxes, containers, nil
}

// String returns the status in a single line, for logs.
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

// KeepIPs is a Merge function for pleg.Config: once no sandbox of a pod is ready and the runtime no
// longer shows addresses, the addresses of the status before are kept, as in the kubelet, for
// whoever must still know where the ending pod was. KeepIPs changes neither status, and does not
// decode next.
func KeepIPs(prev, next *PodStatus) *PodStatus {
	if prev == nil || next == nil || len(next.keptIPs) > 0 || next.encoded.readyOrAddressed() {
		return next
	}
	ips := prev.IPs()
	if len(ips) == 0 {
		return next
	}
	kept := *next
	kept.keptIPs = ips
	return &kept
}

// readyOrAddressed reports whether a sandbox is ready or has an address.
func (b *encodedStatus) readyOrAddressed() bool {
	if b == nil {
		return false
	}
	for _, raw := range b.sandboxes {
		state, address := int32(0), false
		f := fields{rest: raw}
		for f.next() {
			switch {
			case f.isVarint(3):
				state = int32(f.varint)
			case f.isBytes(5):
				for network := (fields{rest: f.data}); network.next(); {
					if network.isBytes(1) || network.isBytes(2) {
						address = address || len(network.data) > 0
					}
				}
			}
		}
		if address || sandboxPhase(state) == pleg.PhaseRunning {
			return true
		}
	}
	return false
}
