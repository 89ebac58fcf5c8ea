// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// TestAPathThatIsChecked leaves nothing beside it.
func TestAPathThatIsChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reported.json")
	check(t, CheckPath(path))
	if _, err := os.Lstat(path + lockSuffix); err == nil {
		t.Error("a check makes a file")
	}
}
