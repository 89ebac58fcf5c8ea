// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

// ackMutations break the rules by which the agent's own calls are believed.
var ackMutations = []mutation{
	{
		"acks: an ack takes a phase back", "pleg/ack.go",
		"case phase > x.phase:", "case phase != x.phase:",
	},
	{
		"acks: an ack confirms no claim", "pleg/ack.go",
		"x.byClaim, x.confirmed = false, max(x.confirmed, at)", "x.confirmed = max(x.confirmed, at)",
	},
	{
		"acks: a read from before the answer takes it back", "pleg/ack.go",
		"x.since, x.confirmed = at, at\n\t\tc.settleLater", "x.since, x.confirmed = 1, 1\n\t\tc.settleLater",
	},
	{
		"acks: a read from before the answer takes away what was made", "pleg/ack.go",
		"first: at, since: at}", "first: 1, since: at}",
	},
	{
		"acks: what may have been forgotten is made known", "pleg/ack.go",
		"call.began > c.forgotten", "call.began > 0",
	},
	{
		"acks: what claims have told of before is lost", "pleg/ack.go",
		"if x.claimed = s.phase; s.phase >= it.Phase {", "if x.claimed = s.phase; false {",
	},
	{
		"acks: a stop ends what was started meanwhile", "pleg/ack.go",
		"(x.phase < PhaseRunning || x.phase == PhaseRunning && x.since > began)", "x.phase < PhaseRunning",
	},
	{
		"acks: a stop ends what never ran", "pleg/ack.go",
		"(x.phase < PhaseRunning || x.phase == PhaseRunning && x.since > began)", "x.phase == PhaseRunning && x.since > began",
	},
	{
		"acks: a call that has failed has changed nothing", "pleg/ack.go",
		"if a.failed || len(a.items) == 0 {", "if false {",
	},
	{
		"acks: what found no room is lost", "pleg/ack.go",
		"c.count.acksLost++\n\tc.sched.ask(now, false)", "c.count.acksLost++",
	},
	{
		"acks: the grace of an older claim of a known ID runs from the call", "pleg/ack.go",
		"at.add(-c.cfg.Grace)", "at",
	},
	{
		"acks: a call that ends makes no room", "pleg/ack.go",
		"case a.call.began == 0:", "case a.call.began == 0, len(b.acks) >= b.max:",
	},
	{
		"acks: what the agent has stopped is looked after", "pleg/ack.go",
		"x.stoppedByAgent = true", "x.stoppedByAgent = false",
	},
	{
		"acks: a call that has failed cannot work later", "pleg/record.go",
		"(!x.stoppedByAgent || p.callFailed)", "!x.stoppedByAgent",
	},
	{
		"acks: each is read by itself", "pleg/ack.go",
		"c.dirty[p.uid] != p || p.teardown.climbed() || p.notYet > p.own.hold", "false",
	},
	{
		"acks: an event does not wait for the call that makes it", "pleg/ack.go",
		"if p.own.calls > 0 || p.own.hold > now {", "if false {",
	},
	{
		"acks: who waits waits for the calls to settle", "pleg/dispatch.go",
		" && (p.want == 0 || c.asOf(p) > p.want) {", " {",
	},
	{
		"acks: what is read late is never read", "pleg/ack.go",
		"p.own.hold = now.add(c.cfg.CallSettle)", "p.own.hold = now.add(1000 * c.cfg.CallSettle)",
	},
	{
		"acks: a pod with a call under way is forgotten", "pleg/demand.go",
		" && p.own.calls == 0 &&", " &&",
	},
	{
		"acks: what is being made is not listed", "pleg/ack.go",
		"case o.creating > 0, p.callFailed,", "case p.callFailed,",
	},
	{
		"acks: what a failed call may make later is not listed", "pleg/ack.go",
		"case o.creating > 0, p.callFailed,", "case o.creating > 0,",
	},
	{
		"acks: what a failed call may make is forgotten with its pod", "pleg/demand.go",
		"\t\tc.keepUncertainCreate(p, now)\n", "",
	},
	{
		"acks: nothing is inherited of a pod that was forgotten", "pleg/core.go",
		"\t\tc.restoreUncertainCreate(p)\n", "",
	},
	{
		"acks: pods that have failed are remembered without bound", "pleg/ack.go",
		"len(c.uncertainCreates) == uncertainCreatesMax", "false",
	},
	{
		"acks: who was given up need not be listed", "pleg/ack.go",
		"c.lists.applied <= c.uncertainDropped, ", "",
	},
	{
		"acks: the first read of what the agent makes is a list", "pleg/ack.go",
		"case p.failed, p.disagrees,", "case !p.hasStatus, p.failed, p.disagrees,",
	},
	{
		"acks: what nobody has told of is not listed", "pleg/ack.go",
		"max(o.unlisted, c.conn.connected)", "c.conn.connected",
	},
	{
		"acks: a pod is read by its IDs while a claim tells of another", "pleg/ack.go",
		"p.foreignID, p.statusUnknown(), p.hasUnconfirmed(),", "p.foreignID, p.statusUnknown(),",
	},
	{
		"acks: a claimed removal is borne out by not asking", "pleg/ack.go",
		"case x.phase == PhaseUnknown, x.phase == PhaseRemoved && x.byClaim:", "case x.phase == PhaseUnknown:",
	},
	{
		"acks: a read by IDs takes the statuses over", "pleg/dispatch.go",
		"liveItems(p), false", "liveItems(p), r.builds",
	},
	{
		"acks: a read by IDs says that others have gone", "pleg/merge.go",
		"if by != byIDs {", "if by != byList+9 {",
	},
	{
		"acks: a pod is read by its IDs after acks were lost", "pleg/ack.go",
		"!c.connected(), c.count.acksLost > 0,", "!c.connected(),",
	},
	{
		"acks: who does not tell of all calls has nobody listed", "pleg/ack.go",
		"!c.cfg.TellsCalls, !c.connected(),", "!c.connected(),",
	},
	{
		"acks: what others make while nobody listens is not listed", "pleg/ack.go",
		"!c.cfg.TellsCalls, !c.connected(),", "!c.cfg.TellsCalls,",
	},
	{
		"acks: what was made before the stream was up is not listed", "pleg/ack.go",
		"max(o.unlisted, c.conn.connected)", "o.unlisted",
	},
	{
		"acks: what others make in nobody knows which pod is not listed", "pleg/ack.go",
		", len(c.unowned) > 0:", ":",
	},
	{
		"acks: a pod without an ID needs no list", "pleg/ack.go",
		"return 0 < live && live <= knownIDsMax", "return live <= knownIDsMax",
	},
}
