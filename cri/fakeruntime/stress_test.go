// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// allFaults are all examples together; tuning faults keep their defaults.
func allFaults(t testing.TB) Faults {
	var specs []string
	for _, d := range FaultList() {
		if d.Example != "" {
			specs = append(specs, d.Name+"="+d.Example)
		}
	}
	return must(ParseFaults(specs...))(t)
}

// Drivers, readers and listeners all at once, with restarts, under every profile, without and with
// all faults: nothing gets stuck, nothing is left behind, and once the faults end the lists tell
// the truth.
func TestEverythingAtOnce(t *testing.T) {
	for _, p := range Profiles() {
		for name, faults := range map[string]Faults{"healthy": {}, "all faults": allFaults(t)} {
			t.Run(p.Name+" "+name, func(t *testing.T) {
				inBubble(t, Config{Profile: p, Faults: faults, Seed: 5}, func(t *testing.T, w *world) {
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					var wg sync.WaitGroup
					for i := range 2 {
						wg.Go(func() { drive(ctx, w, rand.New(rand.NewPCG(5, uint64(i)))) })
						wg.Go(func() { readAll(ctx, w.conn) })
					}
					for range 2 {
						conn := w.dial(t, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
						wg.Go(func() { follow(ctx, runtimeapi.NewRuntimeServiceClient(conn)) })
					}
					for range 2 {
						time.Sleep(1200 * time.Millisecond)
						w.rt.Restart(200*time.Millisecond, 100*time.Millisecond)
					}
					wg.Wait()
					check(t, w.rt.SetFaults(Faults{}))
					w.rt.CutStreams(0)
					time.Sleep(time.Minute)
					synctest.Wait()

					want, got := map[string]runtimeapi.ContainerState{}, map[string]runtimeapi.ContainerState{}
					for _, pod := range w.rt.Truth().Pods {
						for _, sb := range pod.Sandboxes {
							for _, c := range sb.Containers {
								want[c.ID] = runtimeapi.ContainerState(c.State.enum())
							}
						}
					}
					for _, c := range w.containers() {
						got[c.Id] = c.State
					}
					if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
						t.Errorf("truth and list (-truth +list):\n%s", diff)
					}
					s := w.rt.Stats()
					if s.Blocked != 0 || s.Subscribers > 2 {
						t.Errorf("left behind: %+v", s)
					}
					checkHistory(t, w.rt)
				})
			})
		}
	}
}

// checkHistory holds the history against the life of containers and sandboxes.
func checkHistory(t *testing.T, rt *Runtime) {
	t.Helper()
	now := map[string]State{}
	changes, _ := rt.History(0)
	for i, ch := range changes {
		id := ch.ContainerID
		if id == "" {
			id = ch.SandboxID
		}
		if now[id] != ch.Old || ch.New == ch.Old || ch.New == StateNone || ch.Old == StateRemoved {
			t.Fatalf("change %d: was %v: %+v", i, now[id], ch)
		}
		if ch.Old == StateExited && ch.New != StateRemoved {
			t.Fatalf("change %d: life after death: %+v", i, ch)
		}
		if i > 0 && ch.Time.Before(changes[i-1].Time) {
			t.Fatalf("change %d is before the one before", i)
		}
		now[id] = ch.New
	}
}

// drive changes pods by the CRI and directly. Errors are expected: others drive too, and the
// runtime restarts.
func drive(ctx context.Context, w *world, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
		one, cancel := context.WithTimeout(ctx, time.Second)
		uid := "u" + itoa(uint32(r.IntN(8)))
		var sb, c string
		pod, ok := w.rt.PodTruth(uid)
		if ok {
			s := pod.Sandboxes[r.IntN(len(pod.Sandboxes))]
			sb = s.ID
			if len(s.Containers) > 0 {
				c = s.Containers[r.IntN(len(s.Containers))].ID
			}
		}
		switch n := r.IntN(12); {
		case n == 0 && len(pod.Sandboxes) < 3:
			w.rt.AddPod(PodSpec{UID: uid})
		case n == 1, n == 2:
			w.rt.AddContainer(
				sb,
				ContainerSpec{Life: After(time.Duration(r.IntN(300))*time.Millisecond, int32(r.IntN(256)))},
			)
		case n == 3, n == 4:
			w.rt.Start(c)
		case n == 5:
			w.rt.Exit(c, 1)
		case n == 6:
			w.cri.RemoveContainer(one, &runtimeapi.RemoveContainerRequest{ContainerId: c})
		case n == 7 && r.IntN(2) == 0:
			w.cri.RemovePodSandbox(one, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
		case n == 8:
			w.cri.CreateContainer(
				one,
				&runtimeapi.CreateContainerRequest{
					PodSandboxId: sb,
					Config:       containerConfig("c"+itoa(uint32(r.IntN(100))), "sleep", "1"),
				},
			)
		case n == 9:
			w.cri.StartContainer(one, &runtimeapi.StartContainerRequest{ContainerId: c})
		case n == 10 && r.IntN(10) == 0:
			w.rt.KillShim(sb)
		case n == 10:
			w.rt.LoseTrack(c)
		case n == 11 && r.IntN(10) == 0:
			w.rt.RecoverSandbox(sb)
		}
		cancel()
	}
}

// readAll reads everything over and over.
func readAll(ctx context.Context, conn *grpc.ClientConn) {
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		one, cancel := context.WithTimeout(ctx, time.Second)
		cri.ListPodSandbox(one, &runtimeapi.ListPodSandboxRequest{})
		if res, err := cri.ListContainers(one, &runtimeapi.ListContainersRequest{}); err == nil {
			for _, c := range res.Containers[:min(3, len(res.Containers))] {
				cri.ContainerStatus(one, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
				cri.PodSandboxStatus(one, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: c.PodSandboxId})
			}
		}
		cri.ListPodSandboxStats(one, &runtimeapi.ListPodSandboxStatsRequest{})
		if stream, err := streamList[runtimeapi.ListContainersResponse](one, conn, "StreamContainers"); err == nil {
			for err == nil {
				_, err = stream.Recv()
			}
		}
		cancel()
	}
}

// follow listens, and listens again whenever a stream ends or is silent for long.
func follow(ctx context.Context, cri runtimeapi.RuntimeServiceClient) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 4*time.Second)
		if stream, err := cri.GetContainerEvents(one, &runtimeapi.GetEventsRequest{}); err == nil {
			for err == nil {
				_, err = stream.Recv()
			}
		}
		cancel()
		time.Sleep(100 * time.Millisecond)
	}
}
