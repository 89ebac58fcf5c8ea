// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is what a runtime says of itself (CRI VersionResponse).
type Version struct {
	// RuntimeName is the runtime's name, such as "containerd" or "cri-o".
	RuntimeName string
	// RuntimeVersion is the runtime's version.
	RuntimeVersion string
	// APIVersion is the version of the CRI that the runtime speaks, such as "v1".
	APIVersion string
}

// String returns the runtime's name and version.
func (v Version) String() string { return v.RuntimeName + " " + v.RuntimeVersion }

// Version asks the runtime who it is. It is also the cheapest way to see whether the runtime
// answers.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var reply owned
	if err := c.call(ctx, version, nil, &reply); err != nil {
		return Version{}, err
	}
	var v runtimeapi.VersionResponse
	if err := proto.Unmarshal(reply.data, &v); err != nil {
		return Version{}, fmt.Errorf("cri: Version on %s: %w: %w", c.endpoint, ErrMalformed, err)
	}
	return Version{RuntimeName: v.GetRuntimeName(), RuntimeVersion: v.GetRuntimeVersion(), APIVersion: v.GetRuntimeApiVersion()}, nil
}
