// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A feature that is declared has its rules, and one that is not is refused.
func TestRefusedFeatures(t *testing.T) {
	zero := []*runtimeapi.IDMapping{{HostId: 1000, Length: 65536}}
	one := []*runtimeapi.IDMapping{{ContainerId: 1, HostId: 1000, Length: 65536}}
	for profile, declared := range map[string]bool{"containerd-2": true, "no-events": false} {
		inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
			for i, tt := range []struct {
				namespace *runtimeapi.UserNamespace
				mount     *runtimeapi.Mount
				want      bool
			}{
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: zero, Gids: zero}, want: declared},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: zero}},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: one, Gids: zero}},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: slices.Concat(zero, one), Gids: zero}},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, want: true},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE, Uids: zero}},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_CONTAINER}},
				{namespace: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_TARGET}},
				{mount: &runtimeapi.Mount{Readonly: true}, want: true},
				{mount: &runtimeapi.Mount{Readonly: true, RecursiveReadOnly: true}, want: declared},
				{mount: &runtimeapi.Mount{RecursiveReadOnly: true}},
				{mount: &runtimeapi.Mount{Readonly: true, RecursiveReadOnly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}},
				{mount: &runtimeapi.Mount{Readonly: true, RecursiveReadOnly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}},
			} {
				pod := podConfig("a", uint32(i))
				if tt.namespace != nil {
					pod.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
						NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: tt.namespace},
					}}
				}
				sb, err := w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: pod})
				if err == nil {
					cfg := containerConfig("c", "sleep", "1h")
					if tt.mount != nil {
						cfg.Mounts = append(cfg.Mounts, tt.mount)
					}
					_, err = w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, Config: cfg})
				}
				if (err == nil) != tt.want || err != nil && status.Code(err) != codes.Unknown {
					t.Errorf("%s: %v %v: %v, want it taken: %v", profile, tt.namespace, tt.mount, err, tt.want)
				}
			}
		})
	}
}

// CreateContainer refuses a group without a user, and an image without a pull, with the present
// images in the error.
func TestRefusedContainers(t *testing.T) {
	for profile, code := range map[string]codes.Code{"containerd-2": codes.NotFound, "containerd-1.7": codes.NotFound, "crio": codes.Unknown} {
		inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
			ctx := t.Context()
			sb := must(w.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", 0)}))(t).PodSandboxId
			create := func(change func(*runtimeapi.ContainerConfig)) error {
				cfg := containerConfig("c", "sleep", "1h")
				change(cfg)
				_, err := w.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg})
				return err
			}
			err := create(func(c *runtimeapi.ContainerConfig) {
				c.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{RunAsGroup: &runtimeapi.Int64Value{Value: 1}}
			})
			if status.Code(err) != codes.Unknown {
				t.Errorf("%s: a group without a user: %v", profile, err)
			}
			other := func(c *runtimeapi.ContainerConfig) { c.Image.Image = "example.com/other:1" }
			err = create(other)
			if status.Code(err) != code || !strings.Contains(err.Error(), WorkloadImage) || !strings.Contains(err.Error(), "example.com/other:1") {
				t.Errorf("%s: never pulled: %v, want %v with both names", profile, err, code)
			}
			if n := len(must(w.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{}))(t).Containers); n != 0 {
				t.Errorf("%s: %d containers after two refusals", profile, n)
			}
			must(w.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "example.com/other:1"}}))(t)
			if err := create(other); err != nil {
				t.Errorf("%s: once it is pulled: %v", profile, err)
			}
		})
	}
}
