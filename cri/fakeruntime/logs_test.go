// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a container prints stands in the file that its status names, in the CRI's format and at its
// time, also after a rotation.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := newWorld(t, Config{})
		defer w.end()
		ctx := t.Context()
		pod := podConfig("a", 0)
		pod.LogDirectory = dir
		sb := must(w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod}))(t).PodSandboxId
		create := func(name string, command ...string) string {
			cfg := containerConfig(name, command...)
			cfg.LogPath = name + ".log"
			return must(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t).ContainerId
		}
		start := func(name string, command ...string) (id, file string) {
			id = create(name, command...)
			must(w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
			return id, must(w.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t).Status.LogPath
		}
		want := func(file string, lines ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for line := range strings.Lines(string(must(os.ReadFile(file))(t))) {
				stamp, rest, _ := strings.Cut(line, " ")
				if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
					t.Errorf("%q: %v", line, err)
				}
				got = append(got, strings.TrimSuffix(rest, "\n"))
			}
			if !slices.Equal(got, lines) {
				t.Errorf("%s: %q, want %q", filepath.Base(file), got, lines)
			}
		}

		brief, file := start("brief", "sh", "-c", "echo one; sleep 5; echo two three")
		want(file, "stdout F one")
		check(t, os.Rename(file, file+".1"))
		must(w.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: brief}))(t)
		want(file)
		time.Sleep(6 * time.Second)
		want(file+".1", "stdout F one")
		want(file, "stdout F two three")
		if _, err := w.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: brief}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("reopen of a stopped container's log: %v", err)
		}
		killed, file := start("killed", "sh", "-c", "sleep 5; echo never")
		must(w.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: killed, Timeout: 1}))(t)
		time.Sleep(time.Minute)
		want(file)

		check(t, os.Mkdir(filepath.Join(dir, "bad.log"), 0o755))
		if _, err := w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: create("bad", "echo", "x")}); err == nil || !strings.Contains(err.Error(), "bad.log") {
			t.Errorf("a log that cannot be written: %v", err)
		}
	})
}

// A pod's annotations hold for containers that have none of their own.
func TestPodAnnotations(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		pod := podConfig("a", 0)
		pod.Annotations = map[string]string{AnnotationLifetime: "3s", AnnotationExitCode: "4"}
		sb := must(w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod}))(t).PodSandboxId
		ends := func(name string, annotations map[string]string) (time.Duration, int32) {
			cfg := containerConfig(name, "nginx")
			cfg.Annotations = annotations
			id := must(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t).ContainerId
			must(w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
			time.Sleep(time.Minute)
			st := must(w.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t).Status
			return time.Duration(st.FinishedAt - st.StartedAt), st.ExitCode
		}
		if d, code := ends("pod", nil); d != 3*time.Second || code != 4 {
			t.Errorf("the pod's annotations: %v, code %d", d, code)
		}
		if d, code := ends("own", map[string]string{AnnotationLifetime: "5s"}); d != 5*time.Second || code != 4 {
			t.Errorf("its own: %v, code %d", d, code)
		}
	})
}
