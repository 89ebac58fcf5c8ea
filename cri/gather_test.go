// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// slowRuntime answers status calls after a time for each ID; those with none hang until released.
type slowRuntime struct {
	*stub
	mu      sync.Mutex
	takes   map[string]time.Duration
	hangs   map[string]bool
	release chan struct{}
	calls   map[string]int
}

func newSlowRuntime(containers ...string) *slowRuntime {
	has := make(map[string]runtimeapi.ContainerState)
	for _, id := range containers {
		has[id] = running
	}
	r := &slowRuntime{
		stub:    statuses(0, nil, has),
		takes:   make(map[string]time.Duration),
		hangs:   make(map[string]bool),
		release: make(chan struct{}),
		calls:   make(map[string]int),
	}
	ofSandbox, ofContainer := r.podSandboxStatus, r.containerStatus
	r.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
		r.wait(id)
		return ofSandbox(id)
	}
	r.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
		r.wait(id)
		return ofContainer(id)
	}
	return r
}

func (r *slowRuntime) wait(id string) {
	r.mu.Lock()
	takes, hangs := r.takes[id], r.hangs[id]
	r.calls[id]++
	r.mu.Unlock()
	if hangs {
		<-r.release
	}
	time.Sleep(takes)
}

func (r *slowRuntime) set(id string, takes time.Duration, hangs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes[id] = takes
	r.hangs[id] = hangs
}

func (r *slowRuntime) asked(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[id]
}

// slowPod is a pod of one sandbox and the given containers, all running.
func slowPod(containers ...string) pleg.Pod {
	pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}}}
	for _, id := range containers {
		pod.Items = append(pod.Items, pleg.Item{ID: id, Phase: pleg.PhaseRunning})
	}
	return pod
}

// TestHungItemHoldsUpNoOther: a container whose status hangs is unread soon after the others have
// answered, is not asked for again while it hangs, and is read once the runtime answers.
func TestHungItemHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1", "c2")
		r.hangs["c2"] = true
		c := serve(t, r.stub, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		pod := slowPod("c1", "c2")
		for range 3 {
			begun := time.Now()
			in, err := c.Inspect(ctx, pod)
			if took := time.Since(begun); took > 2*leastPatience {
				t.Errorf("the read took %v", took)
			}
			wantPartial(t, in, "s:Running c1:Running c2:Running", "c2")
			if err == nil || !strings.Contains(err.Error(), "c2") {
				t.Errorf("error %v", err)
			}
			time.Sleep(time.Second)
		}
		if n := r.asked("c2"); n != 1 {
			t.Errorf("the item that hangs was asked for %d times", n)
		}
		close(r.release)
		synctest.Wait()
		in, err := c.Inspect(ctx, pod)
		if err != nil || len(in.Unread) > 0 {
			t.Errorf("after the hang: %v, %v", in, err)
		}
		if n := len(c.late.waiting); n != 0 {
			t.Errorf("%d calls are remembered as hanging", n)
		}
	})
}

// TestHungSandboxAlone: the sandboxes of a runtime that may bundle statuses are waited for first.
// If a new one hangs together with its container, or fails at once and the container hangs, an
// item that was read before is asked for beside them: it tells that the runtime answers.
func TestHungSandboxAlone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fails  string // the sandbox that fails at once
		hangs  []string
		unread []string
	}{
		{"a sandbox and its container hang", "", []string{"s2", "c2"}, []string{"s2", "c2"}},
		{"a sandbox fails, and its container hangs", "s2", []string{"c2"}, []string{"s2", "c2"}},
		{"a container hangs whose sandbox answers", "", []string{"c2"}, []string{"c2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSlowRuntime("c2")
				answers := r.podSandboxStatus
				r.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
					if id == tc.fails {
						return nil, status.Error(codes.Internal, "the shim is gone")
					}
					return answers(id)
				}
				c := serve(t, r.stub, Config{})
				defer close(r.release)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				before, err := c.Inspect(ctx, slowPod())
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range tc.hangs {
					r.hangs[id] = true
				}
				pod := slowPod("c2")
				pod.Items = append(pod.Items, pleg.Item{ID: "s2", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning})
				begun := time.Now()
				in, err := c.Update(ctx, pod, before.Status)
				if took := time.Since(begun); took > stuckAfter+4*leastPatience {
					t.Errorf("the read took %v", took)
				}
				slices.Sort(in.Unread)
				slices.Sort(tc.unread)
				if err == nil || !slices.Equal(in.Unread, tc.unread) {
					t.Fatalf("unread %v, %v; want %v", in.Unread, err, tc.unread)
				}
			})
		})
	}
}

// TestHungItemAlone: an update asks for what is new alone. If that hangs, the pod's other items
// tell that the runtime answers; if the runtime is slow with all, nothing is unread.
func TestHungItemAlone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before []string // containers read before
		added  []string
		slow   time.Duration // zero: what is added hangs
	}{
		{"one beside a container", []string{"c1"}, []string{"c2"}, 0},
		{"two beside a container", []string{"c1"}, []string{"c2", "c3"}, 0},
		{"six beside a container", []string{"c1"}, []string{"c2", "c3", "c4", "c5", "c6", "c7"}, 0},
		{"one beside a sandbox", nil, []string{"c2"}, 0},
		{"two beside a sandbox", nil, []string{"c2", "c3"}, 0},
		{"one on a slow runtime", []string{"c1"}, []string{"c2"}, 20 * time.Second},
		{"two on a slow runtime", []string{"c1"}, []string{"c2", "c3"}, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSlowRuntime(append(tc.before, tc.added...)...)
				c := serve(t, r.stub, Config{})
				defer close(r.release)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				before, err := c.Inspect(ctx, slowPod(tc.before...))
				if err != nil {
					t.Fatal(err)
				}
				var unread []string
				for _, id := range tc.added {
					r.hangs[id] = tc.slow == 0
					if r.hangs[id] {
						unread = append(unread, id)
					}
				}
				r.takes = map[string]time.Duration{"s": tc.slow, "c1": tc.slow, "c2": tc.slow, "c3": tc.slow}
				begun := time.Now()
				in, err := c.Update(ctx, slowPod(append(tc.before, tc.added...)...), before.Status)
				if took := time.Since(begun); took > max(stuckAfter+4*leastPatience, 3*tc.slow) {
					t.Errorf("the read took %v", took)
				}
				if (err != nil) != (unread != nil) || !slices.Equal(in.Unread, unread) {
					t.Fatalf("unread %v, %v; want %v", in.Unread, err, unread)
				}
				if got := len(in.Status.Containers()) + len(in.Unread); got != len(tc.before)+len(tc.added) {
					t.Errorf("%d containers", got)
				}
			})
		})
	}
}

// TestHungBesideHung: most items of a pod hang, those that were read before among them. However
// many they are, the read finds one that answers, in a time that grows with their number, and asks
// for each once.
func TestHungBesideHung(t *testing.T) {
	for _, tc := range []struct {
		hung          int
		fresh, update time.Duration // the limits of a read of all, and of an update; in multiples of stuckAfter
	}{
		{1, 1, 1},
		{3, 1, 5},
		{5, 1, 5},
		{12, 1, 21},
		{40, 5, 85},
	} {
		for _, update := range []bool{false, true} {
			hung := tc.hung
			limit := tc.fresh*stuckAfter + 2*leastPatience
			if update {
				limit = tc.update*stuckAfter + 2*leastPatience
			}
			t.Run(fmt.Sprintf("%d hang, update %t", hung, update), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var before []string
					for i := range hung {
						before = append(before, fmt.Sprint("hung", i))
					}
					before = slices.Insert(before, hung/2, "well")
					r := newSlowRuntime(append(before, "new")...)
					c := serve(t, r.stub, Config{})
					defer close(r.release)
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					var prev *PodStatus
					if update {
						in, err := c.Inspect(ctx, slowPod(before...))
						if err != nil {
							t.Fatal(err)
						}
						prev = in.Status
					}
					asked := r.asked("hung0")
					for _, id := range append(before, "new", "s") {
						r.hangs[id] = id != "well"
					}
					begun := time.Now()
					in, err := c.Update(ctx, slowPod(append(before, "new")...), prev)
					if took := time.Since(begun); took > limit {
						t.Errorf("the read took %v, want %v at the most", took, limit)
					}
					want := 1 // an update takes over what it has
					if !update {
						want = hung + 2
					}
					if err == nil || len(in.Unread) != want || !slices.Contains(in.Unread, "new") {
						t.Errorf("unread %v, %v; want %d", in.Unread, err, want)
					}
					if n := r.asked("hung0") - asked; n > 1 {
						t.Errorf("an item that hangs was asked for %d times", n)
					}
				})
			})
		}
	}
}

// TestASlowRuntimeIsAskedForLittleMore: an update on a runtime that is slow with everything asks
// for few of the items that have not changed.
func TestASlowRuntimeIsAskedForLittleMore(t *testing.T) {
	for takes, most := range map[time.Duration]int{time.Second / 2: 0, 3 * time.Second: 2, 10 * time.Second: 6, 60 * time.Second: 14} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var before []string
				for i := range 40 {
					before = append(before, fmt.Sprint("c", i))
				}
				r := newSlowRuntime(append(before, "new")...)
				c := serve(t, r.stub, Config{})
				in, err := c.Inspect(t.Context(), slowPod(before...))
				if err != nil {
					t.Fatal(err)
				}
				asked := 0
				for _, id := range append(before, "s", "new") {
					r.takes[id] = takes
					asked -= r.asked(id)
				}
				in, err = c.Update(t.Context(), slowPod(append(before, "new")...), in.Status)
				if err != nil || len(in.Unread) > 0 {
					t.Errorf("unread %v, %v", in.Unread, err)
				}
				for _, id := range append(before, "s") {
					asked += r.asked(id)
				}
				if asked > most {
					t.Errorf("%d items that have not changed were asked for, want %d at the most", asked, most)
				}
			})
		})
	}
}

// TestWhichItemsTellThatTheRuntimeAnswers: beside what is new and hangs, a read asks for a sandbox
// and a container that it has read before, and for none that it has asked for in vain.
func TestWhichItemsTellThatTheRuntimeAnswers(t *testing.T) {
	for _, well := range []string{"s", "c1"} {
		t.Run(well, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				containers := []string{"c1", "c2", "c3", "c4", "c5"}
				r := newSlowRuntime(append(containers, "new", "newer")...)
				c := serve(t, r.stub, Config{})
				defer close(r.release)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				before, err := c.Inspect(ctx, slowPod(containers...))
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range append(containers, "new", "newer", "s") {
					r.hangs[id] = id != well
				}
				update := func(added ...string) time.Duration {
					pod := slowPod(append(containers, added...)...)
					slices.Reverse(pod.Items) // the sandbox comes last
					begun := time.Now()
					in, err := c.Update(ctx, pod, before.Status)
					slices.Sort(in.Unread)
					if err == nil || !slices.Equal(in.Unread, added) {
						t.Errorf("unread %v, %v; want %v", in.Unread, err, added)
					}
					return time.Since(begun)
				}
				soon := stuckAfter + 2*leastPatience
				first := update("new")
				if well == "s" && first > soon {
					t.Errorf("the first read took %v", first)
				}
				if took := update("new", "newer"); took > soon {
					t.Errorf("the second read took %v", took)
				}
			})
		})
	}
}

// TestManyHungItems: many hung containers cost a healthy pod nothing, and their own pod little.
func TestManyHungItems(t *testing.T) {
	for many, most := range map[int]time.Duration{16: 3 * leastPatience, 400: 8 * leastPatience} {
		t.Run(fmt.Sprint(many), func(t *testing.T) { readBesideHung(t, many, most) })
	}
}

// readBesideHung reads a pod of a container that answers behind many that hang, and another pod.
// The first read takes the given time at the most.
func readBesideHung(t *testing.T, many int, most time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var hung []string
		for i := range many {
			hung = append(hung, fmt.Sprint("hung", i))
		}
		r := newSlowRuntime(append(hung, "well")...)
		for _, id := range hung {
			r.hangs[id] = true
		}
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		begun := time.Now()
		in, _ := c.Inspect(t.Context(), slowPod(append(hung, "well")...))
		if took := time.Since(begun); took > most+leastPatience/2 {
			t.Errorf("the read took %v, want %v", took, most)
		}
		if len(in.Unread) != len(hung) || len(in.Status.Containers()) != 1 {
			t.Errorf("%d unread, status %v", len(in.Unread), in.Status)
		}
		begun = time.Now()
		if in, err := c.Inspect(t.Context(), slowPod("well")); err != nil || len(in.Unread) > 0 {
			t.Errorf("a healthy pod: %v, %v", in, err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("a healthy pod took %v", took)
		}
	})
}

// TestHungItemsBeforeTheOthers: more items hang than a read has time to wait for, and stand before
// the others. The next reads ask for them last, and read what can be read.
func TestHungItemsBeforeTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung, others []string
		for i := range 200 {
			hung = append(hung, fmt.Sprint("hung", i))
			others = append(others, fmt.Sprint("well", i))
		}
		pod := append([]string{"first"}, append(hung, others...)...)
		r := newSlowRuntime(pod...)
		for _, id := range hung {
			r.hangs[id] = true
		}
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		unread := 0
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*leastPatience)
			in, err := c.Inspect(ctx, slowPod(pod...))
			cancel()
			if err == nil {
				t.Fatal("no error beside items that hang")
			}
			unread = len(in.Unread)
		}
		if unread != len(hung) {
			t.Errorf("%d items unread by the fifth read, want %d", unread, len(hung))
		}
	})
}

// TestOrder: silent items come last, until they answer, and those asked for longest ago first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lateItems
		ids := []string{"a", "b", "c", "d"}
		ask := func(id string, takes time.Duration, answered bool, want ...int) {
			t.Helper()
			call := &lateCall{id: id, begun: time.Now()}
			time.Sleep(takes)
			l.end(call, answered)
			if got := l.order(ids); !slices.Equal(got, want) {
				t.Errorf("after a call about %s: order %v, want %v", id, got, want)
			}
		}
		ask("a", time.Second, true, 0, 1, 2, 3)
		ask("b", time.Millisecond, false, 0, 1, 2, 3) // failed, and kept nobody waiting
		ask("c", time.Second, false, 0, 1, 3, 2)
		ask("a", time.Second, false, 1, 3, 2, 0)
		ask("c", time.Second, false, 1, 3, 0, 2)
		ask("a", time.Second, true, 0, 1, 3, 2)
		ask("c", time.Millisecond, true, 0, 1, 2, 3)
	})
}

// TestSlowIsNotHung: a runtime that answers has no unread item, however slow it is with all items;
// and an item that alone is slow is read once its time is known.
func TestSlowIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1", "c2", "c3")
		c := serve(t, r.stub, Config{})
		pod := slowPod("c1", "c2", "c3")
		for _, takes := range []time.Duration{time.Second, 20 * time.Second} {
			r.takes = map[string]time.Duration{"s": takes, "c1": takes / 3, "c2": takes, "c3": takes * 2}
			if in, err := c.Inspect(t.Context(), pod); err != nil || len(in.Unread) > 0 {
				t.Errorf("at %v a call: %v, %v", takes, in.Unread, err)
			}
		}
		r.takes = map[string]time.Duration{"c3": 4 * time.Second}
		in, _ := c.Inspect(t.Context(), pod)
		wantPartial(t, in, "s:Running c1:Running c2:Running c3:Running", "c3")
		time.Sleep(5 * time.Second)
		for range 2 {
			if in, err := c.Inspect(t.Context(), pod); err != nil || len(in.Unread) > 0 {
				t.Errorf("once the time is known: %v, %v", in.Unread, err)
			}
		}
		r.takes = nil
		for range 2 {
			if _, err := c.Inspect(t.Context(), pod); err != nil {
				t.Error(err)
			}
		}
		if n := len(c.late.took); n != 0 {
			t.Errorf("%d items are remembered as slow", n)
		}
	})
}

// TestAThrottledRuntimeIsNotHung: a runtime whose share of processors is used up in the middle of a
// read answers in one of the next periods of its share, which are 100 ms long. All of its pod is
// read.
func TestAThrottledRuntimeIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, takes := range []time.Duration{100 * time.Millisecond, 190 * time.Millisecond} {
			r := newSlowRuntime("c1", "c2")
			c := serve(t, r.stub, Config{})
			r.takes["c2"] = takes
			if in, err := c.Inspect(t.Context(), slowPod("c1", "c2")); err != nil || len(in.Unread) > 0 {
				t.Errorf("an answer %v after the others: %v, %v", takes, in.Unread, err)
			}
		}
	})
}

// TestASlowKindIsNotHung: a runtime that answers at once about sandboxes, and slowly about
// containers, is given up once at the most, as nothing tells then that it is slow; an item that
// hangs is given up as soon as is bearable.
func TestASlowKindIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c")
		c := serve(t, r.stub, Config{})
		r.set("c", 600*time.Millisecond, false)
		read := func() bool {
			in, err := c.Inspect(t.Context(), slowPod("c"))
			synctest.Wait()
			return err == nil && len(in.Unread) == 0
		}
		forget := func() {
			c.late.mu.Lock()
			defer c.late.mu.Unlock()
			clear(c.late.took)
		}
		read()
		time.Sleep(time.Hour)
		for i := range 1000 {
			forget() // it is another container each time
			if !read() {
				t.Fatalf("read %d is given up", i)
			}
		}
		forget()
		r.set("c", 0, true)
		begun := time.Now()
		if read() {
			t.Error("a container that hangs is read")
		}
		if took := time.Since(begun); took > kindPatience+leastPatience {
			t.Errorf("a container that hangs is waited for for %v", took)
		}
		close(r.release)
		synctest.Wait()
		r.set("c", 0, false)
		for range 2*paceAnswers + 1 {
			read()
		}
		if got := c.late.patience(&itemCall{kind: pleg.Container}); got != 0 {
			t.Errorf("a runtime that is quick again has a patience of %v", got)
		}
	})
}

// TestQuickListIsNoMeasure: the list that finds out which container is in which of two sandboxes
// is quick, and the statuses are slow: none of them is taken for hung.
func TestQuickListIsNoMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1")
		r.takes = map[string]time.Duration{"s": 3 * time.Second, "s2": 3 * time.Second, "c1": 3 * time.Second}
		c := serve(t, r.stub, Config{})
		pod := slowPod("c1")
		pod.Items = append(pod.Items, pleg.Item{ID: "s2", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning})
		if in, err := c.Inspect(t.Context(), pod); err != nil || len(in.Unread) > 0 {
			t.Errorf("%v, %v", in.Unread, err)
		}
	})
}

// TestHungSandbox: containers are asked for one by one when the answer about their sandbox, which
// some runtimes make of the containers' statuses, does not come.
func TestHungSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1", "c2")
		r.hangs["s"] = true
		r.hangs["c2"] = true
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		begun := time.Now()
		in, err := c.Inspect(t.Context(), slowPod("c1", "c2"))
		if took := time.Since(begun); took > stuckAfter+2*leastPatience {
			t.Errorf("the read took %v", took)
		}
		wantPartial(t, in, "s:Running c1:Running c2:Running", "s", "c2")
		if err == nil || !strings.Contains(err.Error(), "and 1 more") {
			t.Errorf("error %v", err)
		}
	})
}

// TestReadEndsWithItsContext: the calls of a read of which nothing is answered end with the read.
func TestReadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var containers []string // more than have had their turn by then
		for i := range 40 {
			containers = append(containers, fmt.Sprint("c", i))
		}
		r := newSlowRuntime(containers...)
		for _, id := range append(containers, "s") {
			r.hangs[id] = true
		}
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		in, err := c.Inspect(ctx, slowPod(containers...))
		if err == nil || in.Status != nil {
			t.Errorf("of nothing answered: %v, %v", in, err)
		}
		if len(c.late.waiting) > 0 {
			t.Error("calls go on")
		}
	})
}

// TestAStandstillIsNotHeldAgainstItems: a look at the calls that comes late, because the process
// was stopped or had no CPU, gives up nothing: answers may wait in the socket. What is not answered
// then is given up a while later.
func TestAStandstillIsNotHeldAgainstItems(t *testing.T) {
	for _, tc := range []struct {
		late  time.Duration
		stood bool
	}{
		{0, false},
		{standstill - 1, false},
		{standstill, true},
		{time.Minute, true},
	} {
		t.Run(tc.late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, newSlowRuntime().stub, Config{})
				g := c.newGathering(t.Context(), 1)
				g.add(itemCall{id: "c1"})
				begun := time.Now()
				g.state[0] = callState{begun: begun, late: &lateCall{id: "c1", begun: begun}}
				g.next, g.underWay = 1, []int{0}
				g.lastEnd = begun.Add(time.Millisecond)

				look := g.nextLook(begun, 0)
				if want := g.lastEnd.Add(leastPatience); !look.Equal(want) {
					t.Fatalf("looks after %v, want %v", look.Sub(begun), want.Sub(begun))
				}
				now := look.Add(tc.late)
				if g.stoodStill(look, now) != tc.stood {
					t.Fatalf("a look %v too late is a standstill: %v", tc.late, !tc.stood)
				}
				g.giveUpLate(now)
				if g.state[0].over == tc.stood {
					t.Errorf("given up: %v", g.state[0].over)
				}
				g.giveUpLate(now.Add(leastPatience))
				if !g.state[0].over {
					t.Error("never given up")
				}
			})
		})
	}
}

// TestCallsThatAreOverAreNotLookedAt: a look at the calls under way costs the same however many of
// the read are over, or a pod of many containers takes the time of their square.
func TestCallsThatAreOverAreNotLookedAt(t *testing.T) {
	now := time.Now()
	over := &gathering{next: 1 << 20, lastEnd: now} // a look at any call, or at what is known of it, panics
	over.giveUpLate(now)
	if look := over.nextLook(now, 0); look.Before(now.Add(stuckAfter)) {
		t.Errorf("calls that are over are looked at after %v", look.Sub(now))
	}
}

// TestACallInAStandstillIsNoMeasure: how long a call took that the process did not see end is
// not known. Taken for a measure of the runtime, it would have a read wait for minutes for an item
// that hangs; so would other reads of items of its kind.
func TestACallInAStandstillIsNoMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, newSlowRuntime().stub, Config{})
		g := c.newGathering(t.Context(), 2)
		before := time.Now()
		g.add(itemCall{id: "c1"})
		g.add(itemCall{id: "c2"})
		g.state[0] = callState{begun: before}
		time.Sleep(time.Minute)
		if !g.stoodStill(before.Add(stuckAfter), time.Now()) {
			t.Fatal("a minute is no standstill")
		}
		g.state[1] = callState{begun: time.Now()}
		g.underWay = []int{0, 1}
		took := 3 * time.Millisecond
		time.Sleep(took)
		accept := func() {}
		g.end(outcome{call: 0, accept: accept})
		if g.longest != 0 || g.lastEnd.IsZero() {
			t.Errorf("a call from before the standstill took %v", g.longest)
		}
		pace := &c.late.paces[g.calls[0].kind]
		if pace.answers != 0 || pace.slowest() != 0 {
			t.Errorf("other reads take %v for the time of an answer", pace.slowest())
		}
		g.end(outcome{call: 1, accept: accept})
		if g.longest != took {
			t.Errorf("a call since took %v, want %v", g.longest, took)
		}
		if pace.answers != 1 || pace.slowest() != took {
			t.Errorf("other reads take %v for the time of an answer, want %v", pace.slowest(), took)
		}
	})
}

// standing is the context of a read whose process stands still: once armed, the next look at it
// takes a minute.
type standing struct {
	context.Context
	armed atomic.Bool
}

func (s *standing) Done() <-chan struct{} {
	if s.armed.CompareAndSwap(true, false) {
		time.Sleep(time.Minute)
	}
	return s.Context.Done()
}

// TestAReadInAStandstill: the process of a read stands still for a minute after the first answer.
// The second was sent meanwhile; how long it took is no measure of the runtime. The item that hangs
// is waited for from then on, and no longer than in any other read.
func TestAReadInAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := 3 * time.Millisecond
		ctx := &standing{Context: t.Context()}
		r := newSlowRuntime("c1", "c2", "c3")
		r.takes["c2"] = 10 * time.Second
		r.hangs["c3"] = true
		answer := r.stub.containerStatus
		r.stub.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			if id == "c1" {
				time.Sleep(took)
				ctx.armed.Store(true)
			}
			return answer(id)
		}
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		begun := time.Now()
		in, err := c.Inspect(ctx, slowPod("c1", "c2", "c3"))
		wantPartial(t, in, "s:Running c1:Running c2:Running c3:Running", "c3")
		if err == nil {
			t.Error("no error about the item that hangs")
		}
		if got, want := time.Since(begun), took+time.Minute+leastPatience; got > want+took {
			t.Errorf("the read took %v, want %v", got, want)
		}
		if slowest := c.late.paces[pleg.Container].slowest(); slowest > 2*took {
			t.Errorf("other reads take %v for the time of an answer", slowest)
		}
	})
}

// TestAReadThatEndsBeforeItsCallsAreMade: a read of more hung containers than calls are made at
// once ends before the first is given up. Those not asked for are unread like the others.
func TestAReadThatEndsBeforeItsCallsAreMade(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		endARead(t, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, leastPatience/2) // which is that of its calls as well
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		endARead(t, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(leastPatience/2, cancel)
			return ctx, cancel
		})
	})
}

// endARead makes a read with a context that ends.
func endARead(t *testing.T, ending func(context.Context) (context.Context, context.CancelFunc)) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for i := range 2 * callsPerRead {
			ids = append(ids, fmt.Sprintf("c%d", i))
		}
		r := newSlowRuntime(ids...)
		for _, id := range ids {
			r.hangs[id] = true
		}
		c := serve(t, r.stub, Config{})
		defer close(r.release)
		ctx, cancel := ending(t.Context())
		defer cancel()
		in, err := c.Inspect(ctx, slowPod(ids...))
		if err == nil {
			t.Error("no error about the items that hang")
		}
		if n := r.asked(ids[len(ids)-1]); n != 0 {
			t.Fatalf("the last container was asked for %d times", n)
		}
		for _, id := range ids {
			if !slices.Contains(in.Unread, id) {
				t.Errorf("%s is not unread", id)
			}
		}
	})
}

// twoSandboxes is a pod of two sandboxes, and of a container of which a list must tell the sandbox.
func twoSandboxes() pleg.Pod {
	pod := slowPod("c1")
	pod.Items = append(pod.Items, pleg.Item{ID: "s2", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning})
	return pod
}

// TestHungListOfContainers: the list that finds out which container is in which of two sandboxes
// hangs in one call, however often the pod is read, and the error names it.
func TestHungListOfContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1")
		c := serve(t, r.stub, Config{})
		var hanging atomic.Int32
		r.on("ListContainers", func(c *call) error {
			hanging.Add(1)
			defer hanging.Add(-1)
			return hang(c)
		})
		for n := range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			in, err := c.Inspect(ctx, twoSandboxes())
			cancel()
			wantPartial(t, in, "s:Running s2:Running c1:Running")
			if err == nil || !strings.Contains(err.Error(), "the list of the containers of pod u on") {
				t.Errorf("read %d: error %v", n, err)
			}
			synctest.Wait()
			if got := hanging.Load(); got != 1 {
				t.Errorf("after read %d, %d calls hang", n, got)
			}
		}
	})
}

// TestSlowListOfContainers: a list that is slower than the statuses is waited for, once the client
// knows how slow, and says nothing of the statuses.
func TestSlowListOfContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRuntime("c1")
		list := r.container("c1", "s")
		c := serve(t, r.stub, Config{})
		r.on("ListContainers", func(c *call) error {
			time.Sleep(600 * time.Millisecond)
			return c.send(list)
		})
		for n := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			in, err := c.Inspect(ctx, twoSandboxes())
			cancel()
			if n > 0 && (err != nil || in.Status.Containers()[0].SandboxID != "s") {
				t.Errorf("read %d: %v, %+v", n, err, in.Status.Containers())
			}
			time.Sleep(time.Second)
		}
		if got := c.late.patience(&itemCall{kind: pleg.Container, id: "c1"}); got > leastPatience {
			t.Errorf("a status is waited for for %v", got)
		}
	})
}

// container returns an answer of ListContainers with one container of pod u.
func (r *slowRuntime) container(id, sandbox string) []byte {
	return encode(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{container(id, sandbox, "u", running)}})
}
