// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func timeOf(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// wantSandbox returns the expected result for a decoded sandbox status.
func wantSandbox(m *runtimeapi.PodSandboxStatus) SandboxStatus {
	s := SandboxStatus{
		ID: m.Id, Name: m.GetMetadata().GetName(), Namespace: m.GetMetadata().GetNamespace(), UID: m.GetMetadata().GetUid(),
		Attempt: m.GetMetadata().GetAttempt(), CreatedAt: timeOf(m.CreatedAt), RuntimeHandler: m.RuntimeHandler,
		Labels: m.Labels, Annotations: m.Annotations,
		Phase: sandboxPhases[m.State],
	}
	if ip := m.GetNetwork().GetIp(); ip != "" {
		s.IPs = append(s.IPs, ip)
	}
	for _, ip := range m.GetNetwork().GetAdditionalIps() {
		if ip.Ip != "" {
			s.IPs = append(s.IPs, ip.Ip)
		}
	}
	return s
}

// wantContainer returns the expected result for a decoded container status.
func wantContainer(m *runtimeapi.ContainerStatus) ContainerStatus {
	c := ContainerStatus{
		ID: m.Id, Name: m.GetMetadata().GetName(), Attempt: m.GetMetadata().GetAttempt(),
		CreatedAt: timeOf(m.CreatedAt), StartedAt: timeOf(m.StartedAt), FinishedAt: timeOf(m.FinishedAt), ExitCode: m.ExitCode,
		Reason: m.Reason, Message: m.Message, Image: m.GetImage().GetImage(), ImageRef: m.ImageRef, ImageID: m.ImageId, LogPath: m.LogPath,
		Labels: m.Labels, Annotations: m.Annotations,
		Phase: containerPhases[m.State],
	}
	for _, x := range m.Mounts {
		c.Mounts = append(c.Mounts, Mount{ContainerPath: x.ContainerPath, HostPath: x.HostPath, ReadOnly: x.Readonly})
	}
	if l := m.GetResources().GetLinux(); l != nil {
		c.Resources = &Resources{
			CPUPeriod: l.CpuPeriod, CPUQuota: l.CpuQuota, CPUShares: l.CpuShares, MemoryLimit: l.MemoryLimitInBytes, OOMScoreAdj: l.OomScoreAdj,
			CpusetCPUs: l.CpusetCpus, CpusetMems: l.CpusetMems, MemorySwap: l.MemorySwapLimitInBytes, Unified: l.Unified,
		}
	}
	return c
}

// checkStatuses compares a decoder's result with the generated decoder's, for valid messages. The
// status may be of either kind.
func checkStatuses(t *testing.T, raw []byte) {
	var sandbox runtimeapi.PodSandboxStatus
	gotSandbox, ok := decodeSandbox(raw)
	if proto.Unmarshal(raw, &sandbox) == nil {
		if d := gocmp.Diff(wantSandbox(&sandbox), gotSandbox, cmpopts.EquateEmpty()); d != "" || !ok {
			t.Fatalf("a valid sandbox status, malformed %v: %s", !ok, d)
		}
		b := encodedStatus{statusMessages: statusMessages{sandboxes: [][]byte{raw}}}
		if want := len(gotSandbox.IPs) > 0; b.addressed() != want {
			t.Fatalf("addressed is %v, want %v", !want, want)
		}
		checkSandboxItem(t, raw, &sandbox)
	}
	var container runtimeapi.ContainerStatus
	gotContainer, ok := decodeContainer(raw)
	if proto.Unmarshal(raw, &container) == nil {
		if d := gocmp.Diff(wantContainer(&container), gotContainer, cmpopts.EquateEmpty()); d != "" || !ok {
			t.Fatalf("a valid container status, malformed %v: %s", !ok, d)
		}
		checkContainerItem(t, raw, &container)
	}
}

// checkSandboxItem compares the fields read from a status that nobody has asked for, and the
// identity of what is stored, with the generated decoder's.
func checkSandboxItem(t *testing.T, raw []byte, m *runtimeapi.PodSandboxStatus) {
	t.Helper()
	var item sandboxItem
	readable := item.read(raw, labelsOfPodSandboxStatus)
	got := []string{
		string(item.id), string(item.uid()), string(item.named()), string(item.meta.name), string(item.meta.namespace),
		string(item.labels.name), string(item.labels.namespace), fmt.Sprint(item.state, item.meta.attempt),
	}
	want := []string{
		m.Id, ownerOf(m), cmp.Or(m.GetMetadata().GetUid(), m.Labels[labelPodUID]), m.GetMetadata().GetName(),
		m.GetMetadata().GetNamespace(), m.Labels[labelPodName], m.Labels[labelPodNamespace],
		fmt.Sprint(int32(m.State), m.GetMetadata().GetAttempt()),
	}
	if !readable || !slices.Equal(got, want) {
		t.Fatalf("a sandbox is read as %q, want %q, readable %v", got, want, readable)
	}
	checkIdentity(t, raw, shapeOfSandboxStatus(), m.Id, int32(m.State))
}

// checkContainerItem is checkSandboxItem for a container.
func checkContainerItem(t *testing.T, raw []byte, m *runtimeapi.ContainerStatus) {
	t.Helper()
	var item containerItem
	readable := item.readStatus(raw)
	got := []string{
		string(item.id), string(item.labels.uid), string(item.labels.name), string(item.labels.namespace),
		string(item.reason), nameOfStatus(raw), fmt.Sprint(int32(item.state), item.exitCode, item.finishedAt),
	}
	want := []string{
		m.Id, m.Labels[labelPodUID], m.Labels[labelPodName], m.Labels[labelPodNamespace], m.Reason,
		truncate(m.GetMetadata().GetName()), fmt.Sprint(int32(m.State), m.ExitCode, m.FinishedAt),
	}
	if !readable || !slices.Equal(got, want) {
		t.Fatalf("a container is read as %q, want %q, readable %v", got, want, readable)
	}
	var told exits
	told.note("c", &item, origin{read: true})
	code, reason, ended := (&Client{exits: exits{current: told.current}}).Exit("c")
	if want := m.State == exited; ended != want || ended && (code != m.ExitCode || reason != truncate(m.Reason)) {
		t.Fatalf("exit %d, %q, %v of %v", code, reason, ended, m)
	}
	checkIdentity(t, raw, shapeOfContainerStatus(), m.Id, int32(m.State))
}

// checkIdentity wants the ID and the state at the beginning of a status as it is stored.
func checkIdentity(t *testing.T, raw []byte, of *shape, id string, state int32) {
	t.Helper()
	p, storable := checkStatus(raw, of)
	if !storable {
		return
	}
	if gotID, gotState := identity(p.copied()); string(gotID) != id || gotState != state {
		t.Fatalf("the identity of what is stored is %q in state %d, want %q in %d", gotID, gotState, id, state)
	}
}

// checkEvent compares a claim with the generated decoder's result, with annotations kept and
// without.
func checkEvent(t *testing.T, raw []byte) {
	checkEventWith(t, raw, Config{Annotations: true})
	checkEventWith(t, raw, Config{})
}

func checkEventWith(t *testing.T, raw []byte, config Config) {
	var m runtimeapi.ContainerEventResponse
	invalid := proto.Unmarshal(raw, &m)
	valid := invalid == nil
	if !config.Annotations {
		if m.PodSandboxStatus != nil {
			m.PodSandboxStatus.Annotations = nil
		}
		for _, s := range m.ContainersStatuses {
			s.Annotations = nil
		}
	}
	e, ok := readEvent(raw)
	if !ok {
		if valid {
			t.Fatal("a valid event was taken for malformed")
		}
		return
	}
	c := &Client{config: config}
	p := newEventBuffer()
	p.fill(mem.BufferSlice{mem.SliceBuffer(raw)})
	claim, ok := c.claim(&e, new(interner), p)
	if !ok {
		if good := valid && m.ContainerId != "" && len(m.ContainerId) <= maxID; good {
			t.Fatalf("an event was skipped: %v", &m)
		}
		return
	}
	var status *PodStatus
	var refused error
	if claim.Status != nil {
		if status, refused = claim.Status(nil); refused == nil {
			checkStored(t, status, raw, invalid)
		} else if !errors.Is(refused, ErrMalformed) {
			t.Fatal(refused)
		}
	}
	if !valid {
		return
	}
	want := pleg.Claim[PodStatus]{Item: pleg.Item{ID: m.ContainerId}, CreatedAt: timeOf(m.CreatedAt)}
	whole := true
	var named, own, first, unnamed string // by the sandbox, the event's container, another, none of them
	if s := m.PodSandboxStatus; s != nil {
		uid := ownerOf(s)
		whole = goodID(s.Id) && goodID(uid) && isWhole(s.Metadata, s.CreatedAt)
		if goodID(uid) && goodID(s.Id) { // else left out everywhere
			named = cmp.Or(s.Metadata.GetUid(), s.Labels[labelPodUID])
			if proto.Size(s.Metadata) > 0 {
				unnamed = s.Id
			}
			want.Payload = append(want.Payload, pleg.Item{ID: s.Id, Kind: pleg.Sandbox, Phase: wantSandbox(s).Phase})
			if s.Id == m.ContainerId {
				want.Item.Kind = pleg.Sandbox
			}
		}
	}
	for _, s := range m.ContainersStatuses {
		label := s.Labels[labelPodUID]
		whole = whole && goodID(s.Id) && (label == "" || goodID(label)) && isWhole(s.Metadata, s.CreatedAt)
		if !goodID(s.Id) || label != "" && !goodID(label) {
			continue
		}
		want.Payload = append(want.Payload, pleg.Item{ID: s.Id, Kind: pleg.Container, Phase: wantContainer(s).Phase})
		first = cmp.Or(first, label)
		if s.Id == m.ContainerId {
			own = cmp.Or(label, own)
		}
	}
	uid := cmp.Or(named, own, first, unnamed)
	if goodID(uid) {
		want.Pod = cache.UID(uid)
	}
	if s := m.PodSandboxStatus; uid == "" && s != nil && goodID(s.Id) { // nothing names the pod
		want.Payload = nil
	}
	want.Item.Phase = map[pleg.Kind]map[runtimeapi.ContainerEventType]pleg.Phase{
		pleg.Sandbox:   {0: pleg.PhaseRunning, 1: pleg.PhaseRunning, 2: pleg.PhaseExited, 3: pleg.PhaseRemoved},
		pleg.Container: {0: pleg.PhaseCreated, 1: pleg.PhaseRunning, 2: pleg.PhaseExited, 3: pleg.PhaseRemoved},
	}[want.Item.Kind][m.ContainerEventType] // PhaseUnknown for a type of a later CRI
	if d := gocmp.Diff(want, claim, cmpopts.IgnoreFields(pleg.Claim[PodStatus]{}, "Status", "Release"), cmpopts.EquateEmpty()); d != "" {
		t.Fatal(d)
	}
	if (claim.Status != nil) != (len(want.Payload) > 0) {
		t.Fatalf("a status is offered: %v, with a payload of %d", claim.Status != nil, len(want.Payload))
	}
	if claim.Status == nil {
		return
	}
	hollow := func(m proto.Message) bool { return m.ProtoReflect().IsValid() && proto.Size(m) == 0 }
	if hollow(m.GetPodSandboxStatus().GetMetadata()) || slices.ContainsFunc(m.ContainersStatuses, func(s *runtimeapi.ContainerStatus) bool { return hollow(s.Metadata) }) {
		return // empty metadata: a reader may see zero values, or none
	}
	if whole != (refused == nil) {
		t.Fatalf("the payload is whole: %v; refused: %v", whole, refused)
	}
	if refused != nil {
		return
	}
	var containers []ContainerStatus
	only := ""
	if s := m.PodSandboxStatus; s != nil {
		only = s.Id
		if d := gocmp.Diff([]SandboxStatus{wantSandbox(s)}, status.Sandboxes(), cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	}
	for _, s := range m.ContainersStatuses {
		c := wantContainer(s)
		c.SandboxID = only
		containers = append(containers, c)
	}
	slices.SortStableFunc(containers, func(a, b ContainerStatus) int { return presentFirst(a.recency(), b.recency()) })
	if d := gocmp.Diff(containers, status.Containers(), cmpopts.EquateEmpty()); d != "" {
		t.Fatal(d)
	}
}

// isWhole reports whether a status has the fields set by every runtime.
func isWhole(metadata proto.Message, created int64) bool {
	return metadata.ProtoReflect().IsValid() && created != 0
}

// checkStored verifies the properties of every storable status, from any message; invalid is the
// generated decoder's error.
func checkStored(t *testing.T, status *PodStatus, message []byte, invalid error) {
	_ = status.String()
	check(t, status.Err())
	if _, _, err := status.Messages(); err != nil && !notUTF8(err) || invalid != nil && !notUTF8(invalid) {
		t.Fatalf("a status is stored that the generated decoder refuses: %v, in its message: %v", err, invalid)
	}
	for _, raw := range slices.Concat(status.encoded.sandboxes, status.encoded.containers) {
		if len(raw) > len(message)+16 {
			t.Fatalf("a status of %d bytes comes from a message of %d", len(raw), len(message))
		}
	}
}

// notUTF8 reports whether the generated decoder refuses only invalid UTF-8, which is shown
// repaired.
func notUTF8(err error) bool { return strings.Contains(err.Error(), "UTF-8") }

// fullEvent sets every field used by a status, at random.
func fullEvent(r *rand.Rand) *runtimeapi.ContainerEventResponse {
	kind := runtimeapi.ContainerEventType(r.IntN(5))
	e := nodeEvent(r.IntN(1000), kind)
	for i, c := range e.ContainersStatuses {
		c.State = runtimeapi.ContainerState(r.IntN(5))
		c.FinishedAt, c.ExitCode = r.Int64(), int32(r.Uint32())
		c.Reason, c.Message = fmt.Sprint("Reason", r.IntN(3)), "message"
		c.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{SupplementalGroups: []int64{0, 2000}}}
		l := c.Resources.Linux
		l.CpuQuota, l.OomScoreAdj, l.CpusetCpus, l.CpusetMems = r.Int64(), -int64(r.IntN(1000)), "0-3", "0"
		l.Unified, l.MemorySwapLimitInBytes = map[string]string{"memory.high": "1", "io.weight": "2"}, math.MinInt64
		if r.IntN(4) == 0 {
			e.ContainersStatuses[i] = &runtimeapi.ContainerStatus{Id: c.Id, State: c.State}
		}
	}
	e.PodSandboxStatus.State = runtimeapi.PodSandboxState(r.IntN(3))
	switch r.IntN(8) {
	case 0:
		e.PodSandboxStatus = nil
	case 1:
		e.PodSandboxStatus.Metadata = nil
	case 2:
		e.PodSandboxStatus.Network = nil
	case 3:
		e.PodSandboxStatus.CreatedAt = -6795364578871345152
	case 4:
		e.PodSandboxStatus.Metadata, e.PodSandboxStatus.Labels = nil, nil
	case 5:
		e.ContainersStatuses = nil
	case 6:
		e.ContainerId = e.PodSandboxStatus.Id
	}
	return e
}

func FuzzEvent(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 5))
	for range 300 {
		f.Add(mangled(r, fullEvent(r)))
	}
	f.Fuzz(checkEvent)
}

// FuzzStatus reads the same bytes as a status of either kind.
func FuzzStatus(f *testing.F) {
	r := rand.New(rand.NewPCG(6, 7))
	for range 300 {
		e := fullEvent(r)
		if e.PodSandboxStatus != nil {
			f.Add(mangled(r, e.PodSandboxStatus))
		}
		for _, c := range e.ContainersStatuses {
			f.Add(mangled(r, c))
		}
	}
	f.Fuzz(checkStatuses)
}
