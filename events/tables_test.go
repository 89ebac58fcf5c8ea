// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var showTables = flag.Bool("events.show", false, "print what TestShownOfLoops and TestWeathers measure, as the tables of docs/events.md")

// weathers are the conditions for the calls of two minutes' work, from its 40th second on.
var weathers = []struct {
	name  string
	most  int64 // calls; client-go's newer recorder makes 420, its older one 2600
	fault func() eventstest.Fault
}{
	{"no fault", 1040, func() eventstest.Fault { return nil }},
	{"429 for 30 s", 1050, func() eventstest.Fault {
		return during(30*time.Second, status(429, metav1.StatusReasonTooManyRequests, 0))
	}},
	{"403 for 30 s", 1050, func() eventstest.Fault { return during(30*time.Second, forbidden("x")) }},
	{"away for 10 s", 1050, func() eventstest.Fault { return during(10*time.Second, errAway) }},
	{"hangs for 15 s", 1040, func() eventstest.Fault {
		until := time.Now().Add(15 * time.Second)
		return func(ctx context.Context, c eventstest.Call) error { return slowly(time.Until(until))(ctx, c) }
	}},
	{"streams abort for 10 s", 1050, func() eventstest.Fault { return during(10*time.Second, errReset) }},
	{"two processes", 2000, func() eventstest.Fault { return nil }},
	{"reads at the start hang", 1040, func() eventstest.Fault {
		return func(ctx context.Context, c eventstest.Call) error {
			if c.Body == "{}" {
				return slowly(time.Hour)(ctx, c)
			}
			return nil
		}
	}},
}

// weather runs 100 series for two minutes, each once a second, with new series throughout. It
// returns the lost occurrences at the end, the number of objects left Ongoing for ever, and the
// calls.
func weather(t *testing.T, n int, ours bool) (told, lost int64, ongoing int, calls int64) {
	t.Helper()
	w := weathers[n]
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		var ends []func()
		defer func() {
			for _, end := range ends {
				end()
			}
		}()
		if w.name == "reads at the start hang" {
			server.SetFault(w.fault())
		}
		var emits []func(name string)
		start := func() {
			if ours {
				r := newRig(t, server, continuing)
				ends = append(ends, func() { r.wantBooks(0, 0) })
				emits = append(emits, func(name string) { r.pod(name, 1) })
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			emit, stop := clientEvents(ctx, t, server.Sink(), nil)
			ends = append(ends, func() { stop(); cancel(); time.Sleep(time.Minute) })
			emits = append(emits, func(name string) {
				time.Sleep(time.Microsecond) // two events of one nanosecond would have one name in client-go
				emit(podRef(name))
			})
		}
		start()
		for second := range 120 {
			switch {
			case second != 40:
			case w.name == "two processes": // a new one, before the old one ends
				start()
			case w.name != "reads at the start hang":
				server.SetFault(w.fault())
			}
			for p, emit := range emits {
				for i := range 100 {
					emit(fmt.Sprint("p", i))
				}
				emit(fmt.Sprint("new-", p, "-", second))
				told += 101
			}
			pass(time.Second)
		}
		pass(20 * time.Minute)
		var count int64
		count, ongoing = stored(server)
		lost = told - count
		calls, _ = server.Count()
	})
	return told, lost, ongoing, calls
}

// TestWeathers: nothing is lost in any weather, nothing says Ongoing for ever, and the calls stay
// within their budget. With -events.show the test prints client-go's recorder beside this one.
func TestWeathers(t *testing.T) {
	for i, w := range weathers {
		if raceDetector && i%3 > 0 { // no fault, a server that is away, two processes
			continue
		}
		told, lost, ongoing, calls := weather(t, i, true)
		if lost != 0 || ongoing != 0 || calls > w.most {
			t.Errorf("%s: of %d occurrences %d are lost, %d objects are Ongoing for ever, %d calls of at most %d", w.name, told, lost, ongoing, calls, w.most)
		}
		if *showTables {
			_, theirs, _, callsTheirs := weather(t, i, false)
			t.Logf("| %s | %d | %d, %d, %d | %d, %d |", w.name, told, lost, ongoing, calls, theirs, callsTheirs)
		}
	}
}

// loop is a recurring event, by the pauses between its occurrences.
type loop struct {
	name  string
	pause func(i int) time.Duration
}

func every(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

var loops = []loop{
	{"every 5 min", every(5 * time.Minute)},
	{"crash loop, 10 to 300 s", func(i int) time.Duration { return min(10*time.Second<<min(i, 10), 300*time.Second) }},
	{"every minute", every(time.Minute)},
	{"every 15 s", every(15 * time.Second)},
	{"every second", every(time.Second)},
}

// shownWrong runs a loop for an hour. It returns the share of the time with a wrong count at the
// server, the largest age of the newest occurrence at the server, and the calls.
func shownWrong(t *testing.T, l loop, ours bool) (wrong float64, stale time.Duration, calls int64) {
	t.Helper()
	start := clientRecord
	if ours {
		start = oursByRecord
	}
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		ctx, cancel := context.WithCancel(t.Context())
		emit, stop := start(ctx, t, server.Sink(), coreSink{server.LegacySink()})
		begin := time.Now()
		var last time.Time
		var off time.Duration
		told := int64(0)
		for i := 0; time.Since(begin) < time.Hour; i++ {
			emit(podRef("a"))
			told, last = told+1, time.Now()
			for pause := l.pause(i); pause > 0; pause -= time.Second {
				synctest.Wait()
				count, _ := stored(server)
				if count != told {
					off += time.Second
				}
				for _, e := range server.Events() {
					seen := e.DeprecatedLastTimestamp.Time
					if e.Series != nil {
						seen = e.Series.LastObservedTime.Time
					} else if seen.IsZero() {
						seen = e.EventTime.Time
					}
					stale = max(stale, last.Sub(seen).Truncate(time.Second))
				}
				time.Sleep(time.Second)
			}
		}
		wrong = float64(off) / float64(time.Since(begin))
		calls, _ = server.Count()
		stop()
		cancel()
		time.Sleep(time.Minute)
	})
	return wrong, stale, calls
}

// TestShownOfLoops: an active loop is shown as active, at least as well as by a kubelet's recorder
// today, and for no more calls.
func TestShownOfLoops(t *testing.T) {
	for _, l := range loops {
		wrong, stale, calls := shownWrong(t, l, true)
		theirs, staleTheirs, callsTheirs := shownWrong(t, l, false)
		if *showTables {
			t.Logf("| %s | %.0f %%, %v, %d | %.0f %%, %v, %d |", l.name, 100*wrong, stale, calls, 100*theirs, staleTheirs, callsTheirs)
		}
		if wrong > theirs+0.01 {
			t.Errorf("%s: wrong for %.0f %% of the time, client-go for %.0f %%", l.name, 100*wrong, 100*theirs)
		}
		if calls > callsTheirs {
			t.Errorf("%s: %d calls, client-go %d", l.name, calls, callsTheirs)
		}
	}
}
