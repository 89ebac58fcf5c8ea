// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

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
