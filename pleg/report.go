// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A lasting condition of the node is reported at once and then ever more rarely: after 10 s, 40
// s, 160 s and every ten minutes. A condition that has rested for ten minutes begins anew.
const (
	firstPause   = 10 * time.Second
	pauseFactor  = 4
	longestPause = 10 * time.Minute
)

// reporter paces the reports about the node, reason by reason. It decides which reports are made
// and makes none: its methods return them.
type reporter struct {
	// paces holds a pace for each reason seen so far: at most one for each Reason of this
	// package.
	paces []pace
}

// pace is what a reporter knows of a reason.
type pace struct {
	reason Reason

	// next is the end of the present pause: no report of the reason is made before. Zero before
	// the first report.
	next instant

	// pause is the length of that pause, from which the next pause is made; zero before the first
	// report, and after a rest of longestPause.
	pause time.Duration

	// seen is when the reason last came up, reported or not.
	seen instant

	// held is the last report held back during the pause; nil if none. Its Held is not set.
	held *Report

	// n is the number of reports held back during the pause; held is one of them.
	n int
}

// admit returns the report to make now, or holds the report back.
func (q *reporter) admit(r Report, now instant) (made Report, ok bool) {
	p := q.paceOf(r.Reason)
	if now.sub(p.seen) >= longestPause {
		p.next = 0
		p.pause = 0
	}
	p.seen = now
	if now < p.next {
		p.n++
		p.held = &r
		return Report{}, false
	}
	return p.release(r, now), true
}

// dueReports returns the held report of each reason whose pause is over: the reason may not come
// up again.
func (q *reporter) dueReports(now instant) (made []Report) {
	for i := range q.paces {
		p := &q.paces[i]
		if p.n == 0 || now < p.next {
			continue
		}
		r := *p.held
		if age := now.sub(p.seen).Round(time.Second); age > 0 {
			r.Note += fmt.Sprintf(" (%v ago)", age)
		}
		p.n-- // the report is not one of those held
		made = append(made, p.release(r, now))
	}
	return made
}

// due returns when the next held report is due; never if none is held.
func (q *reporter) due() instant {
	at := never
	for i := range q.paces {
		if q.paces[i].n > 0 {
			at = min(at, q.paces[i].next)
		}
	}
	return at
}

// paceOf returns the pace of a reason, made if there is none.
func (q *reporter) paceOf(reason Reason) *pace {
	i := slices.IndexFunc(q.paces, func(p pace) bool { return p.reason == reason })
	if i < 0 {
		i = len(q.paces)
		q.paces = append(q.paces, pace{reason: reason})
	}
	return &q.paces[i]
}

// release returns the report to make, which stands for the held reports as well, and begins a
// pause.
func (p *pace) release(r Report, now instant) Report {
	r.Held = p.n
	p.n = 0
	p.held = nil
	p.pause = min(max(firstPause, pauseFactor*p.pause), longestPause)
	p.next = now.add(p.pause)
	return r
}

// namedAtMost is the number of findings named by a report; the others are counted.
const namedAtMost = 3

// findings are changes or claims for a report.
type findings struct {
	// first are the first namedAtMost findings, in words.
	first []string
	// n is the number of findings, named or not.
	n int
}

// add enters a finding, in words.
func (f *findings) add(what string) {
	f.n++
	if f.n <= namedAtMost {
		f.first = append(f.first, what)
	}
}

// String names the first findings, and counts the others.
func (f findings) String() string {
	s := strings.Join(f.first, ", ")
	if more := f.n - len(f.first); more > 0 {
		s += fmt.Sprintf(", and %d more", more)
	}
	return s
}
