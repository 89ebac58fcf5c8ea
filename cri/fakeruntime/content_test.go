// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// texts are the contents of an ID in the order in which they were written.
func (w *world) texts(id string) (texts []string) {
	writings, _ := w.rt.Contents(0)
	for _, x := range writings {
		if x.ID == id {
			texts = append(texts, x.Text)
		}
	}
	return texts
}

// Events of one kind are dropped, and no others.
func TestDropByKind(t *testing.T) {
	all := []string{"pod created", "pod started", "created", "started", "stopped", "deleted"}
	for word, faults := range map[string]Faults{
		"created": {DropCreated: 1}, "started": {DropStarted: 1}, "stopped": {DropStopped: 1}, "deleted": {DropDeleted: 1},
	} {
		t.Run(word, func(t *testing.T) {
			inBubble(t, Config{Faults: faults}, func(t *testing.T, w *world) {
				l := w.listen(w.conn)
				_, c := oneLife(t, w, time.Second)
				check(t, w.rt.Remove(c))
				want := slices.DeleteFunc(
					slices.Clone(all),
					func(kind string) bool { return kind == word || kind == "pod "+word },
				)
				if got := kinds(l.stop()); !slices.Equal(got, want) {
					t.Errorf("events %v, want %v", got, want)
				}
			})
		})
	}
}

// Content that comes late is announced by nothing, and stands in the history of contents.
func TestLateContent(t *testing.T) {
	for _, tt := range []struct {
		name       string
		faults     Faults
		now, later string
	}{
		{"none", Faults{}, ContainerText(3, "Error", 0), ContainerText(3, "Error", 0)},
		{"reason", Faults{LateReason: 1}, ContainerText(137, "Error", 0), ContainerText(137, "OOMKilled", 0)},
		{"code", Faults{LateCode: 1, LateBy: time.Second}, ContainerText(255, "Error", 0), ContainerText(3, "Error", 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Config{Faults: tt.faults}, func(t *testing.T, w *world) {
				l := w.listen(w.conn)
				_, c := oneLife(t, w, time.Second)
				shown := func() string {
					s := w.status(c)
					return ContainerText(s.ExitCode, s.Reason, 0)
				}
				if got := shown(); got != tt.now {
					t.Errorf("at the end it shows %s, want %s", got, tt.now)
				}
				events := len(l.soFar())
				time.Sleep(2 * time.Second)
				if got := shown(); got != tt.later {
					t.Errorf("later it shows %s, want %s", got, tt.later)
				}
				if n := len(l.stop()); n != events {
					t.Errorf("%d events about the content", n-events)
				}
				texts := w.texts(c)
				if got := texts[len(texts)-1]; got != tt.later {
					t.Errorf("the history of contents ends with %s, want %s", got, tt.later)
				}
			})
		})
	}
}

// A resize by the CRI stands in the history of contents.
func TestResizeIsWritten(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		c := w.start(sb, containerConfig("x"))
		must(w.cri.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20},
		}))(t)
		texts := w.texts(c)
		if got, want := texts[len(texts)-1], ContainerText(0, "", 128<<20); got != want {
			t.Errorf("the history of contents ends with %s, want %s", got, want)
		}
	})
}

// Addresses come late, and are lost over a restart.
func TestAddresses(t *testing.T) {
	inBubble(t, Config{Faults: Faults{LateAddress: 1, LostAddress: 1}}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		ip := func() string { return w.sandboxStatus(sb).GetNetwork().GetIp() }
		if got := ip(); got != "" {
			t.Errorf("it has the address %s at once", got)
		}
		time.Sleep(20 * time.Millisecond)
		if ip() == "" {
			t.Error("it never has an address")
		}
		w.rt.Restart(time.Second, 0)
		time.Sleep(10 * time.Second)
		if got := ip(); got != "" {
			t.Errorf("it has kept the address %s over the restart", got)
		}
		if n := len(w.texts(sb)); n != 3 {
			t.Errorf("%d contents of the sandbox, want none, an address, none", n)
		}
	})
}

// Calls of lists and statuses share the processors.
func TestWork(t *testing.T) {
	for processors, want := range map[int]time.Duration{0: 8 * time.Second, 4: 2 * time.Second} {
		inBubble(
			t,
			Config{Faults: Faults{Work: time.Second, Processors: processors}},
			func(t *testing.T, w *world) {
				begun := time.Now()
				var calls sync.WaitGroup
				for range 8 {
					calls.Go(func() { w.containers() })
				}
				calls.Wait()
				if took := time.Since(begun).Round(time.Millisecond); took != want {
					t.Errorf("%d processors: 8 calls of 1 s took %v, want %v", processors, took, want)
				}
				must(w.rt.AddPod(PodSpec{}))(t)
				check(t, w.rt.SetFaults(Faults{}))
			},
		)
	}
}

// A single container cannot be read, and all others can.
func TestUnreadableItems(t *testing.T) {
	for name, faults := range map[string]Faults{"fail": {FailItem: 0.5, FailCode: Code(codes.Internal)}, "hang": {HangItem: 0.5}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Faults: faults, Seed: 3}, func(t *testing.T, w *world) {
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				bad := 0
				for range 10 {
					c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
					first := codes.OK
					for range 2 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						_, err := w.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c})
						cancel()
						if code := status.Code(err); first != codes.OK && code != first {
							t.Errorf("%v, and then %v", first, code)
						}
						first = status.Code(err)
					}
					if first != codes.OK {
						bad++
						check(t, w.rt.Remove(c))
						_, err := w.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c})
						if code := status.Code(err); code != codes.NotFound {
							t.Errorf("once the container is gone: %v", code)
						}
						must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
					}
				}
				if bad == 0 || bad == 10 {
					t.Errorf("%d of 10 containers cannot be read", bad)
				}
				if n := len(w.containers()); n != 10 {
					t.Errorf("%d containers are listed", n)
				}
			})
		})
	}
}

// The form of an ID does not decide whether a container can be read.
func TestUnreadableContainersByShortID(t *testing.T) {
	for name, faults := range map[string]Faults{"fail": {FailItem: 0.5}, "hang": {HangItem: 0.5}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Faults: faults, Seed: 3}, func(t *testing.T, w *world) {
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				for range 20 {
					must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
				}
				for _, c := range w.rt.Truth().Pods[0].Sandboxes[0].Containers {
					for _, id := range []string{c.ID, c.ID[:20]} {
						req := &runtimeapi.ContainerStatusRequest{ContainerId: id}
						_, err := w.cri.ContainerStatus(timeout(t, time.Minute), req)
						if (err != nil) != c.Unreadable {
							t.Errorf("container %s, unreadable: %v, by %s: %v", c.ID, c.Unreadable, id, err)
						}
					}
				}
			})
		})
	}
}

// A reply without fields keeps the states.
func TestNilFieldsKeepTheState(t *testing.T) {
	inBubble(t, Config{Faults: Faults{NilFields: 1}}, func(t *testing.T, w *world) {
		sb, c := oneLife(t, w, time.Second)
		if got := w.status(c); got.Metadata != nil || got.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("the dead container's status is %v", got)
		}
		check(t, w.rt.StopSandbox(sb))
		const dead = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		if got := w.sandboxes()[0]; got.Metadata != nil || got.State != dead {
			t.Errorf("the dead sandbox is listed as %v", got)
		}
		if got := w.sandboxStatus(sb); got.Metadata != nil || got.State != dead || got.Id != sb {
			t.Errorf("the dead sandbox's status is %v", got)
		}
	})
}

// Items without a creation time, and dead sandboxes without metadata.
func TestBareItems(t *testing.T) {
	inBubble(t, Config{Faults: Faults{NoCreationTime: 1, BareSandbox: 1}}, func(t *testing.T, w *world) {
		sb, c := oneLife(t, w, time.Second)
		if s := w.status(c); s.CreatedAt != 0 {
			t.Errorf("the container was created at %d", s.CreatedAt)
		}
		if w.sandboxes()[0].Metadata == nil {
			t.Error("a ready sandbox has no metadata")
		}
		check(t, w.rt.StopSandbox(sb))
		if got := w.sandboxes()[0]; got.Metadata != nil ||
			got.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY ||
			got.Id != sb {
			t.Errorf("the dead sandbox is listed as %v", got)
		}
		if got := w.sandboxStatus(sb); got.Metadata != nil || got.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("the dead sandbox's status is %v", got)
		}
	})
}

// Lists that show nothing, always or once after a restart.
func TestEmptyLists(t *testing.T) {
	inBubble(t, Config{Faults: Faults{EmptyList: 1}}, func(t *testing.T, w *world) {
		oneLife(t, w, time.Second)
		if n := len(w.containers()) + len(w.sandboxes()); n != 0 {
			t.Errorf("%d items are listed", n)
		}
	})
	inBubble(t, Config{Faults: Faults{EmptyStart: 1}}, func(t *testing.T, w *world) {
		oneLife(t, w, time.Second)
		for i, want := range []int{2, 0, 2} {
			if n := len(w.containers()) + len(w.sandboxes()); n != want {
				t.Errorf("list %d: %d items, want %d", i, n, want)
			}
			if i == 0 {
				w.rt.Restart(time.Second, 0)
				time.Sleep(10 * time.Second)
			}
		}
	})
}

// An empty list counts if it leaves something out.
func TestEmptyListsThatLeaveSomethingOut(t *testing.T) {
	profile := Profiles()[0]
	profile.StreamBatch = 10
	inBubble(t, Config{Profile: profile, Faults: Faults{EmptyList: 1}}, func(t *testing.T, w *world) {
		lists := func(want uint64) {
			t.Helper()
			before := w.rt.Stats().EmptyLists
			if n := len(w.containers()) + len(w.sandboxes()); n != 0 {
				t.Errorf("%d items are listed", n)
			}
			for _, method := range []string{"StreamContainers", "StreamPodSandboxes"} {
				stream := must(streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, method))(t)
				if _, err := stream.Recv(); err != io.EOF {
					t.Errorf("%s: %v", method, err)
				}
			}
			if got := w.rt.Stats().EmptyLists - before; got != want {
				t.Errorf("%d lists leave something out, want %d", got, want)
			}
		}
		lists(0)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		lists(2)
		must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
		lists(4)
		before := w.rt.Stats().EmptyLists
		other := &runtimeapi.ContainerFilter{PodSandboxId: "other"}
		must(w.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: other}))(t)
		if got := w.rt.Stats().EmptyLists - before; got != 0 {
			t.Error("a list of nothing counts")
		}
	})
}

// A removed container stays in the lists, in its last state and found by its labels, until the
// fault ends; its status is not found.
func TestContainersThatStayListed(t *testing.T) {
	inBubble(t, Config{Faults: Faults{StaysListed: 1}}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		kept := w.create(sb, containerConfig("kept"))
		gone := w.create(sb, containerConfig("gone"))
		check(t, w.rt.Start(gone))
		check(t, w.rt.Remove(gone))
		for name, filter := range map[string]*runtimeapi.ContainerFilter{
			"none":       nil,
			"sandbox":    {PodSandboxId: sb},
			"pod's name": {LabelSelector: map[string]string{labelPodUID: "uid-a"}},
		} {
			list := must(w.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: filter}))(t)
			states := make(map[string]runtimeapi.ContainerState)
			for _, c := range list.Containers {
				states[c.Id] = c.State
			}
			want := map[string]runtimeapi.ContainerState{
				kept: runtimeapi.ContainerState_CONTAINER_CREATED,
				gone: runtimeapi.ContainerState_CONTAINER_EXITED,
			}
			if !maps.Equal(states, want) {
				t.Errorf("filter by %s: %v, want %v", name, states, want)
			}
		}
		_, err := w.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: gone})
		if status.Code(err) != codes.NotFound {
			t.Errorf("its status: %v, want NotFound", err)
		}
		if left := w.rt.Truth().Leftovers; !slices.Equal(left, []string{gone}) {
			t.Errorf("leftovers %v, want %s", left, gone)
		}
		check(t, w.rt.SetFaults(Faults{}))
		if n := len(w.containers()); n != 1 {
			t.Errorf("%d containers are listed after the fault, want 1", n)
		}
	})
}

// A change that was given up is made later all the same.
func TestLateWrites(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		c := w.create(sb, containerConfig("x"))
		check(t, w.rt.SetFaults(Faults{LateWrite: 1, LateWriteBy: 10 * time.Minute}))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := w.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("the call ends with %v", err)
		}
		time.Sleep(9 * time.Minute)
		if got := w.status(c).State; got != runtimeapi.ContainerState_CONTAINER_CREATED {
			t.Errorf("after nine minutes it is %v", got)
		}
		time.Sleep(time.Minute + time.Second)
		if got := w.status(c).State; got != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("after ten minutes it is %v", got)
		}
	})
}
