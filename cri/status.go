// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// A stored status from the runtime's bytes to its readers: PodStatus, KeepIPs and Without.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// PodStatus is the runtime's status of one pod. A PodStatus is immutable and safe for concurrent
// use; results of its methods are shared and must not be changed. The runtime's bytes are kept and
// decoded on first use, so a status without readers costs next to nothing. The zero value is the
// status of a pod of which nothing is known.
//
// A pod that is gone has no Sandboxes, no Containers and nothing Unread, as has one of which
// nothing is known. Name and Namespace are then empty, too.
type PodStatus struct {
	uid             cache.UID
	name, namespace string // from the listing, for pods with nameless sandboxes
	encoded         *encodedStatus
	keptIPs         []string // the IPs kept by KeepIPs
	unread          []string // see Unread
}

// statusMessages are the encoded statuses of a pod.
type statusMessages struct {
	sandboxes  [][]byte // CRI PodSandboxStatus each
	containers [][]byte // CRI ContainerStatus each
	// sandboxOf holds the sandbox of each container as far as known, nil for a pod with at most one
	// sandbox.
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

// own returns a message of the status for another to keep, in memory of its own: a part of the
// answer that has brought several would keep the whole answer alive.
func (b *encodedStatus) own(message []byte) []byte {
	if b.shared {
		return slices.Clone(message)
	}
	return message
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
		name = cmp.Or(name, sandbox.Name)
		namespace = cmp.Or(namespace, sandbox.Namespace)
	}
	name = cmp.Or(name, s.name)
	namespace = cmp.Or(namespace, s.namespace)
	if name == "" || namespace == "" {
		for _, container := range s.Containers() {
			name = cmp.Or(name, container.Labels[labelPodName])
			namespace = cmp.Or(namespace, container.Labels[labelPodNamespace])
		}
	}
	return name, namespace
}

// IPs returns the pod's addresses, the primary one first: the addresses of the present sandbox that
// is ready and has any, else those kept from an earlier status (see [KeepIPs]), else, without a
// ready sandbox, those of the last sandbox with any.
func (s *PodStatus) IPs() []string {
	if len(s.keptIPs) > 0 {
		return s.keptIPs
	}
	sandboxes := s.Sandboxes()
	for _, sandbox := range sandboxes {
		if sandbox.Ready() {
			return sandbox.IPs
		}
	}
	for _, sandbox := range sandboxes {
		if len(sandbox.IPs) > 0 {
			return sandbox.IPs
		}
	}
	return nil
}

// Sandboxes returns the pod's sandboxes, the present one first: by attempt, then by phase (a ready
// one first), then by the runtime's stamp of the creation.
func (s *PodStatus) Sandboxes() []SandboxStatus {
	if s.encoded == nil {
		return nil
	}
	b := s.encoded
	b.onceSandboxes.Do(func() {
		for _, raw := range b.sandboxes {
			sandbox, ok := decodeSandbox(raw)
			if !ok {
				b.sandboxErr = s.malformed("the status of sandbox "+sandbox.ID, nil)
			}
			b.sandboxList = append(b.sandboxList, sandbox)
		}
		slices.SortStableFunc(b.sandboxList, func(x, y SandboxStatus) int {
			return presentFirst(x.recency(), y.recency())
		})
	})
	return b.sandboxList
}

// Containers returns the pod's containers. The first container of a name is the present one: they
// are in the order of their attempts, the last first, then of their phases (running, created,
// unknown, exited), then of the runtime's stamps of their creation, the latest first.
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
				b.containerErr = s.malformed("the status of container "+container.ID, nil)
			}
			container.SandboxID = only
			if b.sandboxOf != nil {
				container.SandboxID = b.sandboxOf[container.ID]
			}
			b.containerList = append(b.containerList, container)
		}
		slices.SortStableFunc(b.containerList, func(x, y ContainerStatus) int {
			return presentFirst(x.recency(), y.recency())
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
	ofSandbox := s.encoded.sandboxErr
	ofContainer := s.encoded.containerErr
	if ofSandbox != nil && ofContainer != nil {
		return fmt.Errorf("%w; %w", ofSandbox, ofContainer)
	}
	return cmp.Or(ofSandbox, ofContainer)
}

// malformed returns the error of a part that cannot be read; err may be nil.
func (s *PodStatus) malformed(part string, err error) error {
	if err != nil {
		return fmt.Errorf("cri: %s of pod %s: %w: %w", oneLine(part), oneLine(string(s.uid)), ErrMalformed, err)
	}
	return fmt.Errorf("cri: %s of pod %s: %w", oneLine(part), oneLine(string(s.uid)), ErrMalformed)
}

// oneLine returns a text of the runtime in a form for a log.
func oneLine(text string) string { return printable(truncate(text)) }

// Unread returns the IDs of the sandboxes and containers that the runtime has, or may have, and
// whose statuses could not be read. They are missing from the results of the other methods, and are
// not gone.
func (s *PodStatus) Unread() []string { return s.unread }

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
			return nil, nil, s.malformed("a sandbox status", err)
		}
	}
	for i, raw := range s.encoded.containers {
		containers[i] = new(runtimeapi.ContainerStatus)
		if err := proto.Unmarshal(raw, containers[i]); err != nil {
			return nil, nil, s.malformed("a container status", err)
		}
	}
	return sandboxes, containers, nil
}

// encodedPart is one sandbox or container of a stored status. Its slices alias the status.
type encodedPart struct {
	id    []byte
	kind  pleg.Kind
	phase pleg.Phase
	raw   []byte // the encoded CRI PodSandboxStatus or ContainerStatus
}

// encodedParts yields the sandboxes, then the containers, without decoding them. A nil status has
// none.
func (s *PodStatus) encodedParts(yield func(encodedPart) bool) {
	if s == nil || s.encoded == nil {
		return
	}
	for _, raw := range s.encoded.sandboxes {
		if id, state := identity(raw); !yield(encodedPart{id, pleg.Sandbox, sandboxPhase(state), raw}) {
			return
		}
	}
	for _, raw := range s.encoded.containers {
		id, state := identity(raw)
		phase := criphase.OfContainer(runtimeapi.ContainerState(state))
		if !yield(encodedPart{id, pleg.Container, phase, raw}) {
			return
		}
	}
}

// identity returns the ID and the state of a stored PodSandboxStatus or ContainerStatus, whose
// numbers for them are the same. Nothing behind them is read: most of a node's statuses have not
// been touched for long when the next event of their pod comes.
func identity(raw []byte) (id []byte, state int32) {
	for f := (fields{rest: raw}); f.next() && f.num <= identityEnd; {
		switch {
		case f.isBytes(1):
			id = f.data
		case f.isVarint(3):
			state = int32(f.varint)
		}
	}
	return id, state
}

// mapFrom is the number of parts from which a statusIndex looks them up in a map.
const mapFrom = 16

// statusIndex finds the parts of a status by kind and ID. Of an ID that stands there twice, the
// first counts.
type statusIndex struct {
	of *encodedStatus     // nil for a status without parts
	at map[partKey][]byte // nil for a status of few parts
}

// partKey names a part of a status: a runtime may give a container the ID of a sandbox.
type partKey struct {
	kind pleg.Kind
	id   string
}

// indexParts returns the index of a status, which may be nil. Room is the number of lookups to
// come.
func indexParts(s *PodStatus, room int) (x statusIndex) {
	if s == nil || s.encoded == nil {
		return x
	}
	x.of = s.encoded
	parts := len(s.encoded.sandboxes) + len(s.encoded.containers)
	if min(parts, room) <= mapFrom {
		return x
	}
	x.at = make(map[partKey][]byte, parts)
	for part := range s.encodedParts {
		key := partKey{part.kind, string(part.id)}
		if _, twice := x.at[key]; !twice {
			x.at[key] = part.raw
		}
	}
	return x
}

// find returns the encoded part of a kind with an ID, nil if there is none.
func (x *statusIndex) find(key partKey) []byte {
	switch {
	case x.of == nil:
		return nil
	case x.at != nil:
		return x.at[key]
	}
	parts := x.of.containers
	if key.kind == pleg.Sandbox {
		parts = x.of.sandboxes
	}
	for _, raw := range parts {
		if id, _ := identity(raw); string(id) == key.id {
			return raw
		}
	}
	return nil
}

// notEarlier returns the encoded part of the item if the part shows the item's phase or a later
// one, else nil. Another status may keep it.
func (x *statusIndex) notEarlier(item pleg.Item) []byte {
	raw := x.find(partKey{item.Kind, item.ID})
	if raw == nil {
		return nil
	}
	_, state := identity(raw)
	phase := criphase.OfContainer(runtimeapi.ContainerState(state))
	if item.Kind == pleg.Sandbox {
		phase = sandboxPhase(state)
	}
	if phase == pleg.PhaseUnknown || phase < item.Phase {
		return nil
	}
	return x.of.own(raw)
}

// String returns the status in a single line, for logs: names, IDs and addresses are cut if long,
// and have no character that a terminal obeys.
func (s *PodStatus) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s(%s) ips=%s", oneLine(s.Namespace()), oneLine(s.Name()), oneLine(string(s.uid)), oneLine(fmt.Sprint(s.IPs())))
	for _, sandbox := range s.Sandboxes() {
		fmt.Fprintf(&b, " sandbox:%s=%s", shortID(sandbox.ID), sandbox.Phase)
	}
	for _, container := range s.Containers() {
		fmt.Fprintf(&b, " %s:%s=%s", oneLine(container.Name), shortID(container.ID), container.Phase)
		if !container.FinishedAt.IsZero() {
			fmt.Fprintf(&b, "(%d)", container.ExitCode)
		}
	}
	for _, id := range s.unread {
		fmt.Fprintf(&b, " unread:%s", shortID(id))
	}
	return b.String()
}

// shortID returns the beginning of an ID, for logs.
func shortID(id string) string { return printable(fmt.Sprintf("%.12s", id)) }

// KeepIPs is a Merge function for pleg.Config: the addresses of the status before are kept, as in
// the kubelet, for whoever must still know where the ending pod was, while the runtime shows no
// address and no sandbox that is ready and new. A sandbox that had an address is read without any
// in the middle of its teardown, while it still counts as ready, and after a restart of some
// runtimes. KeepIPs changes neither status, and does not decode next.
func KeepIPs(prev, next *PodStatus) *PodStatus {
	if prev == nil || next == nil || len(next.keptIPs) > 0 || next.encoded.addressed() {
		return next
	}
	ips := prev.IPs()
	if len(ips) == 0 || next.hasReadySandboxNotIn(prev) {
		return next
	}
	kept := *next
	kept.keptIPs = ips
	return &kept
}

// Without is a Without function for pleg.Config: the status without the sandbox or the container of
// an ID. Without does not change the status.
func Without(s *PodStatus, id string) *PodStatus {
	without := *s
	without.unread = slices.DeleteFunc(slices.Clone(s.unread), func(unread string) bool { return unread == id })
	if s.encoded == nil {
		return &without
	}
	messages := s.encoded.statusMessages
	is := func(raw []byte) bool {
		of, _ := identity(raw)
		return string(of) == id
	}
	messages.sandboxes = slices.DeleteFunc(slices.Clone(messages.sandboxes), is)
	messages.containers = slices.DeleteFunc(slices.Clone(messages.containers), is)
	without.encoded = &encodedStatus{statusMessages: messages, shared: s.encoded.shared}
	return &without
}

// hasReadySandboxNotIn reports whether the status has a ready sandbox that an earlier status lacks.
func (s *PodStatus) hasReadySandboxNotIn(earlier *PodStatus) bool {
	if s.encoded == nil {
		return false
	}
	known := indexParts(earlier, len(s.encoded.sandboxes))
	for part := range s.encodedParts {
		if part.kind == pleg.Sandbox && part.phase == pleg.PhaseRunning && known.find(partKey{part.kind, string(part.id)}) == nil {
			return true
		}
	}
	return false
}

// addressed reports whether a sandbox has an address.
func (b *encodedStatus) addressed() bool {
	if b == nil {
		return false
	}
	return slices.ContainsFunc(b.sandboxes, func(raw []byte) bool {
		var network networkAddresses
		for f := (fields{rest: raw}); f.next(); {
			if f.isBytes(5) {
				network.read(f.data)
			}
		}
		return network.primary || network.additional
	})
}

// networkAddresses says which addresses a CRI PodSandboxNetworkStatus holds.
type networkAddresses struct{ primary, additional bool }

// read merges an occurrence of the message.
func (n *networkAddresses) read(raw []byte) {
	for f := (fields{rest: raw}); f.next(); {
		switch {
		case f.isBytes(1):
			n.primary = len(f.data) > 0
		case f.isBytes(2):
			given := false
			for ip := (fields{rest: f.data}); ip.next(); {
				if ip.isBytes(1) {
					given = len(ip.data) > 0
				}
			}
			n.additional = n.additional || given
		}
	}
}
