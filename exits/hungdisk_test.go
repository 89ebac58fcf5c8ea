// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestADiskThatHangs: the write of the ledger does not return. Ends wait for it for five seconds,
// and those that come later for nothing; the ledger has them all once the disk is well again.
func TestADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, meanwhile = 3, 5
		path := filepath.Join(t.TempDir(), "reported.json")
		g := &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
		r := withLedger(t, g, path)
		told := func() int { return int(r.Stats().Ends[Failed]) }
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
		w := newRun(ctx, r, found(t, r))
		well := make(chan struct{})
		w.save = func(path string, r *record) error {
			if len(r.Reported) > 0 {
				<-well
			}
			return saveLedger(path, r)
		}
		var running sync.WaitGroup
		running.Go(func() { check(t, w.loop()) })
		time.Sleep(2 * time.Second)
		end := func(n int) {
			uid := cache.UID(fmt.Sprint("u", n))
			shown := exited(fmt.Sprint("c", n), 1, "Error")
			shown.CreatedAt, shown.StartedAt, shown.FinishedAt = time.Now(), time.Now(), time.Now()
			pod := &Pod{Ref: Ref{UID: uid, Namespace: "ns", Name: "p"}, Containers: []Container{shown}}
			g.statuses.Set(uid, pod, nil, time.Now())
			g.next = pod
			g.watch <- pleg.Event{Pod: uid, Type: pleg.ContainerDied, ID: shown.ID, Seen: time.Now()}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for n := range before {
			end(n)
		}
		if told() != 0 {
			t.Errorf("%d ends are told before they are in the ledger", told())
		}
		time.Sleep(writePatience)
		synctest.Wait()
		if told() != before {
			t.Errorf("%d ends are told while the disk hangs, want %d", told(), before)
		}
		for n := range meanwhile {
			end(before + n)
			if told() != before+n+1 {
				t.Errorf("%d ends are told, want that of a second ago, too", told())
			}
		}
		if errs := r.Stats().LedgerErrors; errs != 1 {
			t.Errorf("%d errors are counted of one write", errs)
		}
		close(well)
		time.Sleep(time.Second)
		kept := must(loadLedger(path, time.Now()))(t)
		if len(kept.Reported) != before+meanwhile {
			t.Errorf("the ledger has %d ends, want %d", len(kept.Reported), before+meanwhile)
		}
		cancel()
		running.Wait()
		g.reads.Wait()
		if told() != before+meanwhile {
			t.Errorf("%d ends are told, want %d, each once", told(), before+meanwhile)
		}
	})
}

// TestADiskThatHangsAtTheEnd: neither the end of Run nor Save waits for a write for more than four
// seconds. Both name the file, what waited for the write is told, and no other write begins beside
// it, also once the process is to end.
func TestADiskThatHangsAtTheEnd(t *testing.T) {
	for _, test := range []struct {
		name  string
		hangs int // the write that hangs, counted from 1
		ended bool
		saved bool
	}{
		{"a write under way", 2, false, false},
		{"the last write", 3, false, false},
		{"the write of Save", 4, true, false},
		{"no write", 5, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "reported.json")
				g := &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
				r := must(New(Config[Pod]{
					Generator: g,
					Statuses:  g.statuses,
					View:      func(p *Pod) Pod { return *p },
					Recorder:  &reasons{},
					Path:      path,
					Sink:      NewSink(nil),
					Unsent:    func() int64 { return 0 },
				}))(t)
				ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
				w := newRun(ctx, r, found(t, r))
				well := make(chan struct{})
				var writes atomic.Int64
				w.save = func(string, *record) error {
					if int(writes.Add(1)) == test.hangs {
						<-well
					}
					return nil
				}
				ended := make(chan error, 1)
				go func() { ended <- w.loop() }()
				time.Sleep(2 * time.Second) // the first write
				shown := exited("c", 1, "Error")
				shown.CreatedAt, shown.StartedAt, shown.FinishedAt = time.Now(), time.Now(), time.Now()
				pod := &Pod{Ref: Ref{UID: "u", Namespace: "ns", Name: "p"}, Containers: []Container{shown}}
				g.statuses.Set("u", pod, nil, time.Now())
				g.next = pod
				g.watch <- pleg.Event{Pod: "u", Type: pleg.ContainerDied, ID: "c", Seen: time.Now()}
				time.Sleep(900 * time.Millisecond) // the second, for the end
				began := time.Now()
				cancel()
				err := <-ended
				judgeEnd(t, "Run", path, err, test.ended, began)
				if told := r.Stats().Ends[Failed]; told != 1 {
					t.Errorf("%d ends are told, want the one that has waited for the disk", told)
				}
				r.ended = w
				began = time.Now()
				saved := r.Save(0)
				judgeEnd(t, "Save", path, saved, test.saved, began)
				if err != nil && !errors.Is(saved, err) {
					t.Errorf("Save returns %v, want Run's error in it: %v", saved, err)
				}
				if want := min(test.hangs, 4); int(writes.Load()) != want {
					t.Errorf("%d writes, want %d, and none beside one that hangs", writes.Load(), want)
				}
				close(well)
				g.reads.Wait()
			})
		})
	}
}

// TestAStartOnADiskThatHangs: neither New nor Run waits for the disk for more than ten seconds.
// Both name the file. The lock that comes late is given back.
func TestAStartOnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "reported.json")
		r := ledgerOnly(t, path)
		well := make(chan struct{})
		r.open = func(path string, now time.Time) opened {
			<-well
			return openForRun(path, now)
		}
		look := func(string) error {
			<-well
			return nil
		}
		for what, start := range map[string]func() error{
			"New": func() error { return checkPath(path, look) },
			"Run": func() error { return r.Run(t.Context()) },
		} {
			began := time.Now()
			err := start()
			if took := time.Since(began); took > startPatience {
				t.Errorf("%s took %v", what, took)
			}
			if text := fmt.Sprint(err); !strings.Contains(text, path) || !strings.Contains(text, "its disk hangs") {
				t.Errorf("%s: %v, want an error that names the file", what, err)
			}
		}
		close(well)
		synctest.Wait()
		check(t, ledgerOnly(t, path).Run(ended(t)))
	})
}

// judgeEnd judges the end of a call that writes the ledger.
func judgeEnd(t *testing.T, what, path string, err error, well bool, began time.Time) {
	t.Helper()
	if took := time.Since(began); took > endPatience {
		t.Errorf("%s took %v", what, took)
	}
	says := err != nil && strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "its disk hangs")
	if well != (err == nil) || !well && !says {
		t.Errorf("%s: %v, want no error %v, else one that names the file", what, err, well)
	}
}
