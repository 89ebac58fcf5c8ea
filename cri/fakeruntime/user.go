// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// identity is the user of a container. The first of the groups is the primary group.
type identity struct {
	uid    int64
	name   string
	groups []int64
}

var (
	// usersOfAll are in the files of every image.
	usersOfAll = []ImageUser{{Name: "root"}, {Name: "nobody", UID: 65534, GID: 65534}}
	root       = identity{name: "root", groups: []int64{0}}
)

// identify returns the user of a container of the image with this security context.
func (img *image) identify(sc *runtimeapi.LinuxContainerSecurityContext) (identity, error) {
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && sc.GetRunAsUsername() == "" {
		return identity{}, status.Error(codes.Unknown, "CreateContainer: run_as_group is set without run_as_user: set both")
	}
	uid, name := img.userName()
	switch {
	case sc.GetRunAsUser() != nil:
		uid, name = sc.GetRunAsUser(), ""
	case sc.GetRunAsUsername() != "":
		uid, name = nil, sc.GetRunAsUsername()
	case uid == nil && name == "":
		uid = &runtimeapi.Int64Value{}
	}
	known := ImageUser{Name: name, UID: uid.GetValue()}
	users := slices.Concat(img.Users, usersOfAll)
	i := slices.IndexFunc(users, func(u ImageUser) bool { return uid != nil && u.UID == uid.GetValue() || uid == nil && u.Name == name })
	switch {
	case i >= 0:
		known = users[i]
	case uid == nil:
		return identity{}, status.Errorf(codes.Unknown, "CreateContainer: image %s has no user %q", img.id, name)
	}
	if sc.GetRunAsGroup() != nil {
		known.GID = sc.GetRunAsGroup().GetValue()
	}
	groups := slices.Concat([]int64{known.GID}, sc.GetSupplementalGroups())
	if sc.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Merge {
		groups = append(groups, known.Groups...)
	}
	who := identity{uid: known.UID, name: known.Name}
	for _, g := range groups {
		if !slices.Contains(who.groups, g) {
			who.groups = append(who.groups, g)
		}
	}
	return who, nil
}

// encode returns the encoded field ContainerStatus.user, in the style of a profile.
func (who identity) encode(style UserStyle) []byte {
	if style == UserUntold {
		return nil
	}
	groups := slices.Clone(who.groups)
	if style == UserSortedGroups {
		slices.Sort(groups)
	}
	b, _ := proto.Marshal(&runtimeapi.ContainerStatus{User: &runtimeapi.ContainerUser{ // numbers can be encoded
		Linux: &runtimeapi.LinuxContainerUser{Uid: who.uid, Gid: who.groups[0], SupplementalGroups: groups},
	}})
	return b
}

// print returns the output of the program id with an option; ok is false for an unknown option.
func (who identity) print(option string) (text string, ok bool) {
	switch option {
	case "-u":
		return strconv.FormatInt(who.uid, 10), true
	case "-un", "-nu":
		return who.name, true
	case "-g":
		return strconv.FormatInt(who.groups[0], 10), true
	case "-G":
		for i, g := range who.groups {
			if i > 0 {
				text += " "
			}
			text += strconv.FormatInt(g, 10)
		}
		return text, true
	}
	return "", false
}
