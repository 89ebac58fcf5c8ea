// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a Host of the test's making, in which the processes run that are given.
type machine struct {
	facts HostFacts
	runs  []int
}

func (*machine) Begin(context.Context) {}

func (m *machine) End(context.Context, Whereabouts) HostFacts { return m.facts }

func (m *machine) Runs(pid int) bool { return slices.Contains(m.runs, pid) }

// sickness is a state of a node, and what doctor says of it.
type sickness struct {
	name    string
	profile string
	faults  []string
	// population is there before; churn makes changes while doctor looks.
	population fakeruntime.Population
	churn      bool
	kubelet    bool // listens already, so that nothing is kept for who comes later
	host       HostFacts
	dialError  error
	server     runtimeapi.RuntimeServiceServer // in place of the fake runtime
	intercept  grpc.UnaryServerInterceptor     // of server; nil for none
	silent     bool                            // the socket takes connections, and nobody serves them
	options    func(*Options)
	stopped    time.Duration // how long the examining process does not run
	worth      Worth
	findings   []string // their IDs, all of them, in order
	says       string   // is in one of the findings
}

var ten = fakeruntime.Population{Pods: 10, Containers: 1}

var sicknesses = []sickness{
	{name: "well", population: ten, worth: Well},
	{name: "well under churn", population: ten, churn: true, worth: Well},
	{name: "a reader that starts late", population: ten, churn: true, kubelet: true, options: func(o *Options) {
		o.DialStream = func(ctx context.Context) (net.Conn, error) {
			time.Sleep(time.Second)
			return o.Dial(ctx)
		}
	}, worth: Well},
	{
		name:      "dead runtime",
		dialError: fmt.Errorf("dial: %w", fs.ErrNotExist),
		worth:     Sick,
		findings:  []string{"runtime-dead"},
		says:      "no runtime answers",
	},
	{
		name:      "no permission",
		dialError: fmt.Errorf("dial: %w", fs.ErrPermission),
		worth:     Unknown,
		findings:  []string{"forbidden"},
		says:      "spc_t",
	},
	{
		name:     "hung runtime",
		silent:   true,
		host:     HostFacts{Seen: true, Owner: Process{PID: 7, Name: "containerd", State: "T"}},
		worth:    Sick,
		findings: []string{"runtime-silent"},
		says:     "kill -CONT 7",
	},
	{
		name:       "one hung container",
		population: ten,
		faults:     []string{"hang-item=0.2"},
		worth:      Sick,
		findings:   []string{"item-hangs"},
		says:       "ContainerStatus is not answered",
	},
	{
		name:       "unreadable containers",
		population: ten,
		faults:     []string{"fail-item=0.3"},
		worth:      Sick,
		findings:   []string{"items-unreadable"},
	},
	{
		name:       "statuses fail",
		population: ten,
		faults:     []string{"fail-status=1"},
		worth:      Sick,
		findings:   []string{"call-fails", "call-fails"},
		says:       "ContainerStatus fails",
	},
	{
		name:       "statuses that are not implemented",
		population: ten,
		faults:     []string{"fail-status=1", "fail-code=Unimplemented"},
		worth:      Sick,
		findings:   []string{"call-fails", "call-fails"},
		says:       "10 of 10 calls",
	},
	{
		name:       "lists that find nothing",
		population: ten,
		faults:     []string{"fail-list=1", "fail-code=NotFound"},
		worth:      Sick,
		findings:   []string{"call-fails", "call-fails"},
		says:       "ListPodSandbox fails",
	},
	{
		name:       "lists hang",
		population: ten,
		faults:     []string{"hang-list=1"},
		worth:      Sick,
		findings:   []string{"call-hangs", "call-hangs"},
		says:       "ListContainers is not answered",
	},
	{
		name:       "lists fail",
		population: ten,
		faults:     []string{"fail-list=1"},
		worth:      Sick,
		findings:   []string{"call-fails", "call-fails"},
	},
	{
		name:       "statuses hang",
		population: ten,
		faults:     []string{"hang-status=1"},
		worth:      Sick,
		findings:   []string{"call-hangs", "call-hangs"},
	},
	{
		name:       "slow lists",
		population: ten,
		faults:     []string{"slow-list=1s"},
		worth:      Sick,
		findings:   []string{"call-slow", "call-slow"},
		says:       "usual on a quiet node",
	},
	{
		name:       "events disabled",
		profile:    "crio-disabled",
		population: ten,
		worth:      Well,
		findings:   []string{"events-off"},
		says:       "enable_pod_events = true",
	},
	{
		name:       "a stream that ends after some events",
		profile:    "crio",
		population: ten,
		churn:      true,
		kubelet:    true,
		faults:     []string{"eof=0.5"},
		worth:      Sick,
		findings:   []string{"events-fail"},
		says:       "the event stream ended after",
	},
	{
		name:     "a list that showed less than there was",
		server:   missing{collected{period: "10s", ends: new(atomic.Int32)}},
		worth:    Sick,
		findings: []string{"lists-differ"},
		says:     "container app of pod shop/web c",
	},
	{
		name:       "no events",
		profile:    "no-events",
		population: ten,
		worth:      Well,
		findings:   []string{"events-lacking"},
	},
	{
		name:       "containerd 1.7",
		profile:    "containerd-1.7",
		population: ten,
		churn:      true,
		worth:      Well,
		findings:   []string{"events-skipped"},
		says:       "one client only",
	},
	{
		name:       "silent stream",
		population: ten,
		churn:      true,
		faults:     []string{"drop=1"},
		worth:      Sick,
		findings:   []string{"events-silent"},
		says:       "the event stream is open and carries nothing",
	},
	{
		name:       "a stream that loses some events",
		population: ten,
		churn:      true,
		faults:     []string{"drop=0.9"},
		worth:      Sick,
		findings:   []string{"events-silent"},
		says:       "the event stream told nothing of",
	},
	{
		name:     "a runtime without a pod",
		worth:    Well,
		findings: []string{"lists-empty"},
		says:     "the runtime lists no pod and no container",
	},
	{
		name:       "lists that show nothing of what there is",
		population: ten,
		faults:     []string{"empty-list=1"},
		host:       HostFacts{Seen: true, Strays: map[string]Process{"s": {PID: 7, Name: "containerd-shim"}}},
		worth:      Sick,
		findings:   []string{"shims-unlisted"},
		says:       "the runtime lists nothing, and 1 shim of its own runs",
	},
	{
		name:       "a shim of which the runtime knows nothing",
		population: ten,
		host:       HostFacts{Seen: true, Strays: map[string]Process{"s": {PID: 7, Name: "containerd-shim"}}},
		worth:      Well,
		findings:   []string{"shims-unlisted"},
		says:       "1 shim runs that no list shows",
	},
	{
		name:       "clock behind",
		population: ten,
		churn:      true,
		faults:     []string{"clock-skew=-90s"},
		worth:      Sick,
		findings:   []string{"stamps-behind"},
		says:       "s too early",
	},
	{
		name:       "clock set back",
		population: ten,
		faults:     []string{"clock-skew=90s"},
		worth:      Sick,
		findings:   []string{"clock-behind"},
	},
	{
		name: "1000 exited containers",
		population: fakeruntime.Population{
			Pods:       10,
			Containers: 100,
			Life:       fakeruntime.After(time.Millisecond, 1),
		},
		worth:    Sick,
		findings: []string{"exited-left", "events-replayed"},
		says:     "1000 exited containers",
	},
	{
		name:     "400 sandboxes that have ended",
		server:   left{collected: collected{period: "10s"}, sandboxes: 400},
		worth:    Sick,
		findings: []string{"sandboxes-left"},
		says:     "400 sandboxes",
	},
	{
		name:       "full disk",
		population: ten,
		host: HostFacts{
			Seen:  true,
			Disks: []Disk{{Path: "/var/lib/containerd", FreeBytes: 1, Bytes: 1000}},
		},
		worth:    Sick,
		findings: []string{"disk-full"},
	},
	{
		name:       "no inodes",
		population: ten,
		host: HostFacts{
			Seen:  true,
			Disks: []Disk{{Path: "/", FreeBytes: 900, Bytes: 1000, FreeInodes: 1, Inodes: 1000}},
		},
		worth:    Sick,
		findings: []string{"disk-full"},
	},
	{
		name:       "sick kubelet",
		population: ten,
		host:       HostFacts{Seen: true, KubeletHealth: "PLEG is not healthy"},
		worth:      Sick,
		findings:   []string{"kubelet-unhealthy"},
	},
	{
		name:       "pressure",
		population: ten,
		host:       HostFacts{Seen: true, Pressure: map[string]float64{"io": 0.9, "memory": 0.1}},
		worth:      Sick,
		findings:   []string{"pressure"},
		says:       "for io in 90 %",
	},
	{name: "polled", population: ten, options: func(o *Options) {
		o.Metrics = func(context.Context) (map[string]float64, string) {
			return map[string]float64{"ListContainers": 60}, "http://127.0.0.1:1338"
		}
	}, worth: Well, findings: []string{"polled"}, says: "60 ListContainers a minute"},
	{
		name:     "containerd's collector",
		server:   collected{period: ""},
		worth:    Well,
		findings: []string{"stats-collector"},
		says:     "stats_collect_period = '10s'",
	},
	{name: "a slow collector", server: collected{period: "10s"}, worth: Well},
	{
		name:   "a stopped shim, for which the runtime gives up first",
		server: collected{period: "10s", after: 1900 * time.Millisecond, wrong: noMetrics},
		host: HostFacts{
			Seen:  true,
			Shims: map[string]Process{"s": {PID: 7, Name: "containerd-shim", State: "T"}},
		},
		worth:    Sick,
		findings: []string{"item-hangs"},
		says:     "kill -CONT 7",
	},
	{
		name:   "a shim that does not answer, for which the runtime gives up first",
		server: collected{period: "10s", after: 1900 * time.Millisecond, wrong: noMetrics},
		host: HostFacts{
			Seen:  true,
			Shims: map[string]Process{"s": {PID: 7, Name: "containerd-shim", State: "S"}},
		},
		worth:    Sick,
		findings: []string{"item-hangs"},
		says:     "an error after 1.90 s: rpc error: code = Unknown desc = unexpected metrics response: []",
	},
	{
		name:   "a stopped shim that answers in time",
		server: collected{period: "10s"},
		host: HostFacts{
			Seen:  true,
			Shims: map[string]Process{"s": {PID: 7, Name: "containerd-shim", State: "T"}},
		},
		worth:    Sick,
		findings: []string{"shim-stopped"},
		says:     "the shim of the sandbox of pod shop/web is stopped",
	},
	{
		name:     "a container without statistics",
		server:   collected{period: "10s", wrong: noMetrics},
		worth:    Sick,
		findings: []string{"items-unreadable"},
		says:     "the statistics of 1 running container cannot be read",
	},
	{
		name:     "a container that ends before its statistics",
		server:   collected{period: "10s", wrong: noMetrics, ends: new(atomic.Int32)},
		options:  func(o *Options) { o.NoEvents = true },
		worth:    Well,
		findings: []string{"events-skipped"},
	},
	{
		name:       "events left alone",
		population: ten,
		options:    func(o *Options) { o.NoEvents = true },
		worth:      Well,
		findings:   []string{"events-skipped"},
	},
}

// collected is a containerd with one container, and a collector of statistics.
type collected struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	period string
	after  time.Duration // how long its statistics take
	wrong  error         // of its statistics
	ends   *atomic.Int32 // counts its lists: the container has ended by the second; nil if it goes on
}

// missing is a runtime whose first list of containers lacks one that is older than the sandbox's
// youngest neighbour.
type missing struct{ collected }

func (m missing) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	now := time.Now()
	all := []*runtimeapi.Container{
		{
			Id:           "later",
			PodSandboxId: "s",
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt:    now.Add(-time.Hour).UnixNano(),
		},
		{
			Id:           "c",
			PodSandboxId: "s",
			Metadata:     &runtimeapi.ContainerMetadata{Name: "app"},
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
			CreatedAt:    now.Add(-2 * time.Hour).UnixNano(),
		},
	}
	if m.ends.Add(1) == 1 {
		all = all[:1]
	}
	return &runtimeapi.ListContainersResponse{Containers: all}, nil
}

// left is a runtime with sandboxes that have ended, beside the one that is ready.
type left struct {
	collected
	sandboxes int
}

func (l left) ListPodSandbox(
	ctx context.Context,
	request *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	list, err := l.collected.ListPodSandbox(ctx, request)
	for n := range l.sandboxes {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{
			Id:    fmt.Sprint("ended", n),
			State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		})
	}
	return list, err
}

// noMetrics is what containerd says of a shim that gives it no statistics.
var noMetrics = status.Error(codes.Unknown, "unexpected metrics response: []")

func (collected) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}, nil
}

func (c collected) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Info: map[string]string{"config": fmt.Sprintf(`{"statsCollectPeriod": %q}`, c.period)},
	}, nil
}

func (collected) ListPodSandbox(
	context.Context,
	*runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	ready := runtimeapi.PodSandboxState_SANDBOX_READY
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Id: "s", State: ready, Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop"}},
	}}, nil
}

func (c collected) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	state := runtimeapi.ContainerState_CONTAINER_RUNNING
	if c.ends != nil && c.ends.Add(1) > 1 {
		state = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return &runtimeapi.ListContainersResponse{
		Containers: []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", State: state}},
	}, nil
}

func (collected) PodSandboxStatus(
	context.Context,
	*runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{}, nil
}

func (collected) ContainerStatus(
	context.Context,
	*runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{}, nil
}

func (c collected) ContainerStats(
	context.Context,
	*runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	time.Sleep(c.after)
	return &runtimeapi.ContainerStatsResponse{}, c.wrong
}

func (collected) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest,
	stream runtimeapi.RuntimeService_GetContainerEventsServer,
) error {
	<-stream.Context().Done()
	return nil
}

// TestGone: an item that has gone meanwhile is no answer of its call, and so hides no call that
// hangs for all others. A call for no item that finds nothing has failed.
func TestGone(t *testing.T) {
	e := &examiner{options: Options{Within: time.Minute}, calls: make(map[string]*Call)}
	for n, err := range []error{status.Error(codes.NotFound, "gone"), nil, errors.New("broken")} {
		call := func(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
			return nil, err
		}
		_, _, _ = try(t.Context(), e, "PodSandboxStatus", call, &runtimeapi.VersionRequest{})
		count := 0
		if c := e.calls["PodSandboxStatus"]; c != nil {
			count = c.Count
		}
		if count != n {
			t.Errorf("after %v: %d calls count, want %d", err, count, n)
		}
	}
}

var silentCalls = []Call{{Method: "Version", Count: 2, Hung: 2, MaxSeconds: 2}}

// TestWords checks sentences and remedies that depend on a detail.
func TestWords(t *testing.T) {
	sandbox := Item{Kind: "sandbox", ID: "0123456789abcdef", Hung: true, Call: "PodSandboxStatus"}
	for _, test := range []struct {
		name      string
		facts     Facts
		says, not string
	}{
		{"nobody is connected", Facts{Host: HostFacts{Callers: []Process{{PID: 7, Name: "agent"}}}}, "others may call the runtime", "0 connections"},
		{"a sandbox hangs", Facts{Items: []Item{sandbox}}, "crictl inspectp 0123456789abc", "crictl inspect "},
		{"a debugger", Facts{Host: HostFacts{Shims: map[string]Process{"s": {PID: 9, State: "t"}}}}, "TracerPid /proc/9/status", "kill -CONT"},
		{"a file system without a bound of inodes", Facts{Host: HostFacts{Disks: []Disk{{Path: "/x", FreeBytes: 1, Bytes: 1000}}}}, "/x is full", "0 of 0 inodes"},
		{"a proxy that answers nothing", Facts{Calls: silentCalls, Host: HostFacts{Owner: Process{PID: 7, Name: "pleg-bench proxy", State: "S"}}},
			"is it the runtime, or process 7 (pleg-bench proxy) before it?", "systemctl"},
		{"a proxy that keeps events back", Facts{Listed: true, Stream: Stream{Changed: 1, Untold: []Item{{ID: "c", Kind: "container"}}}, Host: HostFacts{Owner: Process{PID: 7, Name: "pleg-bench proxy"}}},
			"is it the runtime, or process 7 (pleg-bench proxy) before it?", "restart"},
		{"a proxy that lists nothing", Facts{Listed: true, Empty: true, Host: HostFacts{Owner: Process{PID: 7, Name: "haproxy"}}},
			"is it the runtime, or process 7 (haproxy) before it?", "journalctl"},
		{"CRI-O's stream with a subscriber that does not read", Facts{Listed: true, Name: "cri-o", Stream: Stream{Changed: 1, Untold: []Item{{ID: "c", Kind: "container"}}}},
			"another subscriber that does not read holds the stream up: ss -xp", "containerd"},
		{"a proxy whose lists hang", Facts{Calls: []Call{{Method: "Version", Count: 1}, {Method: "ListContainers", Count: 1, Hung: 1, MaxSeconds: 2}}, Host: HostFacts{Owner: Process{PID: 7, Name: "haproxy"}}},
			"is it the runtime, or process 7 (haproxy) before it?", "journalctl"},
		{"a shim that is stopped makes no item unreadable", Facts{
			Items: []Item{{Kind: "container", ID: "c", Sandbox: "s", Call: "ContainerStats", Error: "unexpected metrics response", Seconds: 0.1}},
			Host:  HostFacts{Shims: map[string]Process{"s": {PID: 9, State: "T"}}}}, "kill -CONT 9", "crictl rm"},
		{"statistics alone are no reason to remove a container", Facts{Items: []Item{{Kind: "container", ID: "c", Call: "ContainerStats", Error: "no metrics"}}}, "the statistics of 1 running container", "crictl rm"},
		{"a call that fails for all is no reason to remove any", Facts{
			Calls: []Call{{Method: "Version", Count: 1}, {Method: "ContainerStatus", Count: 3, Failed: 3, Error: "no such method"}},
			Items: []Item{{Kind: "container", ID: "c", Call: "ContainerStatus", Error: "no such method"}}}, "ContainerStatus fails", "crictl rm"},
		{"three stopped shims are no failure of the call", Facts{
			Calls: []Call{{Method: "Version", Count: 1}, {Method: "ContainerStats", Count: 3, Failed: 3, Error: "no metrics"}},
			Items: []Item{{Kind: "container", ID: "c", Sandbox: "s", Call: "ContainerStats", Error: "no metrics", Seconds: 1.9}}}, "an error after 1.90 s", "call-fails"},
		{"statistics that no container has", Facts{
			Calls: []Call{{Method: "Version", Count: 1}, {Method: "ContainerStats", Count: 3, Failed: 3, Error: "unknown method"}}}, "", "ContainerStats"},
		{"a container whose sandbox no list shows", Facts{Items: []Item{{Kind: "container", ID: "c", Name: "app", Hung: true}}}, "container app of an unnamed pod hangs", "pod /"},
		{"k3s or RKE2, which share a socket", Facts{Endpoint: "unix:///run/k3s/containerd/containerd.sock", Unreachable: "refused"},
			"systemctl status 'k3s*' 'rke2*'; journalctl -u 'k3s*' -u 'rke2*' -n 100; tail /var/lib/rancher/*/agent/containerd/containerd.log", "-u containerd"},
		{"k0s", Facts{Endpoint: "unix:///run/k0s/containerd.sock", Unreachable: "refused"}, "systemctl status 'k0s*'; journalctl -u 'k0s*' -n 100", "containerd -n"},
		{"MicroK8s", Facts{Endpoint: "unix:///var/snap/microk8s/common/run/containerd.sock", Unreachable: "refused"}, "status snap.microk8s.daemon-containerd", "-u containerd"},
		{"cri-dockerd", Facts{Endpoint: "unix:///run/cri-dockerd.sock", Unreachable: "refused"}, "journalctl -u cri-docker -n 100", "containerd"},
		{"a stopped monitor of CRI-O", Facts{Kept: map[string]Item{"c": {Kind: "container", Name: "app", Pod: "web", Namespace: "shop"}},
			Host: HostFacts{Shims: map[string]Process{"c": {PID: 9, Name: "conmon", State: "T"}}}}, "the monitor of container app of pod shop/web is stopped: its end is not seen", "sandbox"},
		{"a monitor whose end tells CRI-O nothing", Facts{Items: []Item{{Kind: "container", ID: "c", Hung: true, Call: "ContainerStats"}},
			Host: HostFacts{Shims: map[string]Process{"c": {PID: 9, Name: "conmon", State: "D"}}}}, "its monitor, process 9 (conmon)", "kill -9"},
		{"a stopped shim of no listed sandbox", Facts{Host: HostFacts{Shims: map[string]Process{"0123456789abcdef": {PID: 9, State: "T"}}}}, "the shim of sandbox 0123456789abc is", "pod /"},
		{"shims that work because something changes", Facts{Name: "containerd", Running: 30, Stream: Stream{Changed: 3}, Host: HostFacts{ShimsRun: 30, ShimCPU: 0.2}}, "", "wakes every"},
		{"shims that the collector asks", Facts{Name: "containerd", Running: 30, StatsPeriod: new(string), Host: HostFacts{ShimsRun: 30, ShimCPU: 0.2}}, "every 1s, the default", "wakes every"},
		{"a warning of containerd", Facts{Conditions: []Condition{{Type: "ContainerdHasNoDeprecationWarnings"}}}, "ctr deprecations list", "journalctl"},
		{"a slow runtime", Facts{Calls: []Call{{Method: "Version", Count: 2, Hung: 2, MaxSeconds: 1}}}, "answered nothing in 1 s", "answers nothing"},
	} {
		test.facts.Listed = true
		test.facts.Host.Seen = true
		said := fmt.Sprint(Conclude(test.facts).Findings)
		if !strings.Contains(said, test.says) || strings.Contains(said, test.not) {
			t.Errorf("%s: %s; want %q and not %q", test.name, said, test.says, test.not)
		}
	}
}

// TestRules checks the findings that no fake runtime shows: each from the facts of a node that is
// well but for one thing, and none from one that is well.
func TestRules(t *testing.T) {
	for id, spoil := range map[string]func(*Facts){
		"":            func(*Facts) {},
		"clients":     func(f *Facts) { f.Host.Clients = 2 },
		"clock-free":  func(f *Facts) { f.Host.Unsynchronised = true },
		"cpu-quiet":   func(f *Facts) { f.Host.Owner.CPU = 0.2 },
		"events-fail": func(f *Facts) { f.Stream.Ended = "transport is closing" },
		"host-unseen": func(f *Facts) { f.Host.Seen = false },
		"no-cpu": func(f *Facts) { // on a crowded machine an answer in a second is not slow
			f.Stood = 2
			f.Again = 2
			f.StoodSeconds = 0.5
			f.LongestSeconds = 0.3
			f.Calls = []Call{{Method: "ListContainers", Count: 1, doneSeconds: 1.2, UsualSeconds: 0.01}}
		},
		"call-slow": func(f *Facts) {
			f.Stood = 1
			f.StoodSeconds = 0.1
			f.LongestSeconds = 0.1
			f.Calls = []Call{{Method: "ListContainers", Count: 1, doneSeconds: 1.2, UsualSeconds: 0.01}}
		},
		"lists-empty": func(f *Facts) { f.Empty = true },
		"not-ready":   func(f *Facts) { f.Conditions = []Condition{{Type: "RuntimeReady", Reason: "Down"}} },
		"sandboxes-left": func(f *Facts) {
			f.Pods = 1030
			f.NotReady = 1000
		},
		"shims-wake":   func(f *Facts) { f.Host.ShimsRun = 30 },
		"socket-owner": func(f *Facts) { f.Host.Owner.Name = "pleg-bench proxy" },
		"unexamined":   func(f *Facts) { f.Unexamined = 3 },
	} {
		f := Facts{
			Listed:     true,
			Name:       "containerd",
			Pods:       30,
			Containers: 30,
			Running:    30,
			Host:       HostFacts{Seen: true, Owner: Process{PID: 1, Name: "containerd"}},
		}
		spoil(&f)
		var ids []string
		for _, found := range Conclude(f).Findings {
			ids = append(ids, found.ID)
		}
		if strings.Join(ids, " ") != id {
			t.Errorf("findings %q, want %q", ids, id)
		}
	}
}

// examine examines a fake runtime with a sickness.
func examine(t *testing.T, s sickness) Report {
	lis := bufconn.Listen(1 << 20)
	name := s.profile
	if name == "" {
		name = "containerd-2"
	}
	rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 3, Profile: testkit.Must(fakeruntime.ProfileByName(name))(t)}))(t)
	defer rt.Close()
	testkit.Check(t, rt.SetFaults(testkit.Must(fakeruntime.ParseFaults(s.faults...))(t)))
	testkit.Must(rt.Populate(s.population))(t)
	time.Sleep(5 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	switch {
	case s.server != nil:
		var options []grpc.ServerOption
		if s.intercept != nil {
			options = append(options, grpc.UnaryInterceptor(s.intercept))
		}
		server := grpc.NewServer(options...)
		defer server.Stop()
		runtimeapi.RegisterRuntimeServiceServer(server, s.server)
		group.Go(func() { _ = server.Serve(lis) })
	case !s.silent:
		group.Go(func() { _ = rt.Serve(ctx, lis) })
	}
	if s.kubelet {
		conn := testkit.Must(client(lis.DialContext))(t)
		defer conn.Close()
		stream := testkit.Must(runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))(t)
		group.Go(func() {
			for {
				if _, err := stream.Recv(); err != nil {
					return
				}
			}
		})
	}
	if s.churn {
		group.Go(func() {
			for ctx.Err() == nil {
				testkit.Must(rt.Populate(fakeruntime.Population{Pods: 1, Containers: 1, Life: fakeruntime.After(300*time.Millisecond, 0)}))(t)
				select {
				case <-ctx.Done():
				case <-time.After(700 * time.Millisecond):
				}
			}
		})
	}
	if !s.host.Seen {
		s.host.Seen = true
	}
	o := Options{
		Endpoint: "unix:///run/test.sock",
		Dial: func(ctx context.Context) (net.Conn, error) {
			if s.dialError != nil {
				return nil, s.dialError
			}
			if s.silent {
				ours, theirs := net.Pipe()
				group.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
				return ours, nil
			}
			return lis.DialContext(ctx)
		},
		Within: 10 * time.Second,
		Host:   &machine{facts: s.host},
	}
	if s.options != nil {
		s.options(&o)
	}
	began := time.Now()
	r := Examine(ctx, o)
	if took := time.Since(began); took > 10*time.Second+s.stopped {
		t.Errorf("it took %v of the virtual time, want at most %v", took, 10*time.Second+s.stopped)
	}
	_ = lis.Close()
	return r
}

func TestSicknesses(t *testing.T) {
	t.Parallel()
	for _, s := range sicknesses {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := examine(t, s)
				var ids []string
				var text strings.Builder
				for _, f := range r.Findings {
					ids = append(ids, f.ID)
					text.WriteString(fmt.Sprint(f) + "\n")
				}
				if r.Worth != s.worth || !slices.Equal(ids, s.findings) {
					t.Errorf(
						"%s, findings %v, want %s, %v\n%s%+v",
						r.Worth,
						ids,
						s.worth,
						s.findings,
						text.String(),
						r.Calls,
					)
				}
				if !strings.Contains(text.String(), s.says) {
					t.Errorf("%q is not in %s", s.says, text.String())
				}
			})
		})
	}
}

// TestSocketOnADeadMount: the kernel looks for a socket on a dead mount and heeds no context. The
// examination ends in its time, and does not say that the runtime took a connection.
func TestSocketOnADeadMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		r := examine(t, sickness{
			host: HostFacts{Seen: true, Dead: []string{"/run/test.sock", "/var/lib/kubelet"}},
			options: func(o *Options) {
				o.Dial = func(context.Context) (net.Conn, error) {
					<-never
					return nil, net.ErrClosed
				}
			},
		})
		said := fmt.Sprint(r.Findings)
		if r.Worth != Sick || len(r.Findings) != 1 || r.Findings[0].ID != "mount-dead" ||
			!strings.Contains(said, "no answer about /run/test.sock and 1 other path") {
			t.Errorf("%s: %s", r.Worth, said)
		}
	})
}

// TestEarlierWaitsAreNotOfTheExamination: in a watch that examines again and again a wait of once
// does not excuse slow calls for good.
func TestEarlierWaitsAreNotOfTheExamination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter, stop := standstill.Start()
		defer stop()
		short, long := standstill.Every+standstill.Noticed*9/10, time.Minute
		for _, wait := range []time.Duration{short, long} {
			now := time.Now()
			meter.Beat(now)
			meter.Beat(now.Add(wait)) // as after a wait
			time.Sleep(wait)
		}
		var facts Facts
		examine(t, sickness{population: ten, options: func(o *Options) {
			o.Meter = meter
			o.Adjust = func(f *Facts) { facts = *f }
		}})
		if facts.LagSeconds+facts.LongestSeconds+facts.StoodSeconds > 0 || facts.Stood > 0 {
			t.Errorf("waited for %v s, stood %d times for %v s, at most %v s: all of it was before",
				facts.LagSeconds, facts.Stood, facts.StoodSeconds, facts.LongestSeconds)
		}
	})
}

// TestShims checks the findings about shims: the hung one of an item, and a stopped one that no
// call has met.
func TestShims(t *testing.T) {
	f := Facts{Listed: true, Name: "containerd", Running: 2, Began: time.Unix(0, 0), Host: HostFacts{
		Seen: true,
		Shims: map[string]Process{
			"s1": {PID: 11, Name: "containerd-shim", State: "D", Wait: "nfs_wait"},
			"s2": {PID: 12, Name: "containerd-shim", State: "T"},
		},
		Stuck: map[string][]Process{"c1": {{PID: 21, Name: "cat", State: "D", Wait: "rpc_wait"}}},
	}, Items: []Item{
		{
			ID:        "c1",
			Sandbox:   "s1",
			Kind:      "container",
			Name:      "app",
			Pod:       "web",
			Namespace: "shop",
			Call:      "ContainerStats",
			Hung:      true,
			Seconds:   2,
		},
		{
			ID:        "c9",
			Sandbox:   "s1",
			Kind:      "container",
			Name:      "sidecar",
			Pod:       "web",
			Namespace: "shop",
			Call:      "ContainerStats",
			Hung:      true,
			Seconds:   2,
		},
	}}
	r := Conclude(f)
	if len(r.Findings) != 2 || r.Findings[0].ID != "item-hangs" || r.Findings[1].ID != "shim-stopped" {
		t.Fatalf("findings %+v", r.Findings)
	}
	text := fmt.Sprint(r.Findings)
	for _, part := range []string{"container app of pod shop/web hangs", "process 11 (containerd-shim), is in uninterruptible sleep in nfs_wait", "process 21 (cat)", "kill -9 11", "kill -CONT 12"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %s", part, text)
		}
	}
}

// TestKeepers: each container of CRI-O has a monitor of its own and is named; those of containerd's
// pods share a shim, whose finding names them all.
func TestKeepers(t *testing.T) {
	hung := func(name string) Item {
		return Item{
			ID:        "id-" + name,
			Sandbox:   "s",
			Kind:      "container",
			Name:      name,
			Pod:       "web",
			Namespace: "shop",
			Call:      "ContainerStatus",
			Hung:      true,
		}
	}
	items := []Item{hung("app"), hung("sidecar")}
	monitor := Process{PID: 9, Name: "conmon", State: "T"}
	monitors := map[string]Process{"id-app": monitor, "id-sidecar": monitor}
	for _, test := range []struct {
		name string
		host HostFacts
		want int
	}{
		{"cri-o", HostFacts{Seen: true, Shims: monitors}, 2},
		{"cri-o", HostFacts{Seen: true}, 2},
		{"containerd", HostFacts{Seen: true}, 1},
	} {
		r := Conclude(Facts{Listed: true, Name: test.name, Items: items, Host: test.host})
		said := fmt.Sprint(r.Findings)
		if len(r.Findings) != test.want || strings.Contains(said, "shim-stopped") {
			t.Errorf("%s: %d findings, want %d: %s", test.name, len(r.Findings), test.want, said)
		}
		for _, i := range items {
			if !strings.Contains(said, i.words()) {
				t.Errorf("%s: %s is not named: %s", test.name, i.words(), said)
			}
		}
	}
}

// TestConditions checks that the conditions for which a kubelet makes a node NotReady are grave,
// and others are not.
func TestConditions(t *testing.T) {
	r := Conclude(Facts{Listed: true, Host: HostFacts{Seen: true}, Conditions: []Condition{
		{Type: "RuntimeReady", OK: true},
		{Type: "ContainerdHasNoDeprecationWarnings", Reason: "ContainerdHasDeprecationWarnings"},
	}})
	if r.Worth != Well || len(r.Findings) != 1 || r.Findings[0].Grade != Note {
		t.Errorf("%s: %+v", r.Worth, r.Findings)
	}
	r = Conclude(
		Facts{
			Listed:     true,
			Host:       HostFacts{Seen: true},
			Conditions: []Condition{{Type: "NetworkReady", Reason: "NetworkPluginNotReady"}},
		},
	)
	if r.Worth != Sick || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Change, "cni") {
		t.Errorf("%s: %+v", r.Worth, r.Findings)
	}
}

// TestCollector checks the finding about containerd's collector of statistics, by configuration.
func TestCollector(t *testing.T) {
	for period, want := range map[string]bool{"": true, "1s": true, "10s": false, "0s": false} {
		f := Facts{
			Listed:      true,
			Name:        "containerd",
			Running:     30,
			StatsPeriod: &period,
			Host:        HostFacts{Seen: true},
		}
		found := slices.ContainsFunc(
			Conclude(f).Findings,
			func(f Finding) bool { return f.ID == "stats-collector" },
		)
		if found != want {
			t.Errorf("period %q: found %v, want %v", period, found, want)
		}
	}
}

// TestLine checks the line of --check: one, of the gravest finding, cut, without what a terminal
// would act on.
func TestLine(t *testing.T) {
	r := Conclude(Facts{Endpoint: "unix:///x", Unreachable: "no", Began: time.Unix(0, 0)})
	if got := r.Line(80); got != "no runtime answers on unix:///x" {
		t.Errorf("line %q", got)
	}
	r = Conclude(
		Facts{
			Listed: true,
			Host:   HostFacts{Seen: true},
			Items:  []Item{{Kind: "container", Name: "\x1b[2J\n" + strings.Repeat("x", 1000), Hung: true}},
		},
	)
	got := r.Line(80)
	if len([]rune(got)) > 80 || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("line %q", got)
	}
	note := Finding{ID: "clock-free", Grade: Note, Sentence: "x"}
	for _, found := range [][]Finding{nil, {note}} {
		got = Report{Worth: Unknown, Findings: found}.Line(80)
		if got != "the container runtime could not be examined" {
			t.Errorf("a runtime without an examination: line %q", got)
		}
	}
	if got := (Report{Worth: Well, Findings: []Finding{{Grade: Note, Sentence: "x"}}}).Line(80); got != "the container runtime is well" {
		t.Errorf("line %q", got)
	}
}
