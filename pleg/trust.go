// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"strings"
	"time"
)

// candidate is a change that a read found and no claim has announced. Unless a claim confirms it
// within the grace, the change was missed, or, if nobody listened all the while, unheard.
type candidate struct {
	item     *item // nil: not a change, but a list whose changes are all in front of this entry
	phase    Phase
	found    instant // when the read was applied
	stream   instant // when the stream was connected that missed the change; 0 if none was up all the while
	deadline instant // the grace after that
}

// muteStream tells a stream that loses events from a stream that hangs open and carries none.
type muteStream struct {
	missed instant // since when events are missing and no claim comes, on the present stream; 0 if not
	claims int     // claims received by then
	ending bool    // the stream is being ended as mute
}

// checkMute handles missed changes, the first of which a read found at the given time. If events
// were missed before that, and no claim has come since, the stream is ended, to be opened again
// like a lost stream: a runtime that has forgotten its subscriber shows no other sign.
func (c *core[S]) checkMute(found, now instant) {
	m := &c.mute
	switch {
	case m.ending:
	case m.missed == 0 || c.count.claims != m.claims:
		m.missed, m.claims = now, c.count.claims
	case found > m.missed:
		m.ending = true
		c.todo.do(action[S]{kind: actCut})
	}
}

// creditQuietList raises the relist period for a list just applied: now if the list found nothing,
// else once claims have confirmed all changes found, because a read may well see a change before
// the runtime announces it.
func (c *core[S]) creditQuietList(now instant) {
	if c.candidates.len() == 0 {
		c.sched.trust(now)
		return
	}
	c.candidates.push(candidate{found: now, deadline: now.add(c.cfg.Grace)})
}

// revokeCredit drops the credit that lists have given to a stream that is lost, or whose claim was
// overruled. The unconfirmed changes are still settled.
func (c *core[S]) revokeCredit() {
	c.candidates.keep(func(e candidate) bool { return e.item != nil })
}

// addCandidate notes a change that a read found, from a runtime known to have events. Since is the
// begin of the read that covered the pod before.
func (c *core[S]) addCandidate(x *item, phase Phase, since, now instant) {
	if x.claimed >= phase {
		return
	}
	e := candidate{item: x, phase: phase, found: now, deadline: now.add(c.cfg.Grace)}
	if c.listened(since) {
		e.stream = c.conn.connected
	}
	c.candidates.push(e)
}

// noteRegression notes that a read has taken an ID back to a phase from a further phase that only
// reads had shown; PhaseUnknown stands for an ID that no second read has shown. The stream is not
// to blame for changes seen by the earlier reads. Applied in the next tick, because one list may
// take back any number of IDs.
func (c *core[S]) noteRegression(x *item, to Phase) {
	if before, ok := c.regressed[x]; !ok || to < before {
		c.regressed[x] = to
	}
}

// settleRegressed drops the changes that one read found and a later one took back, unless their
// grace had passed before.
func (c *core[S]) settleRegressed() {
	if len(c.regressed) == 0 {
		return
	}
	c.candidates.keep(func(e candidate) bool {
		to, ok := c.regressed[e.item]
		return e.item == nil || !ok || e.phase <= to
	})
	clear(c.regressed)
}

// listened says that the stream has been up since before that time, and no claim was discarded: the
// runtime had a subscriber for every change since.
func (c *core[S]) listened(since instant) bool {
	return c.connected() && since > max(c.conn.connected, c.lastDiscard)
}

// settleMissing counts the changes whose grace has passed. A missed change to Running or Exited
// costs the stream its trust; creations and removals are counted apart, because runtimes differ in
// the events that they send for them (KEP-3386: kube_pod_missed_events). Changes while nobody
// listened are counted apart too: the runtime is not to blame.
func (c *core[S]) settleMissing(now instant) {
	missed, found := 0, never
	for {
		e, ok := c.candidates.front()
		if !ok || e.deadline > now {
			break
		}
		c.candidates.pop()
		if e.item == nil {
			if missed == 0 && c.connected() {
				c.sched.trust(now)
			}
			continue
		}
		if e.item.claimed >= e.phase {
			continue
		}
		heard := e.stream != 0 && c.connected() && e.stream == c.conn.connected && e.found > c.lastDiscard
		switch {
		case !heard && (e.phase == PhaseRunning || e.phase == PhaseExited):
			c.count.unheard++
			c.unheardChanges.add(e.item, e.phase)
		case !heard: // unheard creations and removals
		case e.phase == PhaseRunning, e.phase == PhaseExited:
			missed++
			c.missedChanges.add(e.item, e.phase)
			found = min(found, e.found)
		case e.phase == PhaseRemoved:
			c.count.missedRemovals++
		default:
			c.count.missedCreations++
		}
	}
	if missed == 0 {
		return
	}
	c.count.missed += missed
	c.sched.distrust(now)
	c.checkMute(found, now)
}

// overruledReportEvery is the least time between two reports of overruled claims: a runtime may
// have any number of claims overruled.
const overruledReportEvery = 10 * time.Second

// overruledClaims are the claims that reads have overruled. The core owns them.
type overruledClaims struct {
	last       instant // when a claim last cost trust: a list that began before gives no credit
	unsettled  bool    // some were overruled since the last turn, and have not cost trust yet
	unreported int     // since the last report
	first      string  // the first unreported claim, in words
	report     instant // no report before this
}

// noteOverruled notes that a read has overruled the claim of an ID: the read began more than the
// grace after the claim, and shows another phase. settleOverruled follows in the same turn, because
// one list may overrule any number of claims.
func (c *core[S]) noteOverruled(p *pod, it Item, claimed Phase) {
	c.count.overruled++
	l := &c.overruled
	l.unsettled = true
	if l.unreported++; l.unreported == 1 {
		l.first = fmt.Sprintf("that %s %s of pod %s is %v, and a read that began more than %v later shows it %v",
			it.Kind, it.ID, p.title(), claimed, c.cfg.Grace, it.Phase)
	}
}

// settleOverruled takes the stream's trust for overruled claims, as for missed events: all credit
// by lists is void, and the relist period falls back to the base. And it reports the claims.
func (c *core[S]) settleOverruled(now instant) {
	l := &c.overruled
	if l.unsettled {
		l.unsettled, l.last = false, now
		c.revokeCredit()
		c.sched.distrust(now)
	}
	if l.unreported == 0 || now < l.report {
		return
	}
	more := ""
	if l.unreported > 1 {
		more = fmt.Sprintf("; %d more of its events were taken back since the last report", l.unreported-1)
	}
	c.report(ReasonEventsOverruled, "Relist", true, "the runtime told "+l.first+more+fmt.Sprintf("; relisting every %v", c.sched.period))
	l.unreported, l.report = 0, now.add(overruledReportEvery)
}

// title names the pod for people.
func (p *pod) title() string {
	if p.name == "" {
		return string(p.uid)
	}
	return fmt.Sprintf("%s/%s (%s)", p.namespace, p.name, p.uid)
}

// A lasting condition of the node is reported at once and then ever more rarely: after 10 s, 40 s,
// 160 s and every ten minutes. A condition that has rested for ten minutes begins anew. The
// stream's transitions are not paced: the reconnect delay keeps them rare, and each is news.
const (
	firstPause   = 10 * time.Second
	pauseFactor  = 4
	longestPause = 10 * time.Minute
)

// reportPace paces the reports of one reason. The core owns it.
type reportPace struct {
	reason Reason
	next   instant       // no report before this
	pause  time.Duration // pause before next; 0 before the first report
	made   instant       // when the last report was made
	seen   instant       // when the reason last came up
	held   int           // occurrences since the last report
	last   Report        // the last report held
}

// reportPaced makes a report, or holds it back.
func (c *core[S]) reportPaced(r Report, now instant) {
	p := c.paceOf(r.Reason, now)
	p.seen = now
	if now < p.next {
		p.held++
		p.last = r
		return
	}
	c.release(p, r, now)
}

// paceOf returns the pace of a reason; a reason that has rested begins anew, with the reports held
// back so far.
func (c *core[S]) paceOf(reason Reason, now instant) *reportPace {
	p := c.paceIfAny(reason)
	switch {
	case p == nil:
		p = &reportPace{reason: reason, next: now, seen: now}
		c.reportPaces = append(c.reportPaces, p)
	case now.sub(p.seen) >= longestPause:
		p.next, p.pause, p.seen = now, 0, now
	}
	return p
}

// paceIfAny returns the pace of a reason that has come up before, or nil.
func (c *core[S]) paceIfAny(reason Reason) *reportPace {
	for _, p := range c.reportPaces {
		if p.reason == reason {
			return p
		}
	}
	return nil
}

// reportHeld makes the held report of each reason whose pause is over: the reason may not come up
// again.
func (c *core[S]) reportHeld(now instant) {
	for _, p := range c.reportPaces {
		if p.held == 0 || now < p.next {
			continue
		}
		r := p.last
		if age := now.sub(p.seen).Round(time.Second); age > 0 {
			r.Note += fmt.Sprintf(" (%v ago)", age)
		}
		p.held-- // the report is not one of those held
		c.release(p, r, now)
	}
}

// release makes a report that stands for the held ones as well.
func (c *core[S]) release(p *reportPace, r Report, now instant) {
	r.Held += p.held
	p.held, p.last = 0, Report{}
	p.pause = min(max(firstPause, pauseFactor*p.pause), longestPause)
	p.made, p.next = now, now.add(p.pause)
	c.todo.report(r)
}

// reportOver ends a condition. The report held back is made with a last word: at once, or, if the
// condition came and went within the first pause, when that is over.
func (c *core[S]) reportOver(reason Reason, word string, now instant) {
	p := c.paceIfAny(reason)
	if p == nil || p.held == 0 {
		return
	}
	p.last.Note += word
	if now.sub(p.made) >= firstPause {
		r := p.last
		p.held-- // the report is not one of those held
		c.release(p, r, now)
	}
}

// namedAtMost is the number of changes that a report names; the others are counted.
const namedAtMost = 3

// changeSummary collects unannounced changes for one report. The core owns it.
type changeSummary struct {
	first []string // the first changes, in words
	n     int
}

// add enters a change.
func (t *changeSummary) add(x *item, phase Phase) {
	if t.n++; t.n <= namedAtMost {
		t.first = append(t.first, fmt.Sprintf("%s is %v", x.title(), phase))
	}
}

// String names the first changes and counts the others.
func (t *changeSummary) String() string {
	s := strings.Join(t.first, ", ")
	if more := t.n - len(t.first); more > 0 {
		s += fmt.Sprintf(", and %d more", more)
	}
	return s
}

// reportChanges reports the collected changes that the pace allows to report by now.
func (c *core[S]) reportChanges(now instant) {
	if t := &c.missedChanges; c.summaryDue(ReasonEventsMissed, t, now) {
		c.reportPaced(Report{
			Reason: ReasonEventsMissed, Action: "Relist", Warning: true,
			Note: fmt.Sprintf("the runtime changed the state of %d containers or sandboxes without telling; relisting every %v: %v",
				t.n, c.sched.period, t),
		}, now)
		*t = changeSummary{}
	}
	if t := &c.unheardChanges; c.summaryDue(ReasonChangesUnheard, t, now) {
		c.reportPaced(Report{
			Reason: ReasonChangesUnheard, Action: "Relist",
			Note: fmt.Sprintf("%d containers or sandboxes changed while no event could be heard; lists found them: %v", t.n, t),
		}, now)
		*t = changeSummary{}
	}
}

// summaryDue says that a summary is to be reported now.
func (c *core[S]) summaryDue(reason Reason, t *changeSummary, now instant) bool {
	return t.n > 0 && now >= c.paceOf(reason, now).next
}

// reportsDue returns when the next held report is due, or the list under way counts as hung.
func (c *core[S]) reportsDue() instant {
	at := never
	for _, p := range c.reportPaces {
		if p.held > 0 || p.reason == ReasonEventsMissed && c.missedChanges.n > 0 || p.reason == ReasonChangesUnheard && c.unheardChanges.n > 0 {
			at = min(at, p.next)
		}
	}
	if c.lists.inflight && !c.lists.hanging {
		at = min(at, c.lists.began.add(c.cfg.RelistSlow).next())
	}
	return at
}

// lookHanging reports, once, that the list under way hangs: its timeout may be minutes away, and
// nothing else reports the hang until then.
func (c *core[S]) lookHanging(now instant) {
	if !c.lists.inflight || c.lists.hanging || now.sub(c.lists.began) <= c.cfg.RelistSlow {
		return
	}
	c.lists.hanging = true
	c.reportPaced(Report{
		Reason: ReasonRelistHangs, Action: "Relist", Warning: true,
		Note: fmt.Sprintf("a list of the runtime has not been answered for %v; it is given up after %v",
			now.sub(c.lists.began).Round(time.Millisecond), c.cfg.RelistTimeout),
	}, now)
}

// title names the item for people.
func (x *item) title() string {
	name := x.id
	if x.name != "" {
		name = x.name + " (" + x.id + ")"
	}
	return fmt.Sprintf("%s %s of pod %s", x.kind, name, x.pod.title())
}
