// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// handlers are the names of the runtime handlers.
var handlers = []string{"", "runc"}

// userNamespacesHostNetwork is the field of the same name in RuntimeFeatures, in the CRI's module
// only from v0.36 on.
const userNamespacesHostNetwork = 2

// Version answers with the profile's names.
func (s *service) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	p := &s.rt.cfg.Profile
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: p.RuntimeName, RuntimeVersion: p.RuntimeVersion, RuntimeApiVersion: "v1"}, nil
}

// Status is always ready: an unready runtime answers no call at all.
func (s *service) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	f := &s.rt.cfg.Profile.Features
	res := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true},
			{Type: "NetworkReady", Status: true},
		}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: f.SupplementalGroupsPolicy},
	}
	if f.UserNamespacesHostNetwork {
		res.Features.ProtoReflect().SetUnknown(appendInt(nil, userNamespacesHostNetwork, 1))
	}
	if f.Handlers {
		for _, name := range handlers {
			res.RuntimeHandlers = append(res.RuntimeHandlers, &runtimeapi.RuntimeHandler{
				Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: f.RecursiveReadOnlyMounts, UserNamespaces: f.UserNamespaces},
			})
		}
	}
	if req.GetVerbose() {
		res.Info = map[string]string{"config": infoJSON(map[string]any{"profile": s.rt.cfg.Profile.Name, "faults": s.rt.Faults().Strings()})}
	}
	return res, nil
}

// RuntimeConfig says how cgroups are driven.
func (s *service) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig takes the pod CIDR, without a visible change.
func (s *service) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
