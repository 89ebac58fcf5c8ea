// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

var showLoops = flag.Bool("events.show", false, "print what TestShownOfLoops and TestWeathers measure, as the tables of docs/events.md")

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
		if *showLoops {
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
