// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// mute is a connection on which only calls with a suffix in their method are answered.
type mute struct {
	grpc.ClientConnInterface
	answers string
}

func (m mute) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	if m.answers != "" && strings.HasSuffix(method, m.answers) {
		return nil
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// TestRemovalGivesUp: a removal does not wait for a runtime that is frozen, and waits for one that
// is slow as long as its caller does.
func TestRemovalGivesUp(t *testing.T) {
	const patience = 4 * time.Minute
	for answers, want := range map[string]time.Duration{"": silentFor, "/Version": patience} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			begun := time.Now()
			err := RemoveRun(ctx, mute{answers: answers}, "run", nil)
			if took := time.Since(begun); took != want || err == nil || errors.Is(err, errSilent) != (answers == "") {
				t.Errorf("answers to %q: %v after %v, want an end after %v", answers, err, took, want)
			}
		})
	}
}
