// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/embed"
)

// fakeRuntime is the kubelet's fake with statuses equal to its lists, and with errors for single
// pods.
type fakeRuntime struct {
	*containertest.FakeRuntime

	mu          sync.Mutex
	ips         map[types.UID][]string
	inspectErrs map[types.UID]error
	inspected   map[types.UID]int
	hang        chan struct{} // a list waits until its close, or for its context
	forgets     bool          // there is no status of what is not shown; set before the start
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{
		FakeRuntime: &containertest.FakeRuntime{},
		ips: make(
			map[types.UID][]string,
		),
		inspectErrs: make(map[types.UID]error),
		inspected:   make(map[types.UID]int),
	}
}

// show makes these pods the runtime's only content.
func (f *fakeRuntime) show(pods ...*kubecontainer.Pod) {
	f.Lock()
	defer f.Unlock()
	f.AllPodList = nil
	for _, p := range pods {
		f.AllPodList = append(f.AllPodList, &containertest.FakePod{Pod: p})
	}
}

func (f *fakeRuntime) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRuntime) inspections(uid types.UID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inspected[uid]
}

func (f *fakeRuntime) lists() int {
	f.Lock()
	defer f.Unlock()
	n := 0
	for _, c := range f.CalledFunctions {
		if c == "GetPods" {
			n++
		}
	}
	return n
}

func (f *fakeRuntime) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.FakeRuntime.GetPods(ctx, all)
}

func (f *fakeRuntime) GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.FakeRuntime.GetPod(ctx, uid)
}

// wait waits while lists hang.
func (f *fakeRuntime) wait(ctx context.Context) error {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang == nil {
		return nil
	}
	select {
	case <-hang:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// states returns a function for the states that the runtime shows now. What it shows no more is as
// listed, or has none if the runtime forgets.
func (f *fakeRuntime) states(uid types.UID) func(*kubecontainer.Container) (kubecontainer.State, bool) {
	f.Lock()
	defer f.Unlock()
	shown := make(map[string]kubecontainer.State)
	for _, p := range f.AllPodList {
		if p.Pod.ID == uid {
			for _, c := range slices.Concat(p.Pod.Sandboxes, p.Pod.Containers) {
				shown[c.ID.ID] = c.State
			}
		}
	}
	return func(c *kubecontainer.Container) (kubecontainer.State, bool) {
		state, ok := shown[c.ID.ID]
		return cmp.Or(state, c.State), ok || !f.forgets
	}
}

func (f *fakeRuntime) GetPodStatus(
	_ context.Context,
	pod *kubecontainer.Pod,
) (*kubecontainer.PodStatus, error) {
	now := f.states(pod.ID)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inspected[pod.ID]++
	if err := f.inspectErrs[pod.ID]; err != nil {
		return nil, err
	}
	s := &kubecontainer.PodStatus{ID: pod.ID, Name: pod.Name, Namespace: pod.Namespace, IPs: f.ips[pod.ID]}
	for _, sb := range pod.Sandboxes {
		state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		shows, ok := now(sb)
		if !ok {
			continue
		}
		if shows == kubecontainer.ContainerStateRunning {
			state = runtimeapi.PodSandboxState_SANDBOX_READY
		}
		s.SandboxStatuses = append(s.SandboxStatuses, &runtimeapi.PodSandboxStatus{Id: sb.ID.ID, State: state})
	}
	for _, c := range pod.Containers {
		if state, ok := now(c); ok {
			s.ContainerStatuses = append(
				s.ContainerStatuses,
				&kubecontainer.Status{ID: c.ID, Name: c.Name, State: state},
			)
		}
	}
	return s, nil
}

func container(id string, state kubecontainer.State) *kubecontainer.Container {
	return &kubecontainer.Container{ID: kubecontainer.ContainerID{Type: "fake", ID: id}, Name: id, State: state}
}

const (
	created = kubecontainer.ContainerStateCreated
	running = kubecontainer.ContainerStateRunning
	exited  = kubecontainer.ContainerStateExited
	unknown = kubecontainer.ContainerStateUnknown
)

func pod(uid string, containers ...*kubecontainer.Container) *kubecontainer.Pod {
	return &kubecontainer.Pod{ID: types.UID(uid), Name: "name-" + uid, Namespace: "ns", Containers: containers}
}

// fakeEvents is the event side of a CRI client.
type fakeEvents struct {
	mu   sync.Mutex
	err  error // of the next subscriptions
	feed chan *runtimeapi.ContainerEventResponse
	cut  chan error
}

func newFakeEvents() *fakeEvents {
	return &fakeEvents{feed: make(chan *runtimeapi.ContainerEventResponse), cut: make(chan error)}
}

// noEvents is the client of a runtime without events.
func noEvents() *fakeEvents {
	e := newFakeEvents()
	e.err = grpcstatus.Error(codes.Unimplemented, "unknown method")
	return e
}

// with has the next subscriptions fail with err, or not.
func (f *fakeEvents) with(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeEvents) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	_ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		select {
		case e := <-f.feed:
			events <- e // as the kubelet's client does: without a look at ctx
		case err := <-f.cut:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// node is a kubelet's surroundings with a started generator in them.
type node struct {
	t       *testing.T
	runtime *fakeRuntime
	events  *fakeEvents
	told    *record.FakeRecorder
	cache   *Cache
	pleg    *Generator

	removable atomic.Bool  // the answer of the pod workers, of every pod
	asked     atomic.Int64 // how often they were asked
}

// newNode must be called in a bubble, and does not start the generator.
func newNode(t *testing.T, events *fakeEvents) *node { return newNodeOf(t, events, events) }

// newNodeOf is newNode with a client of the CRI beside its events.
func newNodeOf(t *testing.T, events *fakeEvents, client embed.Events) *node {
	t.Helper()
	n := &node{
		t:       t,
		runtime: newFakeRuntime(),
		events:  events,
		told:    record.NewFakeRecorder(1000),
		cache:   newCache(),
	}
	var err error
	n.pleg, err = New(Config{
		Runtime:   n.runtime,
		Events:    client,
		Cache:     n.cache,
		Recorder:  n.told,
		Removable: func(types.UID) bool { n.asked.Add(1); return n.removable.Load() },
		Node: &v1.ObjectReference{
			Kind: "Node",
			Name: "n",
			UID:  "n",
		},
		RelistPeriod:    time.Second,
		RelistThreshold: 3 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.pleg.Stop)
	return n
}

// atOnce lets a negligible time pass: in a bubble, time stands still while anything runs, and a
// read must begin after the change to be shown.
func atOnce() {
	time.Sleep(20 * time.Millisecond)
	synctest.Wait()
}

// started starts the generator and waits for its first actions.
func (n *node) started() *node {
	start(n.pleg)
	atOnce()
	return n
}

// afterRelist lets time pass until the next relist of a polling generator is done.
func (n *node) afterRelist() {
	time.Sleep(time.Second)
	atOnce()
}

// take takes Watch's events, sorted.
func (n *node) take() []string {
	atOnce()
	var got []string
	for idle := 0; idle < 2; { // a start is kept for a moment
		select {
		case e := <-n.pleg.Watch():
			got = append(got, describe(e))
			idle = 0
		default:
			idle++
			time.Sleep(2 * embed.StartsTogether)
		}
		synctest.Wait()
	}
	slices.Sort(got)
	return got
}

func describe(e *kubepleg.PodLifecycleEvent) string {
	if e.Data == nil {
		return fmt.Sprintf("%s %s", e.ID, e.Type)
	}
	return fmt.Sprintf("%s %s %s", e.ID, e.Data, strings.TrimPrefix(string(e.Type), "Container"))
}

func (n *node) expect(want ...string) {
	n.t.Helper()
	slices.Sort(want)
	if got := n.take(); !slices.Equal(got, want) {
		n.t.Errorf("Watch told %q, want %q", got, want)
	}
}
