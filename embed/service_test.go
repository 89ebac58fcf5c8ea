// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// kubelet is a service on a toy, its stream open, everything listed, with its counts.
type kubelet struct {
	*Service
	toy     *toy
	t       *testing.T
	trusted atomic.Bool
	mu      sync.Mutex
	counted map[string]int
	close   func()
}

func newKubelet(t *testing.T) *kubelet {
	k := &kubelet{toy: newToy(), t: t, counted: map[string]int{}}
	k.toy.events = make(chan *runtimeapi.ContainerEventResponse)
	k.toy.set("c", runtimeapi.ContainerState_CONTAINER_CREATED)
	k.toy.set("r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.Service = NewService(k.toy)
	k.trusted.Store(true)
	k.ServeLists(k.trusted.Load, time.Hour, func(name string, n int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.counted[name] += n
	})
	k.stream()
	k.relist()
	return k
}

// stream opens a stream, which close ends.
func (k *kubelet) stream() {
	ctx, cancel := context.WithCancel(k.t.Context())
	taken := make(chan *runtimeapi.ContainerEventResponse)
	var done sync.WaitGroup
	done.Go(func() {
		defer close(taken)
		_ = k.GetContainerEvents(ctx, taken, nil)
	})
	done.Go(func() {
		for range taken {
		}
	})
	k.close = func() { cancel(); done.Wait() }
	for open := false; !open; {
		k.update(func(*ledger.Ledger, time.Time) { open = k.streams > 0 })
	}
}

// relist reads as the generator does.
func (k *kubelet) relist() {
	ctx := As(k.t.Context(), ByPLEG)
	if _, err := k.ListPodSandbox(ctx, nil); err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.ListContainers(ctx, nil); err != nil {
		k.t.Fatal(err)
	}
}

// list lists like housekeeping, and returns the states by ID and the number of lists seen by the
// runtime.
func (k *kubelet) list(by Caller) (states map[string]runtimeapi.ContainerState, calls int) {
	k.t.Helper()
	before := k.toy.count("ListContainers")
	list, err := k.ListContainers(As(k.t.Context(), by), &runtimeapi.ContainerFilter{})
	if err != nil {
		k.t.Fatal(err)
	}
	states = make(map[string]runtimeapi.ContainerState)
	for _, c := range list {
		states[c.Id] = c.State
	}
	return states, k.toy.count("ListContainers") - before
}

func (k *kubelet) want(calls int, id string, state runtimeapi.ContainerState) {
	k.t.Helper()
	states, made := k.list(ByHousekeeping)
	if got, ok := states[id]; !ok || got != state || made != calls {
		k.t.Errorf(
			"%s is shown: %v, as %v, after %d calls, want as %v after %d",
			id,
			ok,
			got,
			made,
			state,
			calls,
		)
	}
}

func TestWhoIsServed(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	running := &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}
	for _, c := range []struct {
		by      Caller
		filter  *runtimeapi.ContainerFilter
		counted string
		calls   int
	}{
		{ByHousekeeping, running, "lists_served/housekeeping", 0},
		{ByContainerLogs, &runtimeapi.ContainerFilter{}, "lists_served/container_logs", 0},
		{ByImageGC, &runtimeapi.ContainerFilter{}, "lists_served/image_gc", 0},
		{ByOthers, &runtimeapi.ContainerFilter{}, "lists_served/others", 0},
		{ByPLEG, &runtimeapi.ContainerFilter{}, "lists_forwarded/pleg", 1},
		{ByOthers, running, "lists_forwarded/caller", 1},
		{ByOthers, nil, "lists_forwarded/caller", 1},
		{ByHousekeeping, &runtimeapi.ContainerFilter{Id: "nobody"}, "lists_forwarded/unknown_id", 1},
	} {
		calls, counted := k.toy.count("ListContainers"), k.counted[c.counted]
		ctx, forwarded := Tracked(t.Context(), c.by)
		if _, err := k.ListContainers(ctx, c.filter); err != nil {
			t.Fatal(err)
		}
		if forwarded() != (c.calls > 0) {
			t.Errorf("%s, %v: forwarded %v", c.by, c.filter, forwarded())
		}
		if n := k.toy.count("ListContainers") - calls; n != c.calls || k.counted[c.counted] != counted+1 {
			t.Errorf("%s, %v: %d calls, want %d; counted %v", c.by, c.filter, n, c.calls, k.counted)
		}
	}
	calls := k.toy.count("ListPodSandbox")
	if list, err := k.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{}); err != nil || len(list) != 1 || k.toy.count("ListPodSandbox") != calls {
		t.Errorf("sandboxes: %v, %v, %d calls", list, err, k.toy.count("ListPodSandbox")-calls)
	}
}

func TestWithoutTrustEverythingIsForwarded(t *testing.T) {
	k := newKubelet(t)
	before := k.toy.count("ListContainers")
	if _, err := NewService(k.toy).ListContainers(t.Context(), &runtimeapi.ContainerFilter{}); err != nil || k.toy.count("ListContainers") == before {
		t.Errorf("before ServeLists: served, %v", err)
	}
	k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.trusted.Store(false)
	k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.trusted.Store(true)
	k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING) // no full list has begun since
	k.relist()
	k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.close() // the generator has not noticed yet
	k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.stream()
	defer k.close()
	k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.relist()
	k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.close() // and nobody lists before the next one
	k.stream()
	k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
}

// TestAnEventOfALaterCRI claims nothing: lists show no more than before.
func TestAnEventOfALaterCRI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.send("r", 42)
		synctest.Wait()
		k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	})
}

// TestNobodyWaitsForTheReadsOfAnother: while one caller's list has IDs in doubt read, another's
// goes to the runtime at once.
func TestNobodyWaitsForTheReadsOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.send("r", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		synctest.Wait()
		k.toy.onList = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); bounded {
				<-ctx.Done() // the read of the ID in doubt
				return ctx.Err()
			}
			return nil
		}
		var first sync.WaitGroup
		first.Go(func() { _, _ = k.ListContainers(As(t.Context(), ByImageGC), &runtimeapi.ContainerFilter{}) })
		synctest.Wait()
		began := time.Now()
		if _, err := k.ListContainers(As(t.Context(), ByHousekeeping), &runtimeapi.ContainerFilter{}); err != nil || time.Since(began) > 0 {
			t.Errorf("the other list: %v after %v", err, time.Since(began))
		}
		first.Wait()
	})
}

// TestAnEventDuringTheReads: what an event puts in doubt while other IDs are read is read too, and
// then the list comes from memory.
func TestAnEventDuringTheReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.send("r", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		synctest.Wait()
		reads := 0
		k.toy.onList = func(context.Context) error {
			reads++
			if reads == 1 {
				k.toy.send("c", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
				synctest.Wait()
			}
			return nil
		}
		k.want(2, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
		if n := k.counted[MetricListsForwarded+string(ledger.InDoubt)]; n != 0 {
			t.Errorf("%d lists of everything after the reads, want none", n)
		}
	})
}

// TestReadsTogetherAreBounded: a list waits for the reads of IDs in doubt as long as resolveTimeout
// says, however often an event adds one.
func TestReadsTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.send("r", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		synctest.Wait()
		k.toy.onList = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				return nil // the list of everything
			}
			k.toy.send("c", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
			select {
			case <-time.After(resolveTimeout * 6 / 10):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		began := time.Now()
		k.want(3, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
		if took := time.Since(began); took != resolveTimeout {
			t.Errorf("the list waited for %v, want %v", took, resolveTimeout)
		}
	})
}

// TestAnEventCausesOneRead checks that doubt is read once, and then known.
func TestAnEventCausesOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.send("r", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT) // a lie
		synctest.Wait()
		k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
		k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
		k.toy.set("r", runtimeapi.ContainerState_CONTAINER_EXITED)
		k.toy.send("r", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		synctest.Wait()
		k.relist() // the generator reads it first
		k.want(0, "r", runtimeapi.ContainerState_CONTAINER_EXITED)
	})
}

// TestAnExitBeforeTheAnswer: the container has ended, and its event is here, before StartContainer
// answers.
func TestAnExitBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.onStart = func() {
			k.toy.send("c", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
			k.toy.set("c", runtimeapi.ContainerState_CONTAINER_EXITED)
			k.toy.send("c", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
			synctest.Wait()
			k.want(1, "c", runtimeapi.ContainerState_CONTAINER_EXITED) // forwarded
		}
		check(t, k.StartContainer(t.Context(), "c"))
		k.want(0, "c", runtimeapi.ContainerState_CONTAINER_EXITED)
	})
}

func TestOwnCallsAreFacts(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	ctx := t.Context()
	check(t, k.StartContainer(ctx, "c"))
	check(t, k.StopContainer(ctx, "r", 1))
	k.want(0, "c", runtimeapi.ContainerState_CONTAINER_RUNNING)
	k.want(0, "r", runtimeapi.ContainerState_CONTAINER_EXITED)
	check(t, k.RemoveContainer(ctx, "r"))
	if states, calls := k.list(ByOthers); len(states) != 1 || calls != 0 {
		t.Errorf("after the removal: %v, %d calls", states, calls)
	}
	id, err := k.CreateContainer(ctx, "s", nil, nil)
	check(t, err)
	k.want(1, id, runtimeapi.ContainerState_CONTAINER_CREATED)
	k.want(0, id, runtimeapi.ContainerState_CONTAINER_CREATED)
	k.toy.failNext = errors.New("timed out, and has worked")
	if _, err := k.CreateContainer(ctx, "s", nil, nil); err == nil {
		t.Fatal("no error")
	}
	k.want(1, "c2", runtimeapi.ContainerState_CONTAINER_CREATED)
	k.relist()
	k.want(0, "c2", runtimeapi.ContainerState_CONTAINER_CREATED)
}

// TestACallThatWasNotAnsweredWorksLater: the kubelet gives up, the runtime does not. Its product
// after full lists is shown, also without an event.
func TestACallThatWasNotAnsweredWorksLater(t *testing.T) {
	for name, err := range map[string]error{
		"deadline":  status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		"cancelled": fmt.Errorf("rpc: %w", context.Canceled),
		"lost":      status.Error(codes.Unavailable, "connection reset"),
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newKubelet(t)
			defer k.close()
			k.toy.failNext = err
			if _, got := k.CreateContainer(t.Context(), "s", nil, nil); !errors.Is(got, err) {
				t.Fatalf("%s: error %v", name, got)
			}
			k.relist()
			k.toy.set("late", runtimeapi.ContainerState_CONTAINER_CREATED)
			k.want(1, "late", runtimeapi.ContainerState_CONTAINER_CREATED)
			time.Sleep(ledger.LateCall)
			k.relist()
			k.want(1, "late", runtimeapi.ContainerState_CONTAINER_CREATED)
			time.Sleep(time.Nanosecond)
			k.relist()
			k.want(0, "late", runtimeapi.ContainerState_CONTAINER_CREATED)
		})
	}
}

// TestNewLimitsAreNothingToTheLedger: no list shows them, so that lists come from memory as before.
func TestNewLimitsAreNothingToTheLedger(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	check(t, k.UpdateContainerResources(t.Context(), "r", &runtimeapi.ContainerResources{}))
	k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	before := k.toy.count("ListPodSandbox")
	_, err := k.ListPodSandbox(As(t.Context(), ByHousekeeping), &runtimeapi.PodSandboxFilter{})
	check(t, err)
	if n := k.toy.count("ListPodSandbox") - before; n != 0 {
		t.Errorf("%d lists of sandboxes, want one from memory", n)
	}
}

// TestACallThatPanickedMayHaveWorked: what it may have made is looked for.
func TestACallThatPanickedMayHaveWorked(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	list := func() (calls int) {
		before := k.toy.count("ListPodSandbox")
		_, err := k.ListPodSandbox(As(t.Context(), ByHousekeeping), &runtimeapi.PodSandboxFilter{})
		check(t, err)
		return k.toy.count("ListPodSandbox") - before
	}
	if n := list(); n != 0 {
		t.Errorf("before: %d lists, want one from memory", n)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = k.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{}, "") // the toy has no such call
	}()
	k.relist()
	if n := list(); n == 0 {
		t.Error("after a full list: a list from memory, and the call may yet work")
	}
}

// TestADoubtThatCannotBeAnsweredForwards: the read of an ID hangs, and the list does not wait for
// ever.
func TestADoubtThatCannotBeAnsweredForwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.send("r", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		synctest.Wait()
		k.toy.onList = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); bounded {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		began := time.Now()
		k.want(2, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
		if took := time.Since(began); took != resolveTimeout {
			t.Errorf("it took %v, want %v", took, resolveTimeout)
		}
	})
}

func TestCurrentAndRevision(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	ctx := As(t.Context(), ByHousekeeping)
	at := k.Revision()
	if before := k.toy.count("ListContainers"); !k.Current(ctx, at) || k.toy.count("ListContainers") != before {
		t.Error("nothing has changed, and no list is needed to say so")
	}
	if n := k.counted[MetricListsServed+string(ByHousekeeping)]; n != 2 {
		t.Errorf("%d lists are counted as served, want 2", n)
	}
	if n, served := k.Standing(); n != at || !served {
		t.Errorf("revision %d is standing, and lists are served: %v; want %d, true", n, served, at)
	}
	check(t, k.StartContainer(ctx, "c"))
	if n, _ := k.Standing(); k.Current(ctx, at) || n == at {
		t.Error("a container has started")
	}
	at = k.Revision()
	k.Calls.RuntimeService.(*observer).recordEvent(
		&runtimeapi.ContainerEventResponse{
			ContainerId:        "r",
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		},
	)
	if k.Current(ctx, at) {
		t.Error("a container is said to have ended")
	}
	k.want(1, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	if !k.Current(ctx, at) {
		t.Error("a read has shown that it has not")
	}
	k.trusted.Store(false)
	if k.Current(ctx, at) {
		t.Error("nothing is trusted")
	}
}

func TestLogPathsComeFromStatuses(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	if _, ok := k.LogPath("r"); ok {
		t.Error("a path that nobody has told")
	}
	if _, err := k.ContainerStatus(t.Context(), "r", false); err != nil {
		t.Fatal(err)
	}
	if path, ok := k.LogPath("r"); !ok || path != "/log/r" {
		t.Errorf("LogPath: %q, %v", path, ok)
	}
}

// TestManyAtOnce has several goroutines make, start, stop and remove containers while others list.
// The maker of a container must find it in every list until its removal, in no state behind its own
// calls.
func TestManyAtOnce(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			ctx := As(t.Context(), ByHousekeeping)
			see := func(id string, want ...runtimeapi.ContainerState) {
				list, err := k.ListContainers(ctx, &runtimeapi.ContainerFilter{})
				at := slices.IndexFunc(list, func(c *runtimeapi.Container) bool { return c.Id == id })
				if err != nil || (at >= 0) != (len(want) > 0) ||
					at >= 0 && !slices.Contains(want, list[at].State) {
					t.Errorf("%s: at %d of %d, want %v; %v", id, at, len(list), want, err)
				}
			}
			for range 50 {
				id, err := k.CreateContainer(ctx, "s", nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				see(id, runtimeapi.ContainerState_CONTAINER_CREATED)
				_ = k.StartContainer(ctx, id)
				see(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
				_ = k.StopContainer(ctx, id, 0)
				see(id, runtimeapi.ContainerState_CONTAINER_EXITED)
				_ = k.RemoveContainer(ctx, id)
				see(id)
			}
		})
	}
	done.Go(func() {
		for range 50 {
			k.relist()
		}
	})
	done.Wait()
	k.relist()
	if states, calls := k.list(ByOthers); len(states) != 2 || calls != 0 {
		t.Errorf("in the end: %v, %d calls", states, calls)
	}
}

func TestOwnCallsAreToldBesideALedger(t *testing.T) {
	r := newToy()
	ownCallsAreTold(t, r, NewService(r).Calls)
}

// TestTheLedgerHearsFirst checks that who is told of an answer finds it in the ledger.
func TestTheLedgerHearsFirst(t *testing.T) {
	s := NewService(newToy())
	knew := ""
	s.TellCalls(func(pleg.OwnCall) func(error, ...pleg.Item) {
		return func(_ error, now ...pleg.Item) { knew = s.SandboxOf(now[0].ID) }
	})
	_, err := s.CreateContainer(t.Context(), "s", nil, nil)
	check(t, err)
	if knew != "s" {
		t.Errorf("the ledger has the sandbox %q, want s", knew)
	}
}

// TestTheLedgerHearsOfEachCall wants each of the ledger's calls to be one of [Calls], and no other.
func TestTheLedgerHearsOfEachCall(t *testing.T) {
	heard := make(map[effect]bool)
	s := NewService(newToy())
	s.inner = func(call change) func(string, error) {
		heard[effect{call.now.Kind, call.now.Phase}] = true
		return func(string, error) {}
	}
	for _, call := range []func(){
		func() { _, _ = s.RunPodSandbox(t.Context(), nil, "") },
		func() { _, _ = s.CreateContainer(t.Context(), "s", nil, nil) },
		func() { _ = s.StartContainer(t.Context(), "c") },
		func() { _ = s.StopContainer(t.Context(), "c", 0) },
		func() { _ = s.RemoveContainer(t.Context(), "c") },
		func() { _ = s.StopPodSandbox(t.Context(), "s") },
		func() { _ = s.RemovePodSandbox(t.Context(), "s") },
	} {
		func() {
			defer func() { _ = recover() }() // the toy lacks some of them
			call()
		}()
	}
	for e := range ops {
		if !heard[e] {
			t.Errorf("no call has the effect %v", e)
		}
	}
	for e := range heard {
		if _, known := ops[e]; !known {
			t.Errorf("the ledger does not hear of the effect %v", e)
		}
	}
}

// TestAnOldAnswerTakesNoTrustBack: who was held up after asking whether the stream is trusted
// brings an answer from before the generator's list.
func TestAnOldAnswerTakesNoTrustBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.trusted.Store(false)
		k.list(ByHousekeeping) // the stream is being opened
		var asked atomic.Int32
		resume := make(chan struct{})
		k.ServeLists(func() bool {
			is := k.trusted.Load()
			if asked.Add(1) == 1 { // the first caller is held up after its question
				<-resume
			}
			return is
		}, time.Hour, func(string, int) {})
		var slow sync.WaitGroup
		slow.Go(func() { k.LogPath("r") })
		synctest.Wait()
		k.trusted.Store(true) // connected: the generator lists everything
		k.relist()
		k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
		close(resume)
		slow.Wait()
		k.want(0, "r", runtimeapi.ContainerState_CONTAINER_RUNNING)
	})
}
