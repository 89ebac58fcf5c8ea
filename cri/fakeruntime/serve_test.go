// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Serve ends whatever hangs: streams, blocked callers, hanging calls.
func TestServeEndsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Faults: Faults{HangList: 1}})
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		must(w.cri.GetContainerEvents(context.Background(), &runtimeapi.GetEventsRequest{}))(t) // never read
		synctest.Wait()
		w.flood(sb, 500)
		var wg sync.WaitGroup
		failed := func(name string, err error) {
			if err == nil {
				t.Errorf("%s succeeded", name)
			}
		}
		wg.Go(func() {
			_, err := w.cri.CreateContainer(
				context.Background(),
				&runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: containerConfig("x")},
			)
			failed("CreateContainer", err)
		})
		wg.Go(func() {
			_, err := w.cri.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{})
			failed("ListContainers", err)
		})
		synctest.Wait()
		w.end()
		wg.Wait()
	})
}

// A client that has connected and says nothing holds up no end.
func TestServeEndsASilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := must(New(Config{}))(t)
		lis := bufconn.Listen(1)
		ctx, end := context.WithCancel(t.Context())
		var served sync.WaitGroup
		served.Go(func() { check(t, rt.Serve(ctx, lis)) })
		silent := must(lis.Dial())(t)
		defer silent.Close()
		synctest.Wait()
		begun := time.Now()
		end()
		served.Wait()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Serve has ended %v after its context", took)
		}
	})
}

// A listener that fails is an error; a closed runtime is none, and serves nothing any more.
func TestServeErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := must(New(Config{}))(t)
		lis := bufconn.Listen(1)
		lis.Close()
		if err := rt.Serve(t.Context(), lis); err == nil {
			t.Error("Serve on a closed listener: no error")
		}
		pod := must(rt.AddPod(PodSpec{}))(t)
		container := must(rt.AddContainer(pod, ContainerSpec{}))(t)
		check(t, rt.Start(container))
		rt.Close()
		rt.Close()
		for name, err := range map[string]error{"Exit": rt.Exit(container, 1), "OOMKill": rt.OOMKill(container, 0), "KillShim": rt.KillShim(pod)} {
			if !errors.Is(err, ErrDown) {
				t.Errorf("%s of a closed runtime: %v", name, err)
			}
		}
		if err := rt.Serve(t.Context(), bufconn.Listen(1)); err != nil {
			t.Errorf("Serve of a closed runtime: %v", err)
		}
		if _, err := rt.AddPod(PodSpec{}); !errors.Is(err, ErrDown) {
			t.Errorf("AddPod of a closed runtime: %v", err)
		}
		rt.Restart(0, 0)
		rt.Up(0)
		if _, err := rt.AddPod(PodSpec{}); !errors.Is(err, ErrDown) {
			t.Errorf("a closed runtime came up: %v", err)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	for name, cfg := range map[string]Config{
		"Name":           {Profile: Profile{Slots: 3}},
		"RuntimeName":    {Profile: Profile{Name: "x"}},
		"Slots":          {Profile: Profile{Name: "x", RuntimeName: "x", RuntimeVersion: "1"}},
		"Queue":          {Profile: Profile{Name: "x", RuntimeName: "x", RuntimeVersion: "1", Delivery: DeliverCompete}},
		"Delivery":       {Profile: Profile{Name: "x", RuntimeName: "x", RuntimeVersion: "1", Delivery: 9}},
		"Events":         {Profile: Profile{Name: "x", RuntimeName: "x", RuntimeVersion: "1", Events: 9}},
		"negative":       {Profile: Profile{Name: "x", RuntimeName: "x", RuntimeVersion: "1", Slots: 1, StreamBatch: -1}},
		"drop":           {Faults: Faults{Drop: 2}},
		"ContainerBytes": {ContainerBytes: -1},
		"ConnectionAge":  {ConnectionGrace: time.Second},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDirectMethodErrors(t *testing.T) {
	rt := must(New(Config{}))(t)
	defer rt.Close()
	sb := must(rt.AddPod(PodSpec{UID: "u", Name: "n"}))(t)
	c := must(rt.AddContainer(sb, ContainerSpec{}))(t)
	stopped := must(rt.AddPod(PodSpec{}))(t)
	check(t, rt.StopSandbox(stopped))
	second := func(_ any, err error) error { return err }
	for name, pair := range map[string][2]error{
		"AddContainer":            {ErrNotFound, second(rt.AddContainer("none", ContainerSpec{}))},
		"AddContainer in a dead":  {ErrState, second(rt.AddContainer(stopped, ContainerSpec{}))},
		"Start":                   {ErrNotFound, rt.Start("none")},
		"Exit":                    {ErrNotFound, rt.Exit("none", 0)},
		"Exit before the start":   {ErrState, rt.Exit(c, 0)},
		"Remove":                  {ErrNotFound, rt.Remove("none")},
		"StopSandbox":             {ErrNotFound, rt.StopSandbox("none")},
		"RemoveSandbox":           {ErrNotFound, rt.RemoveSandbox("none")},
		"KillShim":                {ErrNotFound, rt.KillShim("none")},
		"RecoverSandbox":          {ErrNotFound, rt.RecoverSandbox("none")},
		"LoseTrack before it ran": {ErrState, rt.LoseTrack(c)},
		"RecoverSandbox of ready": {ErrState, rt.RecoverSandbox(sb)},
	} {
		if !errors.Is(pair[1], pair[0]) {
			t.Errorf("%s: %v, want %v", name, pair[1], pair[0])
		}
	}
	if _, err := rt.AddContainer(sb, ContainerSpec{Life: Life{For: -1}}); err == nil {
		t.Error("a life of -1 ns")
	}
	if _, err := rt.Populate(Population{Pods: -1}); err == nil {
		t.Error("-1 pods")
	}
}

// Every change is in the history, once, in order, with the fate of its event.
func TestHistory(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb, c := oneLife(t, w, time.Second)
		check(t, w.rt.RemoveSandbox(sb))
		time.Sleep(time.Second)
		changes, next := w.rt.History(0)
		var got []string
		for i, ch := range changes {
			who := "pod"
			if ch.ContainerID != "" {
				who = "container"
			}
			got = append(got, who+" "+ch.Old.String()+"→"+ch.New.String())
			if ch.Seq != uint64(i) || ch.SandboxID != sb || ch.ContainerID != "" && ch.ContainerID != c ||
				ch.PodUID == "" ||
				ch.Event != Emitted {
				t.Errorf("%+v", ch)
			}
		}
		want := []string{
			"pod None→Ready", "container None→Created", "container Created→Running", "container Running→Exited",
			"pod Ready→NotReady", "container Exited→Removed", "pod NotReady→Removed",
		}
		if diff := cmp.Diff(want, got); diff != "" || next != uint64(len(want)) {
			t.Errorf("history (-want +got):\n%s", diff)
		}
		if later, _ := w.rt.History(5); len(later) != 2 || later[0].Seq != 5 {
			t.Errorf("since 5: %+v", later)
		}
		if none, n := w.rt.History(99); len(none) > 0 || n != next {
			t.Errorf("since 99: %+v, %d", none, n)
		}
	})
}

func TestHistoryLimit(t *testing.T) {
	for _, limit := range []int{3, -1} {
		rt := must(New(Config{HistoryLimit: limit}))(t)
		for range 10 {
			must(rt.AddPod(PodSpec{}))(t)
		}
		want := uint64(7)
		if limit < 0 {
			want = 0
		}
		changes, next := rt.History(0)
		if next != 10 || changes[0].Seq != want || changes[len(changes)-1].Seq != 9 ||
			uint64(len(changes)) != 10-want {
			t.Errorf("limit %d: %d changes from %d, next %d", limit, len(changes), changes[0].Seq, next)
		}
	}
}

// The truth is a single moment: pods sorted, sandboxes and containers in their order.
func TestTruth(t *testing.T) {
	rt := must(New(Config{}))(t)
	must(rt.AddPod(PodSpec{UID: "b"}))(t)
	first := must(rt.AddPod(PodSpec{UID: "a", Name: "n", Namespace: "s"}))(t)
	check(t, rt.StopSandbox(first))
	sb := must(rt.AddPod(PodSpec{UID: "a", Name: "n", Namespace: "s"}))(t)
	c1 := must(rt.AddContainer(sb, ContainerSpec{Name: "x"}))(t)
	check(t, rt.Start(c1))
	check(t, rt.Exit(c1, 2))
	c2 := must(rt.AddContainer(sb, ContainerSpec{Name: "x"}))(t)
	truth := rt.Truth()
	if len(truth.Pods) != 2 || truth.Pods[0].UID != "a" || truth.Next != 8 {
		t.Fatalf("%+v", truth)
	}
	pod, ok := rt.PodTruth("a")
	if diff := cmp.Diff(truth.Pods[0], pod); diff != "" || !ok {
		t.Errorf("PodTruth differs:\n%s", diff)
	}
	for i, want := range []TruthSandbox{{ID: first, State: StateNotReady}, {ID: sb, Attempt: 1, State: StateReady}} {
		if got := pod.Sandboxes[i]; got.ID != want.ID || got.Attempt != want.Attempt ||
			got.State != want.State {
			t.Errorf("sandbox %d: %+v", i, got)
		}
	}
	got := pod.Sandboxes[1].Containers
	if len(got) != 2 || got[0].ID != c1 || got[0].State != StateExited || got[0].ExitCode != 2 ||
		got[1].ID != c2 ||
		got[1].Attempt != 1 ||
		got[1].State != StateCreated {
		t.Errorf("containers: %+v", got)
	}
	if _, ok := rt.PodTruth("none"); ok {
		t.Error("a pod that never was")
	}
}

// A server that goes away lets calls under way end on the old connection, and takes new ones on a
// new connection. After the grace the old one is closed with its stream of events.
func TestConnectionAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{ConnectionAge: 10 * time.Second, ConnectionGrace: 5 * time.Second})
		stream := must(w.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		synctest.Wait()
		time.Sleep(12 * time.Second) // the age is right to a tenth
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		if e := must(stream.Recv())(t); e.GetContainerId() != sb {
			t.Errorf("the old stream told of %s, want %s", e.GetContainerId(), sb)
		}
		must(w.cri.Version(t.Context(), &runtimeapi.VersionRequest{}))(t)
		time.Sleep(5 * time.Second)
		for { // the events of the sandbox
			_, err := stream.Recv()
			if err == nil {
				continue
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("after the grace the stream ends with %v, want Unavailable", err)
			}
			break
		}
		must(w.cri.Version(t.Context(), &runtimeapi.VersionRequest{}))(t)
		w.end()
	})
	if _, err := New(Config{ConnectionGrace: -1}); err == nil || !strings.Contains(err.Error(), "ConnectionGrace is -1ns") {
		t.Errorf("a grace of -1 ns: %v", err)
	}
}

// Text that is not UTF-8 cannot be sent: it is refused, and nothing is made.
func TestTextThatIsNotUTF8(t *testing.T) {
	rt := must(New(Config{}))(t)
	defer rt.Close()
	const bad = "a\xff"
	for name, spec := range map[string]PodSpec{
		"UID":           {UID: bad},
		"Name":          {Name: bad},
		"Namespace":     {Namespace: bad},
		"a label":       {Labels: map[string]string{"app": bad}},
		"a label's key": {Labels: map[string]string{bad: "x"}},
	} {
		if _, err := rt.AddPod(spec); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("AddPod with a bad %s: %v", name, err)
		}
	}
	sb := must(rt.AddPod(PodSpec{}))(t)
	for name, spec := range map[string]ContainerSpec{
		"Name":    {Name: bad},
		"a label": {Labels: map[string]string{"app": bad}},
	} {
		if _, err := rt.AddContainer(sb, spec); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("AddContainer with a bad %s: %v", name, err)
		}
	}
	truth := rt.Truth()
	if len(truth.Pods) != 1 || len(truth.Pods[0].Sandboxes[0].Containers) != 0 {
		t.Errorf("there are %+v", truth.Pods)
	}
}

// Serve ends although a change that is made late waits for a time of its own.
func TestServeEndsLateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Faults: Faults{LateWrite: 1, LateWriteBy: time.Second}})
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
		check(t, w.rt.Start(c))
		_, err := w.cri.ExecSync(
			timeout(t, time.Second/2),
			&runtimeapi.ExecSyncRequest{ContainerId: c, Cmd: []string{"sleep", "1h"}},
		)
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("ExecSync: %v", err)
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		w.end()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Serve has ended %v after its context", took)
		}
	})
}

// The end of a container that has ended or gone by other means, and what it would have printed, is
// not remembered until its time, while those of others come at theirs.
func TestForgottenLives(t *testing.T) {
	inBubble(t, Config{HistoryLimit: 1}, func(t *testing.T, w *world) {
		sb := w.runPod(podConfig("a", 0))
		begun := time.Now()
		var stay []string
		for i := range 100 {
			cfg := containerConfig(fmt.Sprint(i), "sh", "-c", "sleep 24h; echo a; sleep 1h; echo b; sleep 1h")
			c := w.create(sb, cfg)
			check(t, w.rt.Start(c))
			if i%10 > 0 {
				check(t, w.rt.Remove(c))
				continue
			}
			stay = append(stay, c)
		}
		w.rt.lock()
		left := len(w.rt.sched.tasks)
		forgotten := 0
		for _, task := range w.rt.sched.tasks {
			if task.do == nil {
				forgotten++
			}
		}
		w.rt.mu.Unlock()
		const each = 3 // two lines and the end
		if n := left - forgotten; n != each*len(stay) || forgotten > left/2 {
			t.Errorf("of %d tasks %d are of nothing, and %d containers run", left, forgotten, len(stay))
		}
		time.Sleep(27 * time.Hour)
		for _, c := range stay {
			end := time.Unix(0, w.status(c).FinishedAt)
			if after := end.Sub(begun).Round(time.Minute); after != 26*time.Hour {
				t.Errorf("container %s has ended after %v", c, after)
			}
		}
		w.rt.lock()
		defer w.rt.mu.Unlock()
		if n := len(w.rt.sched.tasks); n > 0 {
			t.Errorf("%d tasks are left in the end", n)
		}
	})
}
