// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/evented-pleg/evented-pleg/cri"
)

const (
	// endpointVariable names the runtime's socket, for crictl as well.
	endpointVariable = "CONTAINER_RUNTIME_ENDPOINT"
	endpointHelp     = "the runtime's socket (default $" + endpointVariable + ", then the usual sockets)"
)

// usualSockets are the sockets tried by crictl.
var usualSockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/var/run/cri-dockerd.sock"}

// findEndpoint returns the endpoint of a flag, of the environment, or of the first usual socket.
func findEndpoint(flag string) (string, error) {
	endpoint := or(flag, os.Getenv(endpointVariable))
	for _, path := range usualSockets {
		if info, err := os.Stat(path); endpoint == "" && err == nil && info.Mode().Type() == fs.ModeSocket {
			endpoint = "unix://" + path
		}
	}
	if endpoint == "" {
		return "", usageError{fmt.Errorf("--endpoint is missing, %s is not set, and none of the usual sockets exists (%s): name the runtime's socket",
			endpointVariable, strings.Join(usualSockets, ", "))}
	}
	return endpoint, checkEndpoint(endpoint)
}

// checkEndpoint refuses endpoints that name no socket. A missing runtime shows later.
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	client, err := cri.New(cri.Config{Endpoint: endpoint})
	if err != nil {
		return usageError{fmt.Errorf("--endpoint: %w", err)}
	}
	return client.Close()
}
