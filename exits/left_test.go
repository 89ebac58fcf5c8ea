// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestAnEndThatSettlesAtTheStop: an end that is seen and not yet reported when the agent is stopped
// is reported once by the next one: as last seen, if its container is removed before.
func TestAnEndThatSettlesAtTheStop(t *testing.T) {
	for _, test := range []struct {
		name    string
		starts  int // of agents that are stopped before they know
		removed bool
		want    int
		note    string
	}{
		{"removed", 0, true, 1, "Container app failed (exit code 1) after 4.9s, attempt 0"},
		{"removed, and more agents are stopped", 3, true, 1, "Container app failed (exit code 1) after 4.9s, attempt 0"},
		{"still there", 0, false, 1, "Container app failed (exit code 1) after 4.9s, attempt 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeruntime.Config{Seed: 46})
				labelled := func(c *Config[cri.PodStatus]) { c.Choice.Labels = "app=shop" }
				a := w.start(labelled)
				time.Sleep(time.Second)
				pod := must(w.runtime.AddPod(fakeruntime.PodSpec{
					Name:      "p",
					Namespace: "ns",
					Labels:    map[string]string{"app": "shop"},
				}))(t)
				id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
				check(t, w.runtime.Start(id))
				time.Sleep(5 * time.Second)
				check(t, w.runtime.Exit(id, 1))
				time.Sleep(400 * time.Millisecond)
				a.stop()
				if test.removed {
					check(t, w.runtime.Remove(id))
				}
				for range test.starts {
					a = w.start(labelled)
					time.Sleep(3 * time.Second)
					a.stop()
				}
				a = w.start(labelled)
				time.Sleep(30 * time.Second)
				reports := a.stop()
				got := known(w)["ns"]
				if got != int32(test.want) || len(reports) != 1 || reports[0].outcome != Reported {
					t.Fatalf("%d ends at the server, want %d: %+v", got, test.want, reports)
				}
				if reports[0].Note != test.note || reports[0].Settled == test.removed {
					t.Errorf("told %q, settled %v", reports[0].Note, reports[0].Settled)
				}
			})
		})
	}
}

// newHeir returns a stand whose core was left the end of "a", and knows the runtime since now.
func newHeir(t *testing.T) *stand {
	s := newStand(t, nil)
	e := End{
		Kind:       Failed,
		Pod:        Ref{UID: "u", Namespace: "ns", Name: "p"},
		ID:         "a",
		Container:  "app",
		ExitCode:   1,
		CodeKnown:  true,
		StartedAt:  start,
		FinishedAt: start.Add(30 * time.Second),
	}
	s.core = newCore(
		settings{settle: s.core.settle, giveUp: s.core.giveUp},
		&record{Since: start, Settling: []settlingEnd{{End: e}}},
	)
	s.core.synced(s.now)
	return s
}

// passes lets a time pass, and tells the core.
func (s *stand) passes(d time.Duration) {
	s.now = s.now.Add(d)
	s.told = append(s.told, s.core.passed(s.now).ends...)
	s.checkInvariants()
}

// TestEndsLeftByTheProcessBefore: each is told once, from what the runtime shows, or as last seen.
func TestEndsLeftByTheProcessBefore(t *testing.T) {
	const failed = "ContainerFailed Container app failed (exit code 1) after 30s, attempt 0"
	sync := pleg.Event{Type: pleg.PodSync}
	for _, test := range []struct {
		name string
		play func(s *stand)
		want []string
	}{
		{"not shown", func(s *stand) { s.passes(10 * time.Second) }, []string{failed}},
		{"its pod may be unreadable", func(s *stand) { s.passes(9 * time.Second) }, nil},
		{"the process stands still", func(s *stand) {
			s.stands(time.Minute)
			s.passes(9 * time.Second)
		}, nil},
		{"shown", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error")), sync)
			s.passes(time.Minute)
			s.wants()
			s.read(shows(exited("a", 3, "Error")), false)
			s.passes(time.Minute)
		}, []string{"ContainerFailed Container app failed (exit code 3) after 30s, attempt 0, at 2026-11-25T12:00:30Z"}},
		{"shown running, and removed unseen", func(s *stand) {
			s.cached(shows(running("a")), sync)
			s.passes(time.Minute)
			s.cached(shows(), sync)
		}, []string{"ContainerLost Container app ended and was removed before its exit code could be read, attempt 0"}},
		{"shown after its report", func(s *stand) {
			s.passes(10 * time.Second)
			s.cached(shows(exited("a", 1, "Error")), sync)
			s.passes(time.Minute)
			s.cached(shows(), sync)
		}, []string{failed}},
		{"started again", func(s *stand) {
			s.cached(shows(again()), sync)
			s.passes(time.Minute)
			s.wants(failed)
			s.cached(shows(endedAgain()), sync)
			s.read(shows(endedAgain()), false)
		}, []string{failed, "ContainerOOMKilled Container app was killed for lack of memory " +
			"(OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0"}},
		{"started and ended again", func(s *stand) {
			s.cached(shows(endedAgain()), sync)
			s.read(shows(endedAgain()), false)
		}, []string{failed, "ContainerOOMKilled Container app was killed for lack of memory " +
			"(OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0"}},
		{"by its stamp from before the first start", func(s *stand) {
			old := exited("a", 1, "Error")
			old.CreatedAt = start.Add(-time.Hour)
			old.StartedAt = start.Add(-time.Minute)
			old.FinishedAt = start.Add(-time.Second)
			s.cached(shows(old), sync)
			s.read(shows(old), false)
		}, []string{"ContainerFailed Container app failed (exit code 1) after 59s, attempt 0, at 2026-11-25T11:59:59Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newHeir(t)
			test.play(s)
			s.wants(test.want...)
		})
	}
}

// TestWhatIsLeft: the ends that settle, and those left before and not shown yet, are left in the
// order of their IDs, with what is known of them.
func TestWhatIsLeft(t *testing.T) {
	s := newHeir(t)
	s.core.exit = func(id string) (int32, string, bool) { return 137, "OOMKilled", id == "c" }
	pod := shows(exited("c", 137, "Error"), running("b"))
	pod.Labels = map[string]string{"app": "shop"}
	s.cached(pod, pleg.Event{Type: pleg.ContainerDied, ID: "b"})
	var got []string
	for _, e := range s.core.unreported() {
		got = append(got, fmt.Sprintf("%s %s %s", e.ID, e.Kind, e.Labels["app"]))
	}
	want := []string{"a ContainerFailed ", "b ContainerLost shop", "c ContainerOOMKilled shop"}
	if !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// TestAnEndWithoutAStamp: what has no time of its end is told once, by this process or the next,
// and so is the end of a later life. On the first start of all it is from before.
func TestAnEndWithoutAStamp(t *testing.T) {
	const (
		failed = "ContainerFailed Container app failed (exit code 1), attempt 0"
		second = "ContainerOOMKilled Container app was killed for lack of memory " +
			"(OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0"
	)
	stampless := exited("a", 1, "Error")
	stampless.FinishedAt = time.Time{}
	later := endedAgain()
	later.StartedAt = start.Add(2 * time.Minute)
	later.FinishedAt = later.StartedAt.Add(30 * time.Second)
	old := stampless
	old.CreatedAt = start.Add(-time.Hour)
	old.StartedAt = old.CreatedAt
	end := func(s *stand, shown Container) {
		s.cached(shows(shown), pleg.Event{Type: pleg.PodSync})
		if s.core.settling > 0 {
			s.read(shows(shown), false)
		}
	}
	next := func(s *stand) {
		before := &record{Since: start, Reported: s.core.reported()}
		s.core = newCore(settings{settle: s.core.settle, giveUp: s.core.giveUp}, before)
		s.core.syncedAt = s.now
	}
	for _, test := range []struct {
		name string
		play func(s *stand)
		want []string
	}{
		{"once", func(s *stand) {
			end(s, stampless)
			end(s, stampless)
			next(s)
			end(s, stampless)
		}, []string{failed}},
		{"each life", func(s *stand) {
			end(s, stampless)
			end(s, later)
		}, []string{failed, second}},
		{"each life, by two processes", func(s *stand) {
			end(s, stampless)
			next(s)
			end(s, later)
		}, []string{failed, second}},
		{"before the first start", func(s *stand) {
			s.core.fresh = true
			end(s, old)
			next(s)
			end(s, old)
		}, nil},
		{"between two runs of the reporter", func(s *stand) { end(s, old) }, []string{failed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t, nil)
			test.play(s)
			for i := range s.told {
				s.told[i].Note, _, _ = strings.Cut(s.told[i].Note, ", at ")
			}
			s.wants(test.want...)
		})
	}
}
