// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func profileNamed(t testing.TB, name string) Profile {
	t.Helper()
	return must(ProfileByName(name))(t)
}

// Which events a pod's life gives, in which order.
func TestProfileEvents(t *testing.T) {
	containerd := []string{"pod created", "pod started", "created", "started", "stopped", "created", "started", "stopped", "pod stopped", "deleted", "deleted", "pod deleted"}
	crio := []string{"pod started", "created", "started", "stopped", "created", "started", "stopped", "pod stopped"}
	for _, tt := range []struct {
		profile string
		want    []string
	}{
		{"containerd-2", containerd},
		{"containerd-2.0", containerd},
		{"containerd-1.7", containerd},
		{"crio", crio}, // no CREATED and DELETED of sandboxes, and RemovePodSandbox is silent
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

// No header is sent before the first event: a client cannot see that it is subscribed.
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

// What PodSandboxStatus says of the containers, and of its own time.
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

// Lists as streams: how many messages 7001 containers are, or that there is no such call.
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
					stream := must(w.cri.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{}))(t)
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

// What a payload covers: the sandbox of the event, or all sandboxes of the pod.
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

// Containers that lack the pod's labels are in no payload of CRI-O.
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
