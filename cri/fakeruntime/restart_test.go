// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A restart breaks the streams, forgets the backlog, answers "not initialized" for a while, and
// shows unseen ends as 255 Unknown.
func TestRestart(t *testing.T) {
	inBubble(t, Config{Faults: Faults{RestartExit: 0.5}, Seed: 3}, func(t *testing.T, w *world) {
		ids := must(w.rt.Populate(Population{Pods: 20, Containers: 1}))(t)
		must(w.rt.AddPod(PodSpec{}))(t) // two events in the backlog
		l := w.listen(w.conn)
		if n := len(l.soFar()); n != 2 {
			t.Fatalf("%d events", n)
		}
		w.rt.Restart(2*time.Second, time.Second)
		if err := l.error(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		l.stop()
		if err := w.rt.Start(ids[0]); !errors.Is(err, ErrDown) {
			t.Errorf("a direct method while down: %v", err)
		}
		if _, err := w.cri.Version(timeout(t, time.Second), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("Version while down: %v", err)
		}
		time.Sleep(2500*time.Millisecond - time.Since(begin2000()))
		conn := w.dial(t)
		cri := runtimeapi.NewRuntimeServiceClient(conn)
		_, err := cri.Version(t.Context(), &runtimeapi.VersionRequest{})
		if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != "server is not initialized yet" {
			t.Errorf("Version while starting: %v", err)
		}
		time.Sleep(time.Second)
		list := must(cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
		dead := 0
		for _, c := range list.Containers {
			if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
				dead++
				st := must(cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id}))(t).Status
				if st.ExitCode != 255 || st.Reason != "Unknown" {
					t.Errorf("status: %v", st)
				}
			}
		}
		if dead == 0 || dead == 20 {
			t.Errorf("%d of 20 died unseen", dead)
		}
		again := w.listen(conn)
		if events := again.stop(); len(events) != 0 {
			t.Errorf("a backlog survived the restart: %v", kinds(events))
		}
		changes, _ := w.rt.History(1)
		if len(changes) != dead {
			t.Errorf("%d changes in the history, want %d", len(changes), dead)
		}
		for _, ch := range changes {
			if ch.Event != NoEvent || ch.New != StateExited || ch.ExitCode != 255 {
				t.Errorf("change: %+v", ch)
			}
		}
	})
}

// begin2000 is when every bubble begins.
func begin2000() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// Nobody sees an end while the runtime is down, natural or by the driver's hand. It is dated at the
// runtime's return, as seen with containerd 2.4.2.
func TestExitWhileDown(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{UID: "u"}))(t)
		byItself := must(w.rt.AddContainer(sb, ContainerSpec{Life: After(time.Second, 4)}))(t)
		byHand := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
		check(t, w.rt.Start(byItself))
		check(t, w.rt.Start(byHand))
		w.rt.Down()
		check(t, w.rt.Exit(byHand, 5))
		time.Sleep(2 * time.Second)
		w.rt.Up(time.Second)
		time.Sleep(2 * time.Second)
		pod, _ := w.rt.PodTruth("u")
		for _, c := range pod.Sandboxes[0].Containers {
			if ago := time.Since(time.Unix(0, c.FinishedAt)); c.State != StateExited || c.ExitCode != 255 || ago != time.Second {
				t.Errorf("%+v, finished %v ago; want 1s, when the runtime was ready", c, ago)
			}
		}
		time.Sleep(30 * time.Second) // the client's own backoff
		if events := w.listen(w.conn).stop(); len(events) != 0 {
			t.Errorf("events: %v", kinds(events))
		}
	})
}

// Events held or delayed at the runtime's death are lost with it.
func TestRestartLosesWhatIsHeld(t *testing.T) {
	inBubble(t, Config{Faults: Faults{Delay: 1, DelayBy: time.Second}}, func(t *testing.T, w *world) {
		must(w.rt.AddPod(PodSpec{}))(t)
		w.rt.Restart(0, 0)
		time.Sleep(2 * time.Second)
		changes, _ := w.rt.History(0)
		if len(changes) != 1 || changes[0].Event != Lost {
			t.Errorf("history: %+v", changes)
		}
		if events := w.listen(w.conn).stop(); len(events) != 0 {
			t.Errorf("events: %v", kinds(events))
		}
	})
}

// A restart releases a caller blocked by a subscriber, and a caller of a hung call.
func TestRestartFreesCallers(t *testing.T) {
	inBubble(t, Config{Faults: Faults{HangStatus: 1}}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		done := make(chan error, 1)
		go func() {
			_, err := w.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb})
			done <- err
		}()
		synctest.Wait()
		w.rt.Restart(0, 0)
		if err := <-done; status.Code(err) != codes.Unavailable {
			t.Errorf("the hanging call: %v", err)
		}
	})
}

// The shim is killed: the sandbox's STOPPED comes with its container still running, and the
// container's own comes 1.4 s later, code 255.
func TestKillShim(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
		check(t, w.rt.Start(c))
		l := w.listen(w.conn)
		check(t, w.rt.KillShim(sb))
		time.Sleep(2 * time.Second)
		events := l.stop()[4:]
		if diff := cmp.Diff([]string{"pod stopped", "stopped"}, kinds(events)); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		if st := events[0].ContainersStatuses[0]; st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("in the sandbox's event the container is %v", st.State)
		}
		if st := events[1].ContainersStatuses[0]; st.ExitCode != 255 ||
			time.Duration(events[1].CreatedAt-events[0].CreatedAt) != 1400*time.Millisecond {
			t.Errorf("container's event: %v", events[1])
		}
	})
}

// Changes never reported by runtimes.
func TestChangesWithoutEvents(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{UID: "u"}))(t)
		c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
		check(t, w.rt.Start(c))
		l := w.listen(w.conn)
		before := len(l.soFar())
		check(t, w.rt.LoseTrack(c))
		st := w.status(c)
		if st.State != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			t.Errorf("state %v", st.State)
		}
		must(w.cri.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 77, MemoryLimitInBytes: 9}}))(t)
		if n := len(l.soFar()); n != before {
			t.Errorf("%d events", n-before)
		}
		st = w.status(c)
		if r := st.Resources.GetLinux(); r.GetCpuShares() != 77 || r.GetMemoryLimitInBytes() != 9 ||
			r.GetMemorySwapLimitInBytes() != 9 { // as containerd
			t.Errorf("status %v", st)
		}
		check(t, w.rt.StopSandbox(sb)) // container and sandbox
		check(t, w.rt.StopSandbox(sb)) // nothing
		if n := len(l.soFar()); n != before+2 {
			t.Errorf("%d events of two stops", n-before)
		}
		check(t, w.rt.RecoverSandbox(sb))
		if pod, _ := w.rt.PodTruth("u"); pod.Sandboxes[0].State != StateReady || len(l.stop()) != before+2 {
			t.Errorf("after the recovery: %+v", pod)
		}
	})
}
