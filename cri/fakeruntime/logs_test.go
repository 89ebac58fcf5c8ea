// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a script prints, and when, is known before it runs.
func TestScripts(t *testing.T) {
	who := identity{uid: 1001, name: "app", groups: []int64{1002, 7, 50000}}
	for _, tt := range []struct {
		script, stdout, stderr string
		readonly, endless      bool
		life                   Life
		every                  time.Duration
	}{
		{script: `echo hello World`, stdout: "hello World\n", life: After(0, 0)},
		{script: `echo -n a; echo b`, stdout: "ab\n", life: After(0, 0)},
		{script: `echo 'a  b' "c  d"`, stdout: "a  b c  d\n", life: After(0, 0)},
		{script: `echo out; echo bad >&2; echo worse 1>&2`, stdout: "out\n", stderr: "bad\nworse\n", life: After(0, 0)},
		{script: `echo $(id -u):$(id -g)`, stdout: "1001:1002\n", life: After(0, 0)},
		{script: `id -un; id -G`, stdout: "app\n1002 7 50000\n", life: After(0, 0)},
		{script: `echo "in $(echo a; echo b)"`, stdout: "in a\nb\n", life: After(0, 0)},
		{script: `touch f && [ -f f ] && echo 'Found'`, stdout: "Found\n", life: After(0, 0)},
		{script: `touch f && [ -f f ] && echo 'Found'`, readonly: true, stderr: "touch: f: Read-only file system\n", life: After(0, 1)},
		{script: `[ -f f ] || echo none`, stdout: "none\n", life: After(0, 0)},
		{script: `false && echo a || echo b && exit 3; echo c`, stdout: "b\n", life: After(0, 3)},
		{script: `sh -c "exit 4"; echo on`, stdout: "on\n", life: After(0, 0)},
		{script: "echo a\nsleep 2\necho b", stdout: "a\nb\n", life: After(2*time.Second, 0)},
		{script: `echo a; sleep infinity; echo b`, stdout: "a\n", endless: true},
		{script: `echo a; nginx -g`, stdout: "a\n", endless: true},
		{script: `while true; do echo x; sleep 1; done; echo never`, stdout: "x\n", endless: true, every: time.Second},
		{script: `while :; do echo x; done`, stdout: "x\n", endless: true, every: loopPause},
		{script: `while true; do echo x; exit 2; done`, stdout: "x\n", life: After(0, 2)},
		{script: `false && while true; do echo x; done; echo y`, stdout: "y\n", life: After(0, 0)},
		{script: `while read x; do echo x; done`, endless: true},
		{script: `echo a | cat`, endless: true},
		{script: `echo $HOME`, endless: true},
		{script: `echo "open`, endless: true},
		{script: `while true; do echo x`, stdout: "x\n", endless: true},
		{script: strings.Repeat("$(", 5000), endless: true},
		{script: strings.Repeat("while true; do ", 1000), endless: true},
	} {
		p, err := runAhead([]string{"sh", "-c", tt.script}, who, tt.readonly)
		if err != nil {
			t.Errorf("%q: %v", tt.script, err)
			continue
		}
		if p.life != tt.life || p.life.Ends == tt.endless || p.every != tt.every {
			t.Errorf("%q: %+v, every %v, want %+v, every %v", tt.script, p.life, p.every, tt.life, tt.every)
		}
		if out, bad := output(p.lines, false), output(p.lines, true); out != tt.stdout || bad != tt.stderr {
			t.Errorf("%q: prints %q and %q, want %q and %q", tt.script, out, bad, tt.stdout, tt.stderr)
		}
	}
}

// What a container prints stands in the file that its status names, in the CRI's format and at its
// time; a renamed file is written until the log is reopened.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := newWorld(t, Config{})
		defer w.end()
		ctx := t.Context()
		pod := podConfig("a", 0)
		pod.LogDirectory = dir
		sb := must(w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod}))(t).PodSandboxId
		start := func(name, script string) (id, file string) {
			cfg := containerConfig(name, "sh", "-c", script)
			cfg.LogPath = name + ".log"
			id = must(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t).ContainerId
			must(w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
			return id, must(w.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t).Status.LogPath
		}
		entries := func(file string) (out []string) {
			for line := range strings.Lines(string(must(os.ReadFile(file))(t))) {
				stamp, rest, _ := strings.Cut(line, " ")
				if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
					t.Errorf("%q: %v", line, err)
				}
				out = append(out, strings.TrimSuffix(rest, "\n"))
			}
			return out
		}
		want := func(file string, lines ...string) {
			t.Helper()
			if got := strings.Join(entries(file), "|"); got != strings.Join(lines, "|") {
				t.Errorf("%s: %q, want %q", filepath.Base(file), got, lines)
			}
		}

		_, brief := start("brief", "echo one; echo -n two >&2; sleep 5; echo three")
		want(brief, "stdout F one", "stderr P two")
		time.Sleep(6 * time.Second)
		want(brief, "stdout F one", "stderr P two", "stdout F three")
		_, quiet := start("quiet", "sleep 1h")
		want(quiet)
		long := strings.Repeat("x", maxLogLine)
		if got := (line{text: long + "yz\n"}).format("now"); got != "now stdout P "+long+"\nnow stdout F yz\n" {
			t.Errorf("a long line: %.40q, %d bytes", got, len(got))
		}

		loop, file := start("loop", "echo begin; while true; do echo x; sleep 1; done")
		time.Sleep(2500 * time.Millisecond)
		want(file, "stdout F begin", "stdout F x", "stdout F x", "stdout F x")
		check(t, os.Rename(file, file+".1"))
		time.Sleep(time.Second)
		want(file+".1", "stdout F begin", "stdout F x", "stdout F x", "stdout F x", "stdout F x")
		must(w.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: loop}))(t)
		time.Sleep(time.Second)
		want(file+".1", "stdout F begin", "stdout F x", "stdout F x", "stdout F x", "stdout F x")
		want(file, "stdout F x")
		must(w.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: loop, Timeout: 1}))(t)
		time.Sleep(time.Minute)
		if n := len(entries(file)); n > 2 {
			t.Errorf("%d lines after the stop", n)
		}
		if _, err := w.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: loop}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("reopen of a stopped container's log: %v", err)
		}

		check(t, os.Mkdir(filepath.Join(dir, "bad.log"), 0o755))
		cfg := containerConfig("bad", "echo", "x")
		cfg.LogPath = "bad.log"
		id := must(w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t).ContainerId
		if _, err := w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil || !strings.Contains(err.Error(), "bad.log") {
			t.Errorf("a log that cannot be written: %v", err)
		}
	})
}

// A pod's annotations hold for containers that have none of their own, and a script comes before
// the command.
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
		bare := must(w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podConfig("b", 0)}))(t).PodSandboxId
		sb = bare
		if d, code := ends("script", map[string]string{AnnotationScript: "sleep 2; exit 9"}); d != 2*time.Second || code != 9 {
			t.Errorf("a script: %v, code %d", d, code)
		}
	})
}
