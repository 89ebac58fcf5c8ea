// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// slowReads is a generator with a pod whose status takes a while to be read.
type slowReads struct {
	statuses *cache.Cache[Pod]
	watch    chan pleg.Event
	reads    sync.WaitGroup
	next     *Pod // what a read shows
}

func (g *slowReads) Watch() <-chan pleg.Event { return g.watch }

func (g *slowReads) HasSynced() bool { return true }

// RequestReinspect stores the status 300 ms later, as read then.
func (g *slowReads) RequestReinspect(uid cache.UID) {
	g.reads.Go(func() {
		time.Sleep(300 * time.Millisecond)
		g.statuses.Set(uid, g.next, nil, time.Now())
	})
}

// reasons is a recorder that keeps the reasons of Events.
type reasons struct{ all []string }

func (r *reasons) AnnotatedEventf(_, _ runtime.Object, _ map[string]string, _, reason, _, _ string, _ ...any) {
	r.all = append(r.all, reason)
}

// TestTheReasonIsReadAfterTheSettleTime: an end is reported from a status read after the settle
// time, not from the status in the cache by then.
func TestTheReasonIsReadAfterTheSettleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slowReads{statuses: cache.New[Pod](nil), watch: make(chan pleg.Event, 10)}
		recorder := &reasons{}
		r := must(New(Config[Pod]{
			Generator: g,
			Statuses:  g.statuses,
			View:      func(p *Pod) Pod { return *p },
			Recorder:  recorder,
		}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		time.Sleep(time.Second)
		shown := func(reason string) *Pod {
			return &Pod{
				Ref: Ref{UID: "u", Namespace: "ns", Name: "p"},
				Containers: []Container{{
					ID:         "c",
					Name:       "app",
					Phase:      pleg.PhaseExited,
					ExitCode:   137,
					Reason:     reason,
					CreatedAt:  time.Now(),
					StartedAt:  time.Now(),
					FinishedAt: time.Now(),
				}},
			}
		}
		g.next = shown("OOMKilled")
		g.statuses.Set("u", shown("Error"), nil, time.Now())
		g.watch <- pleg.Event{Pod: "u", Type: pleg.ContainerDied, ID: "c", Seen: time.Now()}
		time.Sleep(5 * time.Second)
		cancel()
		running.Wait()
		g.reads.Wait()
		if len(recorder.all) != 1 || recorder.all[0] != string(OOMKilled) {
			t.Errorf("reported %v, want %s once", recorder.all, OOMKilled)
		}
	})
}

// TestTheReasonMayComeUntilTheSettleTime: a reason that the runtime sets within the settle time is
// that of the report. A later reason changes nothing: each end is reported once.
func TestTheReasonMayComeUntilTheSettleTime(t *testing.T) {
	const settle = 500 * time.Millisecond
	for _, profile := range fakeruntime.Profiles() {
		for _, test := range []struct {
			late time.Duration
			want Kind
		}{
			{0, OOMKilled},
			{time.Millisecond, OOMKilled},
			{100 * time.Millisecond, OOMKilled},
			{settle - time.Millisecond, OOMKilled},
			{5 * time.Second, Killed},
		} {
			t.Run(fmt.Sprint(profile.Name, "/", test.late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, fakeruntime.Config{Profile: profile, Seed: 46})
					a := w.start(func(c *Config[cri.PodStatus]) { c.Settle = settle })
					time.Sleep(time.Second)
					pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
					id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
					check(t, w.runtime.Start(id))
					time.Sleep(10 * time.Second)
					check(t, w.runtime.OOMKill(id, test.late))
					time.Sleep(time.Minute)
					reports := a.stop()
					if len(reports) != 1 || reports[0].Kind != test.want || !reports[0].Settled {
						t.Errorf("reported %+v, want one settled %s", reports, test.want)
					}
				})
			})
		}
	}
}
