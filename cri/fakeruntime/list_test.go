// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The generated decoder reads every hand-written field of every message, for a pod made through the
// CRI.
func TestWireFormat(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		pod, ctr := podConfig("a", 2), containerConfig("c", "exit", "9")
		ctr.Metadata.Attempt = 3
		pod.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
			Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_NODE,
		}}}
		ctr.StopSignal = runtimeapi.Signal(28)
		sb := must(w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: pod, RuntimeHandler: "runc"}))(t).PodSandboxId
		id := must(w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: ctr, SandboxConfig: pod}))(t).ContainerId
		now := begin2000().UnixNano()
		must(w.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
		time.Sleep(containerdExitLag)
		image := must(w.img.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: ctr.Image}))(t).Image

		wantItem := &runtimeapi.Container{
			Id: id, PodSandboxId: sb, Metadata: ctr.Metadata, Image: &runtimeapi.ImageSpec{Image: ctr.Image.Image, UserSpecifiedImage: "tool:1"},
			ImageRef: image.Id, ImageId: image.Id, State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: now, Labels: ctr.Labels, Annotations: ctr.Annotations,
		}
		wantStatus := &runtimeapi.ContainerStatus{
			Id: id, Metadata: ctr.Metadata, Image: wantItem.Image, ImageRef: image.Id, ImageId: image.Id,
			State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: now, StartedAt: now, FinishedAt: now, ExitCode: 9, Reason: "Error",
			Labels: ctr.Labels, Annotations: ctr.Annotations, Mounts: ctr.Mounts, LogPath: "/var/log/pods/ns_a_uid-a/c/0.log",
			Resources: &runtimeapi.ContainerResources{Linux: ctr.Linux.Resources}, StopSignal: ctr.StopSignal,
			User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{SupplementalGroups: []int64{0}}},
		}
		wantSandbox := &runtimeapi.PodSandbox{
			Id: sb, Metadata: pod.Metadata, CreatedAt: now, Labels: pod.Labels, Annotations: pod.Annotations, RuntimeHandler: "runc",
		}
		wantSandboxStatus := &runtimeapi.PodSandboxStatus{
			Id: sb, Metadata: pod.Metadata, CreatedAt: now, Labels: pod.Labels, Annotations: pod.Annotations, RuntimeHandler: "runc",
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "198.18.0.1"},
			Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: pod.Linux.SecurityContext.NamespaceOptions}},
		}
		wantEvent := &runtimeapi.ContainerEventResponse{
			ContainerId: id, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: now + int64(containerdExitLag),
			PodSandboxStatus: wantSandboxStatus, ContainersStatuses: []*runtimeapi.ContainerStatus{wantStatus},
		}
		events := l.stop()
		for _, pair := range []struct{ want, got proto.Message }{
			{wantItem, w.containers()[0]},
			{wantStatus, w.status(id)},
			{wantSandbox, w.sandboxes()[0]},
			{wantSandboxStatus, w.sandboxStatus(sb)},
			{wantEvent, events[len(events)-1]},
		} {
			if diff := gocmp.Diff(pair.want, pair.got, protocmp.Transform()); diff != "" {
				t.Errorf("%T (-want +got):\n%s", pair.want, diff)
			}
		}
	})
}

// Items made by the direct methods have the requested size.
func TestPayloadSizes(t *testing.T) {
	for _, size := range []int{0, 1500, 4000} {
		inBubble(t, Config{ContainerBytes: size}, func(t *testing.T, w *world) {
			ids := must(w.rt.Populate(Population{Pods: 1, Containers: 1}))(t)
			c := w.containers()[0]
			near := func(what string, m proto.Message, want int) {
				if n := proto.Size(m); n < want-60 || n > want+20 {
					t.Errorf("%s is %d bytes, want about %d", what, n, want)
				}
			}
			near("container status", w.status(c.Id), cmp.Or(size, 1500))
			near("sandbox status", w.sandboxStatus(ids[0]), 1200)
		})
	}
}

// sameIDs wants these items in any order.
func sameIDs[T interface{ GetId() string }](t *testing.T, name string, want []string, items []T) {
	t.Helper()
	var got []string
	for _, item := range items {
		got = append(got, item.GetId())
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestContainerFilters(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		a := must(w.rt.AddPod(PodSpec{UID: "a", Labels: map[string]string{"app": "x"}}))(t)
		b := must(w.rt.AddPod(PodSpec{UID: "b"}))(t)
		add := func(sb, name string, labels map[string]string) string {
			return must(w.rt.AddContainer(sb, ContainerSpec{Name: name, Labels: labels}))(t)
		}
		a1, a2, b1 := add(a, "a1", nil), add(a, "a2", map[string]string{"tier": "web"}), add(b, "b1", map[string]string{"tier": "web"})
		check(t, w.rt.Start(a2))
		running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
		created := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED}
		for _, tt := range []struct {
			name   string
			filter *runtimeapi.ContainerFilter
			want   []string
		}{
			{"none", nil, []string{a1, a2, b1}},
			{"empty", &runtimeapi.ContainerFilter{}, []string{a1, a2, b1}},
			{"ID", &runtimeapi.ContainerFilter{Id: b1}, []string{b1}},
			{"short ID", &runtimeapi.ContainerFilter{Id: b1[:12]}, []string{b1}},
			{"unknown ID", &runtimeapi.ContainerFilter{Id: "ffff"}, nil},
			{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: a}, []string{a1, a2}},
			{"unknown sandbox", &runtimeapi.ContainerFilter{PodSandboxId: "ffff"}, nil},
			{"ID in another sandbox", &runtimeapi.ContainerFilter{Id: b1, PodSandboxId: a}, nil},
			{"state", &runtimeapi.ContainerFilter{State: running}, []string{a2}},
			{"state and sandbox", &runtimeapi.ContainerFilter{State: created, PodSandboxId: a}, []string{a1}},
			{"pod", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelPodUID: "a"}}, []string{a1, a2}},
			{"unknown pod", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelPodUID: "z"}}, nil},
			{"pod and sandbox of another", &runtimeapi.ContainerFilter{PodSandboxId: b, LabelSelector: map[string]string{labelPodUID: "a"}}, nil},
			{"pod and label", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelPodUID: "a", "tier": "web"}}, []string{a2}},
			{"pod and state", &runtimeapi.ContainerFilter{State: running, LabelSelector: map[string]string{labelPodUID: "a"}}, []string{a2}},
			{"label", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"tier": "web"}}, []string{a2, b1}},
			{"container name", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainerName: "a1"}}, []string{a1}},
			{"absent label", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"tier": ""}}, nil},
		} {
			list := must(w.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: tt.filter}))(t)
			sameIDs(t, tt.name, tt.want, list.Containers)
		}
	})
}

func TestSandboxFilters(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		a := must(w.rt.AddPod(PodSpec{UID: "a", Labels: map[string]string{"app": "x"}}))(t)
		check(t, w.rt.StopSandbox(a))
		a2 := must(w.rt.AddPod(PodSpec{UID: "a"}))(t)
		b := must(w.rt.AddPod(PodSpec{UID: "b", Labels: map[string]string{"app": "x"}}))(t)
		ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		for _, tt := range []struct {
			name   string
			filter *runtimeapi.PodSandboxFilter
			want   []string
		}{
			{"none", nil, []string{a, a2, b}},
			{"ID", &runtimeapi.PodSandboxFilter{Id: b}, []string{b}},
			{"unknown ID", &runtimeapi.PodSandboxFilter{Id: "ffff"}, nil},
			{"state", &runtimeapi.PodSandboxFilter{State: ready}, []string{a2, b}},
			{"pod", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelPodUID: "a"}}, []string{a, a2}},
			{"pod and state", &runtimeapi.PodSandboxFilter{State: ready, LabelSelector: map[string]string{labelPodUID: "a"}}, []string{a2}},
			{"unknown pod", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelPodUID: "z"}}, nil},
			{"label", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "x"}}, []string{a, b}},
			{"ID of another pod", &runtimeapi.PodSandboxFilter{Id: b, LabelSelector: map[string]string{labelPodUID: "a"}}, nil},
		} {
			list := must(w.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: tt.filter}))(t)
			sameIDs(t, tt.name, tt.want, list.Items)
		}
	})
}

// A list of many pages arrives whole, with every item once.
func TestLongList(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		must(w.rt.Populate(Population{Pods: 1000, Containers: 3}))(t)
		seen := map[string]bool{}
		for _, c := range w.containers() {
			if c.Metadata == nil || c.Labels[labelPodUID] == "" || c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("item: %v", c)
			}
			seen[c.Id] = true
		}
		if len(seen) != 3000 {
			t.Errorf("%d different containers", len(seen))
		}
		if n := len(w.sandboxes()); n != 1000 {
			t.Errorf("%d sandboxes", n)
		}
	})
}

// Replies that no client should trust.
func TestCorruptReplies(t *testing.T) {
	some := func(f func(*runtimeapi.Container) bool) func([]*runtimeapi.Container) bool {
		return func(items []*runtimeapi.Container) bool { return slices.ContainsFunc(items, f) }
	}
	for _, tt := range []struct {
		name   string
		faults Faults
		struck func(items []*runtimeapi.Container) bool // nil: by an error
		status bool                                     // statuses are struck, too
	}{
		{"nil-fields", Faults{NilFields: 1}, some(func(c *runtimeapi.Container) bool { return c.Metadata == nil && c.CreatedAt == 0 && c.Id != "" }), true},
		{"unknown-enum", Faults{UnknownEnum: 1}, some(func(c *runtimeapi.Container) bool { return c.State == 77 }), true},
		{"invalid-utf8", Faults{InvalidUTF8: 1}, nil, true},
		{"orphan-container", Faults{OrphanContainer: 1}, some(func(c *runtimeapi.Container) bool { return c.Metadata.GetName() == "orphan" }), false},
		{"duplicate-id", Faults{DuplicateID: 1}, func(items []*runtimeapi.Container) bool {
			seen := map[string]runtimeapi.ContainerState{}
			return slices.ContainsFunc(items, func(c *runtimeapi.Container) bool {
				other, ok := seen[c.Id]
				seen[c.Id] = c.State
				return ok && other != c.State
			})
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Config{Faults: tt.faults}, func(t *testing.T, w *world) {
				ids := must(w.rt.Populate(Population{Pods: 3, Containers: 2}))(t)
				struck := func(what string, items []*runtimeapi.Container, err error) {
					if tt.struck == nil && err == nil || tt.struck != nil && !tt.struck(items) {
						t.Errorf("%s is not struck: %v, %v", what, items, err)
					}
				}
				res, err := w.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
				struck("list", res.GetContainers(), err)
				stream := must(streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, "StreamContainers"))(t)
				batch, err := stream.Recv()
				struck("stream", batch.GetContainers(), err)
				if !tt.status {
					return
				}
				truth := w.rt.Truth().Pods[0].Sandboxes[0].Containers[0]
				answer, err := w.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: truth.ID})
				st := answer.GetStatus()
				struck("status", []*runtimeapi.Container{{Id: st.GetId(), Metadata: st.GetMetadata(), State: st.GetState(), CreatedAt: st.GetCreatedAt()}}, err)
				if _, err := w.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ids[0]}); tt.struck == nil {
					struck("sandbox status", nil, err)
				}
			})
		})
	}
}
