// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package calls

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// TestItemsAreAsLongAsInOtherRows checks that small items do not make the comparison cheap.
func TestItemsAreAsLongAsInOtherRows(t *testing.T) {
	rt, err := fakeruntime.New(fakeruntime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, l) }()
	defer func() { cancel(); <-served }()
	c, err := New(socket)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Make("churn-0001-0", "0001-0", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	sandboxes, err := c.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	containers, err := c.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string][2]int{"sandbox": {proto.Size(sandboxes), 1100}, "container": {proto.Size(containers), 1450}} {
		if got, want := size[0], size[1]; got < want*9/10 || got > want*11/10 {
			t.Errorf("the %s takes %d bytes in a list, want about %d", name, got, want)
		}
	}
	if err := c.Stop(p); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(p); err != nil {
		t.Fatal(err)
	}
	if truth := rt.Truth(); len(truth.Pods) != 0 {
		t.Errorf("%d pods are left", len(truth.Pods))
	}
}
