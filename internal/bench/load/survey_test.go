// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// TestLook finds the makers: a stranger, this process, an ended process, an invisible process.
func TestLook(t *testing.T) {
	rt, conn := serve(t, fakeruntime.Config{})
	if _, err := rt.Populate(fakeruntime.Population{Pods: 2, Containers: 1}); err != nil {
		t.Fatal(err)
	}
	d, _ := newDriver(t, conn, nil)
	if err := d.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{load.RunLabel: "t"}}})
	if err != nil || len(list.GetItems()) != 5 {
		t.Fatalf("%d sandboxes, %v; want 5", len(list.GetItems()), err)
	}
	// An ended process: this process's name with the ID of a reaped process.
	const owner = "evented-pleg.io/bench-process"
	mine := strings.Fields(list.GetItems()[0].GetAnnotations()[owner])
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && len(mine) != 4 {
		t.Fatalf("the owner is %q: want the boot, the namespace, the ID and the begin of the process", mine)
	}
	add := func(name string, labels map[string]string, process string) {
		labels["io.kubernetes.pod.uid"] = name
		_, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "n", Uid: name}, Labels: labels, Annotations: map[string]string{owner: process},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []load.Remains{{RunID: "t", Sandboxes: 5, Owner: load.OwnerUnknown}, {RunID: "u", Sandboxes: 1, Owner: load.OwnerUnknown}}
	add("unknown", map[string]string{load.RunLabel: "u"}, "nonsense")
	if runtime.GOOS == "linux" {
		want[0].Owner = load.OwnerLives
		add("dead", map[string]string{load.RunLabel: "dead"}, strings.Join([]string{mine[0], mine[1], "4194305", mine[3]}, " ")) // above every limit of IDs
		add("zombie", map[string]string{load.RunLabel: "zombie"}, zombie(t, mine))
		add("reused", map[string]string{load.RunLabel: "reused"}, strings.Join([]string{mine[0], mine[1], mine[2], "1"}, " "))
		add("boot", map[string]string{load.RunLabel: "boot"}, strings.Join([]string{"another", mine[1], mine[2], mine[3]}, " "))
		add("elsewhere", map[string]string{load.RunLabel: "elsewhere"}, strings.Join([]string{mine[0], "pid:[1]", mine[2], mine[3]}, " "))
		want = append([]load.Remains{
			{RunID: "boot", Sandboxes: 1, Owner: load.OwnerEnded}, {RunID: "dead", Sandboxes: 1, Owner: load.OwnerEnded},
			{RunID: "elsewhere", Sandboxes: 1, Owner: load.OwnerUnknown}, {RunID: "reused", Sandboxes: 1, Owner: load.OwnerEnded},
		}, want...)
		want = append(want, load.Remains{RunID: "zombie", Sandboxes: 1, Owner: load.OwnerEnded})
	}
	survey, err := load.Look(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range survey.Strangers {
		if !strings.HasPrefix(s, "default/") || len(survey.Strangers) != 2 {
			t.Errorf("stranger %d of %d is %q", i, len(survey.Strangers), s)
		}
	}
	var got []load.Remains
	for _, r := range survey.Runs {
		got = append(got, load.Remains{RunID: r.RunID, Sandboxes: r.Sandboxes, Owner: r.Owner})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(load.Remains{})); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// zombie names a killed process without a waiting parent, as happens where the first process of a
// container waits for nobody.
func zombie(t *testing.T, like []string) string {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if fields := strings.Fields(string(stat)); fields[2] == "Z" { // its name has no spaces
			return strings.Join([]string{like[0], like[1], fmt.Sprint(cmd.Process.Pid), fields[21]}, " ")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestMakeScratch removes the folders of ended processes, and no others.
func TestMakeScratch(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	mine, err := load.MakeScratch()
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.ReadFile(filepath.Join(mine, "process"))
	if err != nil {
		t.Fatal(err)
	}
	dead, foreign := mine+"-dead", mine+"-foreign"
	process := strings.Fields(string(name))
	if runtime.GOOS == "linux" {
		process[2] = "4194305" // above every limit of IDs
	}
	for dir, owner := range map[string]string{dead: strings.Join(process, " "), foreign: "nonsense"} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "process"), []byte(owner), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := load.MakeScratch(); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{mine: true, foreign: true, dead: runtime.GOOS != "linux"} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", dir, err, want)
		}
	}
}

// TestEveryContainerHasALogPath holds for sandboxes and containers of every kind of action.
func TestEveryContainerHasALogPath(t *testing.T) {
	_, conn := serve(t, fakeruntime.Config{})
	d, _ := newDriver(t, conn, func(c *load.Config) { c.LogDirectory = "/some/where" })
	if err := d.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Run(t.Context(), 300_000_000)
	client := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	paths := make(map[string]bool)
	for _, c := range list.GetContainers() {
		answer, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		path := answer.GetStatus().GetLogPath()
		if filepath.Dir(path) != "/some/where" || filepath.Ext(path) != ".log" || paths[path] {
			t.Errorf("log path %q: want a file of its own in the load's folder", path)
		}
		paths[path] = true
	}
	if len(paths) < 10 {
		t.Errorf("%d containers, want those of 5 pods at least", len(paths))
	}
}

// TestRemoveLogs removes logs in a folder of MakeLogs and nothing else.
func TestRemoveLogs(t *testing.T) {
	dir, err := load.MakeLogs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(path string) string {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(filepath.Join(dir, "a.log"))
	precious := write(filepath.Join(dir, "precious.txt"))
	if err := load.RemoveLogs(dir); err == nil {
		t.Error("a folder that holds something else was removed")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	other := t.TempDir()
	log := write(filepath.Join(other, "b.log"))
	for _, dir := range []string{other, "", ".", "/", "pleg-bench-logs-relative"} {
		if err := load.RemoveLogs(dir); err != nil {
			t.Errorf("%q: %v", dir, err)
		}
	}
	if _, err := os.Stat(log); err != nil {
		t.Errorf("a folder that is not the load's was touched: %v", err)
	}
	if err := os.Remove(precious); err != nil {
		t.Fatal(err)
	}
	if err := load.RemoveLogs(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := load.RemoveLogs(dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
}
