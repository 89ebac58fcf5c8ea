// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

// mutation replaces a text that occurs once in a file, within the body of one function.
type mutation struct {
	name, file, old, new string
}

// The files of the core.
const (
	ackFile    = "pleg/ack.go"
	claimFile  = "pleg/claim.go"
	coreFile   = "pleg/core.go"
	execFile   = "pleg/executor.go"
	genFile    = "pleg/generator.go"
	readFile   = "pleg/read.go"
	stateFile  = "pleg/state.go"
	storeFile  = "pleg/store.go"
	streamFile = "pleg/stream.go"
	trustFile  = "pleg/trust.go"
	cacheFile  = "cache/cache.go"
	waiterFile = "cache/waiter.go"
)

// mutations break the rules of the core and of the cache, one each.
var mutations = []mutation{
	// The cache.
	{"cache: tombstones are forgotten", cacheFile, "if at.After(c.global) {\n\t\tc.tombstones[uid] = at", "if false {\n\t\tc.tombstones[uid] = at"},
	{"cache: an older write wins", cacheFile, "if c.newer(uid, at) {\n\t\treturn true", "if false {\n\t\treturn true"},
	{"cache: a failed read takes the status away", cacheFile, "if err == nil {\n\t\te.status = status\n\t}", "e.status = status"},
	{"cache: a deleted pod stays", cacheFile, "\tdelete(c.pods, uid)\n", ""},
	{"cache: any read wakes every waiter of the pod", waiterFile, "if !at.After(w.t) {\n\t\t\tcontinue", "if at.IsZero() {\n\t\t\tcontinue"},
	{"cache: a wait for a time to come is a demand now", waiterFile, "if ahead := t.Sub(now); ahead > 0 {", "if ahead := t.Sub(now); ahead > 0 && t.IsZero() {"},

	// Store and events.
	{"store: a status is stored as of now", storeFile, "c.todo.do(action[S]{kind: actStore, uid: p.uid, at: at,", "c.todo.do(action[S]{kind: actStore, uid: p.uid, at: now,"},
	{"store: a list that another read has crossed counts for it", storeFile, "if p.listedAt > at && sameItems(p.listed, shows) {", "if p.listedAt > at {"},
	{"store: what is gone is not told", storeFile, "sync = c.move(x, PhaseRemoved, last, now) || sync\n\t\tc.drop(x)", "c.drop(x)"},
	{"store: what is gone stays in the index", storeFile, "\t\tdelete(c.index, x.id)\n", "\t\t_ = x.id\n"},
	{"store: Watch is not told that a state is not known any more", storeFile, "(x.shown == PhaseUnknown) != (it.Phase == PhaseUnknown), c.count.events", "false, c.count.events"},
	{"store: Watch is not told of a new state that is not known", storeFile, "kind: it.Kind, phase: phaseNone, shown: phaseNone}", "kind: it.Kind, phase: phaseNone}"},
	{"store: a state that is not known takes a phase back", storeFile, "if phase == before || phase == PhaseUnknown && before != phaseNone {", "if phase == before {"},
	{"store: a reinspection has no event", storeFile, "sync = sync || c.count.events == events", "sync = sync || c.count.events < events"},
	{"store: a reinspection is never answered", storeFile, "forced := p.force != 0 && began > p.force", "forced := p.force != 0 && began > p.force && now < 0"},
	{"store: an event is told twice", storeFile, "if x.sent&unless != 0 {", "if false {"},
	{"store: a removal without an end has none", storeFile, "if before != PhaseExited {\n\t\t\tc.emitOnce", "if false {\n\t\t\tc.emitOnce"},
	{"store: a start is not told", storeFile, "return !c.emitOnce(x, ContainerStarted, sentStarted|sentDied|sentRemoved, sentStarted, now)", "return false"},
	{"store: a phase that goes back is not counted", storeFile, "\t\t\tc.count.regressions++\n", ""},
	{"store: an ID keeps no name", storeFile, "\t\t\tx.name = it.Name\n", ""},
	{"store: the running pods are not counted", storeFile, "\t\t\tc.running += by\n", ""},
	{"store: what was claimed before it was shown is lost", storeFile, "x.announce(e)\n\t}\n\tif other", "x.announce(&expectation{stamp: e.stamp})\n\t}\n\tif other"},

	// Payloads.
	{"payload: none is stored", storeFile, "if pc.status == nil || p.entry != statusEntry", "if true || p.entry != statusEntry"},
	{"payload: one is stored beside an error", storeFile, "if pc.status == nil || p.entry != statusEntry ||", "if pc.status == nil || p.entry == noEntry ||"},
	{"payload: one with an earlier phase is stored", storeFile, "x.shown == PhaseUnknown || it.Phase < x.phase || it.Phase > PhaseExited", "x.shown == PhaseUnknown || it.Phase > PhaseExited"},
	{"payload: one is stored over a state that is not known", storeFile, "x.mark == c.marks || x.shown == PhaseUnknown ||", "x.mark == c.marks ||"},
	{"payload: one that shows less IDs is stored", storeFile, "if len(pc.payload) != len(p.items) || met < len(p.expected) {", "if len(pc.payload) > len(p.items) {"},
	{"payload: one that shows less than is expected is stored", storeFile, "if e.phase > it.Phase {", "if e.phase > PhaseRemoved {"},
	{"payload: an older read that does not know the state overwrites one", storeFile, "known || e.stored {", "known {"},
	{"payload: one is stored while another ID is expected", storeFile, "|| met < len(p.expected) {", "|| met < 0 {"},
	{"payload: one counts as fresh", storeFile, "c.store(p, status, pc.payload, c.asOf(p), now)", "c.store(p, status, pc.payload, now, now)"},
	{"payload: any read takes it back", storeFile, "last = max(last, e.at)\n\t\t\t\tif known && e.cause == CauseClaim", "_ = last\n\t\t\t\tif known && e.cause == CauseRead"},
	{"payload: a read within the grace takes it back", readFile, "case first != 0 && r.began <= first.add(c.cfg.Grace):", "case first != 0 && false:"},
	{"payload: a read from before the call takes it back", readFile, "|| r.began <= last ||", "|| r.began <= last && false ||"},
	{"payload: the read after the grace waits for the delay", readFile, "\t\tp.notBefore = min(p.notBefore, first.add(c.cfg.Grace).next())\n", ""},
	{"payload: no read takes it back", readFile, "case first != 0 && r.began <= first.add(c.cfg.Grace):", "case first != 0 || last != 0:"},

	// Claims.
	{"claim: an event reads nothing", claimFile, "p.retry, p.notBefore = ladder{}, now\n", "p.retry, p.notBefore = ladder{}, never\n"},
	{"claim: an old phase is news", claimFile, "if e.phase <= x.phase && !(e.phase == x.phase && x.shown == PhaseUnknown) {", "if false {"},
	{"claim: a state that is not known is not read again", claimFile, "if e.phase <= x.phase && !(e.phase == x.phase && x.shown == PhaseUnknown) {", "if e.phase <= x.phase {"},
	{"claim: the delay of the one before goes on", claimFile, "p.retry, p.notBefore = ladder{}, now\n", "\n"},
	{"claim: a mailbox that is full wants no list", claimFile, "c.lastDiscard = now\n\tc.sched.ask(now, false)", "c.lastDiscard = now"},
	{"claim: discarded claims cost the stream its trust", claimFile, "\tc.lastDiscard = now\n", ""},
	{"claim: discarded claims are listed at once", claimFile, "c.lastDiscard = now\n\tc.sched.ask(now, false)", "c.lastDiscard = now\n\tc.sched.ask(now, true)"},
	{"claim: unconfirmed IDs are remembered without bound", claimFile, "} else if !ok && len(c.early) >= c.cfg.UnconfirmedMax {", "} else if false {"},
	{"claim: unknown IDs of known pods are remembered without bound", claimFile, "if c.expected >= c.cfg.UnconfirmedMax && c.index[e.id] == nil && e.cause == CauseClaim {", "if false {"},
	{"claim: one without a pod wants no list", claimFile, "\t\tc.uncertain = max(c.uncertain, now)\n\t\tc.sched.ask(now, false)\n", ""},
	{"claim: an early removal is dropped", claimFile, "\tc.early[e.reportKey] = e\n\tif e.phase", "\tif e.phase < PhaseRemoved {\n\t\tc.early[e.reportKey] = e\n\t}\n\tif e.phase"},
	{"claim: an early event hides an early call", claimFile, "if old, ok := c.early[e.reportKey]; ok", "if old, ok := c.early[reportKey{e.id, CauseClaim}]; ok"},
	{"claim: an early report is as old as its call", claimFile, "\t\te.at = max(e.at, old.at) // an early one may be older\n", ""},
	{"claim: a removal has its pod read", claimFile, "e.phase < PhaseRemoved || p.entry == foreignEntry) {", "true) {"},
	{"claim: a removal told before the first read is not read", claimFile, "(e.phase < PhaseRemoved || p.entry == foreignEntry) {", "(e.phase < PhaseRemoved || false) {"},
	{"claim: the other IDs of a payload are no claims", claimFile, "it.Phase != PhaseUnknown && it.Phase < PhaseRemoved && (x == nil || x.phase < it.Phase)", "false && (x == nil || x.phase < it.Phase)"},
	{"claim: a read within the grace refutes it", claimFile, "case began <= e.at.add(c.cfg.Grace):\n", "case began <= e.at:\n"},
	{"claim: no read refutes it", claimFile, "case began <= e.at.add(c.cfg.Grace):\n", "case true:\n"},
	{"claim: any read meets an ack", claimFile, "return began > e.at\n", "return true\n"},
	{"claim: a refuted one is not counted", claimFile, "\t\t\tc.noteOverruled(x, e.phase)\n", ""},
	{"claim: a read that shows as much leaves it open", claimFile, "case x.phase >= e.phase && x.shown != PhaseUnknown:\n", "case x.phase >= e.phase && x.shown != PhaseUnknown && began > e.at.add(c.cfg.Grace):\n"},
	{"claim: a list answers it for an older read", claimFile, "return f == nil || f.began > e.at //", "return f == nil || f.began > 0 //"},
	{"claim: changes of other pods by the event are not looked at", claimFile, "if x.pod != p {\n\t\t\tc.review(x.pod, now)", "if false {\n\t\t\tc.review(x.pod, now)"},
	{"claim: the payload of the first one in a turn counts", claimFile, "\tpc.drop()\n\tpc.payload, pc.status, pc.release = c.Payload, c.Status, c.Release\n\treturn true", "\tif pc.status == nil {\n\t\tpc.payload, pc.status, pc.release = c.Payload, c.Status, c.Release\n\t\treturn true\n\t}\n\treturn false"},
	{"claim: payloads are not released", claimFile, "\t\tpc.drop()\n\t\tif len(m.free)", "\t\tif len(m.free)"},

	// Own calls.
	{"ack: a call reads nothing", ackFile, "\tp.due = max(p.due, a.at)\n", ""},
	{"ack: calls that end together are read one by one", ackFile, "p.hold = now.add(c.cfg.CallSettle)", "p.hold = now"},
	{"ack: a call that ends makes no room", ackFile, "case followed || a.returned && len(b.acks) < b.max:", "case followed && len(b.acks) < b.max || a.returned && len(b.acks) < b.max:"},
	{"ack: calls whose end is never told are kept without bound", ackFile, " && b.calls < b.maxCalls {", " {"},
	{"ack: what found no room is lost", ackFile, "c.count.acksLost++\n\tc.uncertain = max(c.uncertain, now)\n\tc.sched.ask(now, false)", "c.count.acksLost++\n\tc.uncertain = max(c.uncertain, now)"},
	{"ack: a call about a pod that nobody knows is not listed", ackFile, "c.uncertain = max(c.uncertain, a.at)\n\t\tc.sched.ask(now, false)\n", ""},
	{"ack: a further claim hides what a call reports", stateFile, "if e.cause == cause {", "if true || e.cause == cause {"},
	{"ack: a claim names the pod of a call", ackFile, "if p.expectation(call.ID, CauseAck) != nil {", "if cmp.Or(p.expectation(call.ID, CauseAck), p.expectation(call.ID, CauseClaim)) != nil {"},
	{"ack: a report of an unknown ID is dropped", ackFile, "c.expectEarly(e, now)", "_ = e"},
	{"ack: a call that ends is under way for ever", ackFile, "\t\tp.calls--\n", ""},
	{"ack: what a failed call may make later is not listed", ackFile, "p.unlisted = max(p.unlisted, a.at.add(c.cfg.RelistMax))", "p.unlisted = max(p.unlisted, a.at)"},
	{"ack: what is being made is not listed", ackFile, "!c.connected(), p.creating > 0, c.calling:", "!c.connected(), c.calling:"},
	{"ack: what is being made by a call without room is not listed", ackFile, "p.creating > 0, c.calling:", "p.creating > 0:"},
	{"ack: who does not tell of all calls has nobody listed", ackFile, "!c.cfg.TellsCalls, !c.connected(),", "!c.connected(),"},
	{"ack: what others make while nobody listens is not listed", ackFile, "!c.cfg.TellsCalls, !c.connected(),", "!c.cfg.TellsCalls,"},
	{"ack: what was made before the stream was up is not listed", ackFile, "max(c.conn.connected, c.uncertain, p.unlisted, c.lastDiscard)", "max(c.uncertain, p.unlisted, c.lastDiscard)"},
	{"ack: what is of no known pod is not listed", ackFile, "max(c.conn.connected, c.uncertain, p.unlisted,", "max(c.conn.connected, p.unlisted,"},
	{"ack: what a list shows of others is not listed", ackFile, "case p.entry != statusEntry, p.contradicted():", "case p.entry != statusEntry:"},
	{"ack: what an event says of a pod is read by its ID", ackFile, "return nil // made by others, or of another pod", "items = append(items, Item{ID: e.id, Kind: e.kind, Phase: e.phase})"},
	{"ack: what a discarded event told is not listed", ackFile, "max(c.conn.connected, c.uncertain, p.unlisted, c.lastDiscard)", "max(c.conn.connected, c.uncertain, p.unlisted)"},
	{"ack: what was just made is not read", ackFile, "case e.cause == CauseAck && e.phase < PhaseRemoved:", "case e.cause == CauseAck && e.phase < PhaseCreated:"},
	{"ack: who was forgotten need not be listed", readFile, "c.uncertain, c.floor = max(c.uncertain, p.unlisted), max(c.floor, p.asOf)", "c.floor = max(c.floor, p.asOf)"},
	{"ack: what the agent has stopped is looked after", stateFile, "x.phase == PhaseExited && x.cause != CauseAck\n", "x.phase == PhaseExited\n"},

	// Lists.
	{"list: it confirms no pod", readFile, "c.todo.observe(p.uid, began)\n\t\t\tp.asOf = began\n\t\t\tc.resolve(p, began)\n", "c.resolve(p, began)\n"},
	{"list: a pod that has gone stays", readFile, "case gone && (p.entry != noEntry || p.want != 0):\n\t\tc.store(p, nil, nil, began, now)\n", "case gone && (p.entry != noEntry || p.want != 0):\n"},
	{"list: it erases a pod that is being read", readFile, "gone := (!overlaps || same) &&", "gone :="},
	{"list: a difference is not read", readFile, "\t\tp.due, p.hold = max(p.due, began-1), min(p.hold, c.old(now))\n", ""},
	{"list: one that ends during a read is forgotten", readFile, "if lapped && r.err == nil && p.differs() {", "if lapped && false {"},
	{"list: a pod is not compared with a list while it is read", readFile, "\t\tf.lapped = true\n\t\tadd(p)\n", "\t\tif f.lapped = true; false {\n\t\t\tadd(p)\n\t\t}\n"},
	{"list: a read begun after the list is made again", readFile, "flight{began: began, started: now}", "flight{began: began, started: now, lapped: true}"},
	{"list: one that ends as a read begins and ends is forgotten", readFile, "if !same {\n\t\t\tp.due = max(p.due, now)", "if !same {\n\t\t\tp.due = max(p.due, now-1)"},
	{"list: a failed pod gets no other try", readFile, "p.notBefore = 0 // a list gives the pod another try", "_ = now"},
	{"list: a silent list of differences shows nothing", readFile, "if r.listing.Delta { // silence", "if false { // silence"},
	{"list: what is gone by a list of differences stays", readFile, "for _, uid := range r.listing.Gone {", "for _, uid := range r.listing.Gone[:0] {"},
	{"list: the global time does not wait for reads", readFile, "if p.asOf < began {\n\t\t\tput(&pending, p)", "if p.asOf < 0 {\n\t\t\tput(&pending, p)"},
	{"list: the global time stands still", readFile, "c.lists.global = max(c.lists.global, c.rounds[i].began)", "c.lists.global = max(c.lists.global, 1)"},
	{"list: a failed one is not made again", readFile, "c.sched.ask(now, false)\n\t\tfor", "for"},
	{"list: pods wait for one that has failed", readFile, "\t\tfor _, p := range inOrder(c.dirty) {\n\t\t\tc.review(p, now) // pods have waited for the list\n\t\t}\n", ""},
	{"list: the period ends with its begin", readFile, "\tc.sched.finished(now)\n\tif r.err != nil {", "\tc.sched.finished(r.began)\n\tif r.err != nil {"},

	// Reads of pods.
	{"read: one builds on an old list", readFile, "at > max(p.want, p.force, p.due, p.readEnd) && at >=", "at > 0 && at >="},
	{"read: one builds on a list while claims tell of more", readFile, "len(p.listed) > 0 && len(p.expected) == 0 {", "len(p.listed) > 0 {"},
	{"read: one that builds on a list is as of now", readFile, "r.listed, r.ref.Items, r.builds, began = true, p.listed, builds, at", "r.listed, r.ref.Items, r.builds = true, p.listed, builds"},
	{"read: an overtaken one is believed", readFile, "case r.began < c.asOf(p) || r.began <= last || r.status == nil", "case r.began < c.asOf(p) && false || r.began <= last || r.status == nil"},
	{"read: an overtaken one is not made again", readFile, "} else {\n\t\t\tp.due = max(p.due, now-1)\n\t\t}", "}"},
	{"read: one begun at the end of a list is not later than the list", readFile, "p.due = max(p.due, now-1) // a read begun now is later than the list", "p.due = max(p.due, now)"},
	{"read: one that shows the same is not fresh", readFile, "c.todo.observe(p.uid, r.began)\n\t\t\tp.asOf = r.began\n\t\t}\n", "}\n"},
	{"read: a failure is not told", readFile, "c.todo.do(action[S]{kind: actFail, uid: p.uid, at: r.began, err: r.err})\n\tp.entry, p.asOf = failedEntry, r.began", "p.entry, p.asOf = failedEntry, p.asOf"},
	{"read: a failure is made again at once", readFile, "p.notBefore = p.retry.climb(r.began, now, c.cfg.RetryBase, c.cfg.RetryMax)", "p.notBefore = now"},
	{"read: an old failure is told", readFile, "if r.began < c.asOf(p) {\n\t\treturn\n\t}", ""},
	{"read: a claim in doubt is read without delay", readFile, "case p.unmet():\n\t\tp.notBefore = p.retry.climb(began, now, c.cfg.RereadBase, c.cfg.RelistMax)", "case p.unmet():\n\t\tp.notBefore = now"},
	{"read: a claim in doubt is read once", readFile, "case p.unmet():\n\t\tp.notBefore = p.retry.climb(began, now, c.cfg.RereadBase, c.cfg.RelistMax)", "case p.unmet():\n\t\tp.notBefore = never"},
	{"read: nobody looks after a pod that is going", stateFile, "return x.kind == Sandbox && x.phase == PhaseExited", "return false && x.phase == PhaseExited"},
	{"read: a want is met by any read", readFile, "if p.want != 0 && at > p.want {", "if p.want != 0 {"},
	{"read: a new waiter waits for the reread", readFile, "if r.began > p.want {\n\t\t\tp.want = 0 //", "if p.want != 0 {\n\t\t\tp.want = max(p.want, p.due) //"},
	{"read: a waiter waits for the delay", readFile, "at = min(at, p.want.next())", "at = min(at, max(p.notBefore, p.want.next()))"},
	{"read: a due read is forgotten", readFile, "at = min(at, max(p.hold, p.due.next()))", "_ = p.hold"},
	{"read: a reinspection follows the one before at once", readFile, "next = max(next, p.forced.add(c.cfg.RelistBase))", "next = max(next, p.forced)"},
	{"read: a reinspection is forgotten", readFile, "if p.force != 0 && p.entry != failedEntry {", "if false {"},
	{"read: nobody waits for a list that is under way", readFile, "if l := &c.lists; l.inflight && at <= l.began {", "if l := &c.lists; false {"},
	{"read: pods that are gone are remembered", readFile, "\t\tdelete(c.pods, p.uid)\n", ""},
	{"read: many pods are never served by a list", readFile, "c.queue.len() < c.cfg.SweepAt ||", "true ||"},
	{"read: many waiters are never served by a list", readFile, "if waited++; waited >= c.cfg.SweepAt {", "if waited++; false {"},
	{"read: a flood of claims is a flood of lists", readFile, "if now >= c.sched.ended.add(c.cfg.RelistBase) {\n\t\treturn true", "if true {\n\t\treturn true"},
	{"read: there is no bound on the reads at once", readFile, "if n < c.cfg.InspectWorkers {", "if n < 100*c.cfg.InspectWorkers {"},
	{"read: reads that hang hold the workers", readFile, "if now >= c.old(f.started) {\n\t\t\told++", "if f.started == 0 {\n\t\t\told++"},
	{"read: nobody looks when reads begin to hang", readFile, "if old := c.old(f.started); old > c.ticked {", "if old := c.old(f.started); false {"},
	{"read: a pod is read by two at once", readFile, "case p.reading || p.queued:", "case p.queued:"},

	// The core's bookkeeping.
	{"core: a pod that a cache holds from before is not looked at", coreFile, "c.ensure(uid).entry = foreignEntry", "_ = uid"},
	{"core: a wait is forgotten", coreFile, "\tp.want = max(p.want, t)\n", ""},
	{"core: a waiter without a record waits for ever", coreFile, "t = max(t, p.asOf) // the cache may have pruned the tombstone", "_ = p"},
	{"core: a reinspection is a wait", coreFile, "p.force = max(p.force, now)", "p.want = max(p.want, now)"},
	{"core: tombstones are pruned while a read is under way", coreFile, "oldest = min(oldest, f.began)", "oldest = min(oldest, now, f.began+now)"},
	{"core: early removals are kept", coreFile, "return e.at.add(c.cfg.Grace) < oldest && (e.phase == PhaseRemoved || e.at < c.lists.global)", "return false"},
	{"core: early removals are dropped at once", coreFile, "return e.at.add(c.cfg.Grace) < oldest &&", "return true &&"},
	{"core: a request for everything waits for the period", coreFile, "c.sched.ask(now, true)\n\t\treturn", "return"},

	// Trust.
	{"trust: the period never grows", trustFile, "s.period, s.raised = doubled(s.period, s.max), now", "s.raised = now"},
	{"trust: the period grows without bound in time", trustFile, "if now.sub(s.raised) >= s.period {", "if true {"},
	{"trust: a missed event costs nothing", trustFile, "c.revokeCredit()\n\tc.sched.distrust(now)\n\tc.reportPaced", "c.reportPaced"},
	{"trust: refuted claims cost nothing", trustFile, "\t\tc.overruled = now\n\t\tc.distrust(", "\t\tc.reportPaced(Report{}, now)\n\t\t_ = fmt.Sprint("},
	{"trust: a change while nobody listened counts as missed", trustFile, "if c.connected() && since > max(c.conn.connected, c.lastDiscard) {", "if c.connected() {"},
	{"trust: a change whose claim was discarded counts as missed", trustFile, "since > max(c.conn.connected, c.lastDiscard) {", "since > c.conn.connected {"},
	{"trust: no change counts as missed", trustFile, "case life && heard:", "case life && heard && found < 0:"},
	{"trust: a later event announces an end that nobody heard", trustFile, "x.claimed > e.phase && (heard || !life):", "x.claimed > e.phase:"},
	{"trust: every change counts as missed", trustFile, "|| since <= c.eventsSince || x.claimed >= phase {", "|| since <= c.eventsSince {"},
	{"trust: what an own call under way does counts as missed", trustFile, "case x.pod.calls > 0 && x.claimed < e.phase:", "case false:"},
	{"trust: a list that found something is credited", trustFile, "if quiet && c.candidates.len() == 0 {", "if true {"},
	{"trust: a change is missed before its claim has had time", trustFile, "e := candidate{item: x, phase: phase, found: now, deadline: now.add(c.cfg.Grace)}", "e := candidate{item: x, phase: phase, found: now, deadline: now}"},
	{"trust: a mute stream is kept", trustFile, "\t\tm.ending = true\n\t\tc.todo.do(action[S]{kind: actCut})\n", ""},
	{"trust: a stream that loses an event is mute", trustFile, "case m.missed == 0 || c.count.claims != m.claims:", "case m.missed == 0:"},
	{"trust: claims cause lists at once", trustFile, "return min(due, max(s.asked, s.ended.add(s.base)))", "return min(due, s.asked)"},

	// The stream.
	{"stream: a lost one keeps its period", streamFile, "c.revokeCredit()\n\t\tc.sched.distrust(now)\n\t\tc.sched.ask(now, true)", "c.sched.ask(now, true)"},
	{"stream: a lost one is followed by no list", streamFile, "c.sched.distrust(now)\n\t\tc.sched.ask(now, true)", "c.sched.distrust(now)"},
	{"stream: a new one is followed by no list", streamFile, "c.count.connects++\n\tc.sched.distrust(now)\n\tc.sched.ask(now, true)", "c.count.connects++\n\tc.sched.distrust(now)"},
	{"stream: a runtime that is back is not asked for its stream", streamFile, "c.attempts = 0 // the attempts failed while the runtime was away\n\t\t\treturn c.open(), effOpen", "return c, 0"},
	{"stream: a wait for the next opening never ends", streamFile, "case StreamBackoff, StreamUnsupported:\n\t\t\treturn c.open(), effOpen\n\t\t}\n\tcase inLost", "}\n\tcase inLost"},
	{"stream: a silent one is never connected", streamFile, "c.deadline = now.add(cfg.settle)", "c.deadline = never"},

	// The executor and the loop.
	{"exec: Watch is told before the cache is written", execFile, "case actStore:\n\t\t\te.store(a)", "case actStore:\n\t\t\tdefer e.store(a)"},
	{"exec: an event that finds Watch full is lost", execFile, "o.owed[e.Pod] = e\n\to.order.push(e.Pod)\n\treturn true", "return true"},
	{"exec: PodSyncs are owed without bound", execFile, "if len(e.out.owed) <= limit {", "if true {"},
	{"loop: the last claims of a stream come after its end", genFile, "\tl.cut()\n\tl.claims()\n", "\tl.cut()\n"},
}
