// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math"
	"slices"
	"time"
)

// place is where a call goes: the scopes on which a failure of the call can be blamed.
type place struct {
	namespace string
	// kind is callCreate or callPatch, the verb of a role. A read is a patch.
	kind   callKind
	object objectKey
}

// failure is what a failed call says.
type failure struct {
	now time.Time
	// after is how long the server asks to wait.
	after time.Duration
	// everywhere: no smaller scope than the server explains the failure (nobody listens).
	everywhere bool
	// number is that of the failed call among all calls, and begun the latest such number: both are
	// filled in by the queue.
	number, begun int64
}

// ladder is the pace at which a failing scope is tried again.
type ladder struct {
	base, longest time.Duration
	// jitter returns a number in [0,1).
	jitter func() float64
}

// patience is the number of failures from which on a namespace or an object is tried less and less
// often, down to a tenth of the usual pace.
const patience = 12

// A server that answers others may refuse a part of the calls: then a few failures in a row are bad
// luck. The object or namespace is tried again soon, and beyond, the pauses grow from there. A try
// that is refused by chance is one call, whenever it is made: longer pauses would save none.
const (
	likelyPause = time.Second // where the share of refused calls explains the failures
	// possible failures of an object are luck whatever the others say.
	possible      = 6
	possiblePause = 3 * time.Second
	// odds is one in which so many failures are no luck.
	odds = 1e6
)

// luck is how many failures in a row are bad luck: likely by the share of the calls refused, or at
// least possible.
type luck struct{ likely, possible int }

// lucky returns how many failures in a row are luck if the given share of the calls is refused.
func lucky(share float64) int {
	if share <= 0 {
		return 0
	}
	return int(math.Log(odds) / -math.Log(min(share, 0.8)))
}

// delay returns the time to wait after a number of failures in a row, with up to half of jitter.
func (l ladder) delay(failures int) time.Duration {
	half := float64(l.base) / 2 * math.Pow(2, float64(min(failures, 40)-1))
	half = min(half, float64(l.longest)/2)
	return time.Duration(half * (1 + l.jitter()))
}

// patient is the delay of a namespace, or of an object.
func (l ladder) patient(failures int, by luck) time.Duration {
	switch {
	case failures <= by.likely:
		return min(l.delay(failures), likelyPause)
	case failures <= by.possible:
		return min(l.delay(failures), possiblePause)
	}
	bad := failures
	if by.possible > 0 {
		bad = failures - by.possible + 2 // the first pause beyond is about the last one before
	}
	d := l.delay(bad)
	if bad > patience {
		d = time.Duration(float64(d) * min(math.Pow(2, float64(bad-patience)), 10))
	}
	return d
}

// With so many objects that fail, with no success between, a namespace is in trouble; likewise the
// server. With failures among the successes before, it takes more.
const (
	badObjects    = 3
	badNamespaces = 4
)

// scope is the server, a namespace, a kind of calls in a namespace, or an object. A scope is
// healthy, or it fails: then it is closed until a time, and one call at a time tries it again. Only
// the become functions change it.
type scope struct {
	// failures counts those in a row that were blamed on this scope, or, of a healthy one, is 0.
	failures int
	// since is the time of the first of these failures.
	since time.Time
	// closedAt is how many calls had begun at the last of these failures: the failures of these
	// calls are no further news.
	closedAt int64
	// until is when the scope may be tried again.
	until time.Time
	// asked is the end of a Retry-After, zero for none.
	asked time.Time
	// trying: a call that tries the scope again is under way.
	trying bool
	// suspects are the parts of this scope that began to fail since the last success here.
	suspects []string
	// mixed is about the number of failures in the last ten successes: a scope that refuses a part
	// of the calls is not in trouble.
	mixed float64
	// news counts the objects that began to fail since the last success here, and refused is about
	// their number in the last ten successes.
	news    int
	refused float64
	// proven: another scope was answered since this one fails.
	proven bool
}

func (s *scope) failing() bool { return s.failures > 0 }

// shut returns for how long nothing may be sent, 0 for a healthy scope and one that may be tried.
func (s *scope) shut(now time.Time) time.Duration {
	switch {
	case !s.failing():
		return 0
	case s.trying:
		return forever
	}
	return max(s.until.Sub(now), 0)
}

// becomeHealthy books a success, or forgets all trouble.
func (s *scope) becomeHealthy() {
	*s = scope{
		mixed:   s.mixed*0.9 + float64(len(s.suspects)),
		refused: s.refused*0.9 + float64(s.news),
	}
}

// refusing returns about the share of the first calls of an object that fail here.
func (s *scope) refusing() float64 { return s.refused / 10 }

// tolerates returns how many more suspects a scope may have for what it has refused before.
func (s *scope) tolerates() int { return int(min(s.mixed, 8)) }

// becomeSuspected books that a part of a healthy scope began to fail. It returns how many parts
// have since the last success: with several, the trouble is larger than a part.
func (s *scope) becomeSuspected(part string) int {
	if !slices.Contains(s.suspects, part) {
		s.suspects = append(s.suspects, part)
	}
	return len(s.suspects)
}

// becomeRefusing books that an object here, healthy before, began to fail.
func (s *scope) becomeRefusing() { s.news++ }

// becomeClosed books a failure of this scope, the first or a further one. failures is the least
// number of failures that led to it.
func (s *scope) becomeClosed(f failure, failures int, delay func(failures int) time.Duration) {
	if !s.failing() {
		s.since = f.now
	}
	s.failures = max(s.failures+1, failures)
	s.closedAt = f.begun
	s.trying = false
	s.until = f.now.Add(delay(s.failures))
	s.asked = time.Time{}
	if f.after > 0 {
		s.asked = f.now.Add(min(f.after, maxRetryAfter))
	}
	if s.asked.After(s.until) {
		s.until = s.asked
	}
}

// becomeTrying books that a call tries the scope again.
func (s *scope) becomeTrying() {
	if s.failing() {
		s.trying = true
	}
}

// becomeUntried books the end of a call, of which nothing is said here. A call from before the
// scope failed does not try it: another one may.
func (s *scope) becomeUntried(number int64) {
	if number > s.closedAt {
		s.trying = false
	}
}

// becomeProven books that another scope was answered.
func (s *scope) becomeProven() { s.proven = true }

// becomeTriable lets the next call try the scope at once, unless the server asked to wait.
func (s *scope) becomeTriable(now time.Time) {
	if !s.asked.After(now) && s.until.After(now) {
		s.until = now
	}
}

// maxRetryAfter is the longest Retry-After honoured.
const maxRetryAfter = 5 * time.Minute
