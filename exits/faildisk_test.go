// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// logLines are the lines of a log.
type logLines struct {
	mu  sync.Mutex
	all []string
}

// context returns a context whose logger adds to the lines.
func (l *logLines) context() context.Context {
	add := func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, line)
	}
	return klog.NewContext(context.Background(), funcr.New(add, funcr.Options{}))
}

// with returns the lines that have a text.
func (l *logLines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// failures returns the sum of the counts in lines.
func failures(t *testing.T, lines []string) (sum uint64) {
	t.Helper()
	for _, line := range lines {
		var n uint64
		_, after, ok := strings.Cut(line, `"failures"=`)
		if _, err := fmt.Sscan(after, &n); !ok || err != nil {
			t.Errorf("%s: no count", line)
		}
		sum += n
	}
	return sum
}

// failingDisk is a reporter whose writes of the ledger fail while fault is not nil.
type failingDisk struct {
	*Reporter[Pod]
	path  string
	fault atomic.Pointer[error]
	log   logLines
	g     *slowReads
}

// run runs the reporter for do.
func (d *failingDisk) run(t *testing.T, do func()) {
	d.path = filepath.Join(t.TempDir(), "reported.json")
	d.g = &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
	d.Reporter = withLedger(t, d.g, d.path)
	ctx, cancel := context.WithCancel(d.log.context())
	w := newRun(ctx, d.Reporter, found(t, d.Reporter))
	w.save = func(path string, r *record) error {
		if fault := d.fault.Load(); fault != nil {
			return *fault
		}
		return saveLedger(path, r)
	}
	var running sync.WaitGroup
	running.Go(func() { check(t, w.loop()) })
	time.Sleep(time.Second)
	do()
	cancel()
	running.Wait()
	d.g.reads.Wait()
	d.unlock()
}

// end ends a container of its own.
func (d *failingDisk) end(n int) {
	uid := cache.UID(fmt.Sprint("u", n))
	shown := exited(fmt.Sprint("c", n), 1, "Error")
	shown.CreatedAt, shown.StartedAt, shown.FinishedAt = time.Now(), time.Now(), time.Now()
	pod := &Pod{Ref: Ref{UID: uid, Namespace: "ns", Name: "p"}, Containers: []Container{shown}}
	d.g.statuses.Set(uid, pod, nil, time.Now())
	d.g.next = pod
	d.g.watch <- pleg.Event{Pod: uid, Type: pleg.ContainerDied, ID: shown.ID, Seen: time.Now()}
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// TestADiskThatFails: for six hours, each write fails. The ends are told nevertheless. The log has
// the first failure at once, and further ones rarely, with their number; the state tells since
// when. Once the disk is well, the ledger has all ends, and the log says so once.
func TestADiskThatFails(t *testing.T) {
	for _, fault := range []error{
		&fs.PathError{Op: "open", Path: "reported.json.new", Err: syscall.EROFS},
		&fs.PathError{Op: "write", Path: "reported.json.new", Err: syscall.ENOSPC},
		&fs.PathError{Op: "sync", Path: "reported.json.new", Err: syscall.EIO},
		&fs.PathError{Op: "close", Path: "reported.json.new", Err: syscall.EDQUOT},
		&fs.PathError{Op: "rename", Path: "reported.json.new", Err: syscall.ESTALE},
	} {
		synctest.Test(t, func(t *testing.T) {
			const ends, failing = 50, 6 * time.Hour
			var d failingDisk
			d.run(t, func() {
				if since := d.Stats().LedgerFailing; !since.IsZero() {
					t.Errorf("failing since %v on a disk that is well", since)
				}
				d.fault.Store(&fault)
				d.end(0)
				if lines := d.log.with(fault.Error()); len(lines) != 1 {
					t.Errorf("after a second the log has %q", lines)
				}
				began := time.Now()
				for n := range ends {
					d.end(1 + n)
				}
				time.Sleep(failing - time.Since(began))
				stats := d.Stats()
				if age := time.Since(stats.LedgerFailing); age < failing || age > failing+5*time.Second {
					t.Errorf("failing for %v, want %v", age, failing)
				}
				lines := d.log.with(fault.Error())
				if logged := failures(t, lines); len(lines) > 16 || logged < stats.LedgerErrors*8/10 || logged > stats.LedgerErrors {
					t.Errorf("%d lines tell %d failures of %d", len(lines), logged, stats.LedgerErrors)
				}
				if stats.Ends[Failed] != ends+1 {
					t.Errorf("%d ends are told, want %d", stats.Ends[Failed], ends+1)
				}
				d.fault.Store(nil)
				time.Sleep(2 * ledgerRetry)
				if since := d.Stats().LedgerFailing; !since.IsZero() {
					t.Errorf("failing since %v on a disk that is well again", since)
				}
				well := d.log.with("written again")
				if all := failures(t, append(well, lines...)); len(well) != 1 || all != d.Stats().LedgerErrors {
					t.Errorf("%q, with %d of %d failures", well, all, d.Stats().LedgerErrors)
				}
				kept := must(loadLedger(d.path, time.Now()))(t)
				if len(kept.Reported) != ends+1 {
					t.Errorf("the ledger has %d ends, want %d", len(kept.Reported), ends+1)
				}
			})
		})
	}
}

// TestADiskThatFailsNowAndThen: each second write fails, for hours. The log does not flood.
func TestADiskThatFailsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d failingDisk
		d.run(t, func() {
			fault := error(syscall.ESTALE)
			for n := range 200 {
				d.fault.Store(&fault)
				d.end(n)
				d.fault.Store(nil)
				time.Sleep(2 * ledgerRetry)
			}
		})
		if lines := len(d.log.with("")); lines > 30 {
			t.Errorf("the log has %d lines of %d failures", lines, d.Stats().LedgerErrors)
		}
	})
}

// TestAFolderThatCannotBeSynced: some file systems have no such call for folders. What is in them
// is complete nevertheless.
func TestAFolderThatCannotBeSynced(t *testing.T) {
	const folder = "/proc"
	info, err := os.Stat(folder)
	if err != nil || !info.IsDir() {
		t.Skip("no folder of such a file system")
	}
	check(t, syncFolder(folder))
	if err := syncFolder(t.TempDir()); err != nil {
		t.Error(err)
	}
}
