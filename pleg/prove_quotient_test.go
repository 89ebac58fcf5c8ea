// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// instantClass is what an instant is compared with. The class decides what of the instant is a part
// of a state.
type instantClass uint8

const (
	// begins is of reads: compared with everything. An instant of no other class is one.
	begins instantClass = iota
	// ordered is compared with begins and with its like, but no delay counts from it.
	ordered
	// dated is compared with begins, and delays count from it.
	dated
	// marks is compared with begins.
	marks
	// timers are dated in the future, and marks in the past.
	timers
	// demands are timers that a read must begin after.
	demands
)

// proveTag is the key of the tag by which a field of the core, or of the world, declares its part
// in the search: "-" for a field that a search never changes, or on which nothing depends; else the
// class of its instants. The classes for kinds of scopes follow either:
//
//	appliedBegan instant `prove:"marks,knows:ordered,judged:begins"`
//
// Counts, reports and marks that are used up within an input are "-": no part of a state. So are
// the peeks, which begin seconds after a list: the histories of internal/simulate have them. A
// field without a tag is a part of the states, and its instants have the class of the struct.
const proveTag = "prove"

// proveClasses are the classes by the names in tags.
var proveClasses = map[string]instantClass{
	"begins":  begins,
	"ordered": ordered,
	"dated":   dated,
	"marks":   marks,
	"timers":  timers,
	"demands": demands,
}

// kinds returns the kinds of a scope that tags name.
func (sc *proveScope) kinds() map[string]bool {
	return map[string]bool{
		"payloads": sc.payloads, // are as of asOf
		"acks":     sc.acks,     // see pod.ownBurst
		"knows":    sc.knows,    // see calls.known
		"nameless": sc.nameless, // see core.housekeep
		"scarce":   sc.scarce,   // the order in which pods come up, and how long workers have been busy
		"judged":   sc.judged(), // see trust.note and trust.settle
		"unjudged": !sc.judged(),
	}
}

// classOf returns the class of a field's instants, which is the class around if the field has no
// tag, and whether the field is a part of states. The last of several kinds of the scope counts.
func classOf(f reflect.StructField, around instantClass, kinds map[string]bool) (class instantClass, part bool) {
	tag, ok := f.Tag.Lookup(proveTag)
	if !ok {
		return around, true
	}
	for i, word := range strings.Split(tag, ",") {
		if i == 0 && word == "-" {
			continue
		}
		kind, name, of := strings.Cut(word, ":")
		if !of {
			name = kind
		}
		c, known := proveClasses[name]
		in, is := kinds[kind]
		if !known || of != is || of == (i == 0) {
			panic(fmt.Sprintf("%s of field %s is no tag of the search", f.Tag, f.Name))
		}
		if !of || in {
			class = c
			part = true
		}
	}
	if !part {
		return around, false
	}
	return class, true
}

// save writes the present state down in canonical form: states that decide the same are the same.
func (v *prover) save() []byte {
	v.normalize()
	v.pack()
	v.write()
	return v.join(v.form.canon(v.form.encoder.at, v.form.class))
}

// quotient is the memory of canon, used again.
type quotient struct {
	order []proveInstant
	out   []instant
}

type proveInstant struct {
	at, to instant // what there is, and what that becomes
	class  instantClass
}

// restOf returns the beginning of the rest of an instant.
func restOf(at instant) instant { return at - at%proveRest }

// canon renumbers instants, the last of which is now. Begins and ordered instants keep their order,
// and all others their place among these. What is dated keeps the unit of its rest; between rests
// with anything dated lies no more than the grace.
func (q *quotient) canon(at []instant, class []instantClass) []instant {
	now := at[len(at)-1]
	q.order = q.order[:0]
	for i, a := range at {
		if a >= oldTimes && a != never {
			q.order = append(q.order, proveInstant{at: a, class: class[i].of(a, now)})
		}
	}
	slices.SortFunc(q.order, proveInstant.compare)
	rest, unit := instant(-1), instant(-1)
	place, last := instant(0), oldTimes // of the present unit, and of the last begin or ordered instant
	for i := 0; i < len(q.order); {
		a, begin, date, k := q.order[i].at, false, false, i
		for ; i < len(q.order) && q.order[i].at == a; i++ {
			c := q.order[i].class
			begin, date = begin || c <= ordered, date || c == begins || c == dated
		}
		if u := a / proveUnit; date && u != unit {
			if rest < 0 {
				rest, place = restOf(a), 4*proveRest
			}
			place = restOf(place) + min(restOf(a)-rest, 2*proveRest)
			unit, rest = u, restOf(a)
			place += (a - rest) / proveUnit * proveUnit
		}
		before := last
		if begin {
			if last += proveMoment; date {
				last = max(before, place) + proveMoment
			}
		}
		for ; k < i; k++ {
			switch o := &q.order[k]; {
			case begin && o.class == demands:
				o.to = last + proveMoment/2
			case begin:
				o.to = last
			case o.class == dated:
				o.to = max(before, place) + proveMoment/2
			default:
				o.to = before + proveMoment/2
			}
		}
	}
	q.out = q.out[:0]
	for i, a := range at {
		if a >= oldTimes && a != never {
			want := proveInstant{at: a, class: class[i].of(a, now)}
			k, _ := slices.BinarySearchFunc(q.order, want, proveInstant.compare)
			for q.order[k].class != want.class {
				k++
			}
			a = q.order[k].to
		}
		q.out = append(q.out, a)
	}
	return q.out
}

// of returns the class of an instant: timers and demands are dated in the future.
func (c instantClass) of(at, now instant) instantClass {
	switch {
	case c >= timers && at > now:
		return dated
	case c == timers:
		return marks
	}
	return c
}

// oldTimes is the number of the first instants. These are what normalize makes of times so old that
// only their order counts, and stay as they are.
const oldTimes = proveMoment

func (a proveInstant) compare(b proveInstant) int { return cmp.Compare(a.at, b.at) }

// mayBuild reports whether a read may build on the last list, see core.inspect.
func (p *pod) mayBuild() bool { return p.differs() && p.diff.at > max(p.asOf, p.diff.agreed) }

// oldest returns the begin of the oldest read that may yet end.
func (v *prover) oldest() instant {
	at := v.w.now
	if v.w.list != nil {
		at = min(at, v.w.list.began)
	}
	for _, r := range v.w.reads {
		at = min(at, r.began)
	}
	for _, p := range v.core.pods {
		if p.mayBuild() {
			at = min(at, p.diff.at) // a read may build on the list
		}
	}
	return at
}

// mayBegin reports whether a read that may yet end began after one instant and before another.
func (v *prover) mayBegin(after, before instant) bool {
	is := func(at instant) bool { return after < at && at < before }
	for _, r := range v.w.reads {
		if is(r.began) {
			return true
		}
	}
	for _, p := range v.core.pods {
		if p.differs() && is(p.diff.at) {
			return true
		}
	}
	return v.w.list != nil && is(v.w.list.began)
}

// normalize takes out of a state what decides nothing any more: stale entries of queues, times that
// are over, or are compared with nothing to come, the order of IDs.
func (v *prover) normalize() {
	c, w, sc := v.core, &v.w, v.sc
	oldest := v.oldest()
	if !c.lists.inflight {
		c.lists.began = v.w.now
	}
	if c.lists.inflight {
		c.trust.sched.ended = 1
	} else if c.trust.sched.ended < w.now {
		c.trust.sched.ended = v.since(c.trust.sched.ended)
	}
	if c.trust.sched.asked != never {
		c.trust.sched.asked = 1
	}
	if !sc.lists && !c.trust.sched.askedNow {
		c.trust.sched.asked = never
	}
	for _, floor := range []*instant{&c.floor, &w.floor} {
		if *floor <= oldest {
			*floor = 0
		}
	}
	if !sc.knows || c.uncertain < c.lists.appliedBegan {
		c.uncertain = 0
	}
	for id, e := range c.evidence.early {
		old := v.expected(e, oldest)
		if e.phase < PhaseRemoved && !e.ofGone && old.at < c.lists.global && c.lists.global <= e.at { // see evidence.prune
			old.at = c.lists.global
		}
		c.evidence.early[id] = old
	}
	v.normalizeTrust()
	c.reads.later = c.reads.later[:0]
	for _, p := range c.pods {
		v.normalizePod(p, oldest)
		if p.later != 0 {
			c.reads.later = append(c.reads.later, agendaEntry[*pod]{p.later, p})
		}
	}
	slices.SortFunc(c.reads.later, func(a, b agendaEntry[*pod]) int {
		if u := cmp.Compare(a.at/proveUnit, b.at/proveUnit); u != 0 || !sc.scarce {
			return cmp.Or(u, byUID(a.of, b.of))
		}
		return cmp.Or(cmp.Compare(a.at, b.at), byUID(a.of, b.of))
	})
	for _, r := range w.reads {
		if r.started = v.since(r.started); !sc.quick {
			r.started = 0
		}
	}
	if w.list != nil {
		w.list.started = w.list.began
	}
	v.normalizeGhosts()
}

// since normalizes an instant that is compared, with a delay, with now alone.
func (v *prover) since(at instant) instant {
	if at == 0 || restOf(v.w.now)-restOf(at) >= 2*proveRest {
		return min(at, 1)
	}
	return restOf(at) + 1
}

// expected normalizes an expectation: each read to come began a grace later, or not, and may be put
// off for own calls yet, or not.
func (v *prover) expected(e expectation, oldest instant) expectation {
	if e.at.add(proveGrace) < oldest {
		e.at = 1
	}
	if e.first.add(v.core.cfg.CallWait) <= v.passed() {
		e.first = min(e.first, 1)
	}
	return e
}

// passed returns the instant up to which delays are over, whatever list is to end.
func (v *prover) passed() instant {
	if l := &v.core.lists; l.inflight {
		return min(v.w.now, l.began)
	}
	return v.w.now
}

// normalizeTrust keeps of what serves the judgement of the stream what a scope has a use for.
func (v *prover) normalizeTrust() {
	c := v.core
	c.stream.attempts = min(c.stream.attempts, maxRestartEOFs)
	c.trust.open.items, c.trust.open.head = c.trust.open.items[c.trust.open.head:], 0
	judged := v.sc.judged()
	maps.DeleteFunc(c.gone, func(_ string, g removal) bool { return !g.open }) // no ID of a search returns
	c.trust.open.keep(func(e change) bool {                                    // there is one period, so credit has no effect
		return e.of != nil && (judged || e.phase == PhaseRemoved && c.gone[e.of.(*item).id].of == e.of)
	})
	for i := range c.trust.open.items {
		e := &c.trust.open.items[i]
		if x := e.of.(*item); e.phase == PhaseRemoved || c.index[x.id] != x {
			*x = item{id: x.id, pod: x.pod, kind: x.kind, claimed: x.claimed}
			if c.pods[x.pod.uid] != x.pod {
				x.pod = &pod{uid: x.pod.uid}
			}
			if x.claimed < e.phase {
				x.claimed = 0
			}
		}
		if !judged {
			e.found, e.stream = 1, 0
		}
	}
	slices.SortStableFunc(c.trust.open.items, func(a, b change) int {
		if !judged && a.deadline/proveUnit == b.deadline/proveUnit {
			return strings.Compare(a.of.(*item).id, b.of.(*item).id)
		}
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.found, b.found), strings.Compare(a.of.(*item).id, b.of.(*item).id))
	})
	if !judged || (c.trust.mute.missed == 0 || c.trust.lastClaim < c.trust.mute.missed) &&
		!slices.ContainsFunc(c.trust.open.items, func(e change) bool { return e.found <= c.trust.lastClaim }) {
		c.trust.lastClaim = 0 // later changes are found later
	}
	if judged {
		return
	}
	c.trust.mute, c.trust.lastDiscard = muteStream{}, 0
	if c.stream.up() {
		c.trust.eventsSince, c.stream.connected = 1, 1
	}
}

func (v *prover) normalizePod(p *pod, oldest instant) {
	c, now := v.core, v.w.now
	listing := never // the next list to end began then
	if c.lists.inflight {
		listing = c.lists.began
	}
	if p.visited != listing && p.visited != c.lists.appliedBegan && p.visited < now {
		p.visited = 0
	}
	if p.differs() {
		switch {
		case v.sc.judged(): // see lists.lastRead
		case p.mayBuild():
			p.diff.agreed = 2
		default: // no read builds on the list
			p.diff.agreed, p.diff.at = 2, 2
		}
	}
	if f := c.reads.inflight[p]; f != nil && !v.sc.judged() {
		f.agreed = min(f.agreed, 2) // see store
	}
	differed := p.differs() && p.asOf <= p.diff.at && p.diff.at <= p.readEnd // see core.inspect
	confirmed := 0 < p.changed && p.changed < p.visited && p.visited == c.lists.appliedBegan && p.visited <= p.readEnd
	if p.readEnd < min(listing, oldest) && !differed && !confirmed { // see lists.standsIn
		p.readEnd = 0
	}
	for _, at := range []*instant{&p.notBefore, &p.hold} {
		if *at <= v.passed() {
			*at = min(*at, 1)
		}
	}
	if v.passed() < p.hold && p.hold <= now { // only the list under way began before its end
		p.hold = v.passed() + 1
	}
	if p.retry.end <= oldest {
		p.retry.end = min(p.retry.end, 1)
	}
	if !v.sc.knows || p.unlisted < c.lists.appliedBegan {
		p.unlisted = 0
	}
	if p.forced.add(time.Duration(proveDelay)) <= now {
		p.forced = 0
	}
	for i := range p.expected.all {
		p.expected.all[i] = v.expected(p.expected.all[i], oldest)
	}
	if p.differs() {
		p.diff.shows.items = inIDs(p.diff.shows.items)
	}
	slices.SortFunc(p.expected.all, func(a, b expectation) int { return cmp.Or(strings.Compare(a.id, b.id), cmp.Compare(a.cause, b.cause)) })
	slices.SortFunc(p.items, func(a, b *item) int { return strings.Compare(a.id, b.id) })
	for _, x := range p.items {
		if !v.sc.judged() && !(v.sc.acks && v.sc.sandbox()) {
			x.cause = CauseRead
			living := x.phase <= PhaseRunning || x.phase == phaseNone || x.kind == Sandbox // a sandbox may recover
			doubts := x.claimed > PhaseRunning && living                                   // see records.doubt
			if x.claimed != PhaseRemoved && !doubts {                                      // see trust.note
				x.claimed = PhaseUnknown
			}
		}
	}
}

// normalizeGhosts keeps of the ghosts what checks to come depend on.
func (v *prover) normalizeGhosts() {
	w := &v.w
	for i := range v.sc.lives {
		if d := &w.ids[i]; d.ever&sentRemoved != 0 {
			d.ever = sentStarted | sentDied | sentRemoved
		} else if d.ever&sentDied != 0 {
			d.ever |= sentStarted
		}
	}
	v.dropLooks()
	for i := range w.looks {
		v.raise(&w.looks[i].low)
	}
	slices.SortFunc(w.looks, func(a, b proveLook) int { return cmp.Compare(a.at, b.at) })
	for _, r := range w.reads {
		v.raise(&r.low)
	}
	if w.list != nil {
		v.raise(&w.list.low)
	}
}

// dropLooks forgets the stages at instants that nothing will be as of.
func (v *prover) dropLooks() {
	v.w.looks = slices.DeleteFunc(v.w.looks, func(l proveLook) bool { return !v.mayBeAsOf(l.at) })
}

// raise skips the stages after which an ID was in the same phase again.
func (v *prover) raise(low *[proveIDs]uint8) {
	for i := range v.sc.lives {
		shows, stage := v.sc.lives[i].shows, v.w.ids[i].stage
		for low[i] < stage && shows[low[i]] == shows[low[i]+1] {
			low[i]++
		}
	}
}

// mayBeAsOf reports whether an entry may come to be as of an instant, or may change that is.
func (v *prover) mayBeAsOf(at instant) bool {
	c := v.core
	for _, r := range v.w.reads {
		if r.began == at {
			return true
		}
	}
	for _, p := range c.pods {
		if p.mayBuild() && p.diff.at == at || v.sc.payloads && p.entry == statusEntry && c.lists.asOf(p) == at {
			return true
		}
	}
	return v.w.list != nil && v.w.list.began == at ||
		slices.ContainsFunc(c.lists.rounds, func(r round) bool { return r.began == at })
}
