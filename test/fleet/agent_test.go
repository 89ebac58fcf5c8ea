// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// outage is how long the API server is away: five minutes by make test-fleet-agent.
var outage = flag.Duration("outage", 15*time.Second, "how long the API server is away under the agents")

// Namespaces of the pods that end, and of deploy/agent.
const (
	shop            = "shop"
	agentsNamespace = "pleg-agent"
)

// agentController is the reporting controller of the agents' Events.
const agentController = "pleg-agent"

// TestAgent deploys the agent of deploy/agent alone on the cluster of TestFleet: on n1 and n2 with
// containerd and the role of the base, on n3 with CRI-O and a role for events.k8s.io only. The
// events of exits of n2 are dropped. Pods end in many ways, before the agents and under them, and
// while the API server is away: kubectl shows each end, with its code, once, with exact counts.
func TestAgent(t *testing.T) {
	c := newCluster(t)
	c.startPrometheus()
	c.without()
	c.with()
	c.do("drop the exits of n2", c.nodes[1].command(dropExits))
	c.reported()
	c.outage(*outage)
}

// tool is a container of the image with the workload.
func tool(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: image.DefaultRef, ImagePullPolicy: corev1.PullNever, Args: args}
}

// onNode is a pod of the shop, by the number of its node.
func (c *cluster) onNode(name string, node int, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: fmt.Sprintf("%s-%d", name, node)},
		Spec: corev1.PodSpec{
			NodeName:                     c.nodes[node].Name,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			DNSPolicy:                    corev1.DNSDefault,
			Containers:                   containers,
		},
	}
}

// Containers that a kubelet stops by SIGTERM: it reports Killing, and the agent nothing.
const (
	sidecar = "proxy"
	probed  = "probed"
)

// loops are pods whose containers end again and again: for lack of memory, with a code, and by a
// kubelet whose probe fails.
func (c *cluster) loops() (pods []*corev1.Pod) {
	greedy := tool("app", "eat", "64")
	greedy.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("20Mi")}
	sick := tool(probed, "sleep", "1h")
	sick.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{image.Entrypoint, "exit", "1"}},
		},
		InitialDelaySeconds: 1,
		PeriodSeconds:       1,
		FailureThreshold:    2,
	}
	for node := range c.nodes {
		pods = append(pods,
			c.onNode("cart", node, greedy),
			c.onNode("worker", node, tool("app", "sleep", "2s", "1")),
			c.onNode("sick", node, sick))
	}
	return pods
}

// setups are pods with an init container that fails once and is retried, and a sidecar, which ends
// after the main container.
func (c *cluster) setups() (pods []*corev1.Pod) {
	migrate := tool("migrate", "fails", "1", "7", "/state/runs")
	migrate.VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
	proxy := tool(sidecar, "sleep", "1h")
	proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	for node := range c.nodes {
		pod := c.onNode("setup", node, tool("app", "sleep", "2s"))
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		pod.Spec.InitContainers = []corev1.Container{migrate, proxy}
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		pods = append(pods, pod)
	}
	return pods
}

// crowds are pods whose containers end one after the other within a time, each once, with a code
// of its own.
func (c *cluster) crowds(within time.Duration) (pods []*corev1.Pod) {
	const containers = 10
	for node := range c.nodes {
		var all []corev1.Container
		for i := range containers {
			after := crowdAhead + within*time.Duration(i)/containers
			all = append(all, tool(fmt.Sprint("c", i), "sleep", after.String(), fmt.Sprint(i+1)))
		}
		pod := c.onNode("crowd", node, all...)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pods = append(pods, pod)
	}
	return pods
}

// crowdAhead is the time from the start of a crowd's first container to its end.
const crowdAhead = 5 * time.Second

// create makes pods of the shop, once the default account is there.
func (c *cluster) create(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		_, err := c.CoreV1().Pods(shop).Create(c.t.Context(), pod, metav1.CreateOptions{})
		c.do("make the pod "+pod.Name, err)
	}
}

// without makes pods that loop, without the agent.
func (c *cluster) without() {
	c.kubectl("create", "namespace", shop)
	c.kubectl("--namespace", shop, "wait", "--for=create", "--timeout=30s", "serviceaccount/default")
	c.create(c.loops()...)
}

// with keeps what kubectl shows of the pods without the agent, deploys it, and makes the pods anew.
func (c *cluster) with() {
	c.await("the pods loop without the agent", func(ctx context.Context) error {
		for _, pod := range c.pods(ctx) {
			if ended(&pod) < 2 {
				return fmt.Errorf("%s has ended once at most: %+v", pod.Name, pod.Status.ContainerStatuses)
			}
		}
		return nil
	})
	for _, pod := range c.loops() {
		if text := c.describe("before", pod.Name); strings.Contains(text, agentController) || strings.Contains(text, "exit code") {
			c.t.Errorf("without the agent, kubectl shows\n%s", text)
		}
	}
	c.kubectl("--namespace", shop, "delete", "pods", "--all", "--now", "--wait=false")
	c.applyAgent("base", "containerd", "")
	// The new group only: the first rule is that of the core group.
	c.applyAgent("crio", "cri-o", `nameSuffix: -crio
labels: [{includeSelectors: true, pairs: {app.kubernetes.io/instance: crio}}]
`, `- target: {kind: ClusterRole}
  patch: |-
    - {op: test, path: /rules/0/apiGroups/0, value: ""}
    - {op: remove, path: /rules/0}
`)
	for _, name := range []string{"pleg-agent", "pleg-agent-crio"} {
		c.kubectl("--namespace", agentsNamespace, "rollout", "status", "daemonset/"+name, "--timeout=2m")
	}
	list, err := c.CoreV1().Pods(agentsNamespace).List(c.t.Context(), metav1.ListOptions{})
	c.do("list the agents", err)
	if len(list.Items) != len(c.nodes) {
		c.fatalf("there are %d agents, want one on each node", len(list.Items))
	}
	c.scrape("pleg-agent", 9465, list.Items)
	c.step("a ready agent on each node")
	c.await("the pods are gone", func(ctx context.Context) error {
		if left := c.pods(ctx); len(left) > 0 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
	c.create(append(c.loops(), c.setups()...)...)
}

// applyAgent applies a folder of deploy/agent to the nodes with a runtime. The cluster has no
// kube-proxy, so the agents have the API server's own address. The priority of the base wants an
// oom_score_adj below the machine's, which takes a capability that the test may lack.
func (c *cluster) applyAgent(folder, runtime, lines string, patches ...string) {
	server, err := url.Parse(c.Access("").Host)
	c.do("read the server's address", err)
	dir := filepath.Join(c.dir, "agent", folder)
	overlay, err := filepath.Rel(dir, filepath.Join(c.Root, "deploy/agent", folder))
	c.do("name the overlay", err)
	text := fmt.Sprintf(`resources: [%s]
%spatches:
- patch: |-
    apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: pleg-agent, namespace: pleg-agent}
    spec:
      template:
        spec:
          nodeSelector: {runtime: %s}
          priorityClassName: system-cluster-critical
          containers:
          - name: agent
            env: [{name: KUBERNETES_SERVICE_HOST, value: %q}, {name: KUBERNETES_SERVICE_PORT, value: %q}]
%s`, overlay, lines, runtime, server.Hostname(), server.Port(), strings.Join(patches, ""))
	c.do(
		"write the overlay",
		errors.Join(
			os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644),
		),
	)
	c.kubectl("apply", "--server-side", "--validate=strict", "-k", dir)
}

// pods lists the pods of the shop.
func (c *cluster) pods(ctx context.Context) []corev1.Pod {
	c.t.Helper()
	list, err := c.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
	c.do("list the pods", err)
	return list.Items
}

// ends returns the number of a container's ends, by the kubelet.
func ends(status *corev1.ContainerStatus) int {
	n := int(status.RestartCount)
	if status.State.Terminated != nil ||
		status.State.Waiting != nil && status.LastTerminationState.Terminated != nil {
		n++
	}
	return n
}

// ended returns the number of the ends of a pod's containers.
func ended(pod *corev1.Pod) (n int) {
	for i := range pod.Status.ContainerStatuses {
		n += ends(&pod.Status.ContainerStatuses[i])
	}
	return n
}

// container is a container of a pod.
type container struct{ pod, name string }

// told is the Events of the agents about one container, of one pod of its name.
type told struct {
	ends   int // the sum of the counts
	events []eventsv1.Event
}

// told returns the Events of the agents about the shop's pods.
func (c *cluster) told(ctx context.Context) (map[container]told, error) {
	list, err := c.EventsV1().Events(shop).List(ctx, metav1.ListOptions{FieldSelector: "reportingController=" + agentController})
	if err != nil {
		return nil, err
	}
	all := make(map[container]told)
	for _, e := range list.Items {
		if e.Annotations["exits.evented-pleg.io/id"] == "" {
			continue // of the generator, about itself: a pod's status that could not be read
		}
		name, ok := strings.CutPrefix(strings.TrimSuffix(e.Regarding.FieldPath, "}"), "spec.containers{")
		if !ok {
			return nil, fmt.Errorf("an Event about no container: %+v", e)
		}
		key := container{string(e.Regarding.UID), name}
		x := all[key]
		x.events = append(x.events, e)
		if e.Series == nil {
			x.ends++
		} else {
			x.ends += int(e.Series.Count)
		}
		all[key] = x
	}
	return all, nil
}

// exact returns an error unless the agents have told exactly the ends that the kubelets count, but
// those by SIGTERM.
func (c *cluster) exact(ctx context.Context) (total int, err error) {
	told, err := c.told(ctx)
	if err != nil {
		return 0, err
	}
	var wrong []error
	for _, pod := range c.pods(ctx) {
		statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
		if len(statuses) == 0 {
			wrong = append(wrong, fmt.Errorf("%s has no statuses", pod.Name))
		}
		for i := range statuses {
			want := ends(&statuses[i])
			if name := statuses[i].Name; name == sidecar || name == probed {
				want = 0
			}
			got := told[container{string(pod.UID), statuses[i].Name}].ends
			if got != want {
				wrong = append(
					wrong,
					fmt.Errorf("%s/%s: %d ends told of %d", pod.Name, statuses[i].Name, got, want),
				)
			}
			total += got
		}
	}
	return total, errors.Join(wrong...)
}

// describe returns what kubectl shows of a pod and its Events, and keeps it in build/fleet/why.
func (c *cluster) describe(when, pod string) (events string) {
	c.t.Helper()
	description := c.kubectl("--namespace", shop, "describe", "pod", pod)
	listed := c.kubectl("--namespace", shop, "events", "--for=pod/"+pod)
	dir := filepath.Join(c.Root, "build/fleet/why")
	text := "$ kubectl describe pod " + pod + "\n" + description + "\n$ kubectl events --for=pod/" + pod + "\n" + listed
	c.do(
		"keep what kubectl shows",
		errors.Join(
			os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, when+"-"+pod+".txt"), []byte(text), 0o644),
		),
	)
	_, described, ok := strings.Cut(description, "\nEvents:")
	if !ok {
		c.t.Errorf("kubectl describe shows no Events:\n%s", description)
	}
	return described + listed
}

// reported checks what the agents report while all is well.
func (c *cluster) reported() {
	c.await("each end is told once, with exact counts", func(ctx context.Context) error {
		for _, pod := range c.pods(ctx) {
			if strings.HasPrefix(pod.Name, "setup-") && pod.Status.Phase != corev1.PodSucceeded {
				return fmt.Errorf("%s is %s", pod.Name, pod.Status.Phase)
			}
			if strings.HasPrefix(pod.Name, "cart-") && ended(&pod) < 3 {
				return fmt.Errorf("%s has not ended three times", pod.Name)
			}
		}
		_, err := c.exact(ctx)
		return err
	})
	c.await("kubectl describe node shows that the events of n2 are missed", func(context.Context) error {
		text := c.kubectl("describe", "node", c.nodes[1].Name)
		_, events, _ := strings.Cut(text, "\nEvents:")
		if !strings.Contains(events, "ContainerEventsMissed") || !strings.Contains(events, agentController) {
			return fmt.Errorf("it shows %s", events)
		}
		return nil
	})
	c.await("the alert on OOM kills names the shop", func(ctx context.Context) error {
		answer, err := c.ask(ctx, `ALERTS{alertname="ContainersOOMKilled",alertstate="firing"}`)
		if err != nil || len(answer) != 1 || answer[0].Metric["namespace"] != shop {
			return fmt.Errorf("firing: %v (%w)", answer, err)
		}
		return nil
	})
	refused, err := c.query(c.t.Context(), `{__name__=~"event_recorder_rejections_total"} > 0`)
	c.do("look for refused Events", err)
	if len(refused) > 0 {
		c.t.Errorf("Events were refused: %v", refused)
	}
	for _, pod := range c.pods(c.t.Context()) {
		name, _, _ := strings.Cut(pod.Name, "-")
		want := map[string][]string{
			"cart":   {string(exits.OOMKilled), "OOMKilled, exit code 137", "limit 20Mi"},
			"worker": {string(exits.Failed), "Container app failed (exit code 1) after "},
			"setup":  {"Container migrate failed (exit code 7)", "Container migrate completed (exit code 0)", "Container app completed (exit code 0)"},
		}[name]
		text := c.describe("after", pod.Name)
		for _, part := range want {
			if !strings.Contains(text, part) {
				c.t.Errorf("%s: kubectl does not show %q:\n%s", pod.Name, part, text)
			}
		}
		if name == "sick" &&
			(strings.Contains(text, "exit code") || !strings.Contains(text, "Killing") || !strings.Contains(text, "Unhealthy")) {
			c.t.Errorf(
				"%s: want Killing and Unhealthy by the kubelet, and nothing of the agent:\n%s",
				pod.Name,
				text,
			)
		}
	}
}

// outage kills the API server and starts it again after a time, in which containers end on all
// nodes: each end is told once afterwards, and the counts are those of the kubelets.
func (c *cluster) outage(d time.Duration) {
	c.create(c.crowds(d)...)
	c.await("the crowds run", func(ctx context.Context) error {
		for _, pod := range c.pods(ctx) {
			if strings.HasPrefix(pod.Name, "crowd-") && pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s", pod.Name, pod.Status.Phase)
			}
		}
		return nil
	})
	before, err := c.told(c.t.Context())
	c.do("count the Events", err)
	began := time.Now()
	c.do("kill the API server", c.StopServer(syscall.SIGKILL))
	time.Sleep(d) // the outage itself
	c.do("start the API server", c.StartServer(c.t.Context()))
	returned := time.Now()
	c.step(fmt.Sprintf("the API server was away for %.0f s", returned.Sub(began).Seconds()))
	total := 0
	c.await("each end of the outage is told once", func(ctx context.Context) error {
		for _, pod := range c.pods(ctx) {
			for _, status := range pod.Status.ContainerStatuses {
				if strings.HasPrefix(pod.Name, "crowd-") && status.State.Terminated == nil {
					return fmt.Errorf("%s/%s has not ended, by the kubelet", pod.Name, status.Name)
				}
			}
		}
		var err error
		total, err = c.exact(ctx)
		return err
	})
	took := time.Since(returned)
	after, err := c.told(c.t.Context())
	c.do("count the Events", err)
	during, news := 0, 0
	for key, x := range after {
		news += x.ends - before[key].ends
		for _, e := range x.events {
			ended, err := time.Parse(time.RFC3339Nano, e.Annotations[exits.AnnotationFinishedAt])
			c.do("read the time of an end", err)
			if ended.After(began) && ended.Before(returned) {
				during++
			}
		}
	}
	for _, pod := range c.pods(c.t.Context()) {
		if !strings.HasPrefix(pod.Name, "crowd-") {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			x := after[container{string(pod.UID), status.Name}]
			code := fmt.Sprintf("(exit code %d)", status.State.Terminated.ExitCode)
			if len(x.events) != 1 || x.events[0].Series != nil || !strings.Contains(x.events[0].Note, code) {
				c.t.Errorf("%s/%s: want one Event with %s: %+v", pod.Name, status.Name, code, x.events)
			}
		}
	}
	if during < len(c.nodes)*5 {
		c.t.Errorf("%d first ends fell into the outage: too few to show anything", during)
	}
	c.step(
		fmt.Sprintf(
			"%d Events of ends during the outage, %d ends since it began, all of %d told %.1f s after the server's return",
			during,
			news,
			total,
			took.Seconds(),
		),
	)
	for _, pod := range c.loops() {
		c.describe("outage", pod.Name)
	}
}
