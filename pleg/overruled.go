// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"time"
)

// lieReportEvery is how long no further report of overruled claims is made after one: however many
// claims a runtime has to take back, its reports are few.
const lieReportEvery = 10 * time.Second

// lies are the claims that reads have overruled. They belong to the core.
type lies struct {
	last   instant // when one last cost trust: a list that began before does not vouch for the stream
	fresh  bool    // some were overruled since the last turn: they have not cost any trust yet
	untold int     // since the last report
	first  string  // the first of them, for the report
	report instant // no report before this
}

// overruled notes that a read has overruled the claim of an ID: the read shows another phase than
// the claim told of, and began more than the grace later. Settled in the same turn by settleLies,
// because one list may overrule any number of claims.
func (c *core[S]) overruled(p *pod, it Item, claimed Phase) {
	c.count.overruled++
	l := &c.lies
	l.fresh = true
	if l.untold++; l.untold == 1 {
		l.first = fmt.Sprintf("that %s %s of pod %s is %v, and a read that began more than %v later shows it %v",
			it.Kind, it.ID, p.title(), claimed, c.cfg.Grace, it.Phase)
	}
}

// settleLies has overruled claims cost the stream its trust, like missed events: what lists vouched
// for it counts no more, and the relist period falls back to the base. And it reports them.
func (c *core[S]) settleLies(now instant) {
	l := &c.lies
	if l.fresh {
		l.fresh, l.last = false, now
		c.withdraw()
		c.sched.distrust(now)
	}
	if l.untold == 0 || now < l.report {
		return
	}
	more := ""
	if l.untold > 1 {
		more = fmt.Sprintf("; %d more of its events were taken back since the last report", l.untold-1)
	}
	c.report(ReasonEventsOverruled, "Relist", true, "the runtime told "+l.first+more+fmt.Sprintf("; relisting every %v", c.sched.period))
	l.untold, l.report = 0, now.add(lieReportEvery)
}

// title names the pod for people.
func (p *pod) title() string {
	if p.name == "" {
		return string(p.uid)
	}
	return fmt.Sprintf("%s/%s (%s)", p.namespace, p.name, p.uid)
}
