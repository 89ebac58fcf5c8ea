// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Answers that are strange in a single way, one after another.

// TestAListThatBreaksOffIsNotMadeAnotherWay: a streaming list that has shown something, and then
// says that it is not implemented, has failed. The plain list would show the same items once more.
func TestAListThatBreaksOffIsNotMadeAnotherWay(t *testing.T) {
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}}
	c := serve(t, s, Config{})
	s.on("StreamPodSandboxes", func(c *call) error {
		if err := answering(s.listSandboxes)(c); err != nil {
			return err
		}
		return status.Error(codes.Unimplemented, "after all")
	})
	_, err := c.List(t.Context(), 0)
	wantError(t, err, "StreamPodSandboxes", "after all")
	if n := s.called("ListPodSandbox"); n != 0 {
		t.Errorf("the plain list was made %d times", n)
	}
}

// TestAListMadeAgainShowsNothingTwice: a container of a sandbox that the first list has not shown
// has the sandboxes listed again, which is no fault of the runtime.
func TestAListMadeAgainShowsNothingTwice(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("c", "later", "", running)},
	}
	c := serve(t, s, Config{})
	must(c.List(t.Context(), 0))(t)
	if n := c.Stats().Duplicates; n != 0 || s.called("ListPodSandbox") != 2 {
		t.Errorf("%d duplicates in %d lists of sandboxes, want none in 2", n, s.called("ListPodSandbox"))
	}
}

// TestOfTwoEntriesTheLaterPhaseHolds: a list of a pod that shows an ID twice.
func TestOfTwoEntriesTheLaterPhaseHolds(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("c", "s", "u", exited), container("c", "s", "u", running)},
	}
	c := serve(t, s, Config{})
	pod := must(c.ListPod(t.Context(), "u"))(t)
	if len(pod.Items) != 2 || phaseOf(pod.Items, "c") != pleg.PhaseExited {
		t.Errorf("the pod has %v", pod.Items)
	}
}

// TestASandboxIsForgottenWithItsContainers: the record of a sandbox that has gone stays only as
// long as it names the pod of a container.
func TestASandboxIsForgottenWithItsContainers(t *testing.T) {
	s := &stub{
		sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", ready)},
		containers: []*runtimeapi.Container{container("c", "s", "", running)},
	}
	c := serve(t, s, Config{})
	must(c.List(t.Context(), 0))(t)
	s.set(func() { s.sandboxes = nil })
	must(c.List(t.Context(), 0))(t)
	if len(c.index.sandboxes) != 1 {
		t.Errorf("%d sandboxes are remembered, of which one has a container", len(c.index.sandboxes))
	}
	s.set(func() { s.containers = nil })
	must(c.List(t.Context(), 0))(t)
	if len(c.index.sandboxes) != 0 {
		t.Errorf("%d sandboxes are remembered, and nothing is left", len(c.index.sandboxes))
	}
}

// TestOfTwoAnswersTheLaterPhaseHolds: two sandboxes bring the same container along, in any order.
func TestOfTwoAnswersTheLaterPhaseHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []runtimeapi.ContainerState{running, exited} {
			second := running + exited - first
			s := statuses(0, nil, nil)
			s.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
				state := map[string]runtimeapi.ContainerState{"s1": first, "s2": second}[id]
				return &runtimeapi.PodSandboxStatusResponse{
					Status:             sandboxStatus(id, "u", ready),
					ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("c", "u", state)},
				}, nil
			}
			c := serve(t, s, Config{})
			pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s1", Kind: pleg.Sandbox}, {ID: "s2", Kind: pleg.Sandbox}, {ID: "c"}}}
			in := must(c.Inspect(t.Context(), pod))(t)
			shown := in.Status.Containers()
			if phaseOf(in.Pod.Items, "c") != pleg.PhaseExited || len(shown) != 1 || shown[0].Phase != pleg.PhaseExited {
				t.Errorf("%v first: %v, %v", first, in.Pod.Items, shown)
			}
		}
	})
}

// TestWhatIsOfAnotherPodIsLeftOut: an event may name an ID of another pod, whose status then comes.
func TestWhatIsOfAnotherPodIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{
			podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
				uid := map[string]string{"s": "u", "foreign": "v"}[id]
				return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, uid, ready)}, nil
			},
			containerStatus: func(id string) (*runtimeapi.ContainerStatusResponse, error) {
				uid := map[string]string{"c": "u", "stray": "v"}[id]
				return &runtimeapi.ContainerStatusResponse{Status: wholeContainer(id, uid, running)}, nil
			},
		}
		c := serve(t, s, Config{})
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "foreign", Kind: pleg.Sandbox}, {ID: "c"}, {ID: "stray"}}}
		in := must(c.Inspect(t.Context(), pod))(t)
		if len(in.Pod.Items) != 2 || len(in.Status.Sandboxes()) != 1 || len(in.Status.Containers()) != 1 {
			t.Errorf("the pod has %v", in.Pod.Items)
		}
	})
}

// TestWhatABundleBringsIsRead: a container whose own status cannot be read, and that the late
// answer about the sandbox brings along.
func TestWhatABundleBringsIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{
			podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
				time.Sleep(2 * stuckAfter)
				return &runtimeapi.PodSandboxStatusResponse{
					Status:             sandboxStatus(id, "u", ready),
					ContainersStatuses: []*runtimeapi.ContainerStatus{wholeContainer("c", "u", exited)},
				}, nil
			},
			containerStatus: func(string) (*runtimeapi.ContainerStatusResponse, error) {
				return nil, status.Error(codes.Internal, "broken")
			},
		}
		c := serve(t, s, Config{})
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "c"}}}
		in, err := c.Inspect(t.Context(), pod)
		if err != nil || len(in.Unread) > 0 || phaseOf(in.Pod.Items, "c") != pleg.PhaseExited || s.called("ContainerStatus") != 1 {
			t.Errorf("%v, %v, unread %v, %d calls of ContainerStatus", err, in.Pod.Items, in.Unread, s.called("ContainerStatus"))
		}
	})
}

// phaseOf returns the phase of an ID, PhaseRemoved if it is missing.
func phaseOf(items []pleg.Item, id string) pleg.Phase {
	for _, it := range items {
		if it.ID == id {
			return it.Phase
		}
	}
	return pleg.PhaseRemoved
}

// TestHungConnection: a connection is closed after three calls that met their deadline over five
// seconds in silence. Any answer, an error of the runtime's own included, is none; calls that did
// not wait for long are none; and those that end at once are one.
func TestHungConnection(t *testing.T) {
	ctx := t.Context()
	begun := time.Now()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	m := &connMonitor{}
	m.connected(ours, nil)
	miss := func(after, waited time.Duration) { m.timedOut(begun.Add(after), waited) }
	for i := range hungCalls {
		miss(time.Duration(i)*hungWait, hungWait)
	}
	if m.abandoned.Load() != 0 {
		t.Error("closed after calls that followed one another at once")
	}
	m.observe(ctx, begun, status.Error(codes.Internal, "broken"))
	miss(hungTime, hungWait)
	if m.abandoned.Load() != 0 {
		t.Error("closed although the runtime has answered")
	}
	for i := range 2 * hungCalls {
		miss(hungTime+time.Duration(i)*hungTime, hungWait-1)
	}
	if m.abandoned.Load() != 0 {
		t.Error("closed for calls that have not waited for long")
	}
	for i := range hungCalls {
		miss(2*hungTime+time.Duration(i), hungWait)
	}
	if m.abandoned.Load() != 0 {
		t.Error("closed for two misses, the last of several calls")
	}
	miss(3*hungTime, hungWait)
	if m.abandoned.Load() != 1 {
		t.Errorf("%d connections were closed, want 1", m.abandoned.Load())
	}
}

// TestImpatientCallsGiveNothingUp: calls with deadlines shorter than the runtime takes for its
// answers, as those of a probe, keep the connection, and with it the stream of events.
func TestImpatientCallsGiveNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(stub)
		c := serve(t, s, Config{})
		s.on("GetContainerEvents", hang)
		s.on("Version", func(c *call) error {
			time.Sleep(50 * time.Millisecond)
			return raw(nil)(c)
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			defer close(ended)
			for _, err := range c.Events(ctx) {
				ended <- err
			}
		}()
		synctest.Wait()
		for range 2 * hungCalls {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			_, err := c.Version(short)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call is not late: %v", err)
			}
			time.Sleep(2 * time.Second)
		}
		if len(ended) > 0 {
			t.Errorf("the stream of events has ended: %v", <-ended)
		}
		if n := c.Stats().Abandoned; n > 0 {
			t.Errorf("%d connections to a runtime that answers were given up", n)
		}
		stop()
		<-ended
	})
}

// TestAReplacedSocketIsSeenAtOnce: the first call that meets its deadline closes a connection whose
// socket another server has replaced, and none while the socket is the same, or away.
func TestAReplacedSocketIsSeenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	replace := func() {
		check(t, os.WriteFile(path+".new", nil, 0o600))
		check(t, os.Rename(path+".new", path)) // the old file is in use until then: another inode
	}
	replace()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	m := &connMonitor{kernel: newKernel(), path: path}
	m.connected(ours, m.kernel.look(path))
	now := time.Now()
	m.timedOut(now, 0)
	check(t, os.Rename(path, path+".old"))
	m.timedOut(now, 0)
	if m.abandoned.Load() != 0 {
		t.Error("closed although no other server has the socket")
	}
	replace()
	m.timedOut(now, 0)
	if m.abandoned.Load() != 1 {
		t.Errorf("%d connections were closed, want 1", m.abandoned.Load())
	}
}

// TestTheFirstFailureEndsTheOthers: of the calls of a pod's list.
func TestTheFirstFailureEndsTheOthers(t *testing.T) {
	broken := errors.New("broken")
	err := new(Client).parallel(t.Context(), 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestRefusedPodsOutlastAFailedListing: a pod refused by an event is forgotten once a listing begun
// later has ended, and not when one begins.
func TestRefusedPodsOutlastAFailedListing(t *testing.T) {
	x := excluded{filter: func(PodMeta) bool { return false }}
	x.note("first")
	x.begin()
	x.note("second")
	x.begin() // the first has failed
	if !x.has("first") || !x.has("second") {
		t.Errorf("first %v, second %v", x.has("first"), x.has("second"))
	}
	x.end()
	if x.has("first") || x.has("second") {
		t.Error("remembered although a listing has ended")
	}
}

// TestACallOutlastsItsRead: a call that was given up goes on when its reader cancels the read, or
// an item that hangs would be asked for with each.
func TestACallOutlastsItsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1", "c2")
		r.hangs["c2"] = true
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			in, err := c.Inspect(ctx, slowPod("c1", "c2"))
			if err == nil || len(in.Unread) != 1 {
				t.Errorf("%v, unread %v", err, in.Unread)
			}
			cancel()
			time.Sleep(time.Second)
		}
		if n := r.asked("c2"); n != 1 {
			t.Errorf("the item that hangs was asked for %d times", n)
		}
	})
}

// TestWhatWasNotAskedForIsNotGone: a read that ends before some of its calls were begun says
// nothing of their items.
func TestWhatWasNotAskedForIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime()
		var pod pleg.Pod
		for i := range 3 * callsPerRead {
			id := fmt.Sprint("c", i)
			r.hangs[id] = true
			pod.Items = append(pod.Items, pleg.Item{ID: id, Phase: pleg.PhaseRunning})
		}
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in, err := c.Inspect(ctx, pod)
		if err == nil || in.Status != nil {
			t.Errorf("%v, and the status shows %v", err, in.Pod.Items)
		}
	})
}

// TestExitCodesOfTwoGenerations: the latest exits are remembered beyond the first keptExits.
func TestExitCodesOfTwoGenerations(t *testing.T) {
	c := new(Client)
	for i := range keptExits + 1 {
		c.exits.note(fmt.Sprint(i), &containerItem{state: exited, exitCode: int32(i)}, origin{read: true})
	}
	for _, i := range []int{0, 1, keptExits} {
		if code, ok := c.ExitCode(fmt.Sprint(i)); !ok || code != int32(i) {
			t.Errorf("exit %d: code %d, known %v", i, code, ok)
		}
	}
	latest := fmt.Sprint(keptExits)
	c.exits.note(latest, &containerItem{state: exited, exitCode: 255}, origin{read: true}) // a runtime may correct it
	if code, _ := c.ExitCode(latest); code != 255 {
		t.Errorf("code %d after the correction", code)
	}
	long := strings.Repeat("x", 1<<20)
	for _, reason := range []string{"OOMKilled", "Error", long} {
		c.exits.note(latest, &containerItem{state: exited, exitCode: 255, reason: []byte(reason)}, origin{read: true})
		code, got, ok := c.Exit(latest)
		if !ok || code != 255 || got != truncate(reason) {
			t.Errorf("code %d and reason %.20q of %d bytes after the reason has come", code, got, len(got))
		}
	}
}

// TestAnOldEventTakesNoExitBack: a read has shown a corrected end, and an event from before the
// correction, about another container of the pod, comes after it.
func TestAnOldEventTakesNoExitBack(t *testing.T) {
	ended := func(code int32, reason string) *runtimeapi.ContainerStatus {
		st := wholeContainer("c1", "u", exited)
		st.ExitCode, st.Reason, st.FinishedAt = code, reason, 7
		return st
	}
	s := statuses(0, nil, nil)
	s.containerStatus = func(string) (*runtimeapi.ContainerStatusResponse, error) {
		return &runtimeapi.ContainerStatusResponse{Status: ended(137, "OOMKilled")}, nil
	}
	c := serve(t, s, Config{})
	s.on("GetContainerEvents", raw(encode(&runtimeapi.ContainerEventResponse{
		ContainerId: "c2", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 8,
		PodSandboxStatus:   sandboxStatus("s1", "u", ready),
		ContainersStatuses: []*runtimeapi.ContainerStatus{ended(255, "Error"), wholeContainer("c2", "u", running)},
	})))
	must(c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "c1", Phase: pleg.PhaseExited}}}))(t)
	for range c.Events(t.Context()) {
	}
	if code, reason, _ := c.Exit("c1"); code != 137 || reason != "OOMKilled" {
		t.Errorf("after an old event: %d, %s", code, reason)
	}
}

// TestWhichExitCounts tells of an end twice: whether the second telling counts.
func TestWhichExitCounts(t *testing.T) {
	read := origin{read: true}
	own := func(stamp int64) origin { return origin{own: true, stamp: stamp} }
	other := func(stamp int64) origin { return origin{stamp: stamp} }
	kept := origin{}
	for name, tc := range map[string]struct {
		first, second     origin
		ended, endedAgain int64 // FinishedAt
		counts            bool
	}{
		"a read after a read":                      {read, read, 7, 7, true},
		"a read after its own event":               {own(8), read, 7, 7, true},
		"its own event after a read":               {read, own(8), 7, 7, false},
		"its own event of another end, and a read": {read, own(10), 7, 9, true},
		"its own event, and a read without a time": {read, own(10), 0, 9, false},
		"its own event after another's":            {other(8), own(8), 7, 7, true},
		"another's event after its own":            {own(8), other(8), 7, 7, false},
		"a later event of another":                 {own(8), other(9), 7, 7, true},
		"an earlier event of its own":              {other(9), own(8), 7, 7, false},
		"events without stamps, its own last":      {other(0), own(0), 7, 7, true},
		"events without stamps, another's last":    {own(0), other(0), 7, 7, false},
		"a status kept from an event":              {own(8), kept, 7, 7, false},
		"a status kept from a read, then an event": {kept, own(8), 7, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, generation := range []string{"", "in the generation before"} {
				c := new(Client)
				c.exits.note("c", &containerItem{state: exited, exitCode: 1, finishedAt: tc.ended}, tc.first)
				if generation != "" {
					c.exits.previous, c.exits.current = c.exits.current, nil
				}
				c.exits.note("c", &containerItem{state: exited, exitCode: 2, finishedAt: tc.endedAgain}, tc.second)
				want := int32(1)
				if tc.counts {
					want = 2
				}
				if code, _ := c.ExitCode("c"); code != want {
					t.Errorf("%s code %d, want %d", generation, code, want)
				}
				if _, ok := c.exits.current["c"]; !ok {
					t.Errorf("%s an end that is told again will be forgotten", generation)
				}
			}
		})
	}
}
