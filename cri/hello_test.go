// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/rawcri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestHelloToCRIO makes each of our calls the first of a connection, to a server that accepts only
// CRI-O's content type.
func TestHelloToCRIO(t *testing.T) {
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}}
	s.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
		return &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(id, "u", ready)}, nil
	}
	s.getContainerEvents = func(stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
		return stream.Send(&runtimeapi.ContainerEventResponse{ContainerId: "c"})
	}
	server := rawcri.Start(t, nil, func(on *grpc.Server) { register(on, s) })
	for name, call := range map[string]func(c *Client) error{
		"Version": func(c *Client) error { _, err := c.Version(t.Context()); return err },
		"List":    func(c *Client) error { _, err := c.List(t.Context(), 0); return err },
		"ListPod": func(c *Client) error { _, err := c.ListPod(t.Context(), "u"); return err },
		"Inspect": func(c *Client) error {
			_, err := c.Inspect(t.Context(), pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}}})
			return err
		},
		"Events": func(c *Client) error {
			for _, err := range c.Events(t.Context()) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Config{Dialer: server.Dial})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := call(c); err != nil {
				t.Error(err)
			}
		})
	}
}
