// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// stand is a core with a clock, for one pod.
type stand struct {
	t    *testing.T
	core *core
	now  time.Time
	told []End
}

var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func newStand(t *testing.T, earlier map[string]time.Time) *stand {
	s := settings{settle: 500 * time.Millisecond, giveUp: 10 * time.Second}
	s.exit = func(id string) (int32, string, bool) {
		if id == "oom" {
			return 137, "OOMKilled", true
		}
		return 7, "Error", id == "known"
	}
	c := newCore(s, &record{Since: start, Reported: earlier})
	c.syncedAt = start
	return &stand{t: t, core: c, now: start.Add(time.Minute)}
}

// running, exited and others are containers in a status.
func running(id string) Container {
	return Container{ID: id, Name: "app", SandboxID: "s", Phase: pleg.PhaseRunning, CreatedAt: start, StartedAt: start}
}

func exited(id string, code int32, reason string) Container {
	c := running(id)
	c.Phase = pleg.PhaseExited
	c.ExitCode = code
	c.Reason = reason
	c.FinishedAt = start.Add(30 * time.Second)
	return c
}

func shows(all ...Container) Pod {
	pod := Pod{Ref: Ref{UID: "u", Namespace: "ns", Name: "p"}, Containers: all}
	if len(all) > 0 {
		pod.Sandboxes = []Sandbox{{ID: "s", Ready: true}}
	}
	return pod
}

// TestNeverGivingUp: without a bound, an end waits for its status as long as that cannot be read.
func TestNeverGivingUp(t *testing.T) {
	s := newStand(t, nil)
	s.core.giveUp = math.MaxInt64
	s.cached(shows(running("a")), pleg.Event{})
	s.cached(shows(exited("a", 137, "Error")), pleg.Event{Type: pleg.ContainerDied, Kind: pleg.Container, ID: "a"})
	s.read(shows(exited("a", 137, "Error")), true)
	if len(s.told) > 0 {
		t.Fatalf("given up at the first read that fails: %s", s.told[0].Note)
	}
	s.now = s.now.Add(time.Hour)
	s.read(shows(exited("a", 137, "OOMKilled")), false)
	if len(s.told) != 1 || s.told[0].Reason != "OOMKilled" {
		t.Errorf("told: %+v", s.told)
	}
}

// TestFirstStartBeforeTheClockIsSet: at the boot of a node without a clock of its own, the first
// process meets ends with stamps from the future. They are from before its start.
func TestFirstStartBeforeTheClockIsSet(t *testing.T) {
	s := newStand(t, nil)
	s.now = time.Unix(31, 0)
	r := newRecord(time.Unix(30, 0))
	s.core = newCore(settings{settle: s.core.settle, giveUp: s.core.giveUp}, &r)
	s.cached(shows(exited("a", 1, "Error")), pleg.Event{})
	s.core.synced(s.now)
	for !s.core.next().IsZero() {
		s.read(shows(exited("a", 1, "Error")), false)
	}
	if len(s.told) > 0 {
		t.Errorf("an end from before the first start is told: %s", s.told[0].Note)
	}
	s.cached(shows(running("b")), pleg.Event{}).cached(shows(exited("b", 1, "Error")), pleg.Event{})
	for !s.core.next().IsZero() {
		s.read(shows(exited("b", 1, "Error")), false)
	}
	if len(s.told) != 1 {
		t.Errorf("the end of a container that ran is told %d times, want once", len(s.told))
	}
}

func (s *stand) take(in sighting) *stand {
	s.told = append(s.told, s.core.see(s.now, in).ends...)
	s.checkInvariants()
	return s
}

// cached takes a status from the cache, after an event.
func (s *stand) cached(pod Pod, event pleg.Event) *stand {
	event.Pod = "u"
	event.Seen = s.now
	return s.take(sighting{pod: pod, event: event})
}

// read waits for the next planned read, and answers it at once.
func (s *stand) read(pod Pod, failed bool) *stand {
	s.t.Helper()
	began := s.begin()
	return s.take(sighting{pod: pod, unreadable: failed, readAfter: began})
}

// slowRead waits for the next planned read, and answers it after a time.
func (s *stand) slowRead(pod Pod, takes time.Duration) *stand {
	s.t.Helper()
	began := s.begin()
	s.now = began.Add(takes)
	return s.take(sighting{pod: pod, readAfter: began})
}

// rest answers all planned reads with a status.
func (s *stand) rest(pod Pod) *stand {
	s.t.Helper()
	for range 10 {
		if s.core.next().IsZero() {
			return s
		}
		s.read(pod, false)
	}
	s.t.Error("reads are planned without end")
	return s
}

// stands lets time pass in which the process does not run.
func (s *stand) stands(long time.Duration) {
	s.now = s.now.Add(long)
	s.core.stood(long)
}

// begin begins the next planned read, at its time.
func (s *stand) begin() time.Time {
	s.t.Helper()
	at := s.core.next()
	if at.IsZero() {
		s.t.Fatal("no read is planned")
	}
	if at.After(s.now) {
		s.now = at
	}
	uid, ok := s.core.due(s.now)
	if !ok || uid != "u" {
		s.t.Fatalf("the read is not due: %q", uid)
	}
	return s.now
}

func (s *stand) wants(notes ...string) {
	s.t.Helper()
	var got []string
	for _, e := range s.told {
		got = append(got, string(e.Kind)+" "+e.Note)
	}
	if strings.Join(got, "\n") != strings.Join(notes, "\n") {
		s.t.Errorf("told\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(notes, "\n\t"))
	}
}

// checkInvariants compares the counters and the queue with the records.
func (s *stand) checkInvariants() {
	s.t.Helper()
	containers, settling, queued := 0, 0, 0
	for _, p := range s.core.pods {
		for _, x := range p.containers {
			containers++
			if x.stage == stageSettling {
				settling++
			}
		}
		if p.look.place >= 0 {
			queued++
			if s.core.looks[p.look.place] != p || p.look.underway || p.look.due.IsZero() {
				s.t.Errorf("the queue and the pod disagree: %+v", p.look)
			}
		}
		if len(p.containers)+len(p.sandboxes) == 0 {
			s.t.Error("an empty pod is kept")
		}
	}
	if containers != s.core.containers || settling != s.core.settling || queued != len(s.core.looks) {
		s.t.Errorf("%d containers, %d settling, %d queued; counted %d, %d, %d", containers, settling, queued,
			s.core.containers, s.core.settling, len(s.core.looks))
	}
}

var diedEvent = pleg.Event{Type: pleg.ContainerDied, ID: "a", ContainerName: "app", Namespace: "ns", PodName: "p"}

func TestCore(t *testing.T) {
	failed := "ContainerFailed Container app failed (exit code 1) after 30s, attempt 0"
	tests := []struct {
		name string
		play func(s *stand)
		want []string
	}{
		{"the reason settles", func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("a", 137, "Error")), diedEvent)
			s.wants()
			s.read(shows(exited("a", 137, "OOMKilled")), false)
		}, []string{"ContainerOOMKilled Container app was killed for lack of memory (OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0"}},
		{"a read before the settle time decides nothing", func(s *stand) {
			s.cached(shows(exited("a", 255, "Error")), diedEvent)
			s.take(sighting{pod: shows(exited("a", 255, "Error")), readAfter: s.now})
			s.wants()
			s.read(shows(exited("a", 1, "Error")), false)
		}, []string{failed}},
		{"once", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.read(shows(exited("a", 1, "Error")), false)
			s.cached(shows(exited("a", 2, "Error")), diedEvent)
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
			s.cached(shows(), diedEvent)
			s.cached(shows(exited("a", 1, "Error")), pleg.Event{Type: pleg.PodSync})
		}, []string{failed}},
		{"a claim that a read overrules", func(s *stand) {
			s.cached(shows(running("a")), diedEvent)
			s.read(shows(running("a")), false)
			if !s.core.next().IsZero() {
				s.t.Error("a read is planned")
			}
		}, nil},
		{"removed before it settles", func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
		}, []string{failed}},
		{"removed unseen, with its code known", func(s *stand) {
			s.cached(shows(running("known")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "known"})
		}, []string{"ContainerFailed Container app failed (exit code 7), attempt 0"}},
		{"killed for lack of memory and removed unseen", func(s *stand) {
			s.cached(shows(running("oom")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "oom"})
		}, []string{"ContainerOOMKilled Container app was killed for lack of memory (OOMKilled, exit code 137, SIGKILL), attempt 0"}},
		{"removed unseen", func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(), pleg.Event{Type: pleg.PodSync})
		}, []string{"ContainerLost Container app ended and was removed before its exit code could be read, attempt 0"}},
		{"never in a status", func(s *stand) {
			s.cached(shows(), diedEvent)
			_, told := annotationsOf(&s.told[0])[annotationPrefix+"attempt"]
			if told {
				s.t.Error("an attempt is told that nobody knows")
			}
		}, []string{"ContainerLost Container app ended and was removed before its exit code could be read"}},
		{"never in a status, beside a later attempt", func(s *stand) {
			later := running("b")
			later.Attempt = 5
			s.cached(shows(later), diedEvent)
			s.read(shows(later), false)
		}, []string{"ContainerLost Container app ended and was removed before its exit code could be read"}},
		{"of unknown state, then removed", func(s *stand) {
			unknown := running("a")
			unknown.Phase = pleg.PhaseUnknown
			unknown.Attempt = 3
			s.cached(shows(unknown), diedEvent)
			s.read(shows(), false)
		}, []string{"ContainerLost Container app ended and was removed before its exit code could be read, attempt 3"}},
		{"removed before it settles, with a newer reason known", func(s *stand) {
			s.cached(shows(running("oom")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(exited("oom", 137, "Error")), pleg.Event{Type: pleg.ContainerDied, ID: "oom", ContainerName: "app"})
			s.read(shows(), false)
		}, []string{"ContainerOOMKilled Container app was killed for lack of memory (OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0"}},
		{"first seen ended, after the clock was set back", func(s *stand) {
			s.core.since = start.Add(time.Hour)
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.read(shows(exited("a", 1, "Error")), false)
		}, []string{failed}},
		{"absence is confirmed by a read", func(s *stand) {
			s.cached(shows(running("a"), running("b")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(running("b")), pleg.Event{Type: pleg.PodSync})
			s.read(shows(running("a"), running("b")), false)
		}, nil},
		{"unreadable", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			for range 10 {
				s.read(shows(exited("a", 1, "Error")), true)
				s.wants()
			}
			s.read(shows(exited("a", 1, "Error")), true)
		}, []string{failed}},
		{"a read within the settle time is none that failed", func(s *stand) {
			s.core.settle = time.Minute
			s.cached(shows(exited("a", 137, "Error")), diedEvent)
			s.now = s.now.Add(30 * time.Second)
			s.take(sighting{pod: shows(exited("a", 137, "Error")), readAfter: s.now}) // for another container
			s.read(shows(exited("a", 137, "OOMKilled")), false)
			if e := s.told[0]; !e.Settled || e.Unread {
				s.t.Errorf("settled %v, unread %v", e.Settled, e.Unread)
			}
			s.told[0].Note = ""
		}, []string{"ContainerOOMKilled "}},
		{"unreadable, and the process stands still", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error")), diedEvent)
			s.read(shows(exited("a", 1, "Error")), true)
			s.stands(time.Minute)
			for range 10 {
				s.read(shows(exited("a", 1, "Error")), true)
				s.wants()
			}
			s.read(shows(exited("a", 1, "Error")), true)
		}, []string{failed + ", at 2026-11-25T12:00:30Z"}},
		{"the reason does not settle while all stands still", func(s *stand) {
			s.cached(shows(exited("a", 137, "Error")), diedEvent)
			s.stands(time.Minute)
			s.read(shows(exited("a", 137, "Error")), false)
			s.wants()
			s.read(shows(exited("a", 137, "OOMKilled")), false)
		}, []string{"ContainerOOMKilled Container app was killed for lack of memory (OOMKilled, exit code 137, SIGKILL) after 30s, attempt 0, at 2026-11-25T12:00:30Z"}},
		{"an unread container is no removed one", func(s *stand) {
			s.cached(shows(running("a"), running("b")), pleg.Event{Type: pleg.ContainerStarted})
			partial := shows(exited("b", 1, "Error"))
			partial.Unread = []string{"a"}
			s.cached(partial, pleg.Event{Type: pleg.ContainerDied, ID: "b"})
			s.read(partial, false)
			s.cached(shows(running("a"), exited("b", 1, "Error")), pleg.Event{Type: pleg.PodSync})
		}, []string{failed}},
		{"an end whose status cannot be read", func(s *stand) {
			s.cached(shows(running("a"), running("b")), pleg.Event{Type: pleg.ContainerStarted})
			partial := shows(running("b"))
			partial.Unread = []string{"a"}
			s.cached(partial, diedEvent)
			for range 10 {
				s.read(partial, false).wants()
			}
			s.read(partial, false)
		}, []string{"ContainerLost Container app ended, and its status cannot be read, attempt 0"}},
		{"an unknown state is read again once a second", func(s *stand) {
			unknown := running("a")
			unknown.Phase = pleg.PhaseUnknown
			s.cached(shows(running("a")), diedEvent)
			s.read(shows(unknown), false)
			if pause := s.core.next().Sub(s.now); pause != time.Second {
				s.t.Errorf("the next read is in %v", pause)
			}
			s.read(shows(exited("a", 1, "Error")), false)
		}, []string{failed}},
		{"an end that settles during a read is read again at once", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error"), running("b")), diedEvent)
			s.now = s.now.Add(100 * time.Millisecond)
			both := shows(exited("a", 1, "Error"), exited("b", 1, "Error"))
			s.cached(both, pleg.Event{Type: pleg.ContainerDied, ID: "b"})
			s.slowRead(both, 300*time.Millisecond).wants(failed)
			if pause := s.core.next().Sub(s.now); pause != 0 {
				s.t.Errorf("the read that settles the second end is in %v", pause)
			}
			s.slowRead(both, 300*time.Millisecond)
		}, []string{failed, failed}},
		{"by its stamp from before the first start, as of a node that booted with a wrong clock", func(s *stand) {
			boot := exited("a", 255, "Unknown")
			boot.FinishedAt = time.Unix(40, 0)
			s.cached(shows(boot), diedEvent)
			s.read(shows(boot), false)
		}, []string{"ContainerLost Container app ended unseen by the container runtime (exit code 255, Unknown), attempt 0"}},
		{"older than the reporter", func(s *stand) {
			old := exited("a", 1, "Error")
			old.CreatedAt = start.Add(-3 * time.Second)
			old.StartedAt = start.Add(-2 * time.Second)
			old.FinishedAt = start.Add(-time.Second)
			s.cached(shows(old), diedEvent)
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "a"})
		}, nil},
		{"a stamp of a clock that was set back", func(s *stand) {
			old := exited("a", 1, "Error")
			old.CreatedAt = start.Add(-2 * time.Hour) // as of a container from before the reporter
			old.StartedAt = time.Time{}.Add(time.Hour)
			old.FinishedAt = start.Add(-time.Second)
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			s.cached(shows(old), diedEvent)
			s.read(shows(old), false)
			s.told[0].Note = ""
		}, []string{"ContainerFailed "}},
		{"reported by an earlier process", func(s *stand) {
			died := diedEvent
			died.ID = "told"
			s.cached(shows(exited("told", 1, "Error")), died)
			s.cached(shows(), pleg.Event{Type: pleg.ContainerRemoved, ID: "told"})
			s.cached(shows(), died)
		}, nil},
		{"the notes of a loop are equal", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error")), diedEvent).read(shows(exited("a", 1, "Error")), false)
			second := exited("b", 1, "Error")
			second.Attempt = 1
			s.cached(shows(second, exited("a", 1, "Error")), pleg.Event{Type: pleg.PodSync})
			s.read(shows(second, exited("a", 1, "Error")), false)
			third := exited("c", 3, "Error")
			third.Attempt = 2
			s.cached(shows(third, second), pleg.Event{Type: pleg.PodSync}).read(shows(third, second), false)
		}, []string{failed, failed, "ContainerFailed Container app failed (exit code 3) after 30s, attempt 2"}},
		{"ends six minutes apart are no loop", func(s *stand) {
			s.cached(shows(exited("a", 1, "Error")), diedEvent).read(shows(exited("a", 1, "Error")), false)
			s.now = s.now.Add(loopPause)
			second := exited("b", 1, "Error")
			second.Attempt = 1
			second.StartedAt = s.now.Add(-4 * time.Second)
			second.FinishedAt = s.now
			s.cached(shows(second, exited("a", 1, "Error")), pleg.Event{Type: pleg.PodSync})
			s.read(shows(second, exited("a", 1, "Error")), false)
		}, []string{failed, "ContainerFailed Container app failed (exit code 1) after 4s, attempt 1"}},
		{"late", func(s *stand) {
			s.now = start.Add(time.Hour)
			s.cached(shows(exited("a", 1, "Error")), diedEvent).read(shows(exited("a", 1, "Error")), false)
		}, []string{failed + ", at 2026-11-25T12:00:30Z"}},
		{"a sandbox dies under its containers", func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			dead := shows(running("a"))
			dead.Sandboxes[0].Ready = false
			s.cached(dead, pleg.Event{Type: pleg.ContainerDied, ID: "s", Kind: pleg.Sandbox})
			s.read(dead, false)
			s.cached(dead, pleg.Event{Type: pleg.PodSync})
			s.take(sighting{pod: dead, readAfter: s.now}) // a read for somebody else
		}, []string{"SandboxDied The pod's sandbox ended under its running containers: app"}},
		{"a sandbox dies under a container with an enormous name", func(s *stand) {
			large := running("a")
			large.Name = strings.Repeat("n", 1<<20)
			s.cached(shows(large), pleg.Event{Type: pleg.ContainerStarted})
			dead := shows(large)
			dead.Sandboxes[0].Ready = false
			s.cached(dead, pleg.Event{Type: pleg.ContainerDied, ID: "s", Kind: pleg.Sandbox})
			s.read(dead, false)
			if n := len(s.told[0].Running[0]); n > maxName {
				s.t.Errorf("the ledger would have a name of %d bytes", n)
			}
			s.told[0].Note = ""
		}, []string{"SandboxDied "}},
		{"a sandbox is stopped with its containers", func(s *stand) {
			s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
			dead := shows(running("a"))
			dead.Sandboxes[0].Ready = false
			s.cached(dead, pleg.Event{Type: pleg.ContainerDied, ID: "s", Kind: pleg.Sandbox})
			dead = shows(exited("a", 0, "Completed"))
			dead.Sandboxes[0].Ready = false
			s.read(dead, false).read(dead, false)
		}, []string{"ContainerCompleted Container app completed (exit code 0) after 30s, attempt 0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStand(t, map[string]time.Time{"told": start})
			test.play(s)
			s.wants(test.want...)
			s.now = s.now.Add(time.Hour)
			s.told = nil
			s.cached(shows(), pleg.Event{Type: pleg.PodSync})
			if s.core.containers != 0 || len(s.core.pods) != 0 || len(s.core.looks) != 0 {
				t.Errorf("something is left of a pod that has gone: %+v", s.core)
			}
		})
	}
}

// fuzzWorld is what a fuzzed runtime has had, and what was told of it.
type fuzzWorld struct {
	*stand
	t *testing.T
	// lives counts the starts of a container under its ID.
	lives   map[string]int
	started map[string]bool
	// remembered is the code of the last end that the runtime's client has seen of a container.
	remembered map[string]int32
	// ids are what the core was shown and has told of a container.
	ids map[string]*shownID
}

// shownID is what a core was shown and has told of a container.
type shownID struct {
	// seen are the lives that the core was shown while it followed the ID. Known are those of them
	// whose ends it is to tell: not those that an answer shows alone that an event has overtaken. Told
	// are those whose ends it has told.
	seen, known, told map[int]bool
	// unshownAt is when an end was seen that is told, and of which no status has shown the start; zero:
	// none is. It is that of one life, firstShown: the first that is shown, if it began before.
	unshownAt  time.Time
	firstShown int
	// gone: the core has dropped the ID, which does not come back.
	gone bool
}

// FuzzCore gives a core any statuses, events and answers, some of which are overtaken by an event;
// containers are started again under their IDs. Its rules are a plain model of lives:
//
//   - The end of each life that was shown is told, once: before a later life of its ID is shown,
//     or when its container is gone. An end of which no status has shown the start stands for that
//     of one life.
//   - It has the code of its own life, or of one that the core has never been shown, and the
//     runtime's client has.
//   - An answer from before a status that shows a container running tells its end only if the
//     answer shows that, of the same life, or if its status could not be read for too long.
//   - After a read another one comes at once only if an end has settled meanwhile, or if an event
//     has overtaken it.
//   - Nothing is left when the runtime is empty.
func FuzzCore(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte{1, 2, 3, 250, 251, 252, 7, 7, 7, 7, 80, 90, 130, 140, 200, 210, 220})
	// One start unseen, one end unseen.
	f.Add([]byte{0, 2, 0, 64, 2, 0, 64, 3, 0, 0, 3, 3, 0, 3, 7})
	// A start overtakes the answer to a read.
	f.Add([]byte{0, 2, 0, 0, 3, 0, 192, 3, 2, 0, 2, 0, 0, 3, 3, 3})
	// Started again, and removed unseen.
	f.Add([]byte{0, 3, 0, 0, 3, 3, 0, 3, 3, 64, 2, 0, 0, 0, 7, 0, 0})
	// A second life, and then the end of the first.
	f.Add([]byte("000\xe4,7"))
	f.Fuzz(playFuzzed)
}

// TestScriptsOfTheCore plays scripts that are drawn by fixed seeds, for a run without -fuzz.
func TestScriptsOfTheCore(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		script := make([]byte, 3*(1+draw.IntN(20)))
		for i := range script {
			script[i] = byte(draw.Uint32())
			if draw.IntN(3) == 0 { // few pods, few restarts
				script[i] &= 0x53
			}
		}
		t.Run(fmt.Sprintf("%x", script), func(t *testing.T) { playFuzzed(t, script) })
		if t.Failed() {
			return
		}
	}
}

// playFuzzed plays a script to its end, and then the removal of all.
func playFuzzed(t *testing.T, script []byte) {
	// Two ends were told by an earlier process: that of a first life, and one without a stamp.
	earlier := map[string]time.Time{"2c3": startOf(0).Add(time.Second), "1c3": {}}
	w := &fuzzWorld{
		stand:      newStand(t, earlier),
		t:          t,
		lives:      make(map[string]int),
		started:    make(map[string]bool),
		remembered: make(map[string]int32),
		ids:        make(map[string]*shownID),
	}
	w.core.exit = func(id string) (int32, string, bool) {
		code, ok := w.remembered[id]
		return code, "Error", ok
	}
	w.of("2c3").told[0] = true
	w.of("1c3").unshownAt = w.now
	for len(script) >= 3 {
		w.step(script[0], script[1], script[2])
		script = script[3:]
	}
	for uid := range 3 {
		w.sees(sighting{pod: Pod{Ref: Ref{UID: cache.UID(fmt.Sprint(uid))}}}, false)
	}
	c := w.core
	if c.containers != 0 || c.settling != 0 || len(c.pods) != 0 || len(c.looks) != 0 {
		t.Fatalf("something is left: %d containers, %d settling, %d pods", c.containers, c.settling, len(c.pods))
	}
}

// step takes three bytes of a script.
func (w *fuzzWorld) step(a, b, c byte) {
	w.now = w.now.Add(time.Duration(c%8) * 400 * time.Millisecond)
	container := fmt.Sprint(a%3, "c", a>>2%4)
	restarts := func() {
		if a&64 != 0 {
			w.lives[container]++
		}
	}
	if c&32 != 0 {
		w.stands(time.Duration(a%4) * time.Minute)
	}
	uid, due := w.core.due(w.now)
	if !due {
		restarts()
		in := sighting{pod: w.pod(cache.UID(fmt.Sprint(a%3)), b), unreadable: c&8 != 0}
		if c&16 != 0 {
			in.event = pleg.Event{Type: pleg.ContainerDied, ID: container, Seen: w.now}
		}
		w.sees(in, false)
		return
	}
	// A read is of the pod that it is for, takes a while, and no event causes it.
	in := sighting{pod: w.pod(uid, b), unreadable: c&8 != 0, readAfter: w.now}
	w.now = w.now.Add(time.Duration(c>>5) * 200 * time.Millisecond)
	var event *Pod
	if a&128 != 0 {
		restarts()
		pod := w.pod(uid, c)
		event = &pod
		w.now = w.now.Add(time.Millisecond)
		w.sees(sighting{pod: pod}, false)
	}
	w.answered(&in, event)
}

// answered gives the answer to a read to the core, after the status of an event that has overtaken
// it, nil for none.
func (w *fuzzWorld) answered(in *sighting, event *Pod) {
	settled := w.settles(in)
	runs := event != nil && slices.ContainsFunc(event.Containers, isRunning)
	alive := make(map[string]bool)
	for id := range w.ids {
		alive[id] = w.stageOf(id) == stageAlive
	}
	for _, e := range w.sees(*in, event != nil) {
		if event == nil || !shownRunning(event, e.ID) {
			continue
		}
		if alive[e.ID] || !e.Unread && !showsEnd(&in.pod, &e) {
			w.t.Fatalf("%s is told, and a status from after the begin of the read shows it running", e.ID)
		}
	}
	next := w.core.next()
	atOnce := !next.IsZero() && next.Equal(w.now) && w.core.looks[0].ref.UID == in.pod.UID
	if atOnce && !settled && !runs {
		w.t.Fatal("a read is planned at once after a read")
	}
}

// settles reports whether an end of the pod settles during a read that ends now.
func (w *fuzzWorld) settles(in *sighting) bool {
	p := w.core.pods[in.pod.UID]
	if p == nil {
		return false
	}
	for _, x := range p.containers {
		at := x.since.Add(w.core.settle)
		if x.stage == stageSettling && at.After(in.readAfter) && !at.After(w.now) {
			return true
		}
	}
	return false
}

func isRunning(c Container) bool { return c.Phase == pleg.PhaseRunning }

func shownRunning(pod *Pod, id string) bool {
	return slices.ContainsFunc(pod.Containers, func(c Container) bool { return c.ID == id && isRunning(c) })
}

// showsEnd reports whether a pod shows an end that is told: of the same life.
func showsEnd(pod *Pod, e *End) bool {
	return slices.ContainsFunc(pod.Containers, func(c Container) bool {
		return c.ID == e.ID && c.Phase == pleg.PhaseExited && c.StartedAt.Equal(e.StartedAt)
	})
}

// record returns the core's record of a container, nil for none.
func (w *fuzzWorld) record(id string) *container {
	for _, p := range w.core.pods {
		if x := p.containers[id]; x != nil {
			return x
		}
	}
	return nil
}

// stageOf returns the stage of a container, stageTold for one without a record.
func (w *fuzzWorld) stageOf(id string) stage {
	if x := w.record(id); x != nil {
		return x.stage
	}
	return stageTold
}

// sees gives a status to the core, and judges what is told. overtaken: it is the answer to a read
// that an event has overtaken.
func (w *fuzzWorld) sees(in sighting, overtaken bool) []End {
	followed := make(map[string]bool)
	for _, p := range w.core.pods {
		for id := range p.containers {
			followed[id] = true
		}
	}
	for _, c := range in.pod.Containers {
		if followed[c.ID] && c.Phase >= pleg.PhaseRunning {
			w.of(c.ID).seen[lifeOf(c.StartedAt)] = true
		}
	}
	ends := w.core.see(w.now, in).ends
	for _, e := range ends {
		w.judge(&e)
		followed[e.ID] = e.Kind != SandboxDied
	}
	w.checkInvariants()
	for i := range in.pod.Containers {
		w.shows(&in.pod.Containers[i], overtaken)
	}
	for id, yes := range followed {
		if yes && w.record(id) == nil {
			w.of(id).gone = true
			w.mustHaveTold(id, w.lives[id]+1)
		}
	}
	return ends
}

// shows notes the life of a container that the core has been shown. An answer that was overtaken
// may show one of before.
func (w *fuzzWorld) shows(c *Container, overtaken bool) {
	if c.Phase < pleg.PhaseRunning {
		return
	}
	x := w.of(c.ID)
	life := lifeOf(c.StartedAt)
	if !overtaken {
		w.mustHaveTold(c.ID, life)
	}
	if !overtaken && !x.gone {
		x.known[life] = true
	}
	if w.record(c.ID) == nil {
		return
	}
	x.seen[life] = true
	if x.firstShown < 0 {
		x.firstShown = life
	}
}

// mustHaveTold fails unless the ends of the known lives before one are told.
func (w *fuzzWorld) mustHaveTold(id string, life int) {
	x := w.ids[id]
	for before := range x.known {
		if before < life && !x.hasTold(before) {
			w.t.Fatalf("the end of life %d of %s is not told, and the container is gone, or shown in life %d", before, id, life)
		}
	}
}

// of returns what is noted of a container.
func (w *fuzzWorld) of(id string) *shownID {
	x := w.ids[id]
	if x == nil {
		x = &shownID{
			seen:       make(map[int]bool),
			known:      make(map[int]bool),
			told:       make(map[int]bool),
			firstShown: -1,
		}
		w.ids[id] = x
	}
	return x
}

// hasTold reports whether the end of a life is told, maybe by one of which no status has shown the
// start.
func (x *shownID) hasTold(life int) bool {
	unshown := !x.unshownAt.IsZero() && !startOf(life).After(x.unshownAt)
	return x.told[life] || unshown && life == x.firstShown
}

// judge judges an end that is told.
func (w *fuzzWorld) judge(e *End) {
	if e.Kind == SandboxDied {
		return
	}
	x := w.of(e.ID)
	of := int(e.ExitCode) - 1 // the life of the code
	if e.StartedAt.IsZero() {
		if len(x.told)+len(x.known) > 0 || !x.unshownAt.IsZero() {
			w.t.Fatalf("%s is told without a start, and has had one: told %v, known %v, %v", e.ID, x.told, x.known, x.unshownAt)
		}
		if e.CodeKnown && x.seen[of] {
			w.t.Fatalf("%s is told without a start, and with code %d", e.ID, e.ExitCode)
		}
		x.unshownAt = e.SeenAt
		return
	}
	life := lifeOf(e.StartedAt)
	if x.hasTold(life) {
		w.t.Fatalf("life %d of %s is told twice", life, e.ID)
	}
	x.told[life] = true
	if e.CodeKnown && of != life && x.seen[of] {
		w.t.Fatalf("life %d of %s is told with code %d", life, e.ID, e.ExitCode)
	}
}

// A life begins 10 s after the one before, and ends with a code of its own.
func startOf(life int) time.Time     { return start.Add(time.Duration(life) * 10 * time.Second) }
func lifeOf(startedAt time.Time) int { return int(startedAt.Sub(start) / (10 * time.Second)) }
func codeOf(life int) int32          { return int32(life + 1) }

// pod returns a pod of four containers in the phases given by the bits of b, and a sandbox. The
// runtime's client sees the status, too.
func (w *fuzzWorld) pod(uid cache.UID, b byte) Pod {
	pod := Pod{Ref: Ref{UID: uid, Namespace: "ns", Name: "p"}}
	for i := range 4 {
		phase := pleg.Phase(b >> (2 * i) % 4)
		if phase == pleg.PhaseUnknown {
			continue // not shown
		}
		id := fmt.Sprint(uid, "c", i)
		if phase == pleg.PhaseCreated && w.started[id] {
			phase = pleg.PhaseRunning // no runtime forgets a start
		}
		w.started[id] = phase >= pleg.PhaseRunning
		c := running(id)
		c.Phase = phase
		c.Name = fmt.Sprint("n", i%2)
		c.StartedAt = startOf(w.lives[id])
		switch phase {
		case pleg.PhaseCreated:
			c.StartedAt = time.Time{}
		case pleg.PhaseExited:
			c.FinishedAt = c.StartedAt.Add(time.Second)
			c.ExitCode = codeOf(w.lives[id])
			w.remembered[id] = c.ExitCode
		}
		pod.Containers = append(pod.Containers, c)
	}
	if b != 0 {
		pod.Sandboxes = []Sandbox{{ID: string("s" + uid), Ready: b&1 == 0}}
	}
	return pod
}

// TestTheFirstStartIsComparedByTheClock: what passes on the monotonic clock does not show that the
// clock was set back.
func TestTheFirstStartIsComparedByTheClock(t *testing.T) {
	now := time.Now()
	c := newCore(settings{}, &record{Since: now})
	if c.since != now.Round(0) {
		t.Errorf("since is %v", c.since)
	}
}

// TestASandboxAndTheCode255: a container that ends of its own accord with the code 255, which the
// runtime also gives for an end that it has not seen, does not make its sandbox one that died. A
// sandbox and its containers end one after the other, and a status may show one before the other.
func TestASandboxAndTheCode255(t *testing.T) {
	for _, test := range []struct {
		reason string
		ended  time.Duration
		died   bool
	}{
		{"Error", 30 * time.Second, false},
		{"Unknown", 30 * time.Second, true},
		{"Error", 61 * time.Second, true}, // after the sandbox: its shim was killed
	} {
		s := newStand(t, nil)
		s.cached(shows(running("a")), pleg.Event{Type: pleg.ContainerStarted})
		torn := shows(running("a"))
		torn.Sandboxes[0].Ready = false
		s.cached(torn, pleg.Event{Type: pleg.ContainerDied, ID: "s", Kind: pleg.Sandbox})
		whole := shows(exited("a", 255, test.reason))
		whole.Sandboxes[0].Ready = false
		whole.Containers[0].FinishedAt = start.Add(test.ended)
		s.read(whole, false).read(whole, false)
		died := slices.ContainsFunc(s.told, func(e End) bool { return e.Kind == SandboxDied })
		if died != test.died || len(s.told) == 0 {
			t.Errorf("reason %s: the sandbox died %v, want %v", test.reason, died, test.died)
		}
	}
}
