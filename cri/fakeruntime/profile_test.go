// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func profileNamed(t testing.TB, name string) Profile {
	t.Helper()
	return must(ProfileByName(name))(t)
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
			inBubble(t, Config{Profile: profileNamed(t, tt.profile), ContainerBytes: 1}, func(t *testing.T, w *world) {
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

// Containers without the pod's labels are in no payload of CRI-O.
func TestCrioPayloadNeedsLabels(t *testing.T) {
	inBubble(t, Config{Profile: profileNamed(t, "crio")}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := w.runPod(podConfig("a", 0))
		cfg := containerConfig("c")
		cfg.Labels = nil
		w.create(sb, cfg)
		events := l.stop()
		if ev := events[len(events)-1]; ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT || len(ev.ContainersStatuses) != 0 {
			t.Errorf("payload: %v", ev)
		}
	})
}

// The IP is still in the STOPPED event of a sandbox, and gone from its status. containerd reports
// the deletion of a sandbox before its lists do, with the zero time as its creation.
func TestEndOfASandbox(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		check(t, w.rt.StopSandbox(sb))
		events := l.soFar()
		ev := events[len(events)-1]
		st := w.sandboxStatus(sb)
		if ev.PodSandboxStatus.Network.Ip == "" || ev.PodSandboxStatus.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.Network.Ip != "" {
			t.Errorf("event %v, status %v", ev.PodSandboxStatus, st)
		}
		check(t, w.rt.RemoveSandbox(sb))
		events = l.soFar()
		if ev := events[len(events)-1]; ev.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT || ev.PodSandboxStatus.CreatedAt != -6795364578871345152 {
			t.Fatalf("last event: %v", ev)
		}
		for _, want := range []int{1, 0} {
			if n := len(w.sandboxes()); n != want {
				t.Errorf("%d sandboxes are listed, want %d", n, want)
			}
			time.Sleep(w.rt.Profile().DeleteLag)
		}
		l.stop()
	})
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

// The server takes the content types of the real server: CRI-O's refuses a client that names its
// codec.
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
			})
		})
	}
}

func TestImageNames(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, want := range map[string]string{
		"nginx": "docker.io/library/nginx:latest", "nginx:1": "docker.io/library/nginx:1", "a/b": "docker.io/a/b:latest",
		"localhost/x": "localhost/x:latest", "localhost:5000/x:1": "localhost:5000/x:1", "example.com/a/b_c:V.1": "example.com/a/b_c:V.1",
		"nginx@" + digest: "docker.io/library/nginx@" + digest, "x.io/y:1@" + digest: "x.io/y@" + digest,
		"NOT A REF!!": "", "": "", "a:": "", "A": "", "a@sha256:0": "", "a//b": "", "/a": "", "-.com/a": "",
	} {
		if _, got, _ := normalImage(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		image := func(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }
		ref := must(w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image("nginx")}))(t).ImageRef
		for _, name := range []string{"nginx", "docker.io/library/nginx", "docker.io/library/nginx:latest", ref} {
			got := must(w.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image(name), Verbose: true}))(t).Image
			if got.GetId() != ref || got.GetRepoTags()[0] != "docker.io/library/nginx:latest" {
				t.Errorf("%s is %v, want the image pulled as nginx", name, got)
			}
		}
		for filter, want := range map[string]int{"nginx": 1, "absent": 0, "": 3} {
			if got := must(w.img.ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: &runtimeapi.ImageFilter{Image: image(filter)}}))(t).Images; len(got) != want {
				t.Errorf("%d images by the filter %q, want %d", len(got), filter, want)
			}
		}
		for range 2 {
			must(w.img.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: image(ref)}))(t)
		}
		if got := must(w.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image("nginx"), Verbose: true}))(t); got.Image != nil {
			t.Errorf("after the removal: %v", got)
		}
		must(w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image("x.io/y@" + digest)}))(t)
		got := must(w.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image("x.io/y@" + digest)}))(t).Image
		if len(got.GetRepoDigests()) != 1 || got.RepoDigests[0] != "x.io/y@"+digest {
			t.Errorf("an image pulled by its digest is %v", got)
		}
		if pinned := must(w.img.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image(PauseImage)}))(t).Image.GetPinned(); !pinned {
			t.Errorf("%s is not pinned", PauseImage)
		}
		hasty := timeout(t, time.Millisecond)
		if _, err := w.img.PullImage(hasty, &runtimeapi.PullImageRequest{Image: image("late")}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a pull whose deadline is over: %v", err)
		}
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		cfg := containerConfig("c")
		cfg.Image = image("late")
		_, err := w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg})
		if err == nil || !strings.Contains(err.Error(), WorkloadImage) || !strings.Contains(err.Error(), "late") {
			t.Errorf("a container of an image that was never pulled: %v", err)
		}
		if _, err := w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image("NOT A REF!!")}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("PullImage of what is no name: %v, want InvalidArgument", err)
		}
	})
}
