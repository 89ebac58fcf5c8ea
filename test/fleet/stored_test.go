// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
	"github.com/evented-pleg/evented-pleg/test/kubelet/machine"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// measured names runtimes that are built for every test here; the default are those of the cluster.
var measured = flag.String(
	"measured",
	"containerd-2.4,crio",
	"runtimes of TestStored, separated by commas, or all",
)

// allMeasured are all of them.
const allMeasured = "containerd-2.4,containerd-1.7,crio"

// Ends of a run of TestStored: all fit into the burst of a namespace, so that each has an Event.
const (
	measuredPods       = 10
	measuredContainers = 10
)

// TestStored measures the time from the end of a container, by the runtime's stamp, to its Event
// in a watch at a kube-apiserver, under an agent on each of some runtimes. Each end is stored once.
func TestStored(t *testing.T) {
	var p programs
	testkit.Check(t, json.Unmarshal([]byte(os.Getenv(envPrograms)), &p))
	testkit.Check(t, machine.IP("link set lo up"))
	dir := filepath.Join(unshare.Dir(), "plane")
	testkit.Check(t, os.Mkdir(dir, 0o755))
	plane := testkit.Must(control.Start(t.Context(), control.Config{Binaries: p.Kube, Dir: dir, Address: "127.0.0.1"}))(t)
	t.Cleanup(plane.Close)
	for i, name := range slices.Sorted(maps.Keys(p.Measured)) {
		t.Run(name, func(t *testing.T) {
			m := storing{
				T:     t,
				plane: plane,
				agent: p.Agent,
				dir:   filepath.Join(unshare.Dir(), fmt.Sprint("m", i)),
			}
			m.start(p.Measured[name])
			took := m.measure()
			q := bench.Summarize(took)
			t.Logf("from the end to the stored Event on %s: p50 %s, p99 %s, at most %s (%d ends)",
				name, bench.Short(q.P50), bench.Short(q.P99), bench.Short(q.Max), q.Count)
		})
	}
}

// storing is an agent on a runtime, beside an API server.
type storing struct {
	*testing.T
	plane *control.Plane
	agent string
	dir   string

	client *crikit.Client
}

// start starts the runtime and the agent. They end with the test.
func (m *storing) start(set components.Set) {
	testkit.Check(m, os.Mkdir(m.dir, 0o755))
	d := testkit.Must(daemon.New(daemon.Config{Base: m.dir, Components: set, Image: image.DefaultRef}))(m)
	testkit.Check(m, d.Start(m.Context()))
	namespace := filepath.Base(m.dir)
	_, err := m.plane.CoreV1().Namespaces().Create(m.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	testkit.Check(m, err)
	m.client = testkit.Must(crikit.Dial(crikit.Options{
		Endpoint:     d.Endpoint(),
		Image:        image.DefaultRef,
		CgroupParent: "/" + namespace,
		Namespace:    namespace,
	}))(m)
	cmd := exec.Command(
		m.agent,
		"--endpoint",
		d.Endpoint(),
		"--kubeconfig",
		m.plane.Kubeconfig,
		"--node",
		namespace,
		"--node-events=false",
		"--state",
		filepath.Join(m.dir, "reported.json"),
	)
	agent := testkit.Must(control.Spawn(cmd, filepath.Join(m.dir, "agent.log")))(m)
	m.Cleanup(func() {
		testkit.Check(m, agent.Stop(30*time.Second))
		log, _ := os.ReadFile(filepath.Join(m.dir, "agent.log"))
		m.Logf("the agent's log:\n%s", log)
		ctx := context.WithoutCancel(m.Context())
		testkit.Check(m, errors.Join(m.client.RemoveAll(ctx), m.client.Close(), d.Stop(ctx, syscall.SIGTERM)))
	})
}

// measure ends containers one after the other, and returns the times to their Events.
func (m *storing) measure() (took []time.Duration) {
	access := m.plane.Access(control.Admin)
	access.Timeout = 0 // that of calls, which would end the watch
	client := testkit.Must(v1.NewForConfig(access))(m)
	events := testkit.Must(client.Events(m.client.Namespace).Watch(m.Context(), metav1.ListOptions{}))(m)
	defer events.Stop()
	for n := range measuredPods {
		name := fmt.Sprint("p", n)
		pod := testkit.Must(m.client.RunPod(m.Context(), m.client.Namespace+"-"+name, name, 0))(m)
		for i := range measuredContainers {
			id := testkit.Must(m.client.CreateAndStart(m.Context(), pod, crikit.Spec{Name: fmt.Sprint("c", i), Args: []string{"exit", "1"}}))(m)
			took = append(took, m.await(events, id))
		}
	}
	return took
}

// await waits for the Event of the end of a container.
func (m *storing) await(events watch.Interface, id string) time.Duration {
	limit := time.After(time.Minute)
	for {
		select {
		case change := <-events.ResultChan():
			at := time.Now()
			e, ok := change.Object.(*eventsv1.Event)
			if !ok || change.Type != watch.Added || e.Annotations["exits.evented-pleg.io/id"] != id {
				m.Fatalf("want the Event of %s, got %s %+v", id, change.Type, change.Object)
			}
			return at.Sub(
				testkit.Must(time.Parse(time.RFC3339Nano, e.Annotations[exits.AnnotationFinishedAt]))(m),
			)
		case <-limit:
			m.Fatalf("in a minute no Event of %s", id)
		}
	}
}
