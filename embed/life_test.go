// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/embed/ledger"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// The tests of this file count what a pod's life costs the runtime: a model of a kubelet's pod
// workers and of its other callers of lists runs on a Service with a generator behind it.

// latencies are how long the calls of a model runtime take.
type latencies struct {
	list   time.Duration
	status time.Duration
	run    time.Duration
	create time.Duration
	start  time.Duration
	stop   time.Duration
	remove time.Duration
	event  time.Duration
	// between is what the kubelet itself does between a sandbox and its first container.
	between time.Duration
	// answer is from the effect of a call that makes or starts something to its answer.
	answer time.Duration
	// mute is of a runtime that sends no event when a sandbox is made or removed, as CRI-O.
	mute bool
}

var (
	// quick is CRI-O or containerd on a quiet node.
	quick = latencies{
		list:   3 * time.Millisecond,
		status: time.Millisecond,
		run:    180 * time.Millisecond,
		create: 25 * time.Millisecond,
		start:  40 * time.Millisecond,
		stop:   30 * time.Millisecond,
		remove: 15 * time.Millisecond,
		event:  time.Millisecond,
	}
	// saturated is containerd with as many starts under way as the processors can bear.
	saturated = latencies{
		list:   60 * time.Millisecond,
		status: 15 * time.Millisecond,
		run:    2500 * time.Millisecond,
		create: 400 * time.Millisecond,
		start:  1200 * time.Millisecond,
		stop:   500 * time.Millisecond,
		remove: 300 * time.Millisecond,
		event:  20 * time.Millisecond,
	}
	// crowded is CRI-O while a kubelet that has just come up has it make many pods.
	crowded = latencies{
		list:    60 * time.Millisecond,
		status:  15 * time.Millisecond,
		run:     1500 * time.Millisecond,
		create:  400 * time.Millisecond,
		start:   600 * time.Millisecond,
		stop:    500 * time.Millisecond,
		remove:  300 * time.Millisecond,
		event:   5 * time.Millisecond,
		between: 30 * time.Millisecond,
		answer:  400 * time.Millisecond,
		mute:    true,
	}
)

// working is the same under a kubelet that starts many pods at once.
func (l latencies) working() latencies {
	l.between = 30 * time.Millisecond
	return l
}

// muted is the same on a runtime that does not tell of all.
func (l latencies) muted() latencies {
	l.mute = true
	return l
}

// modelItem is a sandbox or a container on the model runtime.
type modelItem struct {
	id, pod, sandbox, name string
	created                int64
	phase                  ledger.Phase
}

// modelRuntime is a runtime with latencies, which counts calls. Other calls panic.
type modelRuntime struct {
	internalapi.RuntimeService
	takes latencies

	mu     sync.Mutex // owns the fields below
	items  []*modelItem
	made   int
	calls  map[string]int
	events chan *runtimeapi.ContainerEventResponse
}

func newModelRuntime(takes latencies) *modelRuntime {
	return &modelRuntime{
		takes:  takes,
		calls:  make(map[string]int),
		events: make(chan *runtimeapi.ContainerEventResponse, 4096),
	}
}

// work counts a call and takes its time.
func (r *modelRuntime) work(name string, d time.Duration) {
	r.mu.Lock()
	r.calls[name]++
	r.mu.Unlock()
	time.Sleep(d)
}

// change changes an item and sends the event.
func (r *modelRuntime) change(id string, to ledger.Phase, event runtimeapi.ContainerEventType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range r.items {
		if x.id != id || x.phase >= to {
			continue
		}
		x.phase = to
		r.tell(x, event)
		if to == ledger.Gone {
			r.items = append(r.items[:i:i], r.items[i+1:]...)
		}
		return
	}
}

// tell sends an event; r.mu is held.
func (r *modelRuntime) tell(x *modelItem, event runtimeapi.ContainerEventType) {
	made := event == runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	removed := event == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	if r.takes.mute && x.id == x.sandbox && (made || removed) {
		return
	}
	e := &runtimeapi.ContainerEventResponse{
		ContainerId:        x.id,
		ContainerEventType: event,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id:       x.sandbox,
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: x.pod},
		},
	}
	time.AfterFunc(r.takes.event, func() { r.events <- e })
}

func (r *modelRuntime) make(x *modelItem) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	x.id = fmt.Sprint("id", r.made)
	x.created = int64(r.made)
	r.items = append(r.items, x)
	event := runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	if x.sandbox == "" {
		x.sandbox = x.id
	}
	r.tell(x, event)
	if x.sandbox == x.id {
		r.tell(x, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	return x.id
}

func (x *modelItem) labels() map[string]string { return map[string]string{ledger.PodUIDLabel: x.pod} }

// shown returns copies of the items that a filter passes.
func (r *modelRuntime) shown(sandboxes bool, id string, labels map[string]string) (list []modelItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.items {
		pod := labels[ledger.PodUIDLabel]
		if (x.id == x.sandbox) == sandboxes && (id == "" || id == x.id) && (pod == "" || pod == x.pod) {
			list = append(list, *x)
		}
	}
	return list
}

func (r *modelRuntime) ListPodSandbox(
	_ context.Context,
	f *runtimeapi.PodSandboxFilter,
) (list []*runtimeapi.PodSandbox, _ error) {
	r.work("List", r.takes.list)
	for _, x := range r.shown(true, f.GetId(), f.GetLabelSelector()) {
		state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		if x.phase == ledger.Running {
			state = runtimeapi.PodSandboxState_SANDBOX_READY
		}
		if f.GetState() == nil || f.GetState().State == state {
			list = append(list, &runtimeapi.PodSandbox{Id: x.id, State: state, Labels: x.labels()})
		}
	}
	return list, nil
}

func (r *modelRuntime) ListContainers(
	_ context.Context,
	f *runtimeapi.ContainerFilter,
) (list []*runtimeapi.Container, _ error) {
	r.work("List", r.takes.list)
	for _, x := range r.shown(false, f.GetId(), f.GetLabelSelector()) {
		state := modelState(x.phase)
		if f.GetState() == nil || f.GetState().State == state {
			list = append(
				list,
				&runtimeapi.Container{
					Id:           x.id,
					PodSandboxId: x.sandbox,
					State:        state,
					ImageId:      "image",
					Labels:       x.labels(),
				},
			)
		}
	}
	return list, nil
}

func modelState(p ledger.Phase) runtimeapi.ContainerState {
	switch p {
	case ledger.Created:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case ledger.Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_EXITED
}

func (r *modelRuntime) PodSandboxStatus(
	_ context.Context,
	id string,
	_ bool,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.work("PodSandboxStatus", r.takes.status)
	all := r.shown(true, id, nil)
	if len(all) == 0 {
		return nil, errGone
	}
	state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if all[0].phase == ledger.Running {
		state = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Id: id, State: state, Labels: all[0].labels()},
	}, nil
}

func (r *modelRuntime) ContainerStatus(
	_ context.Context,
	id string,
	_ bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	r.work("ContainerStatus", r.takes.status)
	all := r.shown(false, id, nil)
	if len(all) == 0 {
		return nil, errGone
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id:       id,
		State:    modelState(all[0].phase),
		ImageId:  "image",
		Labels:   all[0].labels(),
		Metadata: &runtimeapi.ContainerMetadata{Name: all[0].name},
	}}, nil
}

var errGone = errors.New("not found")

func (r *modelRuntime) RunPodSandbox(
	_ context.Context,
	c *runtimeapi.PodSandboxConfig,
	_ string,
) (string, error) {
	r.work("RunPodSandbox", r.takes.run)
	id := r.make(&modelItem{pod: c.Metadata.Uid, phase: ledger.Running})
	time.Sleep(r.takes.answer)
	return id, nil
}

func (r *modelRuntime) CreateContainer(
	_ context.Context,
	sandbox string,
	c *runtimeapi.ContainerConfig,
	pod *runtimeapi.PodSandboxConfig,
) (string, error) {
	r.work("CreateContainer", r.takes.create)
	id := r.make(&modelItem{pod: pod.Metadata.Uid, sandbox: sandbox, name: c.Metadata.Name, phase: ledger.Created})
	time.Sleep(r.takes.answer)
	return id, nil
}

func (r *modelRuntime) StartContainer(_ context.Context, id string) error {
	r.work("StartContainer", r.takes.start)
	r.change(id, ledger.Running, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	time.Sleep(r.takes.answer)
	return nil
}

func (r *modelRuntime) StopContainer(_ context.Context, id string, _ int64) error {
	r.work("StopContainer", r.takes.stop)
	r.change(id, ledger.Exited, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

func (r *modelRuntime) StopPodSandbox(_ context.Context, id string) error {
	r.work("StopPodSandbox", r.takes.stop)
	r.change(id, ledger.Exited, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

func (r *modelRuntime) RemoveContainer(_ context.Context, id string) error {
	r.work("RemoveContainer", r.takes.remove)
	r.change(id, ledger.Gone, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

func (r *modelRuntime) RemovePodSandbox(_ context.Context, id string) error {
	r.work("RemovePodSandbox", r.takes.remove)
	r.change(id, ledger.Gone, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

func (r *modelRuntime) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	_ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	for {
		select {
		case e := <-r.events:
			events <- e
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// modelStatus is a pod's status in the model.
type modelStatus struct{ items []pleg.Item }

func (s *modelStatus) find(kind pleg.Kind) (found []pleg.Item) {
	for _, it := range s.items {
		if it.Kind == kind {
			found = append(found, it)
		}
	}
	return found
}

// modelSource reads as the kubelet's adapter does.
type modelSource struct {
	service *Service

	mu    sync.Mutex
	reads int // of statuses
	lists int // of pods, two calls each
}

func (s *modelSource) List(ctx context.Context, _ pleg.Revision) (pleg.Listing, error) {
	pods, err := s.list(ctx, nil)
	if err != nil {
		return pleg.Listing{}, err
	}
	listing := pleg.Listing{Total: len(pods)}
	for _, p := range pods {
		listing.Pods = append(listing.Pods, *p)
	}
	return listing, nil
}

func (s *modelSource) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	s.mu.Lock()
	s.lists++
	s.mu.Unlock()
	pods, err := s.list(ctx, map[string]string{ledger.PodUIDLabel: string(uid)})
	if p := pods[uid]; p != nil {
		return *p, err
	}
	return pleg.Pod{UID: uid}, err
}

func (s *modelSource) list(ctx context.Context, labels map[string]string) (map[cache.UID]*pleg.Pod, error) {
	ctx = As(ctx, ByPLEG)
	pods := make(map[cache.UID]*pleg.Pod)
	add := func(l map[string]string, it pleg.Item) {
		uid := cache.UID(l[ledger.PodUIDLabel])
		if pods[uid] == nil {
			pods[uid] = &pleg.Pod{UID: uid}
		}
		pods[uid].Items = append(pods[uid].Items, it)
	}
	sandboxes, err := s.service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return nil, err
	}
	for _, x := range sandboxes {
		add(x.Labels, pleg.Item{ID: x.Id, Kind: pleg.Sandbox, Phase: criphase.OfSandbox(x.State)})
	}
	containers, err := s.service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	for _, x := range containers {
		add(x.Labels, pleg.Item{ID: x.Id, Phase: criphase.OfContainer(x.State)})
	}
	return pods, err
}

func (s *modelSource) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[modelStatus], error) {
	ctx = As(ctx, ByPLEG)
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	shows := pleg.Pod{UID: pod.UID}
	for _, it := range pod.Items {
		if it.Kind == pleg.Sandbox {
			st, err := s.service.PodSandboxStatus(ctx, it.ID, false)
			if err != nil {
				continue
			}
			it.Phase = criphase.OfSandbox(st.Status.State)
		} else {
			st, err := s.service.ContainerStatus(ctx, it.ID, false)
			if err != nil {
				continue
			}
			it.Phase = criphase.OfContainer(st.Status.State)
		}
		shows.Items = append(shows.Items, it)
	}
	return pleg.Inspection[modelStatus]{Status: &modelStatus{shows.Items}, Pod: shows}, nil
}

// modelNode is the model of a kubelet.
type modelNode struct {
	t       *testing.T
	runtime *modelRuntime
	service *Service
	source  *modelSource
	core    *pleg.Generator[modelStatus]
	cache   *cache.Cache[modelStatus]

	mu      sync.Mutex // owns the fields below
	workers map[cache.UID]chan struct{}
	lists   map[string]int // by what the service counts
	ready   []time.Duration
	ended   []time.Duration
	done    sync.WaitGroup
}

func newModelNode(t *testing.T, takes latencies) *modelNode {
	n := &modelNode{
		t:       t,
		runtime: newModelRuntime(takes),
		workers: make(map[cache.UID]chan struct{}),
		lists:   make(map[string]int),
	}
	n.service = NewService(n.runtime)
	n.source = &modelSource{service: n.service}
	n.cache = cache.New(func(cache.UID) *modelStatus { return &modelStatus{} })
	var err error
	n.core, err = pleg.New(pleg.Config[modelStatus]{
		Source:         n.source,
		Stream:         Stream[modelStatus](n.service),
		Cache:          n.cache,
		RelistMax:      45 * time.Second,
		InspectTimeout: 2 * time.Minute,
		TellsCalls:     true,
		Without: func(status *modelStatus, id string) *modelStatus {
			gone := func(it pleg.Item) bool { return it.ID == id }
			return &modelStatus{slices.DeleteFunc(slices.Clone(status.items), gone)}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.service.TellCalls(n.core.Calling)
	n.service.ServeLists(
		func() bool { return n.core.Stats().State == pleg.StreamConnected },
		90*time.Second,
		func(name string, k int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.lists[name] += k
		},
	)
	return n
}

// run starts the generator, the sync loop, and the other callers of lists.
func (n *modelNode) run(ctx context.Context) {
	n.done.Go(func() { _ = n.core.Run(ctx) })
	n.done.Go(func() {
		for e := range n.core.Watch() {
			for _, e := range Together(ctx, n.core.Watch(), e) { // as the adapter does
				if e.Type != pleg.ContainerRemoved {
					n.wake(e.Pod)
				}
			}
		}
	})
	sandboxes, containers := n.service.ListPodSandbox, n.service.ListContainers
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	n.every(ctx, 2*time.Second, func() {
		as := As(ctx, ByHousekeeping)
		_, _ = sandboxes(as, &runtimeapi.PodSandboxFilter{State: ready})
		_, _ = containers(as, &runtimeapi.ContainerFilter{State: running})
	})
	n.every(ctx, 10*time.Second, func() {
		_, _ = containers(As(ctx, ByContainerLogs), &runtimeapi.ContainerFilter{})
	})
	n.every(ctx, 10*time.Second, func() { // statistics
		_, _ = containers(ctx, &runtimeapi.ContainerFilter{})
		_, _ = sandboxes(ctx, &runtimeapi.PodSandboxFilter{})
	})
	n.every(ctx, time.Minute, func() { // dead containers
		_, _ = containers(ctx, &runtimeapi.ContainerFilter{})
		_, _ = sandboxes(ctx, &runtimeapi.PodSandboxFilter{})
	})
}

// every calls f again and again until the context ends.
func (n *modelNode) every(ctx context.Context, period time.Duration, f func()) {
	n.done.Go(func() {
		for ctx.Err() == nil {
			f()
			select {
			case <-ctx.Done():
			case <-time.After(period):
			}
		}
	})
}

// wake has a pod's worker sync.
func (n *modelNode) wake(uid cache.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch := n.workers[uid]; ch != nil {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// pod is the worker of a pod with one container that runs for a while and ends by itself.
func (n *modelNode) pod(ctx context.Context, uid cache.UID, runs time.Duration) {
	wake := make(chan struct{}, 1)
	n.mu.Lock()
	n.workers[uid] = wake
	n.mu.Unlock()
	wake <- struct{}{}
	w := &modelWorker{node: n, uid: uid, runs: runs}
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		if w.sync(ctx) {
			break
		}
	}
	n.mu.Lock()
	delete(n.workers, uid)
	n.mu.Unlock()
}

// outside is a time with a monotonic reading, which times within a bubble do not have.
var outside = time.Now()

// monotonic returns the same time with a monotonic reading, as a kubelet's times have: without one
// GetPhasesNewerThan would take the time of the call.
func monotonic(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return outside.Add(t.Sub(outside.Round(0)))
}

// modelWorker is what a pod's worker knows.
type modelWorker struct {
	node     *modelNode
	uid      cache.UID
	runs     time.Duration
	last     time.Time // end of the last sync
	started  time.Time // StartContainer has returned
	ends     time.Time
	sawReady bool
}

// sync is one turn of the kubelet's worker: SyncPod, or both turns of the end.
func (w *modelWorker) sync(ctx context.Context) (over bool) {
	n := w.node
	status, err := n.cache.GetPhasesNewerThan(ctx, w.uid, monotonic(w.last))
	if err != nil {
		return ctx.Err() != nil
	}
	containers := status.find(pleg.Container)
	switch {
	case len(status.items) == 0 && w.started.IsZero():
		w.start(ctx)
	case len(containers) > 0 && containers[0].Phase == pleg.PhaseRunning && !w.sawReady:
		w.sawReady = true
		n.note(&n.ready, time.Since(w.started))
	case len(containers) > 0 && containers[0].Phase == pleg.PhaseExited:
		n.note(&n.ended, time.Since(w.ends))
		w.last = time.Now()
		w.end(ctx)
		return true
	}
	w.last = time.Now()
	return false
}

func (n *modelNode) note(to *[]time.Duration, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*to = append(*to, d)
}

// start makes the sandbox and the container, and starts it, as SyncPod does.
func (w *modelWorker) start(ctx context.Context) {
	s := w.node.service
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(w.uid)}}
	sandbox, err := s.RunPodSandbox(ctx, pod, "")
	check(w.node.t, err)
	_, err = s.PodSandboxStatus(ctx, sandbox, false)
	check(w.node.t, err)
	time.Sleep(w.node.runtime.takes.between)
	id, err := s.CreateContainer(
		ctx,
		sandbox,
		&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		pod,
	)
	check(w.node.t, err)
	check(w.node.t, s.StartContainer(ctx, id))
	w.started = time.Now()
	w.ends = w.started.Add(w.runs)
	w.node.done.Go(func() {
		time.Sleep(w.runs)
		w.node.runtime.change(id, ledger.Exited, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	})
}

// end is SyncTerminatingPod, SyncTerminatedPod, and the removal of what is left.
func (w *modelWorker) end(ctx context.Context) {
	n, s := w.node, w.node.service
	status, err := n.cache.GetPhasesNewerThan(ctx, w.uid, monotonic(w.last))
	check(n.t, err)
	for _, sb := range status.find(pleg.Sandbox) {
		check(n.t, s.StopPodSandbox(ctx, sb.ID))
	}
	label := map[string]string{ledger.PodUIDLabel: string(w.uid)} // GetPod
	sandboxes, err := s.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: label})
	check(n.t, err)
	containers, err := s.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: label})
	check(n.t, err)
	if len(sandboxes) != 1 || len(containers) != 1 {
		n.t.Errorf(
			"%s: GetPod shows %d sandboxes and %d containers, want one of each",
			w.uid,
			len(sandboxes),
			len(containers),
		)
	}
	for _, x := range sandboxes {
		_, _ = s.PodSandboxStatus(ctx, x.Id, false)
	}
	for _, x := range containers {
		_, _ = s.ContainerStatus(ctx, x.Id, false)
	}
	w.last = time.Now()
	status, err = n.cache.GetPhasesNewerThan(ctx, w.uid, monotonic(w.last))
	check(n.t, err)
	for _, c := range status.find(pleg.Container) {
		check(n.t, s.RemoveContainer(ctx, c.ID))
	}
	for _, sb := range status.find(pleg.Sandbox) {
		time.Sleep(2 * time.Second) // until the collector comes
		check(n.t, s.RemovePodSandbox(ctx, sb.ID))
	}
}

// cost is what a life of a pod has cost.
type cost struct{ reads, podLists, lists, statuses float64 }

// live has pods live one after the other, at the given distance, on a node that has been up for a
// while, and returns the cost of each.
func live(t *testing.T, takes latencies, up time.Duration, pods int, apart, runs time.Duration) (c cost, n *modelNode) {
	ctx, cancel := context.WithCancel(t.Context())
	n = newModelNode(t, takes)
	n.run(ctx)
	time.Sleep(up)
	before := n.cost()
	for i := range pods {
		uid := cache.UID(fmt.Sprint("pod", i))
		n.done.Go(func() { n.pod(ctx, uid, runs) })
		time.Sleep(apart)
	}
	time.Sleep(30 * time.Second)
	after := n.cost()
	cancel()
	n.done.Wait()
	if len(n.ended) != pods || len(n.ready) != pods {
		t.Errorf("%d pods were seen running and %d ended, want %d", len(n.ready), len(n.ended), pods)
	}
	each := func(b, a float64) float64 { return (a - b) / float64(pods) }
	return cost{
		reads:    each(before.reads, after.reads),
		podLists: each(before.podLists, after.podLists),
		lists:    each(before.lists, after.lists),
		statuses: each(before.statuses, after.statuses),
	}, n
}

// cost returns the totals up to now.
func (n *modelNode) cost() cost {
	n.source.mu.Lock()
	defer n.source.mu.Unlock()
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	return cost{
		reads:    float64(n.source.reads),
		podLists: float64(n.source.lists),
		lists:    float64(n.runtime.calls["List"]),
		statuses: float64(n.runtime.calls["PodSandboxStatus"] + n.runtime.calls["ContainerStatus"]),
	}
}

// TestCostOfALife holds the bounds of what a pod's life costs.
func TestCostOfALife(t *testing.T) {
	const grown = 90 * time.Second // the relist period
	for _, tt := range []struct {
		name  string
		takes latencies
		up    time.Duration
		pods  int
		apart time.Duration
		runs  time.Duration
		most  cost
	}{
		{
			"one by one", quick, grown, 20, 5 * time.Second, 2 * time.Second,
			cost{reads: 4.3, podLists: 0.1, lists: 0.5, statuses: 11.5},
		},
		{
			"five a second", quick, grown, 100, 200 * time.Millisecond, 3 * time.Second,
			cost{reads: 4.3, podLists: 0.1, lists: 0.5, statuses: 11.5},
		},
		{
			"a busy kubelet", quick.working(), grown, 100, 200 * time.Millisecond, 3 * time.Second,
			cost{reads: 4.3, podLists: 0.1, lists: 0.5, statuses: 11.5},
		},
		{
			"a saturated runtime", saturated, grown, 100, 300 * time.Millisecond, 8 * time.Second,
			cost{reads: 4.5, podLists: 0.2, lists: 1, statuses: 12},
		},
		{
			"on CRI-O", quick.muted(), grown, 100, 200 * time.Millisecond, 3 * time.Second,
			cost{reads: 4.3, podLists: 0.1, lists: 0.5, statuses: 11.5},
		},
		{
			"all at once, beside lists", crowded, time.Second, 20, 37 * time.Millisecond, 8 * time.Second,
			cost{reads: 4.3, podLists: 0.1, lists: 1, statuses: 11.5},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, n := live(t, tt.takes, tt.up, tt.pods, tt.apart, tt.runs)
				var why []string
				for name, k := range n.lists {
					if after, ok := strings.CutPrefix(name, MetricListsForwarded); ok {
						why = append(why, fmt.Sprintf("%s %d", after, k))
					}
				}
				t.Logf(
					"a life: %.2f reads, %.2f lists of the pod, %.2f list calls, %.2f status calls; forwarded: %v",
					c.reads,
					c.podLists,
					c.lists,
					c.statuses,
					why,
				)
				t.Logf("start to seen running: worst %v; end to seen: worst %v", worst(n.ready), worst(n.ended))
				if c.reads > tt.most.reads || c.podLists > tt.most.podLists || c.lists > tt.most.lists ||
					c.statuses > tt.most.statuses {
					t.Errorf("a life costs %+v, want at most %+v", c, tt.most)
				}
			})
		})
	}
}

// anyRuntime is a healthy runtime whose latencies nobody has chosen. From the first news of a pod
// to the end of its start it takes less than a burst of calls may, and an event comes sooner than
// its worker would miss it.
func anyRuntime(r *rand.Rand) latencies {
	between := func(least, most time.Duration) time.Duration { // each order of magnitude as often
		return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), r.Float64()))
	}
	return latencies{
		list:    between(time.Millisecond, 100*time.Millisecond),
		status:  between(200*time.Microsecond, 50*time.Millisecond),
		run:     between(50*time.Millisecond, 2500*time.Millisecond),
		create:  between(5*time.Millisecond, 800*time.Millisecond),
		start:   between(5*time.Millisecond, 1200*time.Millisecond),
		stop:    between(5*time.Millisecond, 800*time.Millisecond),
		remove:  between(5*time.Millisecond, 500*time.Millisecond),
		event:   between(100*time.Microsecond, 150*time.Millisecond),
		between: between(100*time.Microsecond, 100*time.Millisecond),
		answer:  between(100*time.Microsecond, 600*time.Millisecond),
		mute:    r.IntN(2) == 0,
	}
}

// TestCostOfALifeOnAnyRuntime holds the bounds of what a pod's life costs on runtimes of any
// latencies, under kubelets that have just come up or have been up for long.
func TestCostOfALifeOnAnyRuntime(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 60))
				takes := anyRuntime(r)
				up := []time.Duration{time.Second, 90 * time.Second}[r.IntN(2)]
				apart := time.Duration(20+r.IntN(2000)) * time.Millisecond
				runs := time.Duration(1000+r.IntN(7000)) * time.Millisecond
				c, n := live(t, takes, up, 20, apart, runs)
				t.Logf("%+v, up %v, apart %v, runs %v: %+v", takes, up, apart, runs, c)
				t.Logf("start to seen running: worst %v; end to seen: worst %v", worst(n.ready), worst(n.ended))
				most := cost{reads: 4.3, podLists: 0.3}
				if 2*takes.stop+takes.remove > 900*time.Millisecond {
					most.reads++ // the look a second after the end comes before the removal
				}
				if up < 90*time.Second {
					most.podLists++ // until a list has begun after the stream was connected
				}
				if c.reads > most.reads || c.podLists > most.podLists {
					t.Errorf("a life costs %+v, want at most %+v", c, most)
				}
			})
		})
	}
}

func worst(all []time.Duration) (w time.Duration) {
	for _, d := range all {
		w = max(w, d)
	}
	return w
}
