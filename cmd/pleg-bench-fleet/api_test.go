// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	kubetest "k8s.io/client-go/testing"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

func TestMain(m *testing.M) {
	os.Setenv("KUBE_FEATURE_WatchListClient", "false") // client-go's fake has none
	os.Exit(m.Run())
}

// fakeAPI is client-go's fake with kubelets. What a node does is the begin of its name.
type fakeAPI struct {
	*fake.Clientset
	mu sync.Mutex // owns the fields below
	// placed counts the pods that each node got; most is the largest number of pods at work.
	placed map[string]int
	most   int
	logs   map[string]string
	asking sync.Mutex // owns asked, the pod whose log is read
	asked  string
	life   sync.WaitGroup
	ended  context.Context
}

var (
	podResource  = core.SchemeGroupVersion.WithResource("pods")
	nodeResource = core.SchemeGroupVersion.WithResource("nodes")
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newFakeAPI(ctx context.Context, names ...string) *fakeAPI {
	a := &fakeAPI{Clientset: fake.NewClientset(), placed: make(map[string]int), logs: make(map[string]string), ended: ctx}
	for _, name := range names {
		n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}}}
		n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
		must(a.Tracker().Add(n))
	}
	react := func(verb, resource string, f func(kubetest.Action) (runtime.Object, error)) {
		a.PrependReactor(verb, resource, func(action kubetest.Action) (bool, runtime.Object, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			o, err := f(action)
			return true, o, err
		})
	}
	react("create", "pods", func(action kubetest.Action) (runtime.Object, error) {
		pod := action.(kubetest.CreateAction).GetObject().(*core.Pod).DeepCopy()
		node := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		if strings.HasPrefix(node, "forbids") {
			return nil, kubeerrors.NewForbidden(core.Resource("pods"), "", fmt.Errorf("violates PodSecurity"))
		}
		pod.Name, pod.Spec.NodeName, pod.Status.Phase = pod.GenerateName+node, node, core.PodPending
		must(a.Tracker().Add(pod))
		a.placed[node]++
		a.most = max(a.most, len(a.pods()))
		a.life.Go(func() { a.live(pod.Name, node) })
		return pod, nil
	})
	react("delete", "pods", func(action kubetest.Action) (runtime.Object, error) {
		name := action.(kubetest.DeleteAction).GetName()
		if p := a.pod(name); p == nil || a.node(p.Spec.NodeName, nil).Status.Conditions[0].Status == core.ConditionTrue {
			return nil, a.Tracker().Delete(podResource, "default", name)
		}
		return nil, nil // its kubelet is away
	})
	react("get", "pods/log", func(kubetest.Action) (runtime.Object, error) {
		return &runtime.Unknown{Raw: []byte(a.logs[a.asked])}, nil
	})
	return a
}

func (a *fakeAPI) connect(*runOptions) (coreclient.CoreV1Interface, error) {
	return fakeCore{a.CoreV1(), a}, nil
}

// fakeCore and fakePods remember whose log is read: the fake's action has no name.
type fakeCore struct {
	coreclient.CoreV1Interface
	a *fakeAPI
}

type fakePods struct {
	coreclient.PodInterface
	a *fakeAPI
}

func (c fakeCore) Pods(namespace string) coreclient.PodInterface {
	return fakePods{c.CoreV1Interface.Pods(namespace), c.a}
}

func (p fakePods) GetLogs(name string, o *core.PodLogOptions) *rest.Request {
	p.a.asking.Lock()
	defer p.a.asking.Unlock()
	p.a.asked = name
	return p.PodInterface.GetLogs(name, o)
}

// pods returns the pods of the load.
func (a *fakeAPI) pods() []core.Pod {
	list, err := a.Tracker().List(podResource, core.SchemeGroupVersion.WithKind("Pod"), "default")
	must(err)
	return list.(*core.PodList).Items
}

// pod returns a pod, or nil.
func (a *fakeAPI) pod(name string) *core.Pod {
	o, err := a.Tracker().Get(podResource, "default", name)
	if err != nil {
		return nil
	}
	return o.(*core.Pod)
}

// node returns a node, after a change if there is one.
func (a *fakeAPI) node(name string, change func(*core.Node)) *core.Node {
	o, err := a.Tracker().Get(nodeResource, "", name)
	must(err)
	n := o.(*core.Node)
	if change != nil {
		change(n)
		must(a.Tracker().Update(nodeResource, n, ""))
	}
	return n
}

// update changes a pod that is still there.
func (a *fakeAPI) update(name string, set func(s *core.PodStatus)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pod(name); p != nil {
		set(&p.Status)
		must(a.Tracker().Update(podResource, p, p.Namespace))
	}
}

// live is the life of a pod on its node.
func (a *fakeAPI) live(name, node string) {
	kind, _, _ := strings.Cut(node, "-")
	if kind == "pulls" {
		waiting := core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}
		a.update(name, func(s *core.PodStatus) { s.ContainerStatuses = []core.ContainerStatus{{State: waiting}} })
		return
	}
	if bench.Sleep(a.ended, 2*time.Second) != nil {
		return
	}
	a.update(name, func(s *core.PodStatus) { s.Phase = core.PodRunning })
	if kind == "dead" && bench.Sleep(a.ended, 12*time.Second) == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.node(node, func(n *core.Node) { n.Status.Conditions[0].Status = core.ConditionUnknown })
		return
	}
	if kind == "hangs" || bench.Sleep(a.ended, 20*time.Second) != nil {
		return
	}
	a.mu.Lock()
	a.logs[name] = logOf(kind, node)
	a.mu.Unlock()
	a.update(name, func(s *core.PodStatus) {
		s.Phase = map[bool]core.PodPhase{true: core.PodSucceeded, false: core.PodFailed}[kind == "good"]
	})
}
