// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is one pod of the node: a sandbox and its containers, as they are listed.
type Pod struct {
	UID        string
	Sandbox    *runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
}

const (
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

const createdAt = 1_790_000_000e9

// newPod returns pod number i, ready, all its containers running. It carries the labels and
// annotations that the kubelet sets, and some that people set.
func newPod(i, containers int) Pod {
	uid := fmt.Sprintf("%08x-7f3a-4c1d-9e2b-%012x", i, i*7919)
	name := fmt.Sprintf("storefront-api-6c9d7f5b8d-%05x", i)
	namespace := fmt.Sprintf("tenant-%02d", i%23)
	p := Pod{UID: uid, Sandbox: &runtimeapi.PodSandbox{
		Id:        id("sandbox", i, 0),
		Metadata:  &runtimeapi.PodSandboxMetadata{Name: name, Uid: uid, Namespace: namespace},
		CreatedAt: createdAt, RuntimeHandler: "runc",
		Labels: map[string]string{
			labelPod: name, labelNamespace: namespace, labelUID: uid, "pod-template-hash": "6c9d7f5b8d",
			"app.kubernetes.io/name": "storefront-api", "app.kubernetes.io/instance": "storefront", "app.kubernetes.io/version": "4.18.2",
			"app.kubernetes.io/managed-by": "Helm", "topology.kubernetes.io/zone": "eu-central-1b",
		},
		Annotations: map[string]string{
			"kubernetes.io/config.seen": "2026-11-20T08:14:03.271828182+01:00", "kubernetes.io/config.source": "api",
			"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": "9102",
			"checksum/config":                   strings.Repeat("9f86d081884c7d65", 4),
			"k8s.v1.cni.cncf.io/network-status": `[{"name":"fabric","interface":"eth0","ips":["10.42.7.19","fd42::7:19"],"mac":"0a:58:0a:2a:07:13","default":true,"dns":{}}]`,
			"kubectl.kubernetes.io/restartedAt": "2026-11-18T21:40:55Z",
		},
	}}
	for n := range containers {
		container := fmt.Sprintf("worker-%d", n)
		p.Containers = append(p.Containers, &runtimeapi.Container{
			Id: id("container", i, n), PodSandboxId: p.Sandbox.Id, CreatedAt: createdAt + 1e9, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Metadata: &runtimeapi.ContainerMetadata{Name: container},
			Image:    &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("c0ffee42", 8), UserSpecifiedImage: "registry.example.com/storefront/api:4.18.2"},
			ImageRef: "registry.example.com/storefront/api@sha256:" + strings.Repeat("deadbeef", 8), ImageId: "sha256:" + strings.Repeat("c0ffee42", 8),
			Labels: map[string]string{labelPod: name, labelNamespace: namespace, labelUID: uid, labelContainer: container},
			Annotations: map[string]string{
				"io.kubernetes.container.hash":                     "5d41402a",
				"io.kubernetes.container.restartCount":             "0",
				"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
				"io.kubernetes.container.terminationMessagePolicy": "File",
				"io.kubernetes.pod.terminationGracePeriod":         "30",
				"io.kubernetes.container.ports": `[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"admin","containerPort":8081,"protocol":"TCP"},` +
					`{"name":"metrics","containerPort":9102,"protocol":"TCP"},{"name":"debug","containerPort":6060,"protocol":"TCP"}]`,
				"io.kubernetes.container.preStopHandler": `{"exec":{"command":["/bin/sh","-c","wget -qO- http://127.0.0.1:8081/internal/drain?wait=25s && ` +
					`while wget -qO- http://127.0.0.1:8081/internal/connections | grep -qv '^0$'; do sleep 1; done"]}}`,
			},
		})
	}
	return p
}

// id returns an ID as runtimes make them: 64 hexadecimal digits.
func id(kind string, pod, n int) string {
	x := uint64(len(kind))<<56 ^ uint64(pod)<<16 ^ uint64(n)
	var b strings.Builder
	for range 4 { // splitmix64
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		fmt.Fprintf(&b, "%016x", z^z>>31)
	}
	return b.String()
}

// sandboxStatus returns what the runtime tells of the pod's sandbox.
func (p *Pod) sandboxStatus() *runtimeapi.PodSandboxStatus {
	s := p.Sandbox
	return &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.42.7.19", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd42::7:19"}}},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Pid: runtimeapi.NamespaceMode_CONTAINER,
		}}},
	}
}

// containerStatus returns what the runtime tells of one of the pod's containers.
func (p *Pod) containerStatus(n int) *runtimeapi.ContainerStatus {
	c := p.Containers[n]
	base := "/var/lib/kubelet/pods/" + p.UID
	s := &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.CreatedAt + 2e8, Image: c.Image, ImageRef: c.ImageRef,
		ImageId: c.ImageId, Labels: c.Labels, Annotations: c.Annotations,
		LogPath: "/var/log/pods/" + c.Labels[labelNamespace] + "_" + c.Labels[labelPod] + "_" + p.UID + "/" + c.Metadata.Name + "/0.log",
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: base + "/volumes/kubernetes.io~projected/kube-api-access-x7k2p", Readonly: true},
			{ContainerPath: "/etc/hosts", HostPath: base + "/etc-hosts"},
			{ContainerPath: "/dev/termination-log", HostPath: base + "/containers/" + c.Metadata.Name + "/4bf92f35"},
			{ContainerPath: "/etc/storefront", HostPath: base + "/volumes/kubernetes.io~configmap/config", Readonly: true},
		},
		Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 256, MemoryLimitInBytes: 512 << 20, OomScoreAdj: 985,
		}},
	}
	if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		s.FinishedAt, s.ExitCode, s.Reason = c.CreatedAt+9e8, 1, "Error"
	}
	return s
}
