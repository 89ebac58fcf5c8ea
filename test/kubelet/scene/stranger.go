// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// collected bounds the wait for a kubelet's garbage collection, which comes once a minute.
const collected = 4 * time.Minute

// besideStranger has a pod, for which the kubelet pulls the image, beside a stranger.
func besideStranger(p *Play) {
	name := p.batch("one-beside", 1)[0]
	p.put(name)
	p.await(ready, name)
	p.step(func() error { return p.stranger(p.ctx) })
	p.remove(name)
}

// stranger makes a container unknown to the kubelet and without a log path. A kubelet stops and
// removes it and, because it looks for logs by the pattern "" + "*", every file of its own working
// directory (kubernetes/kubernetes#107717). Nothing else may go with it.
func (w *World) stranger(ctx context.Context) (err error) {
	canaries := []string{filepath.Join(w.dir, "canary"), "kubelet-e2e-canary-" + filepath.Base(w.dir)} // the other in our own working directory
	for _, file := range canaries {
		if err := os.WriteFile(file, []byte("alive\n"), 0o644); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Remove(file)) }() // fails if gone
	}
	bait := filepath.Join(w.node.WorkingDirectory(), "bait")
	if err := os.WriteFile(bait, nil, 0o644); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+w.runtime.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	id, err := w.makeStranger(ctx, client)
	if err != nil {
		return err
	}
	// The kubelet may have ended the stranger before, and removes it either way.
	_, unstarted := client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err := eventually(ctx, collected, func() error {
		_, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return errors.Join(fmt.Errorf("container %s, which the kubelet does not know, is still there", id), err, unstarted)
	}); err != nil {
		return err
	}
	for _, file := range canaries {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("a canary did not survive: %w", err)
		}
	}
	if w.runtime.logs() != "" {
		return nil // gave the container a path: the kubelet had no reason to look elsewhere
	}
	if _, err := os.Stat(bait); !os.IsNotExist(err) {
		return fmt.Errorf("the kubelet removed the container and left the bait in its working directory (%w): the canaries prove nothing any more", err)
	}
	return nil
}

// makeStranger makes a container without a log path in a sandbox without a log folder, with a
// kubelet's labels.
func (w *World) makeStranger(ctx context.Context, client runtimeapi.RuntimeServiceClient) (id string, err error) {
	uid := w.batch("stranger", 1)[0]
	labels := map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": uid, "io.kubernetes.pod.namespace": "default"}
	host := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER} // like a kubelet's
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"}, Labels: labels,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			Privileged: w.Variant.privileged(), NamespaceOptions: host, // as the pods of the other scenarios
		}},
	}
	if w.cgroup != "" {
		sandbox.Linux.CgroupParent = "/" + w.cgroup // removed in the end, with everything inside
	}
	run, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return "", err
	}
	made, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: run.PodSandboxId, SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: Image, UserSpecifiedImage: Image}, Command: []string{"/tool", "pause"},
		Labels: map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": uid, "io.kubernetes.pod.namespace": "default", "io.kubernetes.container.name": "main",
		},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{Privileged: w.Variant.privileged(), NamespaceOptions: host}},
	}})
	if err != nil {
		return "", err
	}
	return made.ContainerId, nil
}
