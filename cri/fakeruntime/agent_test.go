// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// agent is a generator with its cache on a fake runtime.
type agent struct {
	*testing.T
	rt       *fakeruntime.Runtime
	client   *cri.Client
	statuses *cache.Cache[cri.PodStatus]
}

// ensured returns a function that returns v, or ends the test with err.
func ensured[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		ensure(t, err)
		return v
	}
}

func ensure(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withAgent runs f beside a generator, in a bubble of virtual time.
func withAgent(t *testing.T, profile string, faults fakeruntime.Faults, f func(a *agent)) {
	t.Helper()
	p := ensured(fakeruntime.ProfileByName(profile))(t)
	synctest.Test(t, func(t *testing.T) {
		rt := ensured(fakeruntime.New(fakeruntime.Config{Profile: p, Faults: faults, Seed: 1}))(t)
		listener := bufconn.Listen(1 << 20)
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := rt.Serve(ctx, listener); err != nil {
				t.Error(err)
			}
		})
		client := ensured(cri.New(cri.Config{Endpoint: profile, Dialer: listener.DialContext}))(t)
		statuses := cache.New(cri.EmptyStatus)
		generator := ensured(pleg.New(pleg.Config[cri.PodStatus]{
			Source: client,
			Stream: client,
			Cache:  statuses,
			Merge:  cri.KeepIPs,
		}))(t)
		running.Go(func() { _ = generator.Run(ctx) })
		running.Go(func() {
			for range generator.Watch() { // until Run ends
			}
		})
		defer func() {
			stop()
			running.Wait()
			ensure(t, client.Close())
			rt.Close()
		}()
		time.Sleep(3 * time.Second) // the first lists are over, and the stream is open
		f(&agent{T: t, rt: rt, client: client, statuses: statuses})
	})
}

// run makes a pod with a running container, each change at a moment of its own, as on any node: of
// two reports about a pod at the same moment, of which a look is under way for the first, the
// generator makes no further look for the second.
func (a *agent) run(uid string) (container string) {
	a.Helper()
	sandbox := ensured(a.rt.AddPod(fakeruntime.PodSpec{UID: uid}))(a)
	time.Sleep(time.Millisecond)
	container = ensured(a.rt.AddContainer(sandbox, fakeruntime.ContainerSpec{}))(a)
	time.Sleep(time.Millisecond)
	ensure(a, a.rt.Start(container))
	return container
}

// shows is the pod in the cache, with the phase of one of its containers.
func (a *agent) shows(uid, container string) string {
	status, err := a.statuses.Get(cache.UID(uid))
	if err != nil {
		return err.Error()
	}
	phase := "missing"
	for _, c := range status.Containers() {
		if c.ID == container {
			phase = c.Phase.String()
		}
	}
	return fmt.Sprintf("%d sandboxes, %d containers, %s", len(status.Sandboxes()), len(status.Containers()), phase)
}

func (a *agent) wants(uid, container, want string) {
	a.Helper()
	if got := a.shows(uid, container); got != want {
		a.Errorf("%v: the cache shows of %s %q, want %q", time.Now().Format(time.TimeOnly), uid, got, want)
	}
}

const (
	aRunning = "1 sandboxes, 1 containers, Running"
	anExited = "1 sandboxes, 1 containers, Exited"
	aMissing = "0 sandboxes, 0 containers, missing"
)

// Lists of which one is slower are torn by every pod that is made or goes between their answers. A
// generator without events has each pod right by the second round of lists at the latest.
func TestTornListsInAnAgent(t *testing.T) {
	const slow = 400 * time.Millisecond
	for _, faults := range []fakeruntime.Faults{{SlowContainerList: slow}, {SlowSandboxList: slow}} {
		t.Run(faults.String(), func(t *testing.T) {
			withAgent(t, "no-events", faults, func(a *agent) {
				const round = 2 * (time.Second + slow)
				for i := range 20 {
					uid := fmt.Sprintf("p%d", i)
					c := a.run(uid)
					time.Sleep(round)
					a.wants(uid, c, aRunning)
					time.Sleep(70 * time.Millisecond) // another moment of the round each time
					ensure(t, a.rt.Exit(c, 1))
					time.Sleep(round)
					a.wants(uid, c, anExited)
					pod, _ := a.rt.PodTruth(uid)
					ensure(t, a.rt.RemoveSandbox(pod.Sandboxes[0].ID))
					time.Sleep(2 * round)
					a.wants(uid, c, aMissing)
				}
			})
		})
	}
}

// While one of the two lists hangs, events keep the cache right; what they do not tell is there
// once the list answers.
func TestHangingListInAnAgent(t *testing.T) {
	for _, faults := range []fakeruntime.Faults{{HangContainerList: 1}, {HangSandboxList: 1}} {
		t.Run(faults.String(), func(t *testing.T) {
			withAgent(t, "containerd-2", fakeruntime.Faults{}, func(a *agent) {
				told := a.run("told")
				time.Sleep(time.Second)
				ensure(t, a.rt.SetFaults(faults))
				time.Sleep(5 * time.Minute)
				told2 := a.run("told2")
				ensure(t, a.rt.Exit(told, 1))
				time.Sleep(100 * time.Millisecond)
				a.wants("told", told, anExited)
				a.wants("told2", told2, aRunning)

				silent := faults
				silent.Drop = 1
				ensure(t, a.rt.SetFaults(silent))
				untold := a.run("untold")
				time.Sleep(5 * time.Minute)
				a.wants("untold", untold, aMissing)
				ensure(t, a.rt.SetFaults(fakeruntime.Faults{}))
				time.Sleep(5 * time.Minute)
				a.wants("told", told, anExited)
				a.wants("told2", told2, aRunning)
				a.wants("untold", untold, aRunning)
			})
		})
	}
}

// Events whose sandbox has no metadata, or which have none, beside whole statuses of containers:
// the cache is right within the time of a read.
func TestBarePayloadInAnAgent(t *testing.T) {
	for _, tt := range []struct {
		profile string
		faults  fakeruntime.Faults
	}{
		{"containerd-2", fakeruntime.Faults{BarePayload: 1}},
		{"containerd-1.7", fakeruntime.Faults{BarePayload: 1}},
		{"crio", fakeruntime.Faults{BarePayload: 1}},
		{"containerd-2", fakeruntime.Faults{NilSandbox: 1}}, // CRI-O sends no such event
		{"containerd-1.7", fakeruntime.Faults{NilSandbox: 1}},
	} {
		t.Run(tt.profile+" "+tt.faults.String(), func(t *testing.T) {
			withAgent(t, tt.profile, tt.faults, func(a *agent) {
				time.Sleep(3 * time.Hour) // lists are made each five minutes now
				ensured(a.rt.AddPod(fakeruntime.PodSpec{UID: "alone"}))(t)
				time.Sleep(100 * time.Millisecond)
				a.wants("alone", "", "1 sandboxes, 0 containers, missing")
				for i := range 5 {
					uid := fmt.Sprintf("p%d", i)
					c := a.run(uid)
					time.Sleep(100 * time.Millisecond)
					a.wants(uid, c, aRunning)
					ensure(t, a.rt.Exit(c, 1))
					time.Sleep(100 * time.Millisecond)
					a.wants(uid, c, anExited)
				}
			})
		})
	}
}
