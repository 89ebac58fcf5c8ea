// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
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
			if e.Cause == CauseClaim && !e.Stamp.Equal(e.Seen) {
				b.t.Errorf("%s of %s is stamped %v, want %v", e.Type, e.ID, e.Stamp, e.Seen)
			}
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

// reportLog keeps reports.
type reportLog struct {
	mu  sync.Mutex // owns all
	all []Report
}

func (r *reportLog) Record(report Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, report)
}

// of returns the reports of a reason, of all if it is empty.
func (r *reportLog) of(reason Reason) []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Report
	for _, x := range r.all {
		if reason == "" || x.Reason == reason {
			found = append(found, x)
		}
	}
	return found
}

// hush has the toy tell no events, or tell them again.
func (b *bed) hush(silent bool) {
	b.toy.mu.Lock()
	defer b.toy.mu.Unlock()
	b.toy.silent = silent
}

// fiveAppsIn puts a pod with a sandbox and five containers into the toy.
func fiveAppsIn(r *toyRuntime) {
	items := []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}
	for i := range 5 {
		items = append(items, Item{ID: fmt.Sprint("c", i), Kind: Container, Phase: PhaseRunning, Name: fmt.Sprint("app-", i)})
	}
	r.pods["p"] = items
}

func TestReportsNameWhatWasMissed(t *testing.T) {
	var reports reportLog
	inBubble(t, func(c *Config[status], r *toyRuntime) { c.Recorder = &reports; fiveAppsIn(r) }, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.hush(true)
		for i := range 5 {
			b.toy.set("p", Container, fmt.Sprint("c", i), PhaseExited)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := reports.of(ReasonEventsMissed)
		const want = "without an event: container app-0 (c0) of pod default/p (p) is Exited, " +
			"container app-1 (c1) of pod default/p (p) is Exited, container app-2 (c2) of pod default/p (p) is Exited, and 2 more; relisting every 1s"
		if len(got) != 1 || !strings.HasSuffix(got[0].Note, want) {
			b.t.Errorf("reported %v, want one that ends in %q", got, want)
		}
		b.events()
	})
}

func TestReportsNameWhatNobodyHeard(t *testing.T) {
	var reports reportLog
	inBubble(t, func(c *Config[status], r *toyRuntime) { c.Recorder = &reports; fiveAppsIn(r) }, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.toy.mu.Lock()
		b.toy.refuse = errors.New("connection refused")
		b.toy.mu.Unlock()
		b.toy.cutStreams()
		synctest.Wait()
		b.toy.set("p", Container, "c0", PhaseExited)
		time.Sleep(10 * time.Second)
		b.toy.set("p", Container, "c1", PhaseExited) // within the pause: reported when that is over
		time.Sleep(20 * time.Second)
		b.toy.set("p", Container, "c2", PhaseExited)
		time.Sleep(time.Minute)
		synctest.Wait()
		var notes []string
		for _, r := range reports.of(ReasonChangesUnheard) {
			notes = append(notes, r.Note)
		}
		if all := strings.Join(notes, "\n"); len(notes) != 3 || strings.Count(all, "is Exited") != 3 || !strings.Contains(notes[0], "container app-0 (c0) of pod default/p (p) is Exited") {
			b.t.Errorf("reported %q, want each of the three exits named once", notes)
		}
		if n := len(reports.of(ReasonEventsMissed)); n != 0 {
			b.t.Errorf("%d reports blame the runtime", n)
		}
		b.events()
	})
}

func TestAListThatHangsIsReportedWhileItHangs(t *testing.T) {
	var reports reportLog
	inBubble(t, func(c *Config[status], r *toyRuntime) { c.Recorder, r.delay = &reports, time.Hour }, func(b *bed) {
		gauges := func() map[string]float64 {
			found := make(map[string]float64)
			b.gen.Gauges(func(name string, v float64) { found[name] = v })
			return found
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n := len(reports.of(ReasonRelistHangs)); n != 1 || b.gen.Stats().RelistErrors != 0 {
			b.t.Errorf("%d reports of a list that has hung for 6 s, want one, before any failed: %v", n, reports.of(""))
		}
		if g := gauges(); g[GaugeLastRelist] != 6 || g[GaugeHealthy] != 1 {
			b.t.Errorf("gauges after 6 s: %v; want an age since the start, and healthy", g)
		}
		time.Sleep(200 * time.Second)
		synctest.Wait()
		g := gauges()
		if _, seen := g[GaugeLastSeen]; seen || g[GaugeLastRelist] != 206 || g[GaugeHealthy] != 0 {
			b.t.Errorf("gauges after 206 s: %v; want an age since the start, no list seen, and not healthy", g)
		}
		if n := len(reports.of(ReasonRelistHangs)); n != 2 {
			b.t.Errorf("%d reports of two lists that hung", n)
		}
	})
}

// TestHealthCountsFromWhenAListWasDue: the loss of the stream makes a list due, and none late. More
// losses hide no list that hangs.
func TestHealthCountsFromWhenAListWasDue(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		for time.Sleep(time.Hour); time.Since(b.gen.Stats().LastRelist) < 250*time.Second; {
			time.Sleep(time.Second)
		}
		gate := make(chan struct{})
		b.toy.mu.Lock()
		b.toy.gate = gate
		b.toy.mu.Unlock()
		for range 18 {
			b.toy.cutStreams()
			time.Sleep(10 * time.Second)
			if err := b.gen.Health(); err != nil {
				t.Fatal(err)
			}
		}
		if time.Sleep(10 * time.Second); b.gen.Health() == nil {
			t.Error("healthy 190 s after a list was due")
		}
		close(gate)
	})
}

type requesting struct {
	noMetrics
	request func()
}

func (r requesting) BetweenSteps() { r.request() }

// TestRequestInTheFirstTurn: requests count as soon as Run has begun. After Run no stream is
// connected.
func TestRequestInTheFirstTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, toy: newToy(), cache: cache.New(func(uid cache.UID) *status { return &status{UID: uid} })}
		b.toy.set("p", Sandbox, "s", PhaseRunning)
		b.start(func(c *Config[status], _ *toyRuntime) {
			c.Metrics = requesting{request: sync.OnceFunc(func() { b.gen.RequestReinspect("p") })}
		})
		if time.Sleep(time.Minute); !slices.Contains(b.events(), "p PodSync ") {
			t.Errorf("events %v, want a PodSync", b.got)
		}
		if b.stop(); b.gen.Stats().State != StreamIdle {
			t.Errorf("after Run the stream is %v", b.gen.Stats().State)
		}
	})
}

func TestLastSeenIsATimestamp(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		synctest.Wait()
		first := time.Now()
		time.Sleep(300 * time.Millisecond)
		b.gen.Gauges(func(name string, v float64) {
			if want := float64(first.UnixNano()) / 1e9; name == GaugeLastSeen && (v < want-0.001 || v > want+0.001) {
				b.t.Errorf("last seen at %f, want %f", v, want)
			}
		})
	})
}

func TestTheEndOfTheStreamIsSaidOnceWithItsCause(t *testing.T) {
	var reports reportLog
	inBubble(t, func(c *Config[status], r *toyRuntime) { c.Recorder, r.endErr = &reports, errors.New("goaway") }, func(b *bed) {
		time.Sleep(10 * time.Second)
		b.toy.mu.Lock()
		b.toy.refuse = errors.New("connection refused")
		b.toy.mu.Unlock()
		b.toy.cutStreams()
		time.Sleep(10 * time.Minute)
		b.toy.mu.Lock()
		b.toy.refuse = nil
		b.toy.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		b.stop()
		log := b.log.String()
		for _, once := range []string{"goaway", "connection refused", "ContainerEventStreamRestored"} {
			if n := strings.Count(log, once); n != 1 {
				b.t.Errorf("%q is in the log at default verbosity %d times, want once:\n%s", once, n, log)
			}
		}
		if got := reports.of(ReasonStreamLost); len(got) != 1 || !strings.Contains(got[0].Note, "goaway") {
			b.t.Errorf("reported %v, want the loss with its cause", got)
		}
		b.stop = func() {}
	})
}

// TestReportsArePaced has a reason come up in some seconds of two hours: each is reported once, or
// counted by the next report.
func TestReportsArePaced(t *testing.T) {
	for _, tc := range []struct {
		name    string
		comes   func(s int) bool
		stalled func(s int) bool // the loop is held up
		want    []string         // the second, the number of times, and the age of the last
	}{
		{"once", func(s int) bool { return s == 0 }, nil, []string{"0: 1×"}},
		{"once more within the pause", func(s int) bool { return s == 0 || s == 6 }, nil, []string{"0: 1×", "10: 1× (4s ago)"}},
		{"for a minute", func(s int) bool { return s < 60 }, nil, []string{"0: 1×", "10: 10×", "50: 40×", "210: 9× (2m31s ago)"}},
		{"on and off for five minutes", func(s int) bool { return s < 300 && s%3 != 0 }, nil,
			[]string{"1: 1×", "11: 7×", "51: 26× (1s ago)", "211: 107×", "811: 59× (8m32s ago)"}},
		{"for an hour", func(s int) bool { return s < 3600 }, nil, []string{
			"0: 1×", "10: 10×", "50: 40×", "210: 160×", "810: 600×", "1410: 600×", "2010: 600×", "2610: 600×", "3210: 600×", "3810: 389× (3m31s ago)",
		}},
		{"again after ten minutes of rest", func(s int) bool { return s == 0 || s == 1200 || s == 1210 }, nil, []string{"0: 1×", "1200: 1×", "1210: 1×"}},
		{"again before the loop turns", func(s int) bool { return s < 2 || s == 3600 }, func(s int) bool { return s > 0 && s < 3600 }, []string{"0: 1×", "3600: 2×"}},
	} {
		var paced reporter
		var got []string
		for s := range 2 * 3600 {
			now := instant(1).add(time.Duration(s) * time.Second)
			var made []Report
			if tc.comes(s) {
				if r, ok := paced.admit(Report{Reason: ReasonRelistFailed}, now); ok {
					made = append(made, r)
				}
			}
			if tc.stalled == nil || !tc.stalled(s) {
				made = append(made, paced.dueReports(now)...)
			}
			for _, r := range made {
				got = append(got, fmt.Sprintf("%d: %d×%s", s, 1+r.Held, r.Note))
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: reported\n%q, want\n%q", tc.name, got, tc.want)
		}
	}
}
