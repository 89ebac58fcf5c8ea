// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lifetime is the annotation that tells the fake runtime how long a container lives.
const lifetime = "fakeruntime.evented-pleg.io/lifetime"

// Make implements [agent.Churner] with the calls of a kubelet that starts a pod.
func (k *kubelet) Make(uid, name string, life time.Duration) (agent.Pod, error) {
	p := agent.Pod{UID: uid}
	labels := map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "churn"}
	ofPod, ofContainer := agent.Annotations()
	ofContainer[lifetime] = life.String()
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "churn", Uid: uid},
		Labels:   labels, Annotations: ofPod,
		Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	var err error
	if p.Sandbox, err = k.service.RunPodSandbox(k.ctx, sandbox, ""); err != nil {
		return p, err
	}
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: "registry.k8s.io/e2e-test-images/agnhost:2.53"},
		Labels: map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "churn", "io.kubernetes.container.name": "main",
		},
		Annotations: ofContainer,
	}
	if p.Container, err = k.service.CreateContainer(k.ctx, p.Sandbox, container, sandbox); err != nil {
		return p, err
	}
	return p, k.service.StartContainer(k.ctx, p.Container)
}

// Stop implements [agent.Churner].
func (k *kubelet) Stop(p agent.Pod) error { return k.service.StopPodSandbox(k.ctx, p.Sandbox) }

// Remove implements [agent.Churner].
func (k *kubelet) Remove(p agent.Pod) error {
	return errors.Join(k.service.RemoveContainer(k.ctx, p.Container), k.service.RemovePodSandbox(k.ctx, p.Sandbox))
}

// Synced implements [agent.Churner]. A kubelet asks for a relist of a pod in which a sync has done
// something.
func (k *kubelet) Synced(uid string) {
	if !k.idle {
		k.requestRelist(types.UID(uid))
	}
}

// Await implements [agent.Churner].
func (k *kubelet) Await(uid string, t time.Time) error {
	if k.idle {
		return nil
	}
	_, err := k.cache.GetNewerThan(types.UID(uid), t)
	return err
}
