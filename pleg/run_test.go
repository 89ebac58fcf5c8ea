// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTwoGeneratorsOverOneCache: a second generator over the cache of a running one would refuse
// its writes, and take the demands of its waiters. Its Run says so, and ends its Watch; once the
// first has ended, another one takes over.
func TestTwoGeneratorsOverOneCache(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.toy.set("p", Container, "c", PhaseRunning)
		synctest.Wait()
		second, err := New(b.gen.cfg)
		if err != nil {
			b.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		defer cancel()
		if err := second.Run(ctx); !errors.Is(err, ErrCacheInUse) {
			b.t.Fatalf("Run of a second generator over the cache: %v, want ErrCacheInUse", err)
		}
		for e := range second.Watch() {
			b.t.Errorf("the second generator tells of %v", e)
		}
		if err := second.Health(); !errors.Is(err, ErrNotRunning) {
			b.t.Errorf("Health of the second generator: %v", err)
		}
		second.Calling(OwnCall{ID: "c"})(nil) // without effect, and kept by nobody
		second.RequestRelist("")
		if len(second.acks.acks) > 0 || len(second.requests) > 0 {
			b.t.Errorf("the second generator keeps %v and %v", second.acks.acks, second.requests)
		}
		if err := second.Run(ctx); !errors.Is(err, ErrAlreadyRun) {
			b.t.Errorf("Run once more: %v, want ErrAlreadyRun", err)
		}
		b.stop()
		b.start(nil) // the bed's stop checks the error of Run
		if _, err := b.cache.GetNewerThan(ctx, "p", time.Now()); err != nil {
			b.t.Errorf("over the cache of a generator that has ended: %v", err)
		}
	})
}

// TestRunTwiceAtOnce: the second call does not end the first one's Watch.
func TestRunTwiceAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		synctest.Wait()
		if err := b.gen.Run(b.t.Context()); !errors.Is(err, ErrAlreadyRun) {
			b.t.Errorf("Run while it runs: %v, want ErrAlreadyRun", err)
		}
		b.toy.set("p", Container, "c", PhaseRunning)
		if e, ok := <-b.gen.Watch(); !ok || e.ID != "c" {
			b.t.Errorf("Watch after a second Run: %v, %v", e, ok)
		}
	})
}
