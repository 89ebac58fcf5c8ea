// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func TestLife(t *testing.T) {
	c := OnFake(t, "containerd-2", 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	recorder := &Recorder{}
	recorded := make(chan error, 1)
	recording, stop := context.WithCancel(ctx)
	go func() { recorded <- recorder.Run(recording, c) }()

	pod, err := c.RunPod(ctx, "uid", "pod", 0)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := c.CreateAndStart(ctx, pod, Spec{Name: "runs", Args: []string{"sleep", "1h"}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Create(ctx, pod, Spec{Name: "made", Args: []string{"pause"}})
	if err != nil {
		t.Fatal(err)
	}
	truth, err := c.Truth(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []bench.Pod{{UID: "uid", Items: []bench.Item{
		{ID: pod.SandboxID, Sandbox: true, State: bench.Running},
		{ID: runs, Name: "runs", State: bench.Running},
		{ID: made, Name: "made", State: bench.Created},
	}}}
	if _, lines := bench.Compare(truth, want, 10); len(lines) > 0 {
		t.Errorf("truth: %q", lines)
	}
	if err := c.Stop(ctx, runs, 0); err != nil {
		t.Fatal(err)
	}
	status, err := c.WaitState(ctx, runs, runtimeapi.ContainerState_CONTAINER_EXITED)
	if err != nil {
		t.Fatal(err)
	}
	truth, err = c.Truth(ctx)
	if err != nil || bench.Find(truth, "uid", runs).ExitCode != status.ExitCode {
		t.Errorf("truth %v, %v, want exit code %d", truth, err, status.ExitCode)
	}
	if err := c.Remove(ctx, made); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveAll(ctx); err != nil {
		t.Fatal(err)
	}
	if truth, err := c.Truth(ctx); err != nil || len(truth) != 0 {
		t.Errorf("after RemoveAll: %v, %v", truth, err)
	}
	for !ends(recorder.Events(), pod.SandboxID) {
		if ctx.Err() != nil {
			t.Fatalf("the recorder has %d events and no DELETED of the sandbox", len(recorder.Events()))
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-recorded; err == nil {
		t.Error("Run told no reason for its end")
	}
}

func ends(events []Event, id string) bool {
	for _, e := range events {
		if e.ContainerId == id && e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
			return true
		}
	}
	return false
}

// TestNamespaceIsAFence: pods of others are neither seen nor removed.
func TestNamespaceIsAFence(t *testing.T) {
	c := OnFake(t, "containerd-2", 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	other := *c
	other.Namespace = "theirs"
	if _, err := other.RunPod(ctx, "uid", "pod", 0); err != nil {
		t.Fatal(err)
	}
	if truth, err := c.Truth(ctx); err != nil || len(truth) != 0 {
		t.Errorf("truth %v, %v, want nothing of another namespace", truth, err)
	}
	if err := c.RemoveAll(ctx); err != nil {
		t.Fatal(err)
	}
	if truth, err := other.Truth(ctx); err != nil || len(truth) != 1 {
		t.Errorf("truth of the other namespace %v, %v, want its pod", truth, err)
	}
}

func TestErrorsNameTheObject(t *testing.T) {
	c := OnFake(t, "containerd-2", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.WaitState(ctx, "nothing", runtimeapi.ContainerState_CONTAINER_EXITED); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitState of a container that does not exist: %v", err)
	}
	if err := c.Start(t.Context(), "nothing"); err == nil || !Gone(err) {
		t.Errorf("Start of a container that does not exist: %v, want it told as gone", err)
	}
}
