// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Features are the runtime's features in Status.
type Features struct {
	// Handlers: Status lists handlers, the default handler and runc, each with the next two.
	Handlers, RecursiveReadOnlyMounts, UserNamespaces bool
	// These two are the runtime's own.
	SupplementalGroupsPolicy, UserNamespacesHostNetwork bool
}

// handlers are the names of the runtime handlers.
var handlers = []string{"", "runc"}

// userNamespacesHostNetwork is the field of the same name in RuntimeFeatures, in the CRI's module
// only from v0.36 on.
const userNamespacesHostNetwork = 2

// message is the runtime's part of the features.
func (f Features) message() *runtimeapi.RuntimeFeatures {
	m := &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: f.SupplementalGroupsPolicy}
	if f.UserNamespacesHostNetwork {
		m.ProtoReflect().SetUnknown(appendInt(nil, userNamespacesHostNetwork, 1))
	}
	return m
}

// handlerMessage is the part of each handler.
func (f Features) handlerMessage() *runtimeapi.RuntimeHandlerFeatures {
	return &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: f.RecursiveReadOnlyMounts, UserNamespaces: f.UserNamespaces}
}

// knownHandler reports whether Status lists a runtime handler of the name.
func knownHandler(name string) bool { return slices.Contains(handlers, name) }

// checkMounts refuses the recursive read-only mounts that runtimes refuse.
func (f Features) checkMounts(mounts []*runtimeapi.Mount) error {
	for _, m := range mounts {
		reason := ""
		switch {
		case !m.GetRecursiveReadOnly():
			continue
		case !m.GetReadonly():
			reason = "it is not read-only"
		case !f.RecursiveReadOnlyMounts:
			reason = "the runtime handler cannot do it"
		case m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
			reason = "its propagation is not private but " + m.GetPropagation().String()
		default:
			continue
		}
		return status.Errorf(codes.Unknown, "CreateContainer: recursive read-only mount of %q: %s", m.GetHostPath(), reason)
	}
	return nil
}

// checkUserNamespace refuses the user namespaces that runtimes refuse.
func (f Features) checkUserNamespace(u *runtimeapi.UserNamespace) error {
	one := func(ids []*runtimeapi.IDMapping) bool {
		return len(ids) == 1 && ids[0].GetContainerId() == 0 && ids[0].GetLength() > 0
	}
	reason := ""
	switch mode := u.GetMode(); {
	case u == nil:
	case mode == runtimeapi.NamespaceMode_NODE:
		if len(u.GetUids())+len(u.GetGids()) > 0 {
			reason = "the node's has no mappings"
		}
	case mode != runtimeapi.NamespaceMode_POD:
		reason = "unsupported mode " + mode.String()
	case !f.UserNamespaces:
		reason = "the runtime handler cannot do it"
	case !one(u.GetUids()) || !one(u.GetGids()):
		reason = "it needs one mapping of UIDs and one of GIDs, each from 0 in the container"
	}
	if reason == "" {
		return nil
	}
	return status.Errorf(codes.Unknown, "user namespace: %s", reason)
}
