// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	fakebatch "k8s.io/client-go/kubernetes/typed/batch/v1/fake"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	fakecore "k8s.io/client-go/kubernetes/typed/core/v1/fake"
	"k8s.io/client-go/rest"
	kubetest "k8s.io/client-go/testing"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// asProgram is the variable with which this test binary is the program.
const asProgram = "PLEG_BENCH_FLEET_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Setenv("KUBE_FEATURE_WatchListClient", "false") // client-go's fake has none
	os.Exit(m.Run())
}

// fakeAPI is client-go's fake with the controllers and kubelets that a Job needs. What a node does
// is the begin of its name. It is made of the fakes of two groups: client-go's fake of all has 54
// more, which take longer to compile than the rest of this command.
type fakeAPI struct {
	// venom is in messages and logs.
	venom string
	kubetest.Fake
	objects kubetest.ObjectTracker
	mu      sync.Mutex // owns the fields below
	job     *batch.Job
	made    int
	// placed counts the pods that each node got; most is the largest number of pods at work.
	placed  map[string]int
	most    int
	removed bool
	noPods  bool
	// forbidden refuses the configuration of every kubelet.
	forbidden bool
	logs      map[string]string
	asking    sync.Mutex // owns asked, the pod whose log is read
	asked     string
	life      sync.WaitGroup
	ended     context.Context
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
	objects := kubetest.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	a := &fakeAPI{objects: objects, placed: make(map[string]int), logs: make(map[string]string), ended: ctx}
	a.AddReactor("*", "*", kubetest.ObjectReaction(objects))
	a.AddWatchReactor("*", func(action kubetest.Action) (bool, watch.Interface, error) {
		w, err := objects.Watch(action.GetResource(), action.GetNamespace())
		return true, w, err
	})
	for _, name := range names {
		n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"pool": "a"}}}
		n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
		must(a.objects.Add(n))
	}
	must(a.objects.Add(&core.Event{ObjectMeta: meta.ObjectMeta{Name: "e", Namespace: "default"}, Reason: "FailedCreate", Message: "violates PodSecurity"}))
	react := func(verb, resource string, f func(kubetest.Action) (runtime.Object, error)) {
		a.PrependReactor(verb, resource, func(action kubetest.Action) (bool, runtime.Object, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			o, err := f(action)
			return true, o, err
		})
	}
	react("create", "jobs", func(action kubetest.Action) (runtime.Object, error) {
		a.job = action.(kubetest.CreateAction).GetObject().(*batch.Job).DeepCopy()
		a.job.Name = a.job.GenerateName + "x"
		a.fill()
		return a.job.DeepCopy(), nil
	})
	react("get", "jobs", func(kubetest.Action) (runtime.Object, error) {
		if a.removed {
			return nil, kubeerrors.NewNotFound(batch.Resource("jobs"), "x")
		}
		return a.job.DeepCopy(), nil
	})
	react("delete", "jobs", func(kubetest.Action) (runtime.Object, error) {
		a.removed = true
		for _, p := range a.pods() {
			a.remove(&p)
		}
		return nil, nil
	})
	react("patch", "pods", func(action kubetest.Action) (runtime.Object, error) {
		_, o, err := kubetest.ObjectReaction(a.objects)(action)
		if err != nil {
			return nil, err
		}
		pod := o.(*core.Pod)
		terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if len(pod.Spec.SchedulingGates) > 0 {
			panic("a pod with a node is gated")
		}
		pod.Spec.NodeName = terms[0].MatchFields[0].Values[0]
		must(a.objects.Update(podResource, pod, pod.Namespace))
		a.placed[pod.Spec.NodeName]++
		a.most = max(a.most, a.active())
		a.life.Go(func() { a.live(pod.Name, pod.Spec.NodeName) })
		return pod, nil
	})
	react("delete", "pods", func(action kubetest.Action) (runtime.Object, error) {
		if p := a.pod(action.(kubetest.DeleteAction).GetName()); p != nil {
			a.remove(p)
		}
		return nil, nil
	})
	react("get", "pods/log", func(kubetest.Action) (runtime.Object, error) {
		return &runtime.Unknown{Raw: []byte(a.logs[a.asked])}, nil
	})
	return a
}

// CoreV1 is the client of the core group.
func (a *fakeAPI) CoreV1() coreclient.CoreV1Interface { return &fakecore.FakeCoreV1{Fake: &a.Fake} }

func (a *fakeAPI) cluster(*runOptions) (cluster, error) {
	return cluster{core: fakeCore{a.CoreV1(), a}, batch: &fakebatch.FakeBatchV1{Fake: &a.Fake}, configz: a.configz}, nil
}

// configz is a kubelet's configuration by the name of its node, as the kubelets 1.36.3 and 1.37.1
// write it.
func (a *fakeAPI) configz(_ context.Context, node string) ([]byte, error) {
	switch {
	case a.forbidden:
		return nil, kubeerrors.NewForbidden(core.Resource("nodes/proxy"), node, errors.New("no rule"))
	case strings.HasPrefix(node, "strange"):
		return []byte("<html>"), nil
	}
	socket := "unix:///run/containerd/containerd.sock"
	if strings.HasPrefix(node, "same") {
		socket = "unix:///var/run/own/x.sock"
	}
	return fmt.Appendf(nil, `{"kubeletconfig":{"enableServer":true,"containerRuntimeEndpoint":%q,"imageServiceEndpoint":""}}`, socket), nil
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

// pods returns the Job's pods.
func (a *fakeAPI) pods() []core.Pod {
	list, err := a.objects.List(podResource, core.SchemeGroupVersion.WithKind("Pod"), "default")
	must(err)
	return list.(*core.PodList).Items
}

// pod returns a pod, or nil.
func (a *fakeAPI) pod(name string) *core.Pod {
	o, err := a.objects.Get(podResource, "default", name)
	if err != nil {
		return nil
	}
	return o.(*core.Pod)
}

// node returns a node, after a change if there is one.
func (a *fakeAPI) node(name string, change func(*core.Node)) *core.Node {
	o, err := a.objects.Get(nodeResource, "", name)
	must(err)
	n := o.(*core.Node)
	if change != nil {
		change(n)
		must(a.objects.Update(nodeResource, n, ""))
	}
	return n
}

func (a *fakeAPI) active() (n int) {
	for _, p := range a.pods() {
		if p.Status.Phase != core.PodSucceeded && p.Status.Phase != core.PodFailed && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// fill makes the pods that the Job may have.
func (a *fakeAPI) fill() {
	for !a.noPods && !a.removed && a.made < int(*a.job.Spec.Completions) && a.active() < int(*a.job.Spec.Parallelism) {
		pod := &core.Pod{ObjectMeta: *a.job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *a.job.Spec.Template.Spec.DeepCopy()}
		pod.Name, pod.Namespace, pod.Status.Phase = fmt.Sprintf("%s-%d", a.job.Name, a.made), a.job.Namespace, core.PodPending
		pod.Labels[batch.JobNameLabel] = a.job.Name
		pod.Annotations = map[string]string{batch.JobCompletionIndexAnnotation: strconv.Itoa(a.made)}
		a.made++
		must(a.objects.Add(pod))
	}
}

// remove removes a pod, unless its node's kubelet is away.
func (a *fakeAPI) remove(pod *core.Pod) {
	if node := pod.Spec.NodeName; node != "" && a.node(node, nil).Status.Conditions[0].Status != core.ConditionTrue {
		pod.DeletionTimestamp = new(meta.Now())
		must(a.objects.Update(podResource, pod, pod.Namespace))
	} else {
		must(a.objects.Delete(podResource, pod.Namespace, pod.Name))
	}
	a.fill()
}

// update changes a pod that is still there.
func (a *fakeAPI) update(name string, set func(p *core.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pod(name); p != nil {
		set(p)
		must(a.objects.Update(podResource, p, p.Namespace))
		a.fill()
	}
}

// live is the life of a pod on its node.
func (a *fakeAPI) live(name, node string) {
	kind, _, _ := strings.Cut(node, "-")
	if kind == "pulls" {
		waiting := core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image" + a.venom}}
		a.update(name, func(p *core.Pod) { p.Status.ContainerStatuses = []core.ContainerStatus{{State: waiting}} })
		return
	}
	if bench.Sleep(a.ended, 2*time.Second) != nil {
		return
	}
	a.update(name, func(p *core.Pod) { p.Status.Phase = core.PodRunning })
	if kind == "dead" && bench.Sleep(a.ended, 12*time.Second) == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.node(node, func(n *core.Node) {
			n.Status.Conditions[0] = core.NodeCondition{Type: core.NodeReady, Status: core.ConditionUnknown, LastTransitionTime: meta.Now()}
		})
		return
	}
	if kind == "hangs" || bench.Sleep(a.ended, 20*time.Second) != nil {
		return
	}
	phase := core.PodSucceeded
	if kind != "good" {
		phase = core.PodFailed
	}
	a.mu.Lock()
	a.logs[name] = logOf(kind, node, a.venom)
	a.mu.Unlock()
	a.update(name, func(p *core.Pod) { p.Status.Phase = phase })
}
