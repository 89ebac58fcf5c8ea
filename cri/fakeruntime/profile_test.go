// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func profileNamed(t testing.TB, name string) Profile {
	t.Helper()
	return must(ProfileByName(name))(t)
}

// Which events a pod's life gives, in which order.
func TestProfileEvents(t *testing.T) {
	containerd := []string{"pod created", "pod started", "created", "started", "stopped", "created", "started", "stopped", "pod stopped", "deleted", "deleted", "pod deleted"}
	containerd1 := append(slices.Clone(containerd[:11]), "deleted") // a sandbox's DELETED carries no sandbox
	crio := []string{"pod started", "created", "started", "stopped", "created", "started", "stopped"}
	for _, tt := range []struct {
		profile string
		want    []string
	}{
		{"containerd-2", containerd},
		{"containerd-2.0", containerd},
		{"containerd-1.7", containerd1},
		// no CREATED and DELETED of sandboxes, and RemovePodSandbox is silent but for the containers
		// it ends
		{"crio", crio},
		{"crio-disabled", []string{}},
		{"no-events", []string{}},
	} {
		t.Run(tt.profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, tt.profile)}, func(t *testing.T, w *world) {
				l := w.listen(w.conn)
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				for range 2 {
					c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
					check(t, w.rt.Start(c))
					check(t, w.rt.Exit(c, 0))
				}
				check(t, w.rt.RemoveSandbox(sb))
				time.Sleep(time.Second)
				if diff := cmp.Diff(tt.want, kinds(l.stop())); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A runtime without events opens the stream like any other: only the first Recv tells.
func TestProfileWithoutEvents(t *testing.T) {
	for _, tt := range []struct {
		profile string
		code    codes.Code
		eof     bool
	}{
		{profile: "crio-disabled", eof: true},
		{profile: "no-events", code: codes.Unimplemented},
	} {
		t.Run(tt.profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, tt.profile)}, func(t *testing.T, w *world) {
				stream, err := w.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
				if err != nil {
					t.Fatalf("opening: %v", err)
				}
				_, err = stream.Recv()
				if tt.eof != (err == io.EOF) || !tt.eof && status.Code(err) != tt.code {
					t.Errorf("Recv: %v", err)
				}
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				changes, _ := w.rt.History(0)
				if len(changes) != 1 || changes[0].Event != NoEvent || changes[0].SandboxID != sb {
					t.Errorf("history: %+v", changes)
				}
			})
		})
	}
}

// No header is sent before the first event: a client cannot see its subscription.
func TestNoHeaderBeforeTheFirstEvent(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := must(w.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
		begun := time.Now()
		time.AfterFunc(time.Hour, func() { w.rt.AddPod(PodSpec{}) })
		if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d < time.Hour {
			t.Errorf("header after %v", d)
		}
	})
}

// PodSandboxStatus's containers, and its own time.
func TestProfilePodSandboxStatus(t *testing.T) {
	old := profileNamed(t, "crio")
	old.StatusStamp = StampSeconds
	for _, tt := range []struct {
		name       string
		profile    Profile
		containers int
		stamp      time.Duration // unit of the timestamp; 0: none
	}{
		{"containerd-2", profileNamed(t, "containerd-2"), 0, 0},
		{"containerd-2.0", profileNamed(t, "containerd-2.0"), 0, time.Nanosecond},
		{"containerd-1.7", profileNamed(t, "containerd-1.7"), 0, 0},
		{"crio", profileNamed(t, "crio"), 2, time.Nanosecond},
		{"crio before 1.32", old, 2, time.Second},
		{"crio-disabled", profileNamed(t, "crio-disabled"), 0, 0},
		{"no-events", profileNamed(t, "no-events"), 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Config{Profile: tt.profile}, func(t *testing.T, w *world) {
				ids := must(w.rt.Populate(Population{Pods: 1, Containers: 2}))(t)
				res := must(w.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ids[0]}))(t)
				want := int64(0)
				if tt.stamp != 0 {
					want = time.Now().UnixNano() / int64(tt.stamp)
				}
				if len(res.ContainersStatuses) != tt.containers || res.Timestamp != want {
					t.Errorf("%d statuses, timestamp %d; want %d and %d", len(res.ContainersStatuses), res.Timestamp, tt.containers, want)
				}
			})
		})
	}
}

// Lists as streams: the number of messages for 7001 containers, or the missing call.
func TestProfileStreamingLists(t *testing.T) {
	for _, tt := range []struct {
		profile string
		want    []int
	}{
		{"containerd-2", []int{5000, 2001}},
		{"containerd-2.0", nil},
		{"containerd-1.7", nil},
		{"crio", []int{3000, 3000, 1001}},
		{"crio-disabled", []int{3000, 3000, 1001}},
		{"no-events", nil},
	} {
		t.Run(tt.profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, tt.profile), ContainerBytes: 1, SandboxBytes: 1}, func(t *testing.T, w *world) {
				read := func() (got []int, err error) {
					stream := must(streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, "StreamContainers"))(t)
					for {
						res, err := stream.Recv()
						if err != nil {
							return got, err
						}
						got = append(got, len(res.Containers))
					}
				}
				got, err := read()
				if tt.want == nil {
					if status.Code(err) != codes.Unimplemented {
						t.Errorf("StreamContainers: %v", err)
					}
					return
				}
				if err != io.EOF || got != nil {
					t.Errorf("of no containers: %v, %v; want no message, then EOF", got, err)
				}
				must(w.rt.Populate(Population{Pods: 7001, Containers: 1}))(t)
				got, err = read()
				if diff := cmp.Diff(tt.want, got); diff != "" || err != io.EOF {
					t.Errorf("batches (-want +got):\n%s\nthen %v", diff, err)
				}
			})
		})
	}
}

// The scope of a payload: the sandbox of the event, or all sandboxes of the pod.
func TestProfilePayloadScope(t *testing.T) {
	for profile, want := range map[string]int{"containerd-2": 1, "containerd-1.7": 1, "crio": 2} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
				l := w.listen(w.conn)
				var last string
				for range 2 {
					sb := must(w.rt.AddPod(PodSpec{UID: "u1"}))(t)
					last = must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
					if pod, _ := w.rt.PodTruth("u1"); len(pod.Sandboxes) == 1 {
						check(t, w.rt.StopSandbox(sb))
					}
				}
				events := l.stop()
				ev := events[len(events)-1]
				if ev.ContainerId != last || len(ev.ContainersStatuses) != want {
					t.Errorf("last event tells of %d containers, want %d", len(ev.ContainersStatuses), want)
				}
			})
		})
	}
}

// Containers without the pod's labels are in no payload of CRI-O.
func TestCrioPayloadNeedsLabels(t *testing.T) {
	inBubble(t, Config{Profile: profileNamed(t, "crio")}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", 0)}))(t).PodSandboxId
		cfg := containerConfig("c")
		cfg.Labels = nil
		must(w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t)
		events := l.stop()
		if ev := events[len(events)-1]; ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT || len(ev.ContainersStatuses) != 0 {
			t.Errorf("payload: %v", ev)
		}
	})
}

// containerd tells of a sandbox's deletion before its lists do, with the zero time as its creation.
func TestSandboxDeletedBeforeItLeavesTheStore(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		check(t, w.rt.RemoveSandbox(sb))
		events := l.soFar()
		ev := events[len(events)-1]
		if ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT || ev.PodSandboxStatus.CreatedAt != -6795364578871345152 {
			t.Fatalf("last event: %v", ev)
		}
		count := func() int {
			return len(must(w.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}))(t).Items)
		}
		if n := count(); n != 1 {
			t.Errorf("right after the event %d sandboxes are listed, want 1", n)
		}
		time.Sleep(w.rt.Profile().DeleteLag)
		if n := count(); n != 0 {
			t.Errorf("later %d sandboxes are listed", n)
		}
		l.stop()
	})
}

// The IP is still in the STOPPED event of a sandbox, and gone from its status.
func TestStoppedSandboxKeepsItsIPInTheEvent(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		check(t, w.rt.StopSandbox(sb))
		events := l.stop()
		ev := events[len(events)-1]
		st := must(w.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb}))(t).Status
		if ev.PodSandboxStatus.Network.Ip == "" || ev.PodSandboxStatus.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.Network.Ip != "" {
			t.Errorf("event %v, status %v", ev.PodSandboxStatus, st)
		}
	})
}

func TestShortIDs(t *testing.T) {
	for profile, short := range map[string]bool{"containerd-2": true, "crio": true, "no-events": false} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
				ids := must(w.rt.Populate(Population{Pods: 40, Containers: 1}))(t)
				id := ids[7]
				res, err := w.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id[:13]})
				list := must(w.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id[:13]}}))(t)
				if short {
					if err != nil || res.Status.Id != id || len(list.Items) != 1 {
						t.Errorf("by a short ID: %v, %v, %d listed", res, err, len(list.Items))
					}
					// 40 IDs share 16 first digits.
					_, err = w.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sharedDigit(ids)})
					if status.Code(err) != codes.Unknown {
						t.Errorf("by an ambiguous ID: %v", err)
					}
				} else if status.Code(err) != codes.NotFound || len(list.Items) != 0 {
					t.Errorf("by a short ID: %v, %v, %d listed", res, err, len(list.Items))
				}
			})
		})
	}
}

func sharedDigit(ids []string) string {
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id[:1]] {
			return id[:1]
		}
		seen[id[:1]] = true
	}
	return ""
}

func TestProfileByName(t *testing.T) {
	for _, p := range Profiles() {
		if err := p.validate(); err != nil {
			t.Error(err)
		}
		if got := must(ProfileByName(p.Name))(t); got != p {
			t.Errorf("%q: %+v", p.Name, got)
		}
	}
	if _, err := ProfileByName("docker"); err == nil {
		t.Error("docker is a profile")
	}
	if ProfileNames()[0] != DefaultProfile || must(New(Config{}))(t).Profile().Name != DefaultProfile {
		t.Error("the default profile is not the first")
	}
}

// The server takes the content types of the real server: CRI-O's ends the connection of a client
// that names its codec.
func TestContentType(t *testing.T) {
	for _, tt := range []struct {
		profile, subtype string
		want             codes.Code
	}{
		{"containerd-2", "", codes.OK},
		{"containerd-2", "proto", codes.OK},
		{"crio", "", codes.OK},
		{"crio", "proto", codes.Unavailable},
		{"crio-disabled", "proto", codes.Unavailable},
	} {
		t.Run(tt.profile+" "+tt.subtype, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, tt.profile)}, func(t *testing.T, w *world) {
				_, err := w.cri.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.CallContentSubtype(tt.subtype))
				if status.Code(err) != tt.want {
					t.Errorf("Version: %v, want %v", err, tt.want)
				}
				stream, err := streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, "StreamContainers", grpc.CallContentSubtype(tt.subtype))
				if err == nil {
					_, err = stream.Recv()
				}
				if got := status.Code(err); err != io.EOF && got != tt.want {
					t.Errorf("StreamContainers: %v, want %v", err, tt.want)
				}
				// A client with a proper first call is served again.
				if _, err := w.cri.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
					t.Errorf("Version afterwards: %v", err)
				}
			})
		})
	}
}

// Resources are changed singly, of a container in any state.
func TestUpdateContainerResources(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", 0)}))(t).PodSandboxId
		cfg := containerConfig("c", "exit", "0")
		cfg.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 2, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}}}
		id := must(w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t).ContainerId
		must(w.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
		time.Sleep(time.Second)
		for _, change := range []*runtimeapi.LinuxContainerResources{
			{MemoryLimitInBytes: 100 << 20}, {CpuShares: 512}, {HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "1GB", Limit: 2}}}, nil,
		} {
			must(w.cri.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: change}))(t)
		}
		got := must(w.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t).Status
		want := &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 100 << 20, MemorySwapLimitInBytes: 100 << 20, CpuShares: 512, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "1GB", Limit: 2}},
		}
		if got.State != runtimeapi.ContainerState_CONTAINER_EXITED || !proto.Equal(want, got.Resources.Linux) {
			t.Errorf("%v: resources %v, want %v", got.State, got.Resources.Linux, want)
		}
	})
}

// A name in use is an error, or the answer, by profile; containers in the answer share the pod.
func TestNamesInUse(t *testing.T) {
	for profile, code := range map[string]codes.Code{"containerd-2": codes.FailedPrecondition, "containerd-1.7": codes.Unknown, "crio": codes.OK} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
				ctx := t.Context()
				run := func(attempt uint32) (string, error) {
					r, err := w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", attempt)})
					return r.GetPodSandboxId(), err
				}
				create := func(sb string) (string, error) {
					r, err := w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: containerConfig("c", "sleep", "1h")})
					return r.GetContainerId(), err
				}
				sb := must(run(0))(t)
				id := must(create(sb))(t)
				sameSb, err := run(0)
				if status.Code(err) != code || err == nil && sameSb != sb {
					t.Errorf("a sandbox's name in use: %s, %v, want %s or %v", sameSb, err, sb, code)
				}
				same, err := create(sb)
				if status.Code(err) != code || err == nil && same != id {
					t.Errorf("a container's name in use: %s, %v, want %s or %v", same, err, id, code)
				}
				other, err := create(must(run(1))(t))
				if err != nil || (other == id) != (code == codes.OK) {
					t.Errorf("the same name in another sandbox of the pod: %s, %v, and the first is %s", other, err, id)
				}
			})
		})
	}
}

// A missing command fails at the same call as in the real runtime, without an event.
func TestMissingCommand(t *testing.T) {
	for profile, createFails := range map[string]bool{"containerd-2": false, "crio": true} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
				sb := must(w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", 0)}))(t).PodSandboxId
				r, err := w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: containerConfig("c", missingCommand)})
				if (err != nil) != createFails {
					t.Fatalf("CreateContainer: %v", err)
				}
				if createFails {
					return
				}
				if _, err := w.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: r.ContainerId}); status.Code(err) != codes.Unknown {
					t.Errorf("StartContainer: %v, want Unknown", err)
				}
				st := must(w.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.ContainerId}))(t).Status
				if st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 128 {
					t.Errorf("afterwards: %v", st)
				}
			})
		})
	}
}

func TestUnknownHandler(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		for handler, want := range map[string]codes.Code{"": codes.OK, "runc": codes.OK, "nonsense": codes.Unknown} {
			_, err := w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podConfig("h"+handler, 0), RuntimeHandler: handler})
			if status.Code(err) != want {
				t.Errorf("handler %q: %v, want %v", handler, err, want)
			}
		}
	})
}

func TestImageNames(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, want := range map[string]string{
		"nginx": "docker.io/library/nginx:latest", "nginx:1": "docker.io/library/nginx:1", "a/b": "docker.io/a/b:latest",
		"localhost/x": "localhost/x:latest", "localhost:5000/x:1": "localhost:5000/x:1", "example.com/a/b_c:V.1": "example.com/a/b_c:V.1",
		"nginx@" + digest: "docker.io/library/nginx@" + digest, "x.io/y:1@" + digest: "x.io/y@" + digest,
		"NOT A REF!!": "", "": "", "a:": "", "A": "", "a@sha256:0": "", "a//b": "", "/a": "", "-.com/a": "",
	} {
		got, ok := normalImage(name)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", name, got, ok, want)
		}
	}
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		image := func(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }
		ref := must(w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image("nginx")}))(t).ImageRef
		for _, name := range []string{"nginx", "docker.io/library/nginx", "docker.io/library/nginx:latest", ref} {
			got := must(w.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image(name)}))(t).Image
			if got.GetId() != ref || got.GetRepoTags()[0] != "docker.io/library/nginx:latest" {
				t.Errorf("%s is %v, want the image pulled as nginx", name, got)
			}
		}
		must(w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image("x.io/y@" + digest)}))(t)
		got := must(w.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image("x.io/y@" + digest)}))(t).Image
		if len(got.GetRepoDigests()) != 1 || got.RepoDigests[0] != "x.io/y@"+digest {
			t.Errorf("an image pulled by its digest is %v", got)
		}
		if _, err := w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image("NOT A REF!!")}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("PullImage of what is no name: %v, want InvalidArgument", err)
		}
	})
}

// A pod uses at least as much as its containers.
func TestPodMemory(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		for range 3 {
			check(t, w.rt.Start(must(w.rt.AddContainer(sb, ContainerSpec{}))(t)))
		}
		linux := must(w.cri.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: sb}))(t).Stats.Linux
		sum := uint64(0)
		for _, c := range linux.Containers {
			sum += c.Memory.WorkingSetBytes.Value
		}
		if len(linux.Containers) != 3 || linux.Memory.WorkingSetBytes.Value <= sum {
			t.Errorf("the pod uses %d bytes, its %d containers %d", linux.Memory.WorkingSetBytes.Value, len(linux.Containers), sum)
		}
	})
}
