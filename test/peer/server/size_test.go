// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestItemsAreAsLongAsOnRealNodes: what is compared must not be cheap because it is small.
func TestItemsAreAsLongAsOnRealNodes(t *testing.T) {
	r, err := start(Config{Pods: 1, Containers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, l) }()
	defer func() { cancel(); <-served }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string][2]int{
		"sandbox": {proto.Size(sandboxes), 1150}, "container": {proto.Size(containers), 1460},
	} {
		if got, want := size[0], size[1]; got < want*9/10 || got > want*11/10 {
			t.Errorf("the %s takes %d bytes in a list, want about %d", name, got, want)
		}
	}
}
