// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// crowd is a runtime with many containers in one pod, which counts what is asked of it.
type crowd struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	containers int
	slow       time.Duration // each list
	hang       bool          // each status of a container

	mu           sync.Mutex // owns the fields below
	atOnce, most int        // reads under way
	reads        []time.Time
	order        []string
}

func (*crowd) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "crowd", RuntimeVersion: "1"}, nil
}

func (*crowd) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}

func (c *crowd) ListPodSandbox(
	context.Context,
	*runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	time.Sleep(c.slow)
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (c *crowd) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	var list []*runtimeapi.Container
	for i := range c.containers {
		list = append(list, &runtimeapi.Container{Id: fmt.Sprintf("c%04d", i), PodSandboxId: "s"})
	}
	return &runtimeapi.ListContainersResponse{Containers: list}, nil
}

func (c *crowd) ContainerStatus(
	ctx context.Context,
	r *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	c.mu.Lock()
	c.reads = append(c.reads, time.Now())
	c.order = append(c.order, r.GetContainerId())
	c.atOnce++
	c.most = max(c.most, c.atOnce)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.atOnce--
		c.mu.Unlock()
	}()
	if c.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtimeapi.ContainerStatusResponse{}, nil
}

// gently examines a crowd, as a watch does.
func gently(t *testing.T, c *crowd, change func(*Options)) (r Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r = examine(t, sickness{server: c, options: func(o *Options) {
			o.Gentle = true
			o.JudgedBy = "the watch"
			if change != nil {
				change(o)
			}
		}})
	})
	return r
}

// unseenOf is why an area was not looked at, empty if it was.
func unseenOf(r Report, area string) string {
	for _, u := range r.Unseen {
		if u.Area == area {
			return u.Why
		}
	}
	return ""
}

// TestGentle checks the pace of a gentle examination: two reads at a time, fifty a second, in
// another order each time.
func TestGentle(t *testing.T) {
	c := &crowd{containers: 1000}
	r := gently(t, c, nil)
	if r.Worth != Well || c.most > gentleReads {
		t.Errorf("%s, with %d reads at once; want well and at most %d", r.Worth, c.most, gentleReads)
	}
	slices.SortFunc(c.reads, time.Time.Compare)
	for i := 50; i < len(c.reads); i++ {
		if span := c.reads[i].Sub(c.reads[i-50]); span < time.Second {
			t.Fatalf("50 reads in %v", span)
		}
	}
	least := c.containers - len(c.reads)
	left := -1
	_, err := fmt.Sscanf(unseenOf(r, "items"), "%d items of 1000", &left)
	if least < 500 || left < least || left > least+gentleReads { // the last reads may be cut off
		t.Errorf("%d items are left, and the report says %q (%v)", least, unseenOf(r, "items"), err)
	}
	again := &crowd{containers: 1000}
	gently(t, again, nil)
	if slices.Equal(c.order[:20], again.order[:20]) {
		t.Error("two examinations begin with the same items: the others are never read")
	}
	fast := &crowd{containers: 1000}
	gently(t, fast, func(o *Options) { o.Gentle = false })
	if len(fast.reads) != 1000 {
		t.Errorf("an examination that is not gentle reads %d of 1000 items", len(fast.reads))
	}
}

// TestGentleStops checks when a gentle examination asks no more of a runtime.
func TestGentleStops(t *testing.T) {
	hung := &crowd{containers: 100, hang: true}
	r := gently(t, hung, nil)
	if n := len(hung.reads); n < mostHung || n > mostHung+gentleReads {
		t.Errorf("a runtime whose calls hang is asked %d times", n)
	}
	if why := unseenOf(r, "items"); r.Worth != Sick || !strings.Contains(why, "calls hang, and the runtime was asked no more") {
		t.Errorf("%s, items not looked at: %q", r.Worth, why)
	}
	slow := &crowd{containers: 100, slow: 700 * time.Millisecond}
	r = gently(t, slow, nil)
	if why := unseenOf(r, "items"); len(slow.reads) > 0 || !strings.Contains(why, "100 items of 100: the runtime is slow, and was asked no more: ListPodSandbox took 700 ms") {
		t.Errorf("a slow runtime is asked %d times; items not looked at: %q", len(slow.reads), why)
	}
}

// TestLeftToOthers: the event stream that a watch judges is neither subscribed to nor reported as
// not looked at.
func TestLeftToOthers(t *testing.T) {
	r := gently(t, &crowd{containers: 1}, nil)
	if len(r.Findings) > 0 || unseenOf(r, "events") != "" {
		t.Errorf("%+v, %+v", r.Findings, r.Unseen)
	}
	r = gently(t, &crowd{containers: 1}, func(o *Options) {
		o.JudgedBy = ""
		o.NoEvents = true
	})
	if len(r.Findings) != 1 || unseenOf(r, "events") == "" {
		t.Errorf("%+v, %+v", r.Findings, r.Unseen)
	}
}

// TestOnlyReads: an examination makes calls that change nothing, each with a deadline of seconds,
// at which the runtime ends it when nobody takes the answer.
func TestOnlyReads(t *testing.T) {
	reads := []string{"ContainerStatus", "ListContainers", "ListPodSandbox", "Status", "Version"}
	var mu sync.Mutex
	made := make(map[string]bool)
	watch := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		made[path.Base(info.FullMethod)] = true
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > 2*time.Second {
			t.Errorf("%s has %v until its deadline", info.FullMethod, left)
		}
		return handle(ctx, request)
	}
	synctest.Test(t, func(t *testing.T) {
		examine(t, sickness{server: &crowd{containers: 3}, intercept: watch, options: func(o *Options) {
			o.Gentle = true
			o.JudgedBy = "the watch"
		}})
	})
	if got := slices.Sorted(maps.Keys(made)); !slices.Equal(got, reads) {
		t.Errorf("the calls are %q, want %q", got, reads)
	}
}

// TestListsTakeTurns: no list is under way while another of the process is, and one that does not
// end is waited for as long as an answer may take.
func TestListsTakeTurns(t *testing.T) {
	taken := 0
	held := false
	r := gently(t, &crowd{containers: 3}, func(o *Options) {
		o.Listing = func(ctx context.Context) func() {
			if held {
				t.Error("a list begins before the turn was given back")
			}
			held = true
			taken++
			if taken == 1 {
				<-ctx.Done()
			}
			return func() { held = false }
		}
	})
	if taken != 4 || held || r.Worth != Well {
		t.Errorf("%d turns for two lists of two calls; held %v; %s", taken, held, r.Worth)
	}
}

// TestThin holds the codec of lists against the usual one: the fields of use are equal, labels and
// annotations are gone, and no bytes make it fail otherwise than by an error.
func TestThin(t *testing.T) {
	big := map[string]string{"note": strings.Repeat("x", 256<<10)}
	list := &runtimeapi.ListPodSandboxResponse{}
	for i := range 40 {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{
			Id: fmt.Sprint(
				"s",
				i,
			),
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Attempt: 3},
			State:       runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
			CreatedAt:   1 << 60,
			Labels:      big,
			Annotations: big,
		})
	}
	containers := &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{
			Id:           "c",
			PodSandboxId: "s1",
			Metadata:     &runtimeapi.ContainerMetadata{Name: "app"},
			State:        runtimeapi.ContainerState_CONTAINER_EXITED,
			CreatedAt:    5,
			Annotations:  big,
		},
	}}
	data := testkit.Must(encoding.GetCodecV2("proto").Marshal(list))(t)
	var got runtimeapi.ListPodSandboxResponse
	allocated := testing.AllocsPerRun(1, func() {
		got.Reset()
		testkit.Check(t, thinCodec{}.Unmarshal(data, &got))
	})
	for _, p := range list.Items {
		p.Labels = nil
		p.Annotations = nil
	}
	if !proto.Equal(list, &got) || allocated > 1000 {
		t.Errorf("got %v with %v allocations, want %v", &got, allocated, list)
	}
	raw := testkit.Must(proto.Marshal(containers))(t)
	var gotContainers runtimeapi.ListContainersResponse
	testkit.Check(t, thinCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, &gotContainers))
	containers.Containers[0].Annotations = nil
	if !proto.Equal(containers, &gotContainers) {
		t.Errorf("got %v, want %v", &gotContainers, containers)
	}
	later := append([]byte{0x7a, 1, 'x'}, raw...) // field 15
	testkit.Check(t, thinCodec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(later)}, &gotContainers))
	many := make([]byte, 2*(mostListed+1))
	for i := 0; i < len(many); i += 2 {
		many[i] = 0x0a
	}
	for name, bad := range map[string][]byte{"cut": raw[:len(raw)-1], "no field": {0xff}, "a number": {0x08, 1}, "an item cut": {0x0a, 2, 0x0a, 9}, "too many": many} {
		err := thinCodec{}.Unmarshal(
			mem.BufferSlice{mem.SliceBuffer(bad)},
			&runtimeapi.ListContainersResponse{},
		)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
