// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

// mutation is one deliberate fault.
type mutation struct{ name, file, old, new string }

var mutations = []mutation{
	{
		"the dominance rule is dropped", "pleg/claim.go",
		"if shown == 0 || shown != p.live() {", "if shown == 0 {",
	},
	{
		"a payload counts as fresh", "pleg/claim.go",
		"c.store(p, status, pc.payload, c.asOf(p), now)", "c.store(p, status, pc.payload, now, now)",
	},
	{
		"a payload is believed while a read disagrees", "pleg/claim.go",
		"p.failed || p.disagrees || p.force != 0", "p.failed || p.force != 0",
	},
	{
		"a claim may take a phase back", "pleg/claim.go",
		"if claim.item.Phase <= x.phase {", "if claim.item.Phase == x.phase {",
	},
	{
		"a claim of an unknown ID is not confirmed", "pleg/record.go",
		"if s.phase != PhaseRemoved {\n\t\t\treturn true", "if s.phase != PhaseRemoved {\n\t\t\treturn false",
	},
	{
		"tombstones are forgotten", "cache/cache.go",
		"if at.After(c.global) {\n\t\tc.tombstones[uid] = at", "if false {\n\t\tc.tombstones[uid] = at",
	},
	{
		"an older write wins", "cache/cache.go",
		"if c.newer(uid, at) {\n\t\treturn true", "if false {\n\t\treturn true",
	},
	{
		"a failed read takes the status away", "cache/cache.go",
		"if err == nil {\n\t\te.status = status\n\t}", "e.status = status",
	},
	{
		"a deleted pod stays in the cache", "cache/cache.go",
		"\tdelete(c.pods, uid)\n", "",
	},
	{
		"any read wakes every waiter of the pod", "cache/waiter.go",
		"if !at.After(w.t) {\n\t\t\tcontinue", "if at.IsZero() {\n\t\t\tcontinue",
	},
	{
		"the global time moves before the inspections", "pleg/list.go",
		"n.pending[p] = struct{}{}", "_ = p",
	},
	{
		"the global time moves to the end of the list", "pleg/list.go",
		"max(c.lists.global, c.rounds[i].began)", "max(c.lists.global, c.lists.finished)",
	},
	{
		"a delta list passes over pods that are being read", "pleg/list.go",
		"for p := range c.inflight {\n\t\t\tadd(p)\n\t\t}", "",
	},
	{
		"what a delta list does not name is gone", "pleg/list.go",
		"items = listingOf(p)", "items = nil",
	},
	{
		"no relist after the stream is connected", "pleg/core.go",
		"c.sched.distrust(now)\n\t\tc.sched.ask(now, true)\n\t\tif old.everConnected {", "if old.everConnected {",
	},
	{
		"a lost stream does not fall back to polling", "pleg/core.go",
		"c.revokeCredit()\n\t\tc.sched.distrust(now)\n\t\tc.sched.ask(now, true)", "c.revokeCredit()",
	},
	{
		"the stream is given up after five attempts", "pleg/conn.go",
		"c.attempts++\n\treturn c", "if c.attempts++; c.attempts > 5 {\n\t\tc.deadline = never\n\t}\n\treturn c",
	},
	{
		"a list that works again does not open the stream", "pleg/list.go",
		"\t\tc.step(inBack, now)\n", "",
	},
	{
		"what failed while the runtime was away counts when it is back", "pleg/conn.go",
		"c.attempts = 0 // the attempts failed while the runtime was away\n", "",
	},
	{
		"a stamp from the future is a latency", "pleg/loop.go",
		"at.Before(opened) || at.After(now)", "at.Before(opened)",
	},
	{
		"the stream is blamed for an ID that moves between pods", "pleg/merge.go",
		"expected && !moved, r.last", "expected, r.last",
	},
	{
		"a missed event costs no trust", "pleg/trust.go",
		"c.count.missed += missed\n\tc.sched.distrust(now)\n", "c.count.missed += missed\n",
	},
	{
		"what Watch is told comes before what the cache is", "pleg/executor.go",
		"t.actions = append(t.actions, action[S]{kind: actEmit})", "t.actions = append([]action[S]{{kind: actEmit}}, t.actions...)",
	},
	{
		"the core forgets the cache's tombstones", "pleg/store.go",
		"c.guard.tombstones[p.uid] = at", "_ = at",
	},
	{
		"the core remembers a tombstone that the global time has made needless", "pleg/store.go",
		"if at <= global {\n\t\t\tdelete(g.tombstones, uid)", "if at < 0 {\n\t\t\tdelete(g.tombstones, uid)",
	},
	{
		"the core forgets before which time the cache takes nothing", "pleg/store.go",
		"p.hasEntry() || at >= c.guard.floor", "p.hasEntry() || true",
	},
	{
		"a write that the cache refuses is taken for made", "pleg/executor.go",
		"\tif !ok {\n", "\tif false && !ok {\n",
	},
	{
		"pods that waited for a list that failed are queued in any order", "pleg/list.go",
		"range inOrder(c.dirty)", "range c.dirty",
	},
	{
		"what a read of another pod knows of an ID has that ID's pod in need, and not read", "pleg/merge.go",
		"x != nil && x.pod == p && x.statusUnknown", "x != nil && x.statusUnknown",
	},
	{
		"what has changed waits for the end of a delay", "pleg/record.go",
		"d.notYet, d.reread = 0, ladder{}", "d.reread = ladder{}",
	},
	{
		"a status as of the time of a wish answers it", "pleg/record.go",
		"w.force != 0 && at > w.force", "w.force != 0 && at >= w.force",
	},
	{
		"Watch is told before the cache", "pleg/demand.go",
		"settled := p.settled()\n\tif settled {", "settled := p.settled()\n\tif settled || true {",
	},
	{
		"an event that finds Watch full is lost", "pleg/executor.go",
		"o.owed[e.Pod] = e\n\to.fifo = append(o.fifo, e.Pod)\n", "",
	},
	{
		"events are told again", "pleg/record.go",
		"if w.mask&unless != 0 {", "if false {",
	},
	{
		"a failed pod loses its dirty mark", "pleg/record.go",
		"return !p.settled() || p.disagrees || p.failed ||", "return !p.failed && !p.settled() || p.disagrees ||",
	},
	{
		"a change during an inspection loses the mark", "pleg/dispatch.go",
		"\tp := c.ensure(r.uid)\n", "\tp := c.ensure(r.uid)\n\tdefer func() { delete(c.dirty, p.uid) }()\n",
	},
	{
		"two inspections of a pod at once", "pleg/demand.go",
		"{ return p.reading }", "{ return p.reading && false }",
	},
	{
		"a read overrules a claim at once", "pleg/merge.go",
		"limit = limit.add(c.cfg.Grace)", "limit = 0",
	},
	{
		"no read overrules a claim", "pleg/merge.go",
		"if began <= limit {", "if x.byClaim || began <= limit {",
	},
	{
		"a read removes what came after it began", "pleg/merge.go",
		"if r.began <= x.first || x.rolledBackSince(r.began) {", "if x.rolledBackSince(r.began) {",
	},
	{
		"a status may take back what the cache shows", "pleg/dispatch.go",
		"case !agrees && c.regresses(p, r.shows.Items):", "case !agrees && false:",
	},
	{
		"removed IDs are forgotten while a read is on", "pleg/store.go",
		"\treturn oldest\n", "\treturn now\n",
	},
	{
		"who waits for a pod whose tombstone was pruned is taken for served", "pleg/demand.go",
		"t = max(p.asOf, p.read)", "_ = p",
	},
	{
		"an overtaken read makes a pod doubtful that later ones have settled", "pleg/merge.go",
		"if !r.superseded {\n\t\tp.disagrees = !r.agrees", "if true {\n\t\tp.disagrees = !r.agrees || r.superseded && p.disagrees",
	},
	{
		"a read from before an ID came bears out that it has gone", "pleg/merge.go",
		"case r.began > x.first && !x.rolledBackSince(r.began):\n\t\t\tx.byClaim", "case true:\n\t\t\tx.byClaim",
	},
	{
		"a removal that a list could not bear out is not asked after", "pleg/merge.go",
		"if x.phase == PhaseRemoved && x.byClaim {\n\t\t\treturn true", "if false {\n\t\t\treturn true",
	},
	{
		"a read in the instant in which one was refused does not count", "pleg/store.go",
		"p.want = max(p.want, now-1)", "p.want = max(p.want, now)",
	},
	{
		"a status that did not know a state lets a lagging list take a removal back", "pleg/merge.go",
		"x.statusUnknown && x.cached != phaseNone && it.Phase", "x.statusUnknown && it.Phase",
	},
	{
		"what an overtaken read alone shows is not asked after", "pleg/merge.go",
		"} else if r.needsReread {", "} else if r.needsReread && false {",
	},
	{
		"waiters do not cause a read", "pleg/demand.go",
		"\t\tc.wantRead(p, t, now)\n", "_ = t",
	},
	{
		"a restart does not know what the cache holds", "pleg/core.go",
		"c.ensure(uid).foreign = true", "_ = uid",
	},
	{
		"a list storm while a reinspection is wanted", "pleg/demand.go",
		"if p.force == 0 && !p.failed && !p.statusUnknown() {", "if true {",
	},
	{
		"a pod that is going away is not looked at again", "pleg/record.go",
		"if x.kind == Sandbox && x.phase == PhaseExited && (", "if x == nil && (",
	},
	{
		"an event without a pod is dropped", "pleg/claim.go",
		"return c.onUnownedClaims(pc, now)", "return 0",
	},
	{
		"what a list showed of another pod is forgotten", "pleg/merge.go",
		"\t\t\tp.addConflict(*it)\n", "",
	},
	{
		"what moves to another pod is not remembered", "pleg/merge.go",
		"old.addConflict(Item{ID: x.id, Kind: x.kind, Phase: x.listed})", "_ = old",
	},
	{
		"a pod that loses an ID to another one is told nothing of its own", "pleg/merge.go",
		"old.reassigned = old.reassigned || x.emitted < PhaseRemoved", "_ = old",
	},
	{
		"a pod that loses an ID to another one is told before the cache shows it", "pleg/store.go",
		"reassigned := p.reassigned && p.force == 0", "reassigned := p.reassigned",
	},
	{
		"a status that shows another pod's ID is as good as any", "pleg/store.go",
		"p.foreignID = p.foreignID || x != nil", "_ = x",
	},
	{
		"a pod whose status the cache has is forgotten", "pleg/demand.go",
		"&& !p.foreign && !p.hasStatus", "&& !p.foreign",
	},
	{
		"what was told of an ID is told again of the pod that it moves to", "pleg/merge.go",
		"mask = x.mask", "mask = 0",
	},
	{
		"a status is built upon after a failure", "pleg/dispatch.go",
		"if p.hasStatus && !p.failed && !p.foreignID && !p.statusUnknown() && p.force == 0 {", "if p.hasStatus && !p.foreignID && !p.statusUnknown() && p.force == 0 {",
	},
	{
		"a status that shows another pod's ID is built upon", "pleg/dispatch.go",
		"!p.failed && !p.foreignID && !p.statusUnknown()", "!p.failed && !p.statusUnknown()",
	},
	{
		"a reinspection builds upon the old status", "pleg/dispatch.go",
		"if p.hasStatus && !p.failed && !p.foreignID && !p.statusUnknown() && p.force == 0 {", "if p.hasStatus && !p.failed && !p.foreignID && !p.statusUnknown() {",
	},
	{
		"a wait for a time to come is a demand now", "cache/waiter.go",
		"if ahead := t.Sub(now); ahead > 0 {", "if ahead := t.Sub(now); ahead > 0 && t.IsZero() {",
	},
	{
		"a stream that hangs open is believed for ever", "pleg/trust.go",
		"c.todo.do(action[S]{kind: actCut})", "",
	},
	{
		"a stream that told of others counts as deaf", "pleg/trust.go",
		"m.missed == 0 || c.count.claims != m.claims:", "m.missed == 0:",
	},
	{
		"events that were missed at once end the stream", "pleg/trust.go",
		"found = min(found, e.found)", "found = min(found, never)",
	},
	{
		"a claim without a pod is forgotten beside one with", "pleg/ack.go",
		"if !ok || h.phase > s.phase {", "if !ok {",
	},
	{
		"what changes while the stream is down is missed", "pleg/trust.go",
		"heard := e.stream != 0 && c.connected() && e.stream == c.conn.connected &&", "heard :=",
	},
	{
		"what a stream could not tell any more because it broke is missed", "pleg/trust.go",
		"heard := e.stream != 0 && c.connected() && e.stream == c.conn.connected &&", "heard := e.stream != 0 &&",
	},
	{
		"what changed before the stream was connected is missed", "pleg/trust.go",
		"since > max(c.conn.connected, c.lastDiscard)", "since > c.lastDiscard",
	},
	{
		"a claim discarded after its change was found counts as missed", "pleg/trust.go",
		" && e.found > c.lastDiscard", "",
	},
	{
		"what was discarded is missed", "pleg/trust.go",
		"since > max(c.conn.connected, c.lastDiscard)", "since > c.conn.connected",
	},
	{
		"never moves when time is taken away", "pleg/record.go",
		"case i == never || d > 0", "case d > 0",
	},
	{
		"a sum of instants overflows backward", "pleg/record.go",
		"return max(0, i+instant(d))", "return i + instant(d)",
	},
	{
		"a delay overflows when it doubles", "pleg/record.go",
		"if d > most/2 {", "if 2*d > most {",
	},
	{
		"a list that crosses an inspection leaves no doubt", "pleg/dispatch.go",
		"if c.contradictedByList(p, r) {", "if false {",
	},
	{
		"what an overtaken list does not show is not asked after", "pleg/merge.go",
		"r.needsReread = r.needsReread || r.superseded", "_ = r.needsReread",
	},
	{
		"a DELETED of an ID that no read has shown is dropped", "pleg/claim.go",
		"\tif !known {\n\t\tif c.unconfirmed", "\tif !known {\n\t\tif claim.item.Phase == PhaseRemoved && len(c.inflight) == 0 && !c.lists.inflight {\n\t\t\treturn noNews\n\t\t}\n\t\tif c.unconfirmed",
	},
	{
		"a DELETED without a pod, of an ID that no read has shown, is dropped", "pleg/claim.go",
		"if known && s.phase >= claim.item.Phase {", "if known && s.phase >= claim.item.Phase || !known && claim.item.Phase == PhaseRemoved {",
	},
	{
		"a DELETED has its pod read", "pleg/claim.go",
		"c.expiring.push(expiry{at: now, pod: p})\n\t\treturn someNews", "c.expiring.push(expiry{at: now, pod: p})\n\t\tp.want = now",
	},
	{
		"a DELETED without a pod is forgotten by the next list", "pleg/list.go",
		"if s.phase != PhaseRemoved && r.began > s.at {", "if r.began > s.at {",
	},
	{
		"a DELETED without a pod is remembered for ever", "pleg/store.go",
		"if s.phase == PhaseRemoved && s.at.add(", "if s.phase > PhaseRemoved && s.at.add(",
	},
	{
		"a list that does not know a state confirms it", "pleg/merge.go",
		"x.cached = PhaseUnknown // the list does not confirm", "_ = x // the list does not confirm",
	},
	{
		"a state that is not known overrules a claim", "pleg/merge.go",
		"case it.Phase == PhaseUnknown && s.phase != PhaseRemoved:", "case it.Phase > PhaseRemoved:",
	},
	{
		"a payload takes the place of a state that is not known", "pleg/claim.go",
		"if x.statusUnknown || x.cached == PhaseUnknown || x.cached == phaseNone && x.listed == PhaseUnknown {", "if false {",
	},
	{
		"a payload takes the place of a state that a list does not know and no status shows", "pleg/claim.go",
		" || x.cached == phaseNone && x.listed == PhaseUnknown {", " {",
	},
	{
		"Watch is not told that a state is not known any more", "pleg/store.go",
		"x.statusUnknown != unknown && x.emitted != phaseNone", "x.statusUnknown && !unknown && x.emitted != phaseNone",
	},
	{
		"a listing that does not know a state needs no statuses", "pleg/record.go",
		", !x.statusUnknown && x.cached == PhaseUnknown:", ":",
	},
	{
		"an overruled claim costs no trust", "pleg/trust.go",
		"c.revokeCredit()\n\t\tc.sched.distrust(now)", "c.revokeCredit()",
	},
	{
		"what lists vouched for a liar counts", "pleg/trust.go",
		"c.revokeCredit()\n\t\tc.sched.distrust(now)", "c.sched.distrust(now)",
	},
	{
		"a list from before a lie came out vouches for the stream", "pleg/list.go",
		"trusted && r.began > c.overruled.last", "trusted",
	},
	{
		"every overruled claim is reported at once", "pleg/trust.go",
		"now.add(overruledReportEvery)", "now",
	},
	{
		"what was overruled while a report was not due is never reported", "pleg/trust.go",
		"\tif l.unreported == 0 || now < l.report {\n", "\tif now < l.report {\n\t\tl.unreported = 0\n\t}\n\tif l.unreported == 0 {\n",
	},
	{
		"the relist period never grows", "pleg/list.go",
		"s.period, s.raised = doubled(s.period, s.max), now", "s.raised = now",
	},
	{
		"a waiter causes a list of everything", "pleg/demand.go",
		"\tp.want, p.waited = max(p.want, t), max(p.waited, t)\n", "\tp.want, p.waited = max(p.want, t), max(p.waited, t)\n\tc.sched.ask(now, true)\n",
	},
	{
		"a relist twice in a row", "pleg/list.go",
		"\tc.sched.finished(now)\n\tif trusted", "\tc.sched.finished(now)\n\tif c.count.relists%2 == 1 {\n\t\tc.sched.ask(now, true)\n\t}\n\tif trusted",
	},
	{
		"a failed list is tried again at once", "pleg/list.go",
		"c.sched.ask(now, false)", "c.sched.ask(now, true)",
	},
	{
		"a claim causes a list of everything", "pleg/claim.go",
		"\tc.count.replayed += b.replayed\n", "\tc.count.replayed += b.replayed\n\tc.sched.ask(now, false)\n",
	},
	{
		"every list has every pod read", "pleg/list.go",
		"p.listing, p.listingBegan = items, r.began", "p.listing, p.listingBegan, p.want = items, r.began, max(p.want, now)",
	},
	{
		"a failed read is tried again without patience", "pleg/dispatch.go",
		"p.backoff.climb(r.began, now, c.cfg.RetryBase, c.cfg.RetryMax)", "p.backoff.climb(r.began, now, c.cfg.RetryBase, c.cfg.RetryBase)",
	},
	{
		"an unsettled pod is read again without patience", "pleg/dispatch.go",
		"p.listing = nil // by then the listing is too old to tell more than this read", "p.listing, p.reread = nil, ladder{}",
	},
	{
		"looks at a pod that is going without patience", "pleg/dispatch.go",
		"delay, first = &p.teardown, c.firstLook()", "p.teardown.step = c.firstLook()\n\t\tp.notYet = now.add(p.teardown.step)\n\t\treturn",
	},
	{
		"a read that did not wait for the delay makes it grow", "pleg/dispatch.go",
		"delay.climb(began, now, first, c.cfg.RelistMax)", "delay.climb(never, now, first, c.cfg.RelistMax)",
	},
	{
		"a failure of a read that did not wait for the delay makes it grow", "pleg/dispatch.go",
		"p.backoff.climb(r.began, now,", "p.backoff.climb(never, now,",
	},
	{
		"an inspection that a list has overtaken puts off what the list asked for", "pleg/dispatch.go",
		"case !p.settled() && began < p.read && p.notYet == 0:", "case false:",
	},
	{
		"the delay after a failure that mattered to nobody is kept", "pleg/record.go",
		"d.reread, d.backoff = ladder{}, ladder{}", "d.reread = ladder{}",
	},
	{
		"a pod is read twice for one waiter", "pleg/record.go",
		"w.want != 0 && asOf > w.want {", "w.want != 0 && asOf > w.want+1e7 {",
	},
	{
		"a claim stamped before the stream was opened is ignored", "pleg/claim.go",
		"m.replayed++\n", "m.replayed++\n\t\treturn\n",
	},
	{
		"a claim with an older stamp is ignored", "pleg/claim.go",
		"if claim.item.Phase <= x.phase {", "if claim.item.Phase <= x.phase || claim.stamp < x.stamp {",
	},
	{
		"lists are applied by the wall clock", "pleg/loop.go",
		"l.apply(&input[S]{kind: inputListed, listed: r})", "l.feed(&input[S]{kind: inputListed, listed: r}, l.g.clock.instant(l.g.cfg.WallClock()))",
	},
	{
		"claims are applied by the wall clock", "pleg/loop.go",
		"l.apply(&input[S]{kind: inputClaims, claims: &l.batch})", "l.feed(&input[S]{kind: inputClaims, claims: &l.batch}, l.g.clock.instant(l.g.cfg.WallClock()))",
	},
	{
		"events are held back until the next relist", "pleg/demand.go",
		"\tif settled {\n\t\tc.emitChanges(p, now)", "\tif settled && c.lists.finished == now {\n\t\tc.emitChanges(p, now)",
	},
	{
		"a claim has its pod read a base period later", "pleg/claim.go",
		"CauseClaim, true, claim.stamp, now)\n\tc.noteChange(p, now)", "CauseClaim, true, claim.stamp, now)\n\tc.noteChange(p, now)\n\tp.notYet = now.add(c.cfg.RelistBase)",
	},
	{
		"a claim of an unknown ID has it read a base period later", "pleg/claim.go",
		"\t\treturn someNews\n\t}\n\tc.noteChange(p, now)", "\t\treturn someNews\n\t}\n\tc.noteChange(p, now)\n\tp.notYet = now.add(c.cfg.RelistBase)",
	},
	{
		"no payload is believed", "pleg/claim.go",
		"if shown == 0 || shown != p.live() {", "if shown >= 0 {",
	},
	{
		"an old read brings back what was overruled", "pleg/merge.go",
		"\tx.rolledBack = true\n", "",
	},
	{
		"a refused read of a settled pod is made again", "pleg/store.go",
		"if !p.failed && !p.settled() {", "if !p.failed {",
	},
	{
		"a reinspection that fails has no patience", "pleg/demand.go",
		"if max(p.read, p.asOf) > t {", "if p.read > t {",
	},
	{
		"a delayed reread uses an old listing", "pleg/dispatch.go",
		"\t\tp.listing = nil // by then the listing is too old to tell more than this read\n", "",
	},
	{
		"an inspection of an old listing after a failure", "pleg/record.go",
		" && p.listingBegan >= p.asOf", "",
	},
	{
		"a failed pod is read before the waiter's time", "pleg/demand.go",
		"p.notYet = min(p.notYet, t.next())", "p.notYet = 0",
	},
	{
		"a first read never overrules a claim", "pleg/merge.go",
		"case began <= s.at.add(c.cfg.Grace):", "case began >= 0:",
	},
	{
		"items in another order are compared each with each", "pleg/merge.go",
		"\tphases := make(map[string]Phase, len(b))\n",
		"\tfor i := range a {\n\t\tlooks += len(b)\n\t\tif n := slices.IndexFunc(b, a[i].same); n < 0 {\n\t\t\treturn false, looks\n\t\t}\n\t}\n" +
			"\tphases := make(map[string]Phase, len(b))\n",
	},
	{
		"an ID that is shown twice stands for one that is not shown", "pleg/merge.go",
		"\t\tdelete(phases, it.ID) // or", "\t\t// or",
	},
	{
		"who loses IDs is reviewed for each", "pleg/merge.go",
		"c.reviewLater(old)", "c.review(old, now)",
	},
	{
		"whose IDs are claimed for another pod is reviewed for each", "pleg/claim.go",
		"\t\tc.reviewLater(p)\n", "\t\tdefer c.review(p, now)\n",
	},
	{
		"all of a pod is looked at for each ID that expires", "pleg/store.go",
		"if _, again := done[e.pod]; !again {", "if true {",
	},
	{
		"what a list found changed is read when nothing else waits", "pleg/dispatch.go",
		"\tfor range queueKinds {\n\t\tc.turn = (c.turn + 1) % queueKinds\n",
		"\tfor kind := range queueKinds {\n\t\tc.turn = queueKinds - 1 - kind\n",
	},
	{
		"reads that hang may hold all workers", "pleg/demand.go",
		"return max(1, c.cfg.InspectWorkers/2)",
		"return c.cfg.InspectWorkers",
	},
	{
		"a read that hangs is interrupted though nobody needs its worker", "pleg/demand.go",
		"if excess <= 0 || !c.othersQueued() {\n\t\treturn\n\t}\n\tc.requeue(now)\n\tfor ; excess > 0 && c.othersQueued(); excess-- {",
		"if excess <= 0 {\n\t\treturn\n\t}\n\tc.requeue(now)\n\tfor ; excess > 0; excess-- {",
	},
	{
		"a pod whose read hung is read among the others", "pleg/dispatch.go",
		"\tcase p.slow:\n",
		"\tcase false:\n",
	},
	{
		"a read that was interrupted has failed", "pleg/demand.go",
		"interrupted = f.interrupted && failed\n",
		"interrupted = false\n",
	},
	{
		"a read has been under way since the list on which it builds", "pleg/demand.go",
		"return f.started.add(hungAfter*c.cfg.RelistBase) + 1",
		"return f.began.add(hungAfter*c.cfg.RelistBase) + 1",
	},
	{
		"what was told of an ID that has been given up is missed when a read still shows it", "pleg/merge.go",
		"if expected && began > c.unconfirmedDropped {", "if expected {",
	},
	{
		"a read hangs at once", "pleg/demand.go",
		"return f.started.add(hungAfter*c.cfg.RelistBase) + 1",
		"return f.started + 1",
	},
	{
		"nobody looks when a read begins to hang", "pleg/core.go",
		"d = min(d, c.sweepDue(), c.nextHung(), c.reportsDue())",
		"d = min(d, c.sweepDue(), c.reportsDue())",
	},
	{
		"a flood of claims of unknown IDs is a flood of lists", "pleg/claim.go",
		"\tc.lastDiscard = now\n\tc.sched.ask(now, false)\n",
		"\tc.lastDiscard = now\n\tc.sched.ask(now, true)\n",
	},
	{
		"a flood of claims of unknown pods is a flood of sweeps", "pleg/dispatch.go",
		"return c.sched.ended.add(c.cfg.RelistBase)\n",
		"return 0\n",
	},
	{
		"a claim of one unknown ID too many is not counted as discarded", "pleg/claim.go",
		"\t\t\tc.discard(1, now)\n\t\t}\n\t}\n\tbehind",
		"\t\t}\n\t}\n\tbehind",
	},
	{
		"a late claim of what is gone is looked after for the grace", "pleg/merge.go",
		"if s.phase != PhaseRemoved && began >= s.at {", "if s.phase != PhaseRemoved && began > s.at.add(c.cfg.Grace) {",
	},
	{
		"a state that was not known counts as changed without an event", "pleg/merge.go",
		"if r.expected && x.phase != PhaseUnknown && x.listed != PhaseUnknown {", "if r.expected {",
	},
	{
		"a state that the last list did not know counts as changed since that list", "pleg/merge.go",
		"x.phase != PhaseUnknown && x.listed != PhaseUnknown {", "x.phase != PhaseUnknown {",
	},
	{
		"a status that does not know a state outweighs a later claim", "pleg/store.go",
		"if unknown && !((x.byClaim || x.confirmed > at) && p.changedAt > at) {", "if unknown {",
	},
	{
		"a claim told again of a state not known is no reason to read", "pleg/claim.go",
		"if claim.item.Phase == x.phase && x.statusUnknown && x.cached != phaseNone && x.phase != PhaseRemoved {", "if false {",
	},
	{
		"a listing older than what is forgotten is used", "pleg/dispatch.go",
		"if p.listingBegan < c.forgotten {", "if false {",
	},
	{
		"a read that the core wants is a waiter for a sweep", "pleg/dispatch.go",
		"case p.waited != 0:", "case p.asked():",
	},
	{
		"who asked before the start is not served by the first list", "pleg/record.go",
		"return firstInstant - 1", "return firstInstant",
	},
	{
		"a claim settles what a read did not know", "pleg/core.go",
		"x.phase == PhaseUnknown && phase != PhaseRemoved {", "false {",
	},
	{
		"what a read took back counts as missed", "pleg/trust.go",
		"!ok || e.phase <= to\n", "true || !ok || e.phase <= to\n",
	},
	{
		"an ID that one read alone has shown counts as missed", "pleg/merge.go",
		"case !x.shownAgain && x.claimed", "case false && x.claimed",
	},
	{
		"a removal told early is forgotten while a read is slow", "pleg/store.go",
		"if s.at.add(c.cfg.Grace) >= oldest { //", "if s.at >= oldest { //",
	},
	{
		"a status that does not know a state is built upon", "pleg/dispatch.go",
		"!p.foreignID && !p.statusUnknown() && p.force == 0 {", "!p.foreignID && p.force == 0 {",
	},
	{
		"a list makes a status fresh whose state it does not know", "pleg/store.go",
		"case p.settled() && !p.statusUnknown() && !p.failed", "case p.settled() && !p.failed",
	},
	{
		"the global time does not wait for a state that is not known", "pleg/list.go",
		"p.disagrees || p.statusUnknown() || p.failed || p.force != 0) {", "p.disagrees || p.failed || p.force != 0) {",
	},
	{
		"a pod whose states are not known is not read at once", "pleg/list.go",
		"case p.failed || p.statusUnknown() || p.force != 0 &&", "case p.failed || p.force != 0 &&",
	},
	{
		"a settled pod whose statuses are to be read loses its listing", "pleg/demand.go",
		"if p.force == 0 && !p.failed && !p.statusUnknown() {", "if p.force == 0 && !p.failed {",
	},
	{
		"a pod whose status does not know a state is not read for that", "pleg/record.go",
		"p.hasUnconfirmed() || p.statusUnknown()\n", "p.hasUnconfirmed()\n",
	},
	{
		"what a list knows and the status does not is not read again", "pleg/record.go",
		"case x.statusUnknown && x.listed != phaseNone && x.listed != PhaseUnknown, !x.statusUnknown", "case !x.statusUnknown",
	},
	{
		"a payload settles what a read that was interrupted did not know", "pleg/record.go",
		"if x.cached == phaseNone && x.pod.hasStatus {", "if false {",
	},
	{
		"a single worker is accepted", "pleg/config.go",
		"if c.InspectWorkers == 1 {", "if false {",
	},
}
