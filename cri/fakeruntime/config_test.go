// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podConfig is a sandbox as requested by a kubelet.
func podConfig(name string, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name, Attempt: attempt},
		Hostname:     name,
		LogDirectory: "/var/log/pods/ns_" + name + "_uid-" + name,
		Labels:       map[string]string{labelPodName: name, labelPodNamespace: "ns", labelPodUID: "uid-" + name, "app": "test"},
		Annotations:  map[string]string{"kubernetes.io/config.source": "api"},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// containerConfig is a container of the pod a, as requested by a kubelet.
func containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: 0},
		Image:    &runtimeapi.ImageSpec{Image: WorkloadImage, UserSpecifiedImage: "tool:1"},
		Command:  command,
		Labels: map[string]string{
			labelPodName: "a", labelPodNamespace: "ns", labelPodUID: "uid-a", labelContainerName: name,
		},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "0"},
		LogPath:     name + "/0.log",
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/mnt", Readonly: true}},
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512}},
	}
}
