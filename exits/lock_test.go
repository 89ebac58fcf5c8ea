// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// ledgerOnly returns a reporter of nothing, with a ledger.
func ledgerOnly(t *testing.T, path string) *Reporter[Pod] {
	return withLedger(t, &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event)}, path)
}

// withLedger returns a reporter of a generator, with a ledger.
func withLedger(t *testing.T, g *slowReads, path string) *Reporter[Pod] {
	return must(New(Config[Pod]{
		Generator: g,
		Statuses:  g.statuses,
		View:      func(p *Pod) Pod { return *p },
		Recorder:  &reasons{},
		Path:      path,
	}))(t)
}

// found returns what a reporter finds at the path of its ledger.
func found(t *testing.T, r *Reporter[Pod]) *opened {
	t.Helper()
	ledger := must(r.openLedger(klog.Background()))(t)
	return &ledger
}

// TestTwoReportersOfALedger: the second is refused, at New and at Run, as long as the first needs
// the file; neither the ledger nor its lock is changed by the refusal.
func TestTwoReportersOfALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "reported.json")
		second := ledgerOnly(t, path)
		first := ledgerOnly(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { check(t, first.Run(ctx)) })
		time.Sleep(time.Second)
		before := must(os.ReadFile(path))(t)
		for _, err := range []error{second.Run(ctx), CheckPath(path)} {
			if err == nil || !strings.Contains(err.Error(), path+" is in use by another process") {
				t.Errorf("%v: want a refusal that names %s", err, path)
			}
		}
		if after := must(os.ReadFile(path))(t); string(after) != string(before) {
			t.Errorf("the ledger is %s, was %s", after, before)
		}
		cancel()
		running.Wait()
		check(t, CheckPath(path))
		check(t, ledgerOnly(t, path).Run(ended(t)))
	})
}

// TestALedgerIsLockedUntilItIsSaved: Save writes it, after the recorder's shutdown.
func TestALedgerIsLockedUntilItIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeruntime.Config{Seed: 46})
		a := w.start(nil)
		time.Sleep(time.Second)
		a.cancel()
		synctest.Wait()
		if !a.reporterEnded() || CheckPath(w.ledger) == nil {
			t.Error("the ledger is free before Save")
		}
		a.stop()
		check(t, CheckPath(w.ledger))
		content := must(os.ReadFile(w.ledger))(t)
		check(t, os.Remove(w.ledger))
		check(t, a.reporter.Save(0)) // once more: the file may be another's by now
		if _, err := os.Stat(w.ledger); err == nil {
			t.Errorf("a second Save writes what was %s", content)
		}
	})
}

// TestALockThatIsRemoved: a reporter whose lock was removed makes it again at its next write. If
// another one has been faster, the ledger is that one's: the first changes it no more, and counts
// its writes as failed.
func TestALockThatIsRemoved(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken ", taken), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lockThatIsRemoved(t, taken) })
		})
	}
}

func lockThatIsRemoved(t *testing.T, taken bool) {
	path := filepath.Join(t.TempDir(), "reported.json")
	first := ledgerOnly(t, path)
	second := ledgerOnly(t, path)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	other, cancelOther := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	var running, others sync.WaitGroup
	running.Go(func() { check(t, first.Run(ctx)) })
	time.Sleep(time.Second)
	check(t, os.Remove(path+lockSuffix))
	if taken {
		others.Go(func() { check(t, second.Run(other)) })
		time.Sleep(time.Second)
	}
	marked := string(must(os.ReadFile(path))(t)) + " "
	check(t, os.WriteFile(path, []byte(marked), 0o600))
	cancel() // the last write
	running.Wait()
	if kept := string(must(os.ReadFile(path))(t)) == marked; kept != taken {
		t.Errorf("another has the lock %v, and the ledger is as it was %v", taken, kept)
	}
	if failed := first.Stats().LedgerErrors > 0; failed != taken {
		t.Errorf("another has the lock %v, and a write has failed %v", taken, failed)
	}
	if _, err := os.Stat(path + lockSuffix); err != nil {
		t.Errorf("the lock is not made again: %v", err)
	}
	if inUse := CheckPath(path) != nil; inUse != taken {
		t.Errorf("another has the lock %v, and the ledger is in use %v", taken, inUse)
	}
	cancelOther()
	others.Wait()
}

// TestALedgerThatCannotBeLocked is used without: a link in the place of the lock is not followed.
func TestALedgerThatCannotBeLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reported.json")
	check(t, os.Symlink(path+".other", path+lockSuffix))
	ctx := klog.NewContext(ended(t), logr.Discard())
	check(t, ledgerOnly(t, path).Run(ctx))
	if _, err := os.Lstat(path + ".other"); err == nil {
		t.Error("the link is followed")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestALockIsNotInterrupted: a signal leaves no ledger without its lock, and hides none that is
// taken.
func TestALockIsNotInterrupted(t *testing.T) {
	answers := []error{syscall.EINTR, syscall.EINTR, syscall.EWOULDBLOCK}
	err := uninterrupted(func() error {
		answer := answers[0]
		answers = answers[1:]
		return answer
	})
	if err != syscall.EWOULDBLOCK || len(answers) > 0 {
		t.Errorf("%v, with %d answers left", err, len(answers))
	}
}

// TestAPathThatIsChecked leaves nothing beside it.
func TestAPathThatIsChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reported.json")
	check(t, CheckPath(path))
	if _, err := os.Lstat(path + lockSuffix); err == nil {
		t.Error("a check makes a file")
	}
}
