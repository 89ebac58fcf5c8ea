// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is the object of a series, with the version of its last write: a slow and obvious server.
type world struct {
	object  *found
	version int
}

// carry does a call and returns the verdict.
func (w *world) carry(s *state, c call) verdict {
	switch {
	case c.kind == callCreate && w.object != nil:
		return verdictConflict
	case c.kind != callCreate && w.object == nil:
		return verdictMissing
	case c.kind == callRead:
		return verdictOK
	case c.kind == callPatch && c.version != w.object.version:
		return verdictConflict
	}
	w.version++
	w.object = &found{count: c.count, begun: s.begun, last: c.last, state: c.state, loose: c.loose, version: string(rune(w.version))}
	return verdictOK
}

// TestSeriesAgainstEverything drives a series and another process with the same object through
// random occurrences, pauses, failures, lost answers, expiry and an end. The object must count
// every occurrence of both exactly once.
func TestSeriesAgainstEverything(t *testing.T) {
	p := Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		w := &world{}
		s := begin(now)
		total, acked, own := int64(1), int64(0), int64(1)
		expires := rapid.Bool().Draw(t, "expires") // an object that goes takes what the other process wrote with it
		send := func(s *state, fail string) {
			c := s.next(now, &p)
			if c.kind == callNone {
				return
			}
			v := verdictTrouble
			if fail != "before" {
				v = w.carry(s, c)
			}
			if fail == "after" {
				s.doubtful(c)
				return
			}
			switch v {
			case verdictOK:
				if c.kind != callRead {
					acked += s.done(c, w.object.version, now, 0.5, &p)
				} else {
					acked += s.merge(*w.object, now)
				}
			case verdictMissing:
				s.missing()
			case verdictConflict:
				s.phase = phaseUnread
			}
		}
		do := []string{"emit", "emit", "emit", "send", "send", "lost", "fail", "wait"}
		if expires {
			do = append(do, "expire")
		} else {
			do = append(do, "other")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom(do).Draw(t, "do") {
			case "emit":
				if s.occur(now, &p) {
					total, own = total+1, own+1
				}
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "s")) * time.Second)
			case "send":
				send(&s, "")
			case "lost":
				send(&s, "after")
			case "fail":
				send(&s, "before")
			case "expire":
				w.object = nil
			case "other": // one that rebases as this one does
				if w.object != nil && s.sent == 0 {
					n := int64(rapid.IntRange(1, 3).Draw(t, "n"))
					w.version++
					o := *w.object
					o.count, o.last, o.state, o.version = o.count+n, now, stateOngoing, string(rune(w.version))
					w.object = &o
					total += n
				}
			}
			now = now.Add(time.Millisecond)
		}
		s.end = suspended
		for i := 0; s.owes(now); i++ {
			if send(&s, ""); i > 10 {
				t.Fatalf("it does not end: %+v", s)
			}
		}
		if w.object != nil && w.object.loose && w.object.count <= total { // a lost answer and another process at once
			return
		}
		if gone := expires && w.object == nil; !gone && (w.object == nil || w.object.count != total) {
			t.Fatalf("%d occurrences, stored %+v, state %+v", total, w.object, s)
		}
		if acked != own {
			t.Fatalf("%d own occurrences, %d acknowledged: %+v", own, acked, s)
		}
	})
}
