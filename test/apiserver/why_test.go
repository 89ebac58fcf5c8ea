// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// nodeAgent is the reporter of ends as pleg-agent has it, on a fake runtime.
type nodeAgent struct {
	t       *testing.T
	runtime *fakeruntime.Runtime
	// stop ends all of it in order.
	stop func()
}

// startNodeAgent starts an agent that records by the given rights.
func startNodeAgent(t *testing.T, c *cluster, token string) *nodeAgent {
	t.Helper()
	runtime := testkit.Must(fakeruntime.New(fakeruntime.Config{Seed: 1}))(t)
	listen := bufconn.Listen(1 << 16)
	client := testkit.Must(cri.New(cri.Config{
		Endpoint: "unix:///fake",
		Dialer:   func(ctx context.Context) (net.Conn, error) { return listen.DialContext(ctx) },
	}))(t)
	statuses := cache.New(cri.EmptyStatus)
	generator := testkit.Must(pleg.New(pleg.Config[cri.PodStatus]{
		Source: client,
		Stream: client,
		Cache:  statuses,
		Merge:  cri.KeepIPs,
	}))(t)
	broadcaster := testkit.Must(events.NewForClient(c.client(token), events.Options{Instance: "pleg-agent-node-1"}))(t)
	reporter := testkit.Must(exits.New(exits.Config[cri.PodStatus]{
		Generator: generator,
		Statuses:  statuses,
		View:      exits.FromCRI,
		Exit:      client.Exit,
		Recorder:  broadcaster.NewSeriesRecorder(nil, "pleg-agent"),
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	serving, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = runtime.Serve(serving, listen) })
	running.Go(func() { _ = generator.Run(ctx) })
	running.Go(func() { _ = reporter.Run(ctx) })
	testkit.Check(t, broadcaster.StartRecordingToSinkWithContext(serving))
	stop := sync.OnceFunc(func() {
		cancel()
		limit, done := context.WithTimeout(context.Background(), 20*time.Second)
		defer done()
		if err := broadcaster.ShutdownWithContext(limit); err != nil {
			t.Error(err)
		}
		end()
		runtime.Close()
		running.Wait()
		testkit.Check(t, client.Close())
	})
	t.Cleanup(stop)
	return &nodeAgent{t, runtime, stop}
}

// pod makes a sandbox for a pod of the API server.
func (a *nodeAgent) pod(pod *corev1.Pod) (sandbox string) {
	a.t.Helper()
	return testkit.Must(a.runtime.AddPod(fakeruntime.PodSpec{
		UID:       string(pod.UID),
		Namespace: pod.Namespace,
		Name:      pod.Name,
	}))(a.t)
}

// container starts a container, or the next attempt of one.
func (a *nodeAgent) container(sandbox string) (id string) {
	a.t.Helper()
	id = testkit.Must(a.runtime.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "app"}))(a.t)
	testkit.Check(a.t, a.runtime.Start(id))
	return id
}

// startKubelet starts the recorder of a kubelet.
func startKubelet(ctx context.Context, client kubernetes.Interface) (r record.EventRecorder, stop func()) {
	b := record.NewBroadcaster(record.WithContext(klog.NewContext(ctx, logr.Discard())))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: nodeName}), b.Shutdown
}

// kubeletReports records what a kubelet reports of each start of a container, and of the restart
// that waits.
func kubeletReports(kubelet record.EventRecorder, pod *corev1.Pod, again bool) {
	about := ref("Pod", pod.Namespace, pod.Name)
	about.UID = pod.UID
	about.FieldPath = "spec.containers{app}"
	if again {
		kubelet.Eventf(
			about,
			corev1.EventTypeWarning,
			"BackOff",
			"Back-off restarting failed container app in pod %s_%s(%s)",
			pod.Name,
			pod.Namespace,
			pod.UID,
		)
	}
	for _, e := range [][2]string{
		{"Pulled", "Container image \"app:1\" already present on machine"},
		{"Created", "Container created"},
		{"Started", "Container started"},
	} {
		kubelet.Event(about, corev1.EventTypeNormal, e[0], e[1])
	}
}

// TestWhyDidMyContainerDie: kubectl describe shows the code and the reason of each end beside a
// kubelet's own Events, which do not, with exact counts through an outage of the API server. The
// outage is short, in real time; package exits has those of minutes.
func TestWhyDidMyContainerDie(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	admin := c.client(adminToken)
	makeNamespace(t, admin, "shop")
	cart, worker := makePod(t, admin, "shop", "cart-0"), makePod(t, admin, "shop", "worker-5d9f7")
	agent := startNodeAgent(t, c, adminToken)
	kubelet, stopKubelet := startKubelet(t.Context(), admin)
	cartSandbox, workerSandbox := agent.pod(cart), agent.pod(worker)
	const rounds = 6
	for round := range rounds {
		kubeletReports(kubelet, cart, round > 0)
		kubeletReports(kubelet, worker, round > 0)
		leak, crash := agent.container(cartSandbox), agent.container(workerSandbox)
		time.Sleep(1500 * time.Millisecond)
		if round == 2 {
			testkit.Check(t, c.StopServer(syscall.SIGKILL))
		}
		testkit.Check(t, agent.runtime.OOMKill(leak, 20*time.Millisecond))
		testkit.Check(t, agent.runtime.Exit(crash, 1))
		time.Sleep(1500 * time.Millisecond)
		if round == 3 {
			c.startServer()
		}
	}
	want := map[string]string{"cart-0": string(exits.OOMKilled), "worker-5d9f7": string(exits.Failed)}
	for pod, reason := range want {
		eventually(t, "the ends of "+pod+" should be counted", func(ctx context.Context) (bool, string) {
			l, err := admin.EventsV1().Events("shop").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + pod + ",reason=" + reason})
			if err != nil || len(l.Items) != 1 || l.Items[0].Series == nil {
				return false, fmt.Sprint(len(l.Items), " Events ", err)
			}
			n := l.Items[0].Series.Count
			return n == rounds, fmt.Sprint(n, " of ", rounds)
		})
	}
	agent.stop()
	time.Sleep(12 * time.Second) // client-go's recorder tries again each 10 s
	stopKubelet()
	for pod, reason := range want {
		desc := describePod(t, admin, "shop", pod)
		var before strings.Builder
		for line := range strings.Lines(desc) {
			if !strings.Contains(line, "pleg-agent") {
				before.WriteString(line)
			}
		}
		t.Logf("kubectl describe pod %s, without the agent:\n%s\nwith it:\n%s", pod, before.String(), desc)
		for text, shown := range map[string]bool{before.String(): false, desc: true} {
			if strings.Contains(text, reason) != shown || strings.Contains(text, "exit code") != shown {
				t.Errorf("%s is to be shown: %v\n%s", reason, shown, text)
			}
		}
	}
}
