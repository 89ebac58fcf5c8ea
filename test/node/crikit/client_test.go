// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// TestNamespaceIsAFence: pods of others are neither seen nor removed.
func TestNamespaceIsAFence(t *testing.T) {
	c := OnFake(t, "containerd-2", 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	other := *c
	other.Namespace = "theirs"
	testkit.Must(other.RunPod(ctx, "uid", "pod", 0))(t)
	if truth, err := c.Truth(ctx); err != nil || len(truth) != 0 {
		t.Errorf("truth %v, %v, want nothing of another namespace", truth, err)
	}
	testkit.Check(t, c.RemoveAll(ctx))
	if truth, err := other.Truth(ctx); err != nil || len(truth) != 1 {
		t.Errorf("truth of the other namespace %v, %v, want its pod", truth, err)
	}
}

// TestARuntimeThatHangsIsNamed calls a runtime that takes connections and answers nothing.
func TestARuntimeThatHangsIsNamed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	silent := testkit.Must(net.Listen("unix", socket))(t)
	defer silent.Close()
	c := testkit.Must(Dial(Options{Endpoint: "unix://" + socket}))(t)
	defer c.Close()
	hasty := limited{c.Conn, 50 * time.Millisecond}
	calls := runtimeapi.NewRuntimeServiceClient(hasty)
	_, hung := calls.Version(t.Context(), &runtimeapi.VersionRequest{})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the scenario is over"))
	_, over := calls.Version(ended, &runtimeapi.VersionRequest{})
	for err, want := range map[error]string{hung: "has not answered Version for 50ms", over: "Version: the scenario is over"} {
		if err == nil || Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s with %q", err, codes.DeadlineExceeded, want)
		}
	}
}

// TestAnAbandonedRunsPodsAreRemoved: those of its namespaces, and of no other.
func TestAnAbandonedRunsPodsAreRemoved(t *testing.T) {
	c := OnFake(t, "containerd-2", 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, namespace := range []string{"run-1-a01", "run-1-a02", "run-12-a01", "kube-system"} {
		other := *c
		other.Namespace = namespace
		testkit.Must(other.RunPod(ctx, fmt.Sprint("uid", i), "pod", 0))(t)
	}
	if removed, err := c.RemoveAbandoned(ctx, "run-1-"); removed != 2 || err != nil {
		t.Errorf("%d pods removed, %v, want 2", removed, err)
	}
	left := testkit.Must(c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}))(t)
	for _, s := range left.Items {
		if strings.HasPrefix(s.Metadata.Namespace, "run-1-") {
			t.Errorf("a pod of %s is left", s.Metadata.Namespace)
		}
	}
	if len(left.Items) != 2 {
		t.Errorf("%d pods are left, want the 2 of others", len(left.Items))
	}
}
