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

// The refusal of an image that was never pulled names it, and images that were.
func TestImageNeverPulled(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		cfg := containerConfig("c")
		cfg.Image.Image = "example.com/other:1"
		_, err := w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg})
		if err == nil || !strings.Contains(err.Error(), WorkloadImage) || !strings.Contains(err.Error(), cfg.Image.Image) {
			t.Errorf("CreateContainer: %v", err)
		}
	})
}
