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

func TestLifeOfCommands(t *testing.T) {
	for _, tt := range []struct {
		command string // split at spaces, | is a space within an argument
		want    Life
		fails   bool
	}{
		{command: "", want: Life{}},
		{command: "nginx -g daemon|off;", want: Life{}},
		{command: "sleep 5", want: After(5*time.Second, 0)},
		{command: "sleep 0", want: After(0, 0)},
		{command: "sleep 0.25", want: After(250*time.Millisecond, 0)},
		{command: "/bin/sleep 1m30s 7", want: After(90*time.Second, 7)},
		{command: "sleep infinity", want: Life{}},
		{command: "sleep inf 3", want: Life{}},
		{command: "exit 9", want: After(0, 9)},
		{command: "exit", want: After(0, 0)},
		{command: "true", want: After(0, 0)},
		{command: "/bin/false", want: After(0, 1)},
		{command: "/tool sleep 2s 4", want: After(2*time.Second, 4)},
		{command: "/tool exit 4", want: After(0, 4)},
		{command: "sh -c sleep|1;|exit|3", want: After(time.Second, 3)},
		{command: "bash -c exit|2;|sleep|9", want: After(0, 2)},
		{command: "sh -c ", want: After(0, 0)},
		{command: "sh script.sh", want: Life{}},
		{command: "sleep", fails: true},
		{command: "sleep abc", fails: true},
		{command: "sleep -1", fails: true},
		{command: "sleep 1e300", fails: true},
		{command: "sleep NaN", fails: true},
		{command: "sleep 1 256", fails: true},
		{command: "sleep 1 2 3", fails: true},
		{command: "exit -1", fails: true},
		{command: "sh -c sleep|x", fails: true},
		{command: "sh -c sleep|1;|nginx;|exit|3", want: Life{}},
		{command: "sh -c sleep|1|&&|exit|3", want: Life{}},
		{command: "echo sleep 1", want: After(0, 0)},
	} {
		var argv []string
		if tt.command != "" {
			for arg := range strings.SplitSeq(tt.command, " ") {
				argv = append(argv, strings.ReplaceAll(arg, "|", " "))
			}
		}
		got, err := runAhead(argv)
		if tt.fails != (err != nil) || err == nil && got.life != tt.want {
			t.Errorf("%q: %+v, %v; want %+v", argv, got, err, tt.want)
		}
	}
}

func TestLifeOfAnnotations(t *testing.T) {
	for _, tt := range []struct {
		lifetime, code, command string
		want                    Life
		fails                   string
	}{
		{lifetime: "3s", want: After(3*time.Second, 0)},
		{lifetime: "3", code: "5", want: After(3*time.Second, 5)},
		{code: "5", command: "sleep 1", want: After(time.Second, 5)},
		{lifetime: "2s", command: "sleep 1 9", want: After(2*time.Second, 0)},
		{lifetime: "infinity", command: "sleep 1", want: Life{}},
		{lifetime: "2s", command: "sleep soon", want: After(2*time.Second, 0)}, // the annotation counts
		{lifetime: "soon", fails: AnnotationLifetime},
		{lifetime: "-3s", fails: AnnotationLifetime},
		{code: "300", fails: AnnotationExitCode},
		{command: "sleep soon", fails: "command"},
	} {
		annotations := map[string]string{}
		if tt.lifetime != "" {
			annotations[AnnotationLifetime] = tt.lifetime
		}
		if tt.code != "" {
			annotations[AnnotationExitCode] = tt.code
		}
		got, err := programOf(
			&runtimeapi.ContainerConfig{Command: strings.Fields(tt.command), Annotations: annotations},
			nil,
		)
		switch {
		case tt.fails != "":
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%+v: %v", tt, err)
			}
		case err != nil || got.life != tt.want:
			t.Errorf("%+v: %+v, %v", tt, got, err)
		}
	}
}

// Any command is a possible life of a container, or an error.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"sleep 5 1", "sh -c\x00sleep 1; exit 3", "exit 255", "sleep 1e17", "bash\x00-c\x00sleep inf && exit 1", "a\x00sleep\x001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, argv := range [][]string{strings.Fields(s), strings.Split(s, "\x00"), {"sh", "-c", s}} {
			p, err := runAhead(argv)
			if err != nil {
				continue
			}
			life := p.life
			if err := life.validate(); err != nil {
				t.Errorf("%q: %+v: %v", argv, life, err)
			}
			if !life.Ends && life.For != 0 {
				t.Errorf("%q: %+v never ends after some time", argv, life)
			}
		}
	})
}

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
		sb := w.runPod(pod)
		config := func(name string, command ...string) *runtimeapi.ContainerConfig {
			cfg := containerConfig(name, command...)
			cfg.LogPath = name + ".log"
			return cfg
		}
		start := func(name string, command ...string) (id, file string) {
			id = w.start(sb, config(name, command...))
			return id, w.status(id).LogPath
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
		if _, err := w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: w.create(sb, config("bad", "echo", "x"))}); err == nil || !strings.Contains(err.Error(), "bad.log") {
			t.Errorf("a log that cannot be written: %v", err)
		}
	})
}

// A pod's annotations hold for containers that have none of their own.
func TestPodAnnotations(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		pod := podConfig("a", 0)
		pod.Annotations = map[string]string{AnnotationLifetime: "3s", AnnotationExitCode: "4"}
		sb := w.runPod(pod)
		ends := func(name string, annotations map[string]string) (time.Duration, int32) {
			cfg := containerConfig(name, "nginx")
			cfg.Annotations = annotations
			id := w.start(sb, cfg)
			time.Sleep(time.Minute)
			st := w.status(id)
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
