// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server with the controllers and kubelets that a Job needs. It is called in the
// process, so that a bubble of virtual time holds it. What a node does is the begin of its name.
type fakeAPI struct {
	mu       sync.Mutex // owns the fields below
	nodes    []core.Node
	job      *batch.Job
	pods     map[string]*core.Pod
	made     int
	watchers map[chan meta.WatchEvent]bool
	// placed counts the pods that each node got; most is the largest number of pods at work.
	placed  map[string]int
	most    int
	removed bool
	noPods  bool
	calls   map[string]int
	bytes   int
	logs    map[string]string
	life    sync.WaitGroup
	ended   context.Context
}

func newFakeAPI(ctx context.Context, names ...string) *fakeAPI {
	a := &fakeAPI{
		pods: make(map[string]*core.Pod), watchers: make(map[chan meta.WatchEvent]bool), placed: make(map[string]int), calls: make(map[string]int),
		logs: make(map[string]string), ended: ctx,
	}
	for _, name := range names {
		n := core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}}}
		n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
		a.nodes = append(a.nodes, n)
	}
	return a
}

func (a *fakeAPI) cluster(*runOptions) (cluster, error) {
	return newCluster(&rest.Config{Host: "http://api", Transport: a, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
}

// RoundTrip serves a request in a goroutine that ends with the body.
func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	body, writer := io.Pipe()
	w := &pipeResponse{header: make(http.Header), body: writer, ready: make(chan int, 1)}
	go func() {
		a.serve(w, r.WithContext(ctx))
		w.WriteHeader(http.StatusOK)
		_ = writer.Close()
	}()
	return &http.Response{StatusCode: <-w.ready, Header: w.header, Body: closing{body, cancel}, Request: r}, nil
}

type closing struct {
	*io.PipeReader
	cancel func()
}

func (c closing) Close() error {
	c.cancel()
	return c.PipeReader.Close()
}

type pipeResponse struct {
	header http.Header
	body   *io.PipeWriter
	ready  chan int
	sent   bool
}

func (w *pipeResponse) Header() http.Header { return w.header }
func (w *pipeResponse) WriteHeader(status int) {
	if !w.sent {
		w.sent = true
		w.ready <- status
	}
}
func (w *pipeResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (a *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1"), "/apis/batch/v1"), "/")[1:]
	if parts[0] == "namespaces" {
		parts = parts[2:]
	}
	call := r.Method + " " + parts[0]
	if r.URL.Query().Get("watch") != "" {
		call = "WATCH " + parts[0]
	}
	a.mu.Lock()
	a.calls[call+strings.Repeat("/x", len(parts)-1)]++
	a.mu.Unlock()
	if call == "WATCH pods" {
		a.watch(w, r)
		return
	}
	if len(parts) == 3 { // a log
		a.mu.Lock()
		text := a.logs[parts[1]]
		a.bytes += len(text)
		a.mu.Unlock()
		_, _ = io.WriteString(w, text)
		return
	}
	a.mu.Lock()
	answer := a.answer(call, parts, r)
	raw, err := json.Marshal(answer)
	a.bytes += len(raw)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status, ok := answer.(*meta.Status); ok && status.Code >= 400 || err != nil {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write(raw)
}

func (a *fakeAPI) answer(call string, parts []string, r *http.Request) any {
	notFound := &meta.Status{TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 404, Reason: meta.StatusReasonNotFound}
	done := &meta.Status{TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}
	switch call {
	case "GET nodes":
		if len(parts) == 2 {
			return &a.nodes[a.nodeAt(parts[1])]
		}
		selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
		list := &core.NodeList{TypeMeta: meta.TypeMeta{Kind: "NodeList", APIVersion: "v1"}}
		for _, n := range a.nodes {
			if selector.Matches(labels.Set(n.Labels)) {
				list.Items = append(list.Items, n)
			}
		}
		return list
	case "GET events":
		return &core.EventList{TypeMeta: meta.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []core.Event{{Reason: "FailedCreate", Message: "violates PodSecurity"}}}
	case "POST jobs":
		a.job = new(batch.Job)
		if json.NewDecoder(r.Body).Decode(a.job) != nil {
			return notFound
		}
		a.job.Name, a.job.UID = a.job.GenerateName+"x", types.UID("1")
		a.fill()
		return a.job
	case "GET jobs":
		if a.removed {
			return notFound
		}
		return a.job
	case "DELETE jobs":
		a.removed = true
		for _, p := range a.pods {
			a.remove(p)
		}
		return done
	case "PATCH pods":
		var patch struct{ Spec core.PodSpec }
		pod := a.pods[parts[1]]
		if json.NewDecoder(r.Body).Decode(&patch) != nil || pod == nil || len(patch.Spec.SchedulingGates) > 0 || r.Header.Get("Content-Type") != string(types.MergePatchType) {
			return notFound
		}
		terms := patch.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		pod.Spec.SchedulingGates, pod.Spec.NodeName = nil, terms[0].MatchFields[0].Values[0]
		a.placed[pod.Spec.NodeName]++
		a.most = max(a.most, a.active())
		a.changed(pod, "MODIFIED")
		a.life.Go(func() { a.live(pod.Name) })
		return pod
	case "DELETE pods":
		a.remove(a.pods[parts[1]])
		return done
	}
	return notFound
}

func (a *fakeAPI) nodeAt(name string) int {
	return slices.IndexFunc(a.nodes, func(n core.Node) bool { return n.Name == name })
}

func (a *fakeAPI) active() (n int) {
	for _, p := range a.pods {
		if p.Status.Phase != core.PodSucceeded && p.Status.Phase != core.PodFailed && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// fill makes the pods that the Job may have.
func (a *fakeAPI) fill() {
	for !a.noPods && !a.removed && a.made < int(*a.job.Spec.Completions) && a.active() < int(*a.job.Spec.Parallelism) {
		name := fmt.Sprintf("%s-%d", a.job.Name, a.made)
		pod := &core.Pod{TypeMeta: meta.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: *a.job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *a.job.Spec.Template.Spec.DeepCopy()}
		pod.Name, pod.Namespace, pod.Status.Phase = name, a.job.Namespace, core.PodPending
		pod.Annotations = map[string]string{batch.JobCompletionIndexAnnotation: strconv.Itoa(a.made)}
		a.made++
		a.pods[name] = pod
		a.changed(pod, "ADDED")
	}
}

// remove removes a pod, unless its node's kubelet is away.
func (a *fakeAPI) remove(pod *core.Pod) {
	if pod == nil {
		return
	}
	if n := a.nodeAt(pod.Spec.NodeName); n >= 0 && a.nodes[n].Status.Conditions[0].Status != core.ConditionTrue {
		pod.DeletionTimestamp = new(meta.Now())
		a.changed(pod, "MODIFIED")
	} else {
		delete(a.pods, pod.Name)
		a.changed(pod, "DELETED")
	}
	a.fill()
}

func (a *fakeAPI) changed(pod *core.Pod, kind string) {
	raw, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	a.bytes += len(raw) * len(a.watchers)
	for w := range a.watchers {
		w <- meta.WatchEvent{Type: kind, Object: rawObject(raw)}
	}
}

// watch streams the changes of pods, after the present ones if those are wanted.
func (a *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan meta.WatchEvent, 10_000)
	a.mu.Lock()
	for _, p := range a.pods {
		raw, _ := json.Marshal(p)
		events <- meta.WatchEvent{Type: "ADDED", Object: rawObject(raw)}
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		events <- meta.WatchEvent{Type: "BOOKMARK", Object: rawObject([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}`))}
	}
	a.watchers[events] = true
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for {
		select {
		case e := <-events:
			if encoder.Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			a.mu.Lock()
			delete(a.watchers, events)
			a.mu.Unlock()
			return
		}
	}
}

// update changes a pod that is still there.
func (a *fakeAPI) update(name string, set func(p *core.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[name]; p != nil {
		set(p)
		a.changed(p, "MODIFIED")
		a.fill()
	}
}

// after waits, and reports whether the world still turns.
func (a *fakeAPI) after(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-a.ended.Done():
		return false
	}
}

// live is the life of a pod on its node.
func (a *fakeAPI) live(name string) {
	a.mu.Lock()
	node := a.pods[name].Spec.NodeName
	a.mu.Unlock()
	kind, _, _ := strings.Cut(node, "-")
	state := func(ready bool, s core.ContainerState) func(*core.Pod) {
		return func(p *core.Pod) {
			p.Status.Phase = map[bool]core.PodPhase{true: core.PodPending, false: core.PodRunning}[s.Waiting != nil]
			p.Status.ContainerStatuses = []core.ContainerStatus{{State: s}}
			status := map[bool]core.ConditionStatus{true: core.ConditionTrue, false: core.ConditionFalse}[ready]
			p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: status}}
		}
	}
	running := core.ContainerState{Running: &core.ContainerStateRunning{}}
	if kind == "pulls" {
		a.update(name, state(false, core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}))
		return
	}
	if !a.after(2 * time.Second) {
		return
	}
	a.update(name, state(true, running))
	kubelet := func(up core.ConditionStatus) {
		a.mu.Lock()
		a.nodes[a.nodeAt(node)].Status.Conditions[0] = core.NodeCondition{Type: core.NodeReady, Status: up, LastTransitionTime: meta.Now()}
		a.mu.Unlock()
		a.update(name, state(up == core.ConditionTrue, running))
	}
	if kind == "dead" || kind == "back" {
		if !a.after(12 * time.Second) {
			return
		}
		kubelet(core.ConditionUnknown)
		if kind == "dead" || !a.after(15*time.Second) {
			return
		}
		kubelet(core.ConditionTrue)
	}
	if kind == "hangs" || !a.after(20*time.Second) {
		return
	}
	phase := core.PodSucceeded
	if kind != "good" && kind != "back" {
		phase = core.PodFailed
	}
	a.mu.Lock()
	a.logs[name] = logOf(kind, node)
	a.mu.Unlock()
	a.update(name, func(p *core.Pod) { p.Status.Phase = phase })
}
