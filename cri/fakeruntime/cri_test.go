// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pod's whole life through the CRI, as by a kubelet.
func TestCRILifecycle(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx, l := t.Context(), w.listen(w.conn)
		sb := w.runPod(podConfig("a", 0))
		exitCode := func(id string) int32 {
			st := w.status(id)
			if st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
				t.Errorf("state %v", st.State)
			}
			return st.ExitCode
		}
		short := w.start(sb, containerConfig("short", "sleep", "2", "6"))
		forever, killed := w.start(sb, containerConfig("forever", "nginx")), w.start(sb, containerConfig("killed", "nginx"))
		time.Sleep(2 * time.Second)
		must(w.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: forever, Timeout: 30}))(t)
		must(w.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: forever, Timeout: 30}))(t)
		must(w.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: killed}))(t)
		got := []int32{exitCode(short), exitCode(forever), exitCode(killed)}
		if diff := cmp.Diff([]int32{6, 143, 137}, got); diff != "" {
			t.Errorf("exit codes (-want +got):\n%s", diff)
		}
		must(w.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: short}))(t)
		must(w.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: short}))(t)
		must(w.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}))(t)
		must(w.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}))(t)
		must(w.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}))(t)
		want := []string{
			"pod created",
			"pod started",
			"created",
			"started",
			"created",
			"started",
			"created",
			"started",
			"stopped",
			"stopped",
			"stopped",
			"deleted",
			"pod stopped",
			"deleted",
			"deleted",
			"pod deleted",
		}
		if diff := cmp.Diff(want, kinds(l.stop())); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if truth := w.rt.Truth(); len(truth.Pods) != 0 {
			t.Errorf("left: %+v", truth.Pods)
		}
		w.rt.mu.Lock()
		defer w.rt.mu.Unlock()
		if s := &w.rt.store; len(s.sandboxes.place)+len(s.containers.place)+len(s.pods)+len(s.sandboxes.list)+len(s.containers.list) != 0 || len(w.rt.sched.tasks) != 0 {
			t.Errorf("the store is not empty: %+v", s)
		}
	})
}

// A container that ignores SIGTERM lives until the timeout.
func TestIgnoreTerm(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		cfg := containerConfig("c")
		cfg.Annotations[AnnotationIgnoreTerm] = "true"
		id := w.start(sb, cfg)
		begun := time.Now()
		must(w.cri.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 7}))(t)
		st := w.status(id)
		if d := time.Since(begun); d != 7*time.Second+containerdExitLag || st.ExitCode != 137 {
			t.Errorf("ended after %v with %d", d, st.ExitCode)
		}
	})
}

// Impossible requests, and the refusals of real runtimes.
func TestCRIErrors(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		sb := w.runPod(podConfig("a", 0))
		id := w.create(sb, containerConfig("c"))
		noImage, noName := containerConfig("x"), containerConfig("")
		noImage.Image = nil
		code := func(_ any, err error) codes.Code { return status.Code(err) }
		for name, pair := range map[string][2]codes.Code{
			"sandbox without config":    {codes.InvalidArgument, code(w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{}))},
			"sandbox status of no ID":   {codes.NotFound, code(w.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{}))},
			"sandbox stats":             {codes.NotFound, code(w.cri.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "none"}))},
			"container stats":           {codes.NotFound, code(w.cri.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: "none"}))},
			"create without config":     {codes.InvalidArgument, code(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb}))},
			"create without image":      {codes.InvalidArgument, code(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: noImage}))},
			"create without name":       {codes.InvalidArgument, code(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: noName}))},
			"create with a bad command": {codes.InvalidArgument, code(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: containerConfig("x", "sleep", "long")}))},
			"stop what never ran":       {codes.OK, code(w.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}))},
			"reopen the log":            {codes.FailedPrecondition, code(w.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}))},
			"exec":                      {codes.Unimplemented, code(w.cri.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id}))},
			"attach":                    {codes.Unimplemented, code(w.cri.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id}))},
			"port forward":              {codes.Unimplemented, code(w.cri.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sb}))},
			"checkpoint":                {codes.Unimplemented, code(w.cri.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id}))},
			"pull nothing":              {codes.InvalidArgument, code(w.img.PullImage(ctx, &runtimeapi.PullImageRequest{}))},
			"resources of no pod":       {codes.NotFound, code(w.cri.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "none"}))},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %v, want %v", name, pair[1], pair[0])
			}
		}
		if st := w.status(id); st.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			t.Errorf("stopping what never ran made it %v", st.State)
		}
		must(w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
		if c := code(w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})); c != codes.Unknown {
			t.Errorf("starting twice: %v", c)
		}
		must(w.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}))(t)
	})
}

// ExecSync runs the commands that a container knows.
func TestExecSync(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		cfg := containerConfig("c", "sleep", "1h")
		c := w.create(sb, cfg)
		exec := func(timeout int64, cmd ...string) (*runtimeapi.ExecSyncResponse, codes.Code, time.Duration) {
			begun := time.Now()
			res, err := w.cri.ExecSync(
				t.Context(),
				&runtimeapi.ExecSyncRequest{ContainerId: c, Cmd: cmd, Timeout: timeout},
			)
			return res, status.Code(err), time.Since(begun)
		}
		if _, code, _ := exec(0, "true"); code != codes.FailedPrecondition {
			t.Errorf("in a container that does not run: %v", code)
		}
		check(t, w.rt.Start(c))
		for _, tt := range []struct {
			timeout int64
			cmd     []string
			exit    int32
			code    codes.Code
			took    time.Duration
			stdout  string
		}{
			{cmd: []string{"exit", "3"}, exit: 3},
			{cmd: []string{"sleep", "2"}, took: 2 * time.Second},
			{cmd: []string{"sh", "-c", "echo a; echo b; exit 3"}, exit: 3, stdout: "a\nb\n"},
			{timeout: 1, cmd: []string{"sleep", "2"}, code: codes.DeadlineExceeded, took: time.Second},
			{timeout: 18446744074, cmd: []string{"sleep", "2"}, took: 2 * time.Second}, // more than 2^64 ns
			{timeout: -1, cmd: []string{"sleep", "2"}, took: 2 * time.Second},
			{timeout: -18446744073, cmd: []string{"sleep", "2"}, took: 2 * time.Second}, // 0.7 s less than -2^64 ns
			{cmd: []string{"cat", "/etc/passwd"}, code: codes.Unimplemented},
			{cmd: []string{"sleep", "soon"}, code: codes.InvalidArgument},
		} {
			res, code, took := exec(tt.timeout, tt.cmd...)
			if res.GetExitCode() != tt.exit || code != tt.code || took != tt.took ||
				string(res.GetStdout()) != tt.stdout {
				t.Errorf("%v: %v, %v after %v", tt.cmd, res, code, took)
			}
		}
	})
}

// Answers must not contain values refused by the kubelet's client and crictl, on any profile.
func TestClientsAccept(t *testing.T) {
	for _, p := range Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			inBubble(t, Config{Profile: p}, func(t *testing.T, w *world) {
				ctx := t.Context()
				must(w.rt.Populate(Population{Pods: 3, Containers: 2}))(t)
				v := must(w.cri.Version(ctx, &runtimeapi.VersionRequest{}))(t)
				if v.Version == "" || v.RuntimeName != p.RuntimeName || v.RuntimeVersion != p.RuntimeVersion ||
					v.RuntimeApiVersion == "" {
					t.Errorf("version: %v", v)
				}
				st := must(w.cri.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}))(t)
				ready := map[string]bool{}
				for _, c := range st.Status.Conditions {
					ready[c.Type] = c.Status
				}
				if !ready["RuntimeReady"] || !ready["NetworkReady"] || len(st.Info) == 0 {
					t.Errorf("status: %v", st)
				}
				for _, sb := range w.sandboxes() {
					st := must(w.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb.Id, Verbose: true}))(t)
					for _, m := range []*runtimeapi.PodSandboxMetadata{sb.Metadata, st.Status.Metadata} {
						if m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "" {
							t.Errorf("sandbox metadata: %v", m)
						}
					}
					if sb.CreatedAt == 0 || st.Status.CreatedAt == 0 || st.Status.Network.GetIp() == "" ||
						st.Status.Linux == nil ||
						len(st.Info) == 0 {
						t.Errorf("sandbox %v, status %v", sb, st)
					}
				}
				for _, c := range w.containers() {
					st := must(w.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id, Verbose: true}))(t)
					if c.GetImage().GetImage() == "" || c.ImageRef == "" || c.GetMetadata().GetName() == "" || c.CreatedAt == 0 || c.PodSandboxId == "" ||
						c.Labels[labelPodName] == "" || c.Labels[labelPodNamespace] == "" || c.Labels[labelContainerName] == "" {
						t.Errorf("container: %v", c)
					}
					var info struct{ PID int }
					if err := json.Unmarshal([]byte(st.Info["info"]), &info); err != nil || info.PID <= 1<<22 {
						t.Errorf("PID %d may be that of a process of the host: %v", info.PID, err)
					}
					if s := st.Status; s.GetImage().GetImage() == "" || s.ImageRef == "" || s.CreatedAt == 0 ||
						s.StartedAt == 0 ||
						s.LogPath == "" ||
						len(s.Mounts) == 0 ||
						len(st.Info) == 0 {
						t.Errorf("container status: %v", st)
					}
				}
				images := must(w.img.ListImages(ctx, &runtimeapi.ListImagesRequest{}))(t).Images
				for _, img := range images {
					if img.Size == 0 || img.Id == "" || len(img.RepoTags) == 0 {
						t.Errorf("image: %v", img)
					}
				}
				if fs := must(w.img.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{}))(t); len(images) < 2 ||
					fs.ImageFilesystems[0].UsedBytes.GetValue() == 0 || fs.ImageFilesystems[0].Timestamp == 0 || len(fs.ContainerFilesystems) == 0 {
					t.Errorf("%d images, file systems: %v", len(images), fs)
				}
				// crictl stats calls twice, a second apart: the CPU must have been used and the timestamp
				// moved.
				usage := func() *runtimeapi.CpuUsage {
					stats := must(w.cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{}))(t).Stats
					if len(stats) != 6 || stats[0].Attributes.GetMetadata().GetName() == "" || stats[0].Memory.GetWorkingSetBytes().GetValue() == 0 {
						t.Fatalf("stats: %v", stats)
					}
					return stats[0].Cpu
				}
				before := usage()
				time.Sleep(time.Second)
				after := usage()
				if after.Timestamp-before.Timestamp != int64(time.Second) ||
					after.UsageCoreNanoSeconds.GetValue() <= before.UsageCoreNanoSeconds.GetValue() {
					t.Errorf("CPU: %v, then %v", before, after)
				}
				pods := must(w.cri.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{}))(t).Stats
				if len(pods) != 3 || len(pods[0].Linux.Containers) != 2 ||
					pods[0].Linux.Cpu.GetUsageCoreNanoSeconds().GetValue() == 0 {
					t.Fatalf("pod stats: %v", pods)
				}
				linux := must(w.cri.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: pods[0].Attributes.Id}))(t).Stats.Linux
				if sum := linux.Containers[0].Memory.WorkingSetBytes.Value + linux.Containers[1].Memory.WorkingSetBytes.Value; linux.Memory.WorkingSetBytes.Value <= sum {
					t.Errorf(
						"the pod uses %d bytes, its containers %d",
						linux.Memory.WorkingSetBytes.Value,
						sum,
					)
				}
			})
		})
	}
}

// A container has the user of the request, or of the image, which is root.
func TestUsers(t *testing.T) {
	inBubble(t, Config{Profile: profileNamed(t, "crio")}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
		for i, tt := range []struct {
			security *runtimeapi.LinuxContainerSecurityContext
			want     []int64 // user, group, supplemental groups
			fails    string
		}{
			{want: []int64{0, 0, 0}},
			{security: &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "root", RunAsGroup: id(3)}, want: []int64{0, 3, 3}},
			{
				security: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1), RunAsGroup: id(7), SupplementalGroups: []int64{9, 5, 7, 9}},
				want:     []int64{1, 7, 7, 9, 5},
			},
			{security: &runtimeapi.LinuxContainerSecurityContext{RunAsGroup: id(3)}, fails: "run_as_user"},
			{security: &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "ghost"}, fails: "ghost"},
		} {
			cfg := containerConfig("c")
			cfg.Metadata.Attempt, cfg.Linux.SecurityContext = uint32(i), tt.security
			c, err := w.cri.CreateContainer(
				t.Context(),
				&runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg},
			)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("%v: %v", tt.security, err)
				}
				continue
			}
			check(t, err)
			user := w.status(c.ContainerId).User.GetLinux()
			if got := slices.Concat([]int64{user.GetUid(), user.GetGid()}, user.GetSupplementalGroups()); !slices.Equal(got, tt.want) {
				t.Errorf("%v: %v, want %v", tt.security, got, tt.want)
			}
		}
	})
}

// Every method of both services has an answer: its own, or a refusal with the reason.
func TestEveryMethodIsCounted(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		for service, desc := range map[string]*grpc.ServiceDesc{"runtime.v1.RuntimeService": &runtimeapi.RuntimeService_ServiceDesc, "runtime.v1.ImageService": &runtimeapi.ImageService_ServiceDesc} {
			for _, m := range desc.Methods {
				err := w.conn.Invoke(
					ctx,
					"/"+service+"/"+m.MethodName,
					&runtimeapi.VersionRequest{},
					&runtimeapi.ExecSyncRequest{},
				)
				if status.Code(err) == codes.Unimplemented && status.Convert(err).Message() == "" {
					t.Errorf("%s: %v", m.MethodName, err)
				}
				if n := w.rt.Stats().RPCs[m.MethodName]; n != 1 {
					t.Errorf("%s: counted %d times", m.MethodName, n)
				}
			}
		}
	})
}

// A container under removal, in a sandbox removed meanwhile, is removed once.
func TestRemovedWithItsSandboxMeanwhile(t *testing.T) {
	profile := must(ProfileByName("containerd-2"))(t)
	profile.ExitLag = 10 * time.Millisecond
	inBubble(t, Config{Profile: profile}, func(t *testing.T, w *world) {
		ctx := t.Context()
		sb := w.runPod(podConfig("a", 0))
		id := w.start(sb, containerConfig("c", "nginx"))
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := w.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		calls.Go(func() {
			if _, err := w.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
				t.Error(err)
			}
		})
		calls.Wait()
		if truth := w.rt.Truth(); len(truth.Pods) != 0 {
			t.Errorf("left: %+v", truth.Pods)
		}
	})
}
