// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// statuses makes a stub answer status calls for a sandbox and the given containers; brought are the
// containers with a status beside the sandbox's.
func statuses(timestamp int64, brought []string, containers map[string]runtimeapi.ContainerState) *stub {
	one := func(id string) *runtimeapi.ContainerStatus { return wholeContainer(id, "u", containers[id]) }
	return &stub{
		podSandboxStatus: func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			if !strings.HasPrefix(id, "s") {
				return nil, status.Errorf(codes.NotFound, "no sandbox %s", id)
			}
			r := &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, "u", ready), Timestamp: timestamp}
			for _, id := range brought {
				r.ContainersStatuses = append(r.ContainersStatuses, one(id))
			}
			return r, nil
		},
		containerStatus: func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			if _, ok := containers[id]; !ok {
				return nil, status.Errorf(codes.NotFound, "no container %s", id)
			}
			return &runtimeapi.ContainerStatusResponse{Status: one(id)}, nil
		},
	}
}

func TestInspectCoverage(t *testing.T) {
	has := map[string]runtimeapi.ContainerState{"c1": running, "c2": exited}
	items := func(ids ...string) (items []pleg.Item) {
		for _, id := range ids {
			item := pleg.Item{ID: id}
			if id[0] == 's' {
				item.Kind = pleg.Sandbox
			}
			items = append(items, item)
		}
		return items
	}
	for name, tt := range map[string]struct {
		timestamp int64
		brought   []string
		listed    []string
		want      string
		calls     uint64 // of ContainerStatus, in each of two inspections
		filled    string
	}{
		"containerd never fills":        {0, nil, []string{"s", "c1", "c2"}, "s:Running c1:Running c2:Exited", 2, "no"},
		"containerd 2.0 stamps":         {5, nil, []string{"s", "c1", "c2"}, "s:Running c1:Running c2:Exited", 2, "no"},
		"crio fills":                    {5, []string{"c1", "c2"}, []string{"s", "c1", "c2"}, "s:Running c1:Running c2:Exited", 0, "yes"},
		"filled in part":                {5, []string{"c1"}, []string{"s", "c1", "c2"}, "s:Running c1:Running c2:Exited", 1, "yes"},
		"filled without a stamp":        {0, []string{"c1", "c2"}, []string{"s", "c1", "c2"}, "s:Running c1:Running c2:Exited", 0, "yes"},
		"a container that is new":       {5, []string{"c1", "c2"}, []string{"s", "c1"}, "s:Running c1:Running c2:Exited", 0, "yes"},
		"a container that is gone":      {0, nil, []string{"s", "c1", "c9"}, "s:Running c1:Running", 2, "no"},
		"a sandbox that is gone":        {0, nil, []string{"gone", "c1"}, "c1:Running", 1, "unknown"},
		"a pod without containers":      {5, nil, []string{"s"}, "s:Running", 0, "unknown"},
		"two sandboxes that fill alike": {5, []string{"c1", "c2"}, []string{"s", "s2", "c1", "c2"}, "s:Running s2:Running c1:Running c2:Exited", 0, "yes"},
		"everything is gone":            {0, nil, []string{"c8", "c9"}, "", 2, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := statuses(tt.timestamp, tt.brought, has)
				c := serve(t, s, Config{})
				pod := pleg.Pod{UID: "u", Name: "pod-u", Namespace: "ns", Items: items(tt.listed...)}
				for i := range pod.Items {
					if pod.Items[i].ID == "gone" {
						pod.Items[i].Kind = pleg.Sandbox
					}
				}
				last := uint64(0)
				for range 2 {
					in := must(c.Inspect(t.Context(), pod))(t)
					var got []string
					for _, item := range in.Pod.Items {
						got = append(got, item.ID+":"+item.Phase.String())
					}
					slices.Sort(got)
					want := strings.Fields(tt.want)
					slices.Sort(want)
					if d := cmp.Diff(strings.Join(want, " "), strings.Join(got, " ")); d != "" {
						t.Error(d)
					}
					if in.Status.UID() != "u" || in.Status.Name() != "pod-u" || len(in.Status.Sandboxes())+len(in.Status.Containers()) != len(in.Pod.Items) {
						t.Errorf("status: %v", in.Status)
					}
					st := c.Stats()
					if n := st.Calls["ContainerStatus"] - last; n != tt.calls {
						t.Errorf("%d calls of ContainerStatus, want %d", n, tt.calls)
					}
					last = st.Calls["ContainerStatus"]
					if st.FilledStatuses != tt.filled {
						t.Errorf("filled statuses: %s, want %s", st.FilledStatuses, tt.filled)
					}
				}
			})
		})
	}
}

// TestInspectErrors wants the call and the ID in an error, and the statuses of the other items.
func TestInspectErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := statuses(0, nil, map[string]runtimeapi.ContainerState{"c1": running, "c2": running})
		good := s.containerStatus
		s.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			if id == "c2" {
				return nil, status.Error(codes.Internal, "shim is gone")
			}
			return good(id)
		}
		c := serve(t, s, Config{})
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{
			{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, {ID: "c1"}, {ID: "c2", Phase: pleg.PhaseRunning, Name: "name-c2"},
		}}
		for range 2 {
			in, err := c.Inspect(t.Context(), pod)
			wantError(t, err, "ContainerStatus of c2 on", "shim is gone")
			if status.Code(err) != codes.Internal {
				t.Errorf("Inspect: code %v", status.Code(err))
			}
			wantPartial(t, in, "s:Running c1:Running c2:Running", "c2")
		}
		prev := must(c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: pod.Items[:2]}))(t)
		in, err := c.Update(t.Context(), pod, prev.Status)
		wantError(t, err, "ContainerStatus of c2 on")
		wantPartial(t, in, "s:Running c1:Running c2:Running", "c2")
		in, err = c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: pod.Items[2:]})
		wantError(t, err, "ContainerStatus of c2 on")
		if in.Status != nil {
			t.Errorf("nothing could be read, and there is a status: %v", in.Status)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		_, err = c.Inspect(ctx, pod)
		wantError(t, err, "enough")
	})
}

// wantPartial checks the items of an inspection, in any order, and which of them were not read.
func wantPartial(t *testing.T, in pleg.Inspection[PodStatus], items string, unread ...string) {
	t.Helper()
	var got []string
	for _, item := range in.Pod.Items {
		got = append(got, item.ID+":"+item.Phase.String())
	}
	slices.Sort(got)
	want := strings.Fields(items)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("items %v, want %v", got, want)
	}
	if !slices.Equal(in.Unread, unread) {
		t.Errorf("%q are unread, want %q", in.Unread, unread)
	}
	if in.Status == nil {
		t.Fatal("no status")
	}
	if n := len(in.Status.Sandboxes()) + len(in.Status.Containers()); n != len(want)-len(unread) || !slices.Equal(in.Status.Unread(), unread) {
		t.Errorf("the status is %v", in.Status)
	}
}

// TestInspectIncomplete wants a status without the fields set by every runtime (containerd 3873) to
// be unread, with an error, because nothing would ever read such a status again. Beside a sandbox's
// status such a status is read by its ID.
func TestInspectIncomplete(t *testing.T) {
	pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "c1"}}}
	has := map[string]runtimeapi.ContainerState{"c1": running}
	for name, spoil := range map[string]func(*runtimeapi.ContainerStatus){
		"no metadata":      func(c *runtimeapi.ContainerStatus) { c.Metadata = nil },
		"no creation time": func(c *runtimeapi.ContainerStatus) { c.CreatedAt = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := statuses(0, nil, has)
				good := s.containerStatus
				s.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
					r, err := good(id)
					spoil(r.Status)
					return r, err
				}
				c := serve(t, s, Config{})
				in, err := c.Inspect(t.Context(), pod)
				if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "ContainerStatus of c1") {
					t.Errorf("Inspect: %v", err)
				}
				wantPartial(t, in, "s:Running c1:Unknown", "c1")

				s = statuses(5, []string{"c1"}, has)
				brought := s.podSandboxStatus
				s.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
					r, err := brought(id)
					spoil(r.ContainersStatuses[0])
					return r, err
				}
				c = serve(t, s, Config{})
				if in, err := c.Inspect(t.Context(), pod); err != nil || len(in.Status.Containers()) != 1 || in.Status.Containers()[0].CreatedAt.IsZero() {
					t.Errorf("Inspect: %v, %v", in.Status, err)
				}
			})
		})
	}
}

// TestInspectBound: no more status calls are in flight for a read of a pod than the bound, and
// reads of other pods and lists are not held up.
func TestInspectBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has := map[string]runtimeapi.ContainerState{}
		pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}}}
		for i := range 20 {
			id := fmt.Sprint("c", i)
			has[id] = running
			pod.Items = append(pod.Items, pleg.Item{ID: id})
		}
		s := statuses(0, nil, has)
		var flying, most atomic.Int64
		good := s.containerStatus
		release := make(chan struct{})
		s.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			n := flying.Add(1)
			defer flying.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release
			return good(id)
		}
		c := serve(t, s, Config{})
		var inspections sync.WaitGroup
		const pods = 5
		for range pods {
			inspections.Go(func() {
				in, err := c.Inspect(t.Context(), pod)
				if err != nil || len(in.Pod.Items) != len(pod.Items) {
					t.Errorf("Inspect: %+v, %v", in, err)
				}
			})
		}
		synctest.Wait()
		if n := flying.Load(); n != pods*callsPerRead {
			t.Errorf("%d status calls in flight, want %d", n, pods*callsPerRead)
		}
		if _, err := c.List(t.Context(), 0); err != nil {
			t.Errorf("List meanwhile: %v", err)
		}
		close(release)
		inspections.Wait()
		if n := most.Load(); n > pods*callsPerRead {
			t.Errorf("%d status calls were in flight, want no more than %d", n, pods*callsPerRead)
		}
	})
}

// TestARemovedContainerTeachesNothing: an answer about a sandbox without the status of a container
// that was removed a moment ago says nothing of the runtime, and the next filled one is believed.
func TestARemovedContainerTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		filled := func(id string) bool { return id != "ending" }
		s.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			r := &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, "u-"+id, ready), Timestamp: 1}
			if filled(id) {
				r.ContainersStatuses = []*runtimeapi.ContainerStatus{wholeContainer("c-"+id, "u-"+id, running)}
			}
			return r, nil
		}
		c := serve(t, s, Config{})
		gone := failing(codes.NotFound, "no such container")
		s.on("ContainerStatus", gone)
		read := func(id string) {
			t.Helper()
			must(c.Inspect(t.Context(), pleg.Pod{UID: cache.UID("u-" + id), Items: []pleg.Item{
				{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseRunning},
				{ID: "c-" + id, Phase: pleg.PhaseRunning},
			}}))(t)
		}
		want := func(fills string, calls int) {
			t.Helper()
			if got := c.Stats().FilledStatuses; got != fills {
				t.Errorf("statuses are filled: %q, want %q", got, fills)
			}
			if n := s.called("ContainerStatus"); n != calls {
				t.Errorf("%d calls of ContainerStatus, want %d", n, calls)
			}
		}
		read("ending")
		want("unknown", 1)
		read("first")
		want("yes", 1)
		read("ending")
		want("yes", 2)
		read("later")
		want("yes", 2)
		s.on("ContainerStatus", answering(func(r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
			return &runtimeapi.ContainerStatusResponse{Status: wholeContainer(r.ContainerId, "u-ending", running)}, nil
		}))
		read("ending") // the container is there, and its sandbox's answer is without its status
		want("no", 3)
		s.on("ContainerStatus", gone)
		read("again")
		want("yes", 4)
	})
}
