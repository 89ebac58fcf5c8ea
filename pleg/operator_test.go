// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// tally is the sum of what a generator counted, by name.
type tally struct {
	mu sync.Mutex // owns n
	n  map[string]int
}

func (a *tally) Add(name string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n == nil {
		a.n = make(map[string]int)
	}
	a.n[name] += n
}

func (a *tally) Observe(string, time.Duration) {}

func (a *tally) of(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n[name]
}

// sticky is a toy whose reads of pods named stuck… do not end before their context does.
type sticky struct{ *toyRuntime }

func (s sticky) Inspect(ctx context.Context, pod Pod) (Inspection[status], error) {
	if strings.HasPrefix(string(pod.UID), "stuck") {
		<-ctx.Done()
		return Inspection[status]{}, ctx.Err()
	}
	return s.toyRuntime.Inspect(ctx, pod)
}

func TestInterruptedInspectionsAreAMetric(t *testing.T) {
	var counts tally
	inBubble(t, func(c *Config[status], r *toyRuntime) {
		c.Source, c.Metrics, c.InspectWorkers = sticky{r}, &counts, 2
		for _, uid := range []cache.UID{"stuck-1", "stuck-2"} {
			r.pods[uid] = []Item{{ID: "s-" + string(uid), Kind: Sandbox, Phase: PhaseRunning}}
		}
	}, func(b *bed) {
		time.Sleep(500 * time.Millisecond) // both workers are held
		b.toy.set("web", Sandbox, "s-web", PhaseRunning)
		time.Sleep(5 * time.Second)
		b.want("web ContainerStarted s-web")
		got, want := counts.of(MetricInterruptedInspections), b.gen.Stats().InterruptedInspections
		if got == 0 || got != want {
			b.t.Errorf("the metric counts %d, Stats %d; want the same, above 0", got, want)
		}
	})
}

func TestHasSynced(t *testing.T) {
	inBubble(t, func(c *Config[status], r *toyRuntime) {
		r.delay, r.readErr = 3*time.Second, errors.New("no disk")
		r.pods["p"] = []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}
	}, func(b *bed) {
		synctest.Wait()
		if b.gen.HasSynced() {
			b.t.Error("synced before the first list")
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if s := b.gen.Stats(); s.Relists != 1 || b.gen.HasSynced() {
			b.t.Errorf("%d lists, synced %v; want one list, and not synced while the pod's statuses are being read", s.Relists, b.gen.HasSynced())
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if _, err := b.cache.Get("p"); err == nil || !b.gen.HasSynced() {
			b.t.Errorf("the pod's error is %v, synced %v; want the error recorded, and that to be enough", err, b.gen.HasSynced())
		}
		b.toy.mu.Lock()
		b.toy.listErr = errors.New("away")
		b.toy.mu.Unlock()
		time.Sleep(time.Minute)
		if !b.gen.HasSynced() {
			b.t.Error("no longer synced")
		}
	})
}

func TestEventsCarryNames(t *testing.T) {
	inBubble(t, func(c *Config[status], r *toyRuntime) {
		c.Capacity = 2
		r.pods["u1"] = []Item{
			{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, {ID: "c", Kind: Container, Phase: PhaseRunning, Name: "app"},
		}
	}, func(b *bed) {
		time.Sleep(2 * time.Second)
		b.events()
		b.toy.set("u1", Container, "c", PhaseRemoved)
		synctest.Wait()
		b.toy.set("u1", Sandbox, "s", PhaseRemoved)
		synctest.Wait() // Watch is full: what is not in it becomes a PodSync
		b.events()
		var got []string
		for _, e := range b.got {
			got = append(got, fmt.Sprintf("%s %s/%s %s%s", e.Type, e.Namespace, e.PodName, e.ID, e.ContainerName))
		}
		want := []string{
			"ContainerStarted default/u1 s", "ContainerStarted default/u1 capp",
			"ContainerDied default/u1 capp", "ContainerRemoved default/u1 capp", "PodSync default/u1 ",
		}
		slices.Sort(got[:2])
		slices.Sort(want[:2])
		if !slices.Equal(got, want) {
			b.t.Errorf("events %q, want %q", got, want)
		}
	})
}
