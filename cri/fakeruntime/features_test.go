// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status returns the features of the profile's runtime, also in a field missing from older CRI
// modules.
func TestFeatures(t *testing.T) {
	for _, p := range Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			inBubble(t, Config{Profile: p}, func(t *testing.T, w *world) {
				st := must(w.cri.Status(t.Context(), &runtimeapi.StatusRequest{}))(t)
				names := []string{}
				for _, h := range st.RuntimeHandlers {
					names = append(names, h.Name)
					if h.Features.RecursiveReadOnlyMounts != p.Features.RecursiveReadOnlyMounts ||
						h.Features.UserNamespaces != p.Features.UserNamespaces {
						t.Errorf("handler %q: %v, want %+v", h.Name, h.Features, p.Features)
					}
				}
				if want := []string{"", "runc"}; p.Features.Handlers != slices.Equal(names, want) || !p.Features.Handlers && len(names) > 0 {
					t.Errorf("handlers %q, want %q: %v", names, want, p.Features.Handlers)
				}
				if st.Features.SupplementalGroupsPolicy != p.Features.SupplementalGroupsPolicy {
					t.Errorf("features %v, want %+v", st.Features, p.Features)
				}
				wire := must(proto.Marshal(st.Features))(t)
				hostNetwork := false
				for len(wire) > 0 {
					num, typ, n := protowire.ConsumeTag(wire)
					hostNetwork = hostNetwork || num == 2
					wire = wire[n+protowire.ConsumeFieldValue(num, typ, wire[n:]):]
				}
				if hostNetwork != p.Features.UserNamespacesHostNetwork {
					t.Errorf("user namespaces in the host's network: %v", hostNetwork)
				}
			})
		})
	}
}

// A container's status names its user in the words of the profile's runtime.
func TestUser(t *testing.T) {
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	all := &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: []int64{4000, 3000, 2500, 4000},
	}
	for style, groups := range map[UserStyle][]int64{
		UserUntold: nil, UserSortedGroups: {2500, 3000, 4000}, UserGroupFirst: {2500, 4000, 3000},
	} {
		profile := profileNamed(t, "containerd-2")
		profile.User = style
		inBubble(t, Config{Profile: profile}, func(t *testing.T, w *world) {
			sb := must(w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", 0)}))(t).PodSandboxId
			user := func(id string) *runtimeapi.LinuxContainerUser {
				request := &runtimeapi.ContainerStatusRequest{ContainerId: id}
				return must(w.cri.ContainerStatus(t.Context(), request))(t).Status.GetUser().GetLinux()
			}
			cfg := containerConfig("c", "sleep", "1h")
			cfg.Linux.SecurityContext = all
			asked := user(must(w.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb, Config: cfg}))(t).ContainerId)
			direct := user(must(w.rt.AddContainer(sb, ContainerSpec{}))(t))
			if style == UserUntold {
				if asked != nil || direct != nil {
					t.Errorf("told %v and %v, want nobody", asked, direct)
				}
				return
			}
			if asked.GetUid() != 1000 || asked.GetGid() != 2500 || !slices.Equal(asked.GetSupplementalGroups(), groups) {
				t.Errorf("style %d: %v, want 1000, 2500, %v", style, asked, groups)
			}
			if direct.GetUid() != 0 || direct.GetGid() != 0 || !slices.Equal(direct.GetSupplementalGroups(), []int64{0}) {
				t.Errorf("style %d: a container of the direct methods: %v, want root", style, direct)
			}
		})
	}
}

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

// Each listed metric has a description with as many labels; the profile determines the metrics.
func TestMetrics(t *testing.T) {
	for profile, want := range map[string]struct{ described, ofContainer, ofPod, pods, containers int }{
		"containerd-2": {described: 49, ofContainer: 31, ofPod: 8, pods: 1, containers: 1},
		"crio":         {described: 1, ofContainer: 1, pods: 2, containers: 2},
	} {
		inBubble(t, Config{Profile: profileNamed(t, profile)}, func(t *testing.T, w *world) {
			ctx := t.Context()
			sb := must(w.rt.AddPod(PodSpec{Name: "p", Namespace: "n"}))(t)
			runs := must(w.rt.AddContainer(sb, ContainerSpec{Name: "runs"}))(t)
			check(t, w.rt.Start(runs))
			must(w.rt.AddContainer(sb, ContainerSpec{Name: "created"}))(t)
			ended := must(w.rt.AddContainer(sb, ContainerSpec{Name: "ended"}))(t)
			check(t, w.rt.Start(ended))
			check(t, w.rt.Exit(ended, 0))
			check(t, w.rt.StopSandbox(must(w.rt.AddPod(PodSpec{}))(t)))
			time.Sleep(time.Hour)

			keys := map[string]int{}
			for _, d := range must(w.cri.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{}))(t).Descriptors {
				keys[d.Name] = len(d.LabelKeys)
				if d.Help == "" {
					t.Errorf("%s has no help", d.Name)
				}
			}
			list := must(w.cri.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{}))(t).PodMetrics
			if len(keys) != want.described || len(list) != want.pods {
				t.Fatalf("%s: %d metrics described, %d pods, want %+v", profile, len(keys), len(list), want)
			}
			for _, pod := range list {
				if pod.PodSandboxId != sb {
					continue
				}
				if len(pod.Metrics) != want.ofPod || len(pod.ContainerMetrics) != want.containers {
					t.Fatalf("%s: %d of the pod, %d containers, want %+v", profile, len(pod.Metrics), len(pod.ContainerMetrics), want)
				}
				ctr := pod.ContainerMetrics[0]
				if ctr.ContainerId != runs || len(ctr.Metrics) != want.ofContainer {
					t.Errorf("%s: %d metrics of %s, want %d of %s", profile, len(ctr.Metrics), ctr.ContainerId, want.ofContainer, runs)
				}
				for _, m := range slices.Concat(pod.Metrics, ctr.Metrics) {
					if n, ok := keys[m.Name]; !ok || n != len(m.LabelValues) {
						t.Errorf("%s: %s has the labels %q, and %d are described", profile, m.Name, m.LabelValues, n)
					}
					if m.Name == "container_cpu_usage_seconds_total" && m.Value.Value < 3 {
						t.Errorf("%v CPU seconds after an hour", m.Value)
					}
				}
			}
		})
	}
	inBubble(t, Config{Profile: profileNamed(t, "containerd-1.7")}, func(t *testing.T, w *world) {
		_, err := w.cri.ListMetricDescriptors(t.Context(), &runtimeapi.ListMetricDescriptorsRequest{})
		_, err2 := w.cri.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
		if status.Code(err) != codes.Unimplemented || status.Code(err2) != codes.Unimplemented {
			t.Errorf("containerd-1.7: %v, %v, want Unimplemented", err, err2)
		}
	})
}
