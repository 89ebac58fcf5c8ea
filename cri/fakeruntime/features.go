// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

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
