// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// A Pod is a sandbox of a pod. A pod made anew under its old UID has another sandbox, and so
// another Pod with a higher Attempt.
type Pod struct {
	UID, Name string
	Attempt   uint32
	SandboxID string

	config *runtimeapi.PodSandboxConfig
}

// RunPod creates and starts a sandbox.
func (c *Client) RunPod(ctx context.Context, uid, name string, attempt uint32) (*Pod, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      name,
			Namespace: c.Namespace,
			Uid:       uid,
			Attempt:   attempt,
		},
		Labels: c.podLabels(uid, name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    c.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces()},
		},
	}
	answer, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return nil, fmt.Errorf("crikit: run pod %s: %w", name, err)
	}
	return &Pod{
		UID:       uid,
		Name:      name,
		Attempt:   attempt,
		SandboxID: answer.PodSandboxId,
		config:    config,
	}, nil
}

// namespaces returns the host's network, since a test machine has no CNI, and a PID namespace for
// each container, since in the pod's own killing the pause process kills them all.
func namespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
}

func (c *Client) podLabels(uid, name string) map[string]string {
	return map[string]string{
		load.LabelPodUID:       uid,
		load.LabelPodName:      name,
		load.LabelPodNamespace: c.Namespace,
	}
}

// A Spec describes a container to create.
type Spec struct {
	Name    string
	Attempt uint32
	// Args are the workload's: "sleep", "20s".
	Args []string
	// Memory limits the container, in bytes. 0: no limit.
	Memory int64
	// Command replaces the image's entrypoint; a missing path makes StartContainer fail.
	Command string
	// Image is the container's image. Empty: the client's image.
	Image string
	// Security is the security context; Create adds the namespaces. Nil: the image's default.
	Security *runtimeapi.LinuxContainerSecurityContext
}

// Create makes a container in the pod and returns its ID.
func (c *Client) Create(ctx context.Context, pod *Pod, spec Spec) (string, error) {
	labels := c.podLabels(pod.UID, pod.Name)
	maps.Copy(labels, map[string]string{load.LabelContainerName: spec.Name})
	security := &runtimeapi.LinuxContainerSecurityContext{}
	if spec.Security != nil {
		proto.Merge(security, spec.Security)
	}
	security.NamespaceOptions = namespaces()
	image := cmp.Or(spec.Image, c.Image)
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: spec.Name, Attempt: spec.Attempt},
		// CRI-O checks signatures by the name that the user gave
		Image:  &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image},
		Args:   spec.Args,
		Labels: labels,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: spec.Memory},
			SecurityContext: security,
		},
	}
	if spec.Command != "" {
		config.Command = []string{spec.Command}
	}
	answer, err := c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.SandboxID, Config: config, SandboxConfig: pod.config,
	})
	if err != nil {
		return "", fmt.Errorf("crikit: create container %s of pod %s: %w", spec.Name, pod.Name, err)
	}
	return answer.ContainerId, nil
}

// done makes a call without an answer.
func done[Q, A any](
	ctx context.Context,
	what string,
	call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q,
) error {
	if _, err := call(ctx, request); err != nil {
		return fmt.Errorf("crikit: %s: %w", what, err)
	}
	return nil
}

// Start starts a created container.
func (c *Client) Start(ctx context.Context, id string) error {
	return done(
		ctx,
		"start container "+id,
		c.StartContainer,
		&runtimeapi.StartContainerRequest{ContainerId: id},
	)
}

// CreateAndStart does both.
func (c *Client) CreateAndStart(ctx context.Context, pod *Pod, spec Spec) (string, error) {
	id, err := c.Create(ctx, pod, spec)
	if err != nil {
		return "", err
	}
	return id, c.Start(ctx, id)
}

// Stop stops a container: a signal, and a kill after the grace.
func (c *Client) Stop(ctx context.Context, id string, grace time.Duration) error {
	return done(
		ctx,
		"stop container "+id,
		c.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())},
	)
}

// Remove removes a container.
func (c *Client) Remove(ctx context.Context, id string) error {
	return done(
		ctx,
		"remove container "+id,
		c.RemoveContainer,
		&runtimeapi.RemoveContainerRequest{ContainerId: id},
	)
}

// StopPod stops a sandbox and its containers.
func (c *Client) StopPod(ctx context.Context, id string) error {
	return done(ctx, "stop sandbox "+id, c.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
}

// RemovePod removes a sandbox and its containers.
func (c *Client) RemovePod(ctx context.Context, id string) error {
	return done(
		ctx,
		"remove sandbox "+id,
		c.RemovePodSandbox,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id},
	)
}

// Delete stops and removes a sandbox.
func (c *Client) Delete(ctx context.Context, sandboxID string) error {
	if err := c.StopPod(ctx, sandboxID); err != nil {
		return err
	}
	return c.RemovePod(ctx, sandboxID)
}

// RemoveAll deletes every sandbox of the client's namespace.
func (c *Client) RemoveAll(ctx context.Context) error {
	_, err := c.removeAll(ctx, func(namespace string) bool { return namespace == c.Namespace })
	return err
}

// RemoveAbandoned deletes every sandbox whose namespace begins with the prefix, those of a run that
// was killed, and returns their number.
func (c *Client) RemoveAbandoned(ctx context.Context, prefix string) (removed int, err error) {
	return c.removeAll(ctx, func(namespace string) bool { return strings.HasPrefix(namespace, prefix) })
}

func (c *Client) removeAll(ctx context.Context, in func(namespace string) bool) (removed int, err error) {
	list, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return 0, fmt.Errorf("crikit: list the sandboxes: %w", err)
	}
	var errs []error
	for _, sandbox := range list.Items {
		if !in(sandbox.Labels[load.LabelPodNamespace]) {
			continue
		}
		if err := c.Delete(ctx, sandbox.Id); err != nil && !Gone(err) {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// Gone reports whether a call failed because its object is not there any more.
func Gone(err error) bool { return Code(err) == codes.NotFound }

// Code returns the grpc code of an error, however wrapped.
func Code(err error) codes.Code {
	s, _ := status.FromError(err)
	return s.Code()
}
