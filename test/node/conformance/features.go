// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// abilities writes the features in Status of the runtime and its handlers, without the conditions,
// which depend on the machine's network.
func (r *recording) abilities() {
	answer, err := r.Status(r.ctx, &runtimeapi.StatusRequest{})
	r.called("status", err)
	handlers := slices.SortedFunc(slices.Values(answer.GetRuntimeHandlers()), func(a, b *runtimeapi.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	for _, h := range handlers {
		r.line("handler %q: recursive read-only mounts %v, user namespaces %v", h.Name, h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces())
	}
	f := answer.GetFeatures()
	r.line("features: policy of supplemental groups %v, user namespaces in the host's network %v, mount options %v",
		f.GetSupplementalGroupsPolicy(), f.GetUserNamespacesHostNetwork(), f.GetMountOptions())
}

// users writes the user of a container, by its request. Neither the image nor its containers have a
// file of users.
func (r *recording) users(pod *crikit.Pod) {
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	groups := []int64{4000, 3000, 2000, 4000}
	for _, who := range []struct {
		name     string
		security *runtimeapi.LinuxContainerSecurityContext
	}{
		{"nobody-said", nil},
		{"user", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000)}},
		{"user-and-group", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2000)}},
		{"groups", &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: groups}},
		{"all", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: groups}},
		{"strict", &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: groups,
			SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		}},
		{"group-alone", &runtimeapi.LinuxContainerSecurityContext{RunAsGroup: id(2000)}},
	} {
		id := r.create(pod, crikit.Spec{Name: who.name, Args: []string{"sleep", "1h"}, Security: who.security})
		if id == "" {
			continue
		}
		answer, err := r.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			r.called("status", err)
		}
		if user := answer.GetStatus().GetUser().GetLinux(); user == nil {
			r.line("%s: no user", who.name)
		} else {
			r.line("%s: user %d, group %d, supplemental groups %v", who.name, user.Uid, user.Gid, user.SupplementalGroups)
		}
		r.called("remove", r.Remove(r.ctx, id))
	}
}

// absentImage requests a container of an image without a pull.
func (r *recording) absentImage(pod *crikit.Pod) {
	const name = "example.local/never-pulled:1"
	answer, err := r.Images().ImageStatus(r.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	r.called("image status", err)
	r.line("there is one: %v", answer.GetImage() != nil)
	r.create(pod, crikit.Spec{Name: "without-image", Image: name, Args: []string{"sleep", "1h"}})
}
