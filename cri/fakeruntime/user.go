// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// encodeUser encodes ContainerStatus.user of a container that asks for this. All images run as root
// and have no files of users and groups, so that no name of a user is known, and either policy of
// supplemental groups gives the same groups.
func encodeUser(style UserStyle, sc *runtimeapi.LinuxContainerSecurityContext) ([]byte, error) {
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && sc.GetRunAsUsername() == "" {
		return nil, status.Error(codes.Unknown, "CreateContainer: run_as_group is set without run_as_user: set both")
	}
	if style == UserUntold {
		return nil, nil
	}
	gid := sc.GetRunAsGroup().GetValue()
	var groups []int64
	for _, g := range append([]int64{gid}, sc.GetSupplementalGroups()...) {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	if style == UserSortedGroups {
		slices.Sort(groups)
	}
	return proto.Marshal(&runtimeapi.ContainerStatus{User: &runtimeapi.ContainerUser{
		Linux: &runtimeapi.LinuxContainerUser{Uid: sc.GetRunAsUser().GetValue(), Gid: gid, SupplementalGroups: groups},
	}})
}
