// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestAFullDiskInAStorm: each end causes a write of the ledger, and none succeeds. All are counted,
// and the log has at most a line each five seconds.
func TestAFullDiskInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ends = 1000
		path := filepath.Join(t.TempDir(), "reported.json")
		var lines atomic.Int64
		logger := funcr.New(func(_, _ string) { lines.Add(1) }, funcr.Options{})
		g := &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
		r := withLedger(t, g, path)
		check(t, os.MkdirAll(filepath.Join(path+".new", "in the way"), 0o700)) // of each write
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		time.Sleep(time.Second)
		began := time.Now()
		for i := range ends { // each container is removed at once
			uid := cache.UID(fmt.Sprint("u", i))
			shown := Container{ID: fmt.Sprint("c", i), Name: "app", Phase: pleg.PhaseRunning}
			pod := &Pod{Ref: Ref{UID: uid, Namespace: "ns", Name: "p"}, Containers: []Container{shown}}
			g.statuses.Set(uid, pod, nil, time.Now())
			g.watch <- pleg.Event{Pod: uid, Type: pleg.ContainerStarted, ID: shown.ID, Seen: time.Now()}
			time.Sleep(5 * time.Millisecond)
			g.statuses.Set(uid, &Pod{}, nil, time.Now())
			g.watch <- pleg.Event{Pod: uid, Type: pleg.ContainerRemoved, ID: shown.ID, Seen: time.Now()}
			time.Sleep(5 * time.Millisecond)
		}
		limit := int64(time.Since(began)/ledgerRetry) + 2 // the first and the last write
		cancel()
		running.Wait()
		g.reads.Wait()
		stats := r.Stats()
		if stats.Ends[Lost] != ends || stats.LedgerErrors < ends/2 {
			t.Errorf("%d ends and %d errors, want %d ends and about as many errors", stats.Ends[Lost], stats.LedgerErrors, ends)
		}
		if lines.Load() > limit {
			t.Errorf("%d lines of log, want at most %d", lines.Load(), limit)
		}
	})
}
