// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The calls of one read of a pod's statuses, from the first begun to the last answered or given up:
// an item that hangs must not keep what the others say from the reader.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// callsPerRead bounds the status calls under way at once for one read of a pod, those given up
	// left out. How many pods are read at once is the generator's to say: a client has no queue of its
	// own.
	callsPerRead = 4
	// leastPatience is how long a call is waited for at the least after another of the same read has
	// been answered: two periods of a runtime's share of processors, which Linux counts in 100 ms, and
	// half a one.
	leastPatience = 250 * time.Millisecond
	// patienceFactor is how many times as long as the slowest answer of the read a call may take, on a
	// runtime that is slow with everything, and as the slowest of the last answers about items of its
	// kind.
	patienceFactor = 4
	// kindPatience bounds the latter: what is slow with one kind of item must not keep the others of a
	// pod from the reader for long when an item of that kind hangs.
	kindPatience = time.Second
	// stuckAfter is how long the first calls of a read are waited for at the least before the
	// containers are asked for one by one: some runtimes lock each container for the answer about a
	// sandbox.
	stuckAfter = time.Second
	// standstill is how late a look at the calls is at least if the process was stopped, or had no CPU:
	// an answer may wait in the socket then.
	standstill = 50 * time.Millisecond
	// longestCall bounds a call given up by a read without a deadline.
	longestCall = 2 * time.Minute
)

// itemCall is a status call of a read. Do runs in a goroutine of its own and returns what is to be
// done with the answer, by the goroutine that waits in gathering.wait.
type itemCall struct {
	id   string // of the item, or that of the list: see inspection.membershipCall
	kind pleg.Kind
	// list names the list that the call is about, and no item; empty for an item's status.
	list string
	do   func(ctx context.Context) (accept func(), err error)
	// witness: the answer only tells that the runtime answers.
	witness bool
}

// subject returns what the call asks for, for an error.
func (call *itemCall) subject() string {
	if call.list != "" {
		return call.list
	}
	return "the status of " + printable(call.id)
}

// outcome is the end of a call.
type outcome struct {
	call   int
	accept func()
	err    error
}

// gathering is a read's calls. The goroutine of the read owns it; calls hand their outcomes over by
// the channel.
type gathering struct {
	ctx    context.Context
	client *Client
	calls  []itemCall
	// state holds the progress of each call.
	state []callState
	// next is the first call not begun; underWay holds those begun, not ended, and not given up, in no
	// order: a look at them costs the same in a pod of many items.
	next     int
	underWay []int
	// beside is how many calls may be under way beyond callsPerRead, because others are not answered.
	beside int
	// ended receives the outcome of each call begun. It has room for all of them, so that a call given
	// up never waits for a reader.
	ended chan outcome
	// longest is the longest time of an answered call, lastEnd when one was answered last; zero if
	// none was.
	longest time.Duration
	lastEnd time.Time
	// awake is when the process last ran again after a standstill; zero: there was none.
	awake time.Time
}

// callState is the progress of a call.
type callState struct {
	begun  time.Time
	cancel context.CancelCauseFunc
	late   *lateCall
	over   bool  // ended, or given up
	err    error // why the item is not read; nil once answered
}

// newGathering returns a read's calls, of which there will be at most the given number.
func (c *Client) newGathering(ctx context.Context, most int) *gathering {
	return &gathering{ctx: ctx, client: c, ended: make(chan outcome, most)}
}

// add adds a call, to be made in turn by wait.
func (g *gathering) add(call itemCall) {
	g.calls = append(g.calls, call)
	g.state = append(g.state, callState{})
}

// addWitness adds a call that is made before all that are not begun.
func (g *gathering) addWitness(call itemCall) {
	call.witness = true
	g.calls = slices.Insert(g.calls, g.next, call)
	g.state = slices.Insert(g.state, g.next, callState{})
}

// begunAll reports whether no call waits for its turn.
func (g *gathering) begunAll() bool { return g.next == len(g.calls) }

// wait makes the calls added and returns when each has ended or was given up: once a call of the
// read has been answered, each other is waited for only as long as it may reasonably take. Wait
// returns false if, instead, nothing at all was answered for a while (at least stuck, if that is
// not 0); the calls go on, and another wait, perhaps with more calls, continues.
func (g *gathering) wait(stuck time.Duration) bool {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	begun := time.Now()
	for {
		for g.next < len(g.calls) && len(g.underWay) < callsPerRead+g.beside {
			g.begin()
		}
		if len(g.underWay) == 0 {
			return true
		}
		look := g.nextLook(begun, stuck)
		timer.Reset(max(1, time.Until(look)))
		select {
		case o := <-g.ended:
			g.stoodStill(look, time.Now())
			g.end(o)
		case <-timer.C:
			now := time.Now()
			switch {
			case g.stoodStill(look, now):
			case !g.lastEnd.IsZero():
				g.giveUpLate(now)
			case stuck > 0 && !now.Before(latest(begun, g.awake).Add(stuck)):
				return false
			}
		case <-g.ctx.Done():
			g.abort()
			return true
		}
	}
}

// stoodStill notes, of a look at the calls, whether it comes so late that the process did not run.
// That time is not held against the runtime: the calls are waited for from now on, and how long
// they took is not known.
func (g *gathering) stoodStill(planned, now time.Time) bool {
	if now.Sub(planned) < standstill {
		return false
	}
	g.awake = now
	return true
}

// begin makes the next call. An item whose call of an earlier read has not ended yet is not asked
// for once more: a shim that hangs would collect calls.
func (g *gathering) begin() {
	i := g.next
	call := g.calls[i]
	state := &g.state[i]
	g.next++
	state.begun = time.Now()
	if since, waiting := g.client.late.waitingSince(call.id); waiting {
		state.over = true
		state.err = fmt.Errorf("cri: %s on %s was asked for %v ago, and the runtime has not answered",
			call.subject(), g.client.endpoint, time.Since(since).Round(time.Millisecond))
		return
	}
	ctx, cancel := g.detached()
	state.cancel = cancel
	late := &lateCall{
		id:     call.id,
		kind:   call.kind,
		isList: call.list != "",
		begun:  state.begun,
	}
	state.late = late
	g.underWay = append(g.underWay, i)
	go func() {
		defer cancel(nil)
		accept, err := call.do(ctx)
		g.client.late.end(late, err == nil)
		g.ended <- outcome{call: i, accept: accept, err: err}
	}()
}

// detached returns a context with the values and the deadline of the read's, and an end of its own:
// a call that is given up goes on.
func (g *gathering) detached() (context.Context, context.CancelCauseFunc) {
	deadline, ok := g.ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(longestCall)
	}
	ctx, stop := context.WithDeadline(context.WithoutCancel(g.ctx), deadline)
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func(cause error) {
		cancel(cause)
		stop()
	}
}

// end takes the outcome of a call.
func (g *gathering) end(o outcome) {
	state := &g.state[o.call]
	if state.over {
		return // given up, and of no use: the answer would come too late for its reader
	}
	state.over = true
	state.err = o.err
	at := slices.Index(g.underWay, o.call)
	last := len(g.underWay) - 1
	g.underWay[at] = g.underWay[last]
	g.underWay = g.underWay[:last]
	if o.err != nil {
		return
	}
	o.accept()
	if g.calls[o.call].list != "" {
		return // a list, which may be quick where statuses are slow, says nothing of them
	}
	now := time.Now()
	g.lastEnd = now
	if took, known := g.took(state, now); known {
		g.longest = max(g.longest, took)
		g.client.late.answered(g.calls[o.call].kind, took)
	}
}

// took returns how long a call took that was answered now, and whether that is known: what passed
// while the process stood still is not the runtime's.
func (g *gathering) took(state *callState, now time.Time) (d time.Duration, known bool) {
	return now.Sub(state.begun), !state.begun.Before(g.awake)
}

// lateAt returns when a call under way is given up; the zero time while none was answered.
func (g *gathering) lateAt(i int) time.Time {
	if g.lastEnd.IsZero() {
		return time.Time{}
	}
	patience := max(leastPatience, patienceFactor*g.longest, g.client.late.patience(&g.calls[i]))
	return latest(g.state[i].begun, g.lastEnd, g.awake).Add(patience)
}

// nextLook returns when wait has to look at the calls without the end of one: once in a while in
// any case, to notice a standstill.
func (g *gathering) nextLook(begun time.Time, stuck time.Duration) time.Time {
	look := time.Now().Add(stuckAfter)
	if g.lastEnd.IsZero() {
		if at := latest(begun, g.awake).Add(stuck); stuck > 0 && at.Before(look) {
			return at
		}
		return look
	}
	for _, i := range g.underWay {
		if at := g.lateAt(i); at.Before(look) {
			look = at
		}
	}
	return look
}

// giveUpLate gives up the calls that are late. Each makes room for one more call than it took:
// where many items hang, waiting for a few at a time would keep what the others say from the
// reader. Their goroutines go on until the runtime answers, the read's deadline passes or the
// client is closed, so that the client learns whether an item is slow or hangs.
func (g *gathering) giveUpLate(now time.Time) {
	waited := g.underWay
	g.underWay = nil
	for _, i := range waited {
		state := &g.state[i]
		if g.lateAt(i).After(now) {
			g.underWay = append(g.underWay, i)
			continue
		}
		state.over = true
		state.err = fmt.Errorf("cri: %s on %s has not been answered for %v, and other items of the pod have",
			g.calls[i].subject(), g.client.endpoint, now.Sub(state.begun).Round(time.Millisecond))
		g.beside++
		g.client.late.giveUp(state.late)
	}
}

// abort ends the calls under way, because the read's context has ended, and waits for them.
func (g *gathering) abort() {
	for _, i := range g.underWay {
		g.state[i].cancel(context.Cause(g.ctx))
	}
	for len(g.underWay) > 0 {
		g.end(<-g.ended)
	}
	for i := g.next; i < len(g.calls); i++ {
		g.state[i].over = true
		g.state[i].err = fmt.Errorf("cri: %s on %s: %w", g.calls[i].subject(), g.client.endpoint, context.Cause(g.ctx))
	}
	g.next = len(g.calls)
}

// lateCall is a status call on its way. The fields after begun belong to the holder of
// lateItems.mu.
type lateCall struct {
	id     string
	kind   pleg.Kind
	isList bool
	begun  time.Time
	// ended: the runtime has answered, or the call has failed. givenUp: its read waits no longer.
	ended, givenUp bool
}

// lateItems remembers the items that are late: asked for by a call that its read has given up, or
// answered only after that. Its methods may be called from any goroutine.
type lateItems struct {
	mu sync.Mutex // guards the fields below
	// waiting holds the call that was given up and has not ended, by ID of its item: one each.
	waiting map[string]*lateCall
	// paces are of the items of each kind.
	paces [2]pace
	// took holds how long the last answer took about an item that was late, by ID.
	took map[string]time.Duration
	// silent holds when an item was last asked for, by ID, if that call was late and ended without an
	// answer: most often because the time of its read was over.
	silent map[string]time.Time
}

// maxLateItems bounds the IDs remembered as slow, and as silent; a map is emptied when full.
const maxLateItems = 4096

// order returns the places of IDs in the order in which a read asks for them: silent ones last, and
// of those first what was asked for longest ago. Many that hang, one after the other, may take all
// the time that a read has.
func (l *lateItems) order(ids []string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := make([]int, len(ids))
	for i := range places {
		places[i] = i
	}
	if len(l.silent) > 0 {
		slices.SortStableFunc(places, func(i, j int) int { return l.silent[ids[i]].Compare(l.silent[ids[j]]) })
	}
	return places
}

// waitingSince returns when the unanswered call about an item was begun, if there is one.
func (l *lateItems) waitingSince(id string) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	call := l.waiting[id]
	if call == nil {
		return time.Time{}, false
	}
	return call.begun, true
}

// patience returns how long a call about an item may take, by what the last one took, and the last
// ones about items of its kind: a runtime may have to ask a disk for each container, and for no
// sandbox.
func (l *lateItems) patience(call *itemCall) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(2*l.took[call.id], min(patienceFactor*l.paces[call.kind].slowest(), kindPatience))
}

// pace is how long the last answers took.
type pace struct {
	answers int           // since longest was begun
	longest time.Duration // among them
	before  time.Duration // among as many before them
}

// paceAnswers is how many answers are looked at together. They are counted, not timed: a node that
// stands still asks for little, and has learned nothing new meanwhile.
const paceAnswers = 64

// answered takes the time of an answer.
func (p *pace) answered(took time.Duration) {
	if p.answers == paceAnswers {
		*p = pace{before: p.longest}
	}
	p.answers++
	p.longest = max(p.longest, took)
}

// slowest returns the longest time of the last answers.
func (p *pace) slowest() time.Duration { return max(p.longest, p.before) }

// giveUp notes that the read of a call waits no longer.
func (l *lateItems) giveUp(call *lateCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if call.ended {
		return
	}
	if l.waiting == nil {
		l.waiting = make(map[string]*lateCall)
	}
	call.givenUp = true
	l.waiting[call.id] = call
}

// answered takes the time of an answer about an item of a kind.
func (l *lateItems) answered(kind pleg.Kind, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paces[kind].answered(took)
}

// end notes the end of a call, and whether the runtime has answered. The time of an answer is its
// read's to measure, if the read has waited for it. If not, a standstill since counts as well: then
// the first hung item of a pod may be waited for until kindPatience, for as many answers as a pace
// is of.
func (l *lateItems) end(call *lateCall, answered bool) {
	took := time.Since(call.begun)
	l.mu.Lock()
	defer l.mu.Unlock()
	call.ended = true
	if l.waiting[call.id] == call {
		delete(l.waiting, call.id)
	}
	if answered {
		if call.givenUp && !call.isList {
			l.paces[call.kind].answered(took)
		}
		delete(l.silent, call.id)
	} else if took > leastPatience && !call.isList {
		if l.silent == nil || len(l.silent) >= maxLateItems {
			l.silent = make(map[string]time.Time)
		}
		l.silent[call.id] = call.begun
	}
	_, known := l.took[call.id]
	switch {
	case !answered || !known && !call.givenUp:
	case took <= leastPatience:
		delete(l.took, call.id)
	default:
		if l.took == nil || len(l.took) >= maxLateItems {
			l.took = make(map[string]time.Duration)
		}
		l.took[call.id] = took
	}
}

// latest returns the latest of the times.
func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}
