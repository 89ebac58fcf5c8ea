// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flood makes n events, by making and removing containers in turn, so that payloads stay small.
func (w *world) flood(sb string, n int) {
	w.t.Helper()
	var last string
	for i := range n {
		if i%2 == 0 {
			last = must(w.rt.AddContainer(sb, ContainerSpec{}))(w.t)
		} else {
			check(w.t, w.rt.Remove(last))
		}
	}
}

// An idle subscriber blocks the containerd 2 runtime: CreateContainer and RemoveContainer hang
// until the caller's deadline, other subscribers starve, lists still work, and the end of the
// stream releases everything at once.
func TestSubscriberThatDoesNotReadBlocksTheRuntime(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		other := w.dial(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		must(w.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
		synctest.Wait()
		reader := w.listen(other)

		create := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			cfg := containerConfig(fmt.Sprint(w.rt.Stats().RPCs["CreateContainer"]))
			_, err := w.cri.CreateContainer(
				ctx,
				&runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg},
			)
			return err
		}
		var err error
		n := 0
		for ; n < 1000 && err == nil; n++ {
			err = create()
		}
		if status.Code(err) != codes.DeadlineExceeded || n <= 100 {
			t.Fatalf("after %d creations: %v", n, err)
		}
		if n := w.rt.Stats().Blocked; n != 1 {
			t.Errorf("%d events are blocked", n)
		}
		seen := len(reader.soFar())
		// Not on the idle subscriber's connection: an answer as large as this widens its window.
		list := must(runtimeapi.NewRuntimeServiceClient(other).ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))(t)
		if len(list.Containers) != n {
			t.Errorf("while blocked, %d of %d containers are listed", len(list.Containers), n)
		}
		if seen >= n+2 {
			t.Errorf("the other subscriber has all %d events: it does not starve", seen)
		}
		if _, err := w.cri.RemoveContainer(timeout(t, 2*time.Second), &runtimeapi.RemoveContainerRequest{ContainerId: list.Containers[0].Id}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("RemoveContainer: %v", err)
		}
		cancel()
		begun := time.Now()
		if err := create(); err != nil {
			t.Errorf("after the end of the stream: %v", err)
		}
		if d := time.Since(begun); d > 0 {
			t.Errorf("recovered after %v", d)
		}
		if got := len(reader.stop()); got != n+2 { // n+1 creations, and a removal; the sandbox's own went to the first subscriber
			t.Errorf("the other subscriber got %d events in the end, want %d", got, n+2)
		}
		if n := w.rt.Stats().Blocked; n != 0 {
			t.Errorf("%d events are blocked in the end", n)
		}
	})
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The direct methods never wait, however blocked the runtime is; their events wait for room.
func TestDirectMethodsNeverWait(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		must(w.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
		synctest.Wait()
		begun := time.Now()
		w.flood(sb, 1000)
		synctest.Wait()
		if n := w.rt.Stats().Blocked; time.Since(begun) != 0 || n < 500 {
			t.Errorf("took %v, %d events are blocked", time.Since(begun), n)
		}
	})
}

// Without a subscriber, containerd 2 keeps events for five minutes, and gives all of them to the
// first subscriber.
func TestBacklogGoesToTheFirstSubscriber(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		time.Sleep(3 * time.Minute)
		w.flood(sb, 200)
		time.Sleep(2*time.Minute + 59*time.Second)
		first := w.listen(w.conn)
		other := w.dial(t)
		second := w.listen(other)
		if n := len(second.stop()); n != 0 {
			t.Errorf("the second subscriber got %d events of the backlog", n)
		}
		events := first.stop()
		if len(events) != 200 {
			t.Fatalf("the first subscriber got %d events, want the 200 of the last five minutes", len(events))
		}
		if age := time.Since(time.Unix(0, events[0].CreatedAt)); age < 2*time.Minute+59*time.Second {
			t.Errorf("the first one is %v old", age)
		}
		changes, _ := w.rt.History(0)
		if changes[0].Event != Lost || changes[1].Event != Emitted {
			t.Errorf("history: %v, %v", changes[0].Event, changes[1].Event)
		}
	})
}

// containerd notices a dead client only at a failed send: the events after the disconnection are
// lost, later ones are kept for the next.
func TestDeadClientIsNoticedAtAFailedSend(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		l := w.listen(w.conn)
		l.stop()
		time.Sleep(time.Minute)
		if n := w.rt.Stats().Subscribers; n != 1 {
			t.Fatalf("%d subscribers: the runtime should not have noticed", n)
		}
		w.flood(sb, 1)
		synctest.Wait()
		if n := w.rt.Stats().Subscribers; n != 0 {
			t.Fatalf("%d subscribers after a failed send", n)
		}
		w.flood(sb, 3)
		again := w.listen(w.conn)
		if n := len(again.stop()); n != 3 {
			t.Errorf("the next subscriber got %d events, want 3", n)
		}
		changes, _ := w.rt.History(1)
		for i, want := range []Emission{Lost, Emitted, Emitted, Emitted} {
			if changes[i].Event != want {
				t.Errorf("change %d: %v, want %v", i, changes[i].Event, want)
			}
		}
	})
}

// All live subscribers of containerd 2 and of CRI-O get every event; those of containerd 1.7 share
// them.
func TestSeveralSubscribers(t *testing.T) {
	for profile, each := range map[string]bool{"containerd-2": true, "crio": true, "containerd-1.7": false} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
				var subs []*listening
				for range 3 {
					conn := w.dial(t)
					subs = append(subs, w.listen(conn))
				}
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				for range 51 {
					w.flood(sb, 1)
					synctest.Wait()
				}
				emitted := int(w.rt.Stats().Emitted)
				total := 0
				for _, l := range subs {
					n := len(l.stop())
					total += n
					if each && n != emitted {
						t.Errorf("a subscriber got %d of %d events", n, emitted)
					}
				}
				if !each && total != emitted {
					t.Errorf("all together got %d of %d events", total, emitted)
				}
			})
		})
	}
}

// The queues of containerd 1.7 and CRI-O drop the newest when they are full, and nobody is blocked.
func TestFullQueueDropsTheNewest(t *testing.T) {
	for _, name := range []string{"containerd-1.7", "crio"} {
		t.Run(name, func(t *testing.T) {
			profile := profileNamed(t, name)
			profile.StopsUnborn = false // for the same number of events
			inBubble(t, Config{Profile: profile}, func(t *testing.T, w *world) {
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				w.flood(sb, 1500)
				if s := w.rt.Stats(); s.Emitted != 1000 || s.Blocked != 0 {
					t.Errorf("%+v", s)
				}
				// They were kept for the very first client.
				l := w.listen(w.conn)
				if n := len(l.stop()); n != 1000 {
					t.Errorf("the first client got %d events", n)
				}
				changes, next := w.rt.History(0)
				if changes[next-1].Event != Discarded {
					t.Errorf("the last change: %v", changes[next-1].Event)
				}
			})
		})
	}
}

// Events of CRI-O vanish between two clients; those of containerd 1.7 wait in the channel.
func TestEventsBetweenTwoClients(t *testing.T) {
	for profile, want := range map[string]int{"containerd-1.7": 5, "crio": 0} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				w.listen(w.conn).stop()
				w.flood(sb, 1) // notices the client's end
				synctest.Wait()
				w.flood(sb, 5)
				time.Sleep(time.Second)
				if n := len(w.listen(w.conn).stop()); n != want {
					t.Errorf("the second client got %d events, want %d", n, want)
				}
			})
		})
	}
}

// An idle client of CRI-O holds up all others, since each event goes to all of them in turn.
func TestCrioSlowClientHoldsUpTheOthers(t *testing.T) {
	inBubble(t, Config{Profile: profileNamed(t, "crio")}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		must(w.cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
		other := w.dial(t)
		l := w.listen(other)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		w.flood(sb, 500)
		if n := len(l.soFar()); n >= 400 {
			t.Errorf("the reader has %d events while the other does not read", n)
		}
		cancel()
		// the pod, and three for each of 250 containers: one that was never started is stopped before
		// it is removed
		if n := len(l.stop()); n != 751 {
			t.Errorf("the reader has %d events in the end", n)
		}
	})
}

// A backlog that nobody takes is bounded by its bytes: the oldest events go, as lost, and the next
// subscriber gets the others in order.
func TestBacklogIsBounded(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		const most = 100 << 10
		w.rt.hub.most = most
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		w.flood(sb, 1000)
		var bytes int64
		for _, ev := range w.rt.hub.waiting {
			bytes += int64(len(ev.wire))
		}
		kept := len(w.rt.hub.waiting)
		if bytes > most || bytes < most/2 {
			t.Errorf("%d events of %d bytes wait, want at most %d bytes, and not much less", kept, bytes, most)
		}
		stream := must(w.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		var last string
		for range kept {
			last = must(stream.Recv())(t).GetContainerId()
		}
		changes, _ := w.rt.History(0)
		if want := changes[len(changes)-1].ContainerID; last != want {
			t.Errorf("the last event is of %q, want %q, the last that changed", last, want)
		}
		lost := 0
		for _, c := range changes {
			if c.Event == Lost {
				lost++
			}
		}
		if lost == 0 || lost+kept < len(changes) {
			t.Errorf("of %d changes %d are lost and %d were kept", len(changes), lost, kept)
		}
	})
}

// An event that is larger than the bound stays alone.
func TestEventAboveTheBound(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		w.rt.hub.most = 100
		must(w.rt.AddPod(PodSpec{}))(t)
		if got := kinds(w.listen(w.conn).stop()); len(got) != 1 || got[0] != "pod started" {
			t.Errorf("the subscriber has %v", got)
		}
	})
}

// The events that are kept for replays are bounded by their bytes as well, though all were read.
func TestOldEventsAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		const most = 100 << 10
		w.rt.hub.most = most
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		for range 40 { // a crowd, whose statuses are in each event
			must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
			synctest.Wait()
		}
		if n := len(l.stop()); n != 42 {
			t.Errorf("%d events were read, want 42", n)
		}
		var bytes int64
		for _, ev := range w.rt.hub.recent {
			bytes += int64(len(ev.wire))
		}
		if bytes > most || bytes < most/2 {
			t.Errorf("%d bytes are kept, want at most %d, and not much less", bytes, most)
		}
	})
}
