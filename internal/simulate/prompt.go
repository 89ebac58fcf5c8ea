// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// promise is the generator's debt for a true claim: the cache shows the phase, and Watch delivers
// it.
type promise struct {
	id    string
	pod   cache.UID
	phase pleg.Phase
	at    time.Time // when the claim was handed over
	seen  bool      // the cache shows the phase

	// excused is the last time with an excuse for the unkept promise.
	excused time.Time

	// answers are the reads that have shown the phase since it may have been in doubt.
	answers int
}

// enough is how many reads that show a phase are enough for the cache to show it, however slow
// they are, and whatever crosses them: the first may be overtaken, two are needed for the end of
// what may be there all the same, and one may have begun before the end of the other.
const enough = 5

// answered notes a read of a pod that ended well.
func (b *boundary) answered(pod cache.UID, items []pleg.Item, begun time.Time) {
	for id, x := range b.prompt.promises {
		if x.pod != pod {
			continue
		}
		grace := b.pace.settings.grace
		doubtful := latest(x.at, b.truth.moved(pod), b.prompt.ahead[pod].Add(2*grace)).Add(grace)
		switch {
		case !begun.After(doubtful):
			x.answers = 0
		case phaseIn(items, id) >= x.phase:
			x.answers++
		}
		b.prompt.promises[id] = x
	}
}

// prompt has the open promises. The boundary's mutex owns them.
type prompt struct {
	promises map[string]promise      // by ID
	rewrites map[string]promise      // of the agent's own calls that change fields alone, by ID
	lost     map[string]pleg.Phase   // the furthest phase claimed of an ID before or during the loss of its state
	troubled time.Time               // when a list last failed or was slow, or a read found every worker busy
	ailing   map[cache.UID]time.Time // when a read of a pod last failed or was slow
	ahead    map[cache.UID]time.Time // when a claim of a pod was last ahead of the truth
	back     map[cache.UID]time.Time // when an end in a pod was last taken back, after its event
	waited   map[cache.UID]time.Time // when a read of a pod last was slow beside an unreadable item
	hurt     chan<- struct{}         // signalled whenever troubled is set
}

// soon is how long after a claim a pod of n IDs must be shown. The time covers: a read under way;
// the read caused by the claim, and its repetition if a list has overtaken it; up to two lists, in
// place of reads or ahead of them after a change of the stream; and one step of rereading. The
// bound holds while no read fails or is slow, a worker is free, and no other change of the pod
// comes.
func (s *settings) soon(n int) time.Duration {
	return rereadBase + 3*s.quick(n) + 2*s.quick(0)
}

// quick is how long a read of n IDs takes at most, and a list of everything: two lists, a look at
// every ID, and the time between them.
func (s *settings) quick(n int) time.Duration {
	return time.Duration(6+n)*(s.latency+2*time.Microsecond) + s.crowded()
}

// crowded is how much longer a read takes at most because of the other reads under way.
func (s *settings) crowded() time.Duration {
	if s.processors == 0 {
		return 0
	}
	return s.work * time.Duration(2*(2*s.workers+4)) / time.Duration(s.processors)
}

// trouble notes a failed or slow list of everything, or read of a pod.
func (b *boundary) trouble(uid cache.UID, begun, now time.Time, n int, err error) {
	if err == nil {
		b.peekPace.slowest = max(b.peekPace.slowest, now.Sub(begun))
	}
	if !b.pace.on || err == nil && now.Sub(begun) <= b.pace.settings.quick(n) {
		return
	}
	if uid == "" {
		b.prompt.troubled = now
	} else {
		b.prompt.ailing[uid] = now
	}
	select {
	case b.prompt.hurt <- struct{}{}:
	default:
	}
}

// podTrouble notes a failed or slow read of a pod. Unreadable items are no trouble: the promises
// for the other items of their pod, and of other pods, stand. A read without any item is trouble
// all the same.
func (b *boundary) podTrouble(uid cache.UID, begun, now time.Time, n int, err error) {
	if err == nil {
		b.lately = max(now.Sub(begun), b.lately-b.lately/8)
	}
	if b.truth.spoilt(uid) && (err == nil || n > 0) {
		if now.Sub(begun) > b.pace.settings.quick(n) {
			b.prompt.waited[uid] = now
		}
		begun = begun.Add(b.cutOff(uid))
		err = nil
	}
	b.trouble(uid, begun, now, n, err)
}

// cutOff is how much longer a read of a pod may take because of items with a hanging status. The
// excuse for a pod of which one item hangs, and not all, is too long; its end is the deadline of
// the read.
func (b *boundary) cutOff(uid cache.UID) time.Duration {
	if !b.truth.spoilt(uid) {
		return 0
	}
	s := b.pace.settings
	n := b.truth.size(uid)
	rounds := time.Duration(n+waitsAtOnce-1) / waitsAtOnce
	each := max(hungAtLeast, hungTimes*s.quick(n), b.truth.remembered())
	return min(rounds*each, s.inspectTimeout) + s.quick(0)
}

// promised notes a claim, and what its payload shows of other IDs.
func (b *boundary) promised(pod cache.UID, it pleg.Item, payload []pleg.Item, now time.Time) {
	p := &b.prompt
	if !b.pace.on || b.lied() || !b.pace.settings.roomy() {
		return
	}
	for _, x := range payload { // a payload from before may show the end of what has recovered since
		b.aheadOf(pod, x, now)
	}
	owner, phase := b.truth.phaseOf(it.ID)
	if phase == pleg.PhaseUnknown && (owner == pod || owner != "" && pod == "") {
		p.lost[it.ID] = max(p.lost[it.ID], it.Phase)
	}
	if !b.aheadOf(pod, it, now) {
		b.promise(pod, it, now)
	}
}

// aheadOf notes whether a claim, or an item of a payload, is ahead of the truth, or of another pod.
func (b *boundary) aheadOf(pod cache.UID, it pleg.Item, now time.Time) bool {
	owner, phase := b.truth.phaseOf(it.ID)
	if owner == pod && phase >= it.Phase && phase != pleg.PhaseUnknown {
		return false
	}
	b.prompt.ahead[owner] = now
	b.prompt.ahead[pod] = now
	return true
}

// promise notes the promise for a true claim, or for a true call of the agent's own. A phase no
// later than a claim from before the loss of the state is old news: reads without the state stand
// until a read knows more. Two examples: the call that made a container returns after the container
// was started and its state lost; a container ends after an earlier claim of its end (seed
// 13551609).
func (b *boundary) promise(pod cache.UID, it pleg.Item, now time.Time) {
	if b.lied() || it.Phase <= b.prompt.lost[it.ID] {
		return
	}
	if owner, phase := b.truth.phaseOf(it.ID); owner == pod && phase >= it.Phase && b.prompt.promises[it.ID].phase < it.Phase {
		shown := b.shows(pod)
		known := slices.ContainsFunc(shown, func(x pleg.Item) bool { return x.ID == it.ID })
		if b.truth.ghost(it.ID) { // a list with the ID is believed for a grace; two reads at most follow
			now = now.Add(2*b.pace.settings.grace + b.pace.settings.base)
		}
		b.prompt.promises[it.ID] = promise{
			id:    it.ID,
			pod:   pod,
			phase: it.Phase,
			at:    now,
			seen:  phaseIn(shown, it.ID) >= it.Phase && (known || phase == pleg.PhaseRemoved),
		}
	}
}

// recovers notes that a sandbox is about to be ready again: its phase goes back.
func (w *world) recovers(id string) {
	pod, _ := w.truth.phaseOf(id)
	w.oracle.mood(time.Now(), pod)
	if w.boundary != nil {
		w.boundary.takenBack(id)
	}
}

// takenBack drops the promise about an end that the runtime takes back: the next end of the sandbox
// makes a promise of its own. No look need come between the two ends.
func (b *boundary) takenBack(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pod, _ := b.truth.phaseOf(id)
	b.prompt.back[pod] = time.Now()
	if b.prompt.promises[id].phase > pleg.PhaseRunning {
		delete(b.prompt.promises, id)
	}
}

// promisedAt reports whether a promise about a pod was made at this very instant.
func (b *boundary) promisedAt(pod cache.UID, now time.Time) bool {
	for _, x := range b.prompt.promises {
		if x.pod == pod && x.at.Equal(now) {
			return true
		}
	}
	return false
}

// lookPrompt checks the open promises. It runs when the generator's loop waits for an input.
func (o *oracle) lookPrompt(reading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.boundary == nil || o.lying {
		return
	}
	b := o.boundary
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.prompt
	if !b.pace.on || b.closed {
		return
	}
	// Reads show an unknown state as unknown, and so must the cache; also if the ID ends later on.
	maps.DeleteFunc(p.promises, func(id string, x promise) bool {
		lost := b.truth.lost(id)
		if lost {
			p.lost[id] = max(p.lost[id], x.phase)
		}
		_, phase := b.truth.phaseOf(id)
		return lost || phase < x.phase // the sandbox has recovered
	})
	o.lookPeeks(b, reading, now)
	for id, x := range p.promises {
		if b.excuses(x.pod) {
			x.excused = now
			p.promises[id] = x
		}
		if b.mixesUp(x.pod, now) {
			x.excused = now.Add(b.pace.settings.callSettle)
			p.promises[id] = x
		}
	}
	o.lookRewrites(b, now)
	o.lookFailures(b, now)
	beside := b.beside(now)
	for id, x := range p.promises {
		if b.busy(x.pod, now) {
			x.excused = now
			p.promises[id] = x
			continue
		}
		if _, moody := o.moods[x.pod]; moody {
			continue
		}
		since := b.owedSince(x)
		shown := phaseIn(b.shows(x.pod), id)
		// Beside an item that cannot be read the entry may show what a list shows, and lists need not
		// know its state, as below: until a read of the whole pod begun after the item can be read.
		blind := b.truth.unreadable(id)
		if x.answers > enough && shown < x.phase && !(blind && shown == pleg.PhaseUnknown) {
			o.fail(
				"overtaken",
				"pod %s: a claim told that %s is %v, %d reads have shown it since, and the cache shows it %v",
				x.pod,
				id,
				x.phase,
				x.answers,
				shown,
			)
		}
		if shown >= x.phase && !x.seen {
			x.seen = true
			p.promises[id] = x
		}
		if now.Sub(since) <= b.due(x)+beside {
			continue
		}
		delete(p.promises, id)
		told := o.pod(x.pod).told[id]
		switch {
		case blind && (shown == pleg.PhaseUnknown || told == pleg.PhaseUnknown):
		case shown < x.phase:
			o.fail(
				"late",
				"pod %s: a claim told that %s is %v, and %v later the cache shows it %v",
				x.pod,
				id,
				x.phase,
				now.Sub(since),
				shown,
			)
		case reading && untold(told, x.phase, shown):
			o.fail(
				"late",
				"pod %s: a claim told that %s is %v, and %v later Watch has told %v",
				x.pod,
				id,
				x.phase,
				now.Sub(since),
				told,
			)
		}
	}
}

// due is how long after the last of what puts it off a promise must be kept. Lists that show a gone
// ID answer its reads for a grace, with delays between them that have grown to a grace by then.
func (b *boundary) due(x promise) time.Duration {
	if b.truth.ghost(x.id) {
		return b.soon(x.pod) + b.pace.settings.grace
	}
	return b.soon(x.pod)
}

// dueIn returns how long it is until the next promise must have been kept, if no excuse comes.
func (o *oracle) dueIn() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	soonest := time.Duration(math.MaxInt64)
	if o.boundary == nil || o.lying {
		return soonest
	}
	b := o.boundary
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	beside := b.beside(now)
	for _, x := range b.prompt.promises {
		left := b.due(x) + beside - now.Sub(b.owedSince(x)) + 1
		if !x.seen && !x.excused.Equal(now) && left > 0 {
			soonest = min(soonest, left)
		}
	}
	return soonest
}

// lookTold checks that Watch got an event soon after its claim.
func (o *oracle) lookTold(id string, phase pleg.Phase, at time.Time) {
	if o.boundary == nil || o.lying {
		return
	}
	b := o.boundary
	b.mu.Lock()
	defer b.mu.Unlock()
	x, ok := b.prompt.promises[id]
	if ok && o.inMood(x.pod) {
		return
	}
	if !ok || x.seen || phase < x.phase || at.Before(x.at) || b.truth.lost(id) {
		return
	}
	x.seen = true
	b.prompt.promises[id] = x
	if !x.at.Equal(b.owedSince(x)) || b.excuses(x.pod) || b.busy(x.pod, at) || b.beside(at) > 0 {
		return
	}
	d := at.Sub(x.at)
	soon := b.soon(x.pod)
	if d > soon {
		o.fail(
			"late",
			"pod %s: a claim told that %s is %v, and Watch tells it %v later, want %v",
			x.pod,
			id,
			x.phase,
			d,
			soon,
		)
	}
}

// soon is settings.soon for a pod, with reads that may each be cut off.
func (b *boundary) soon(uid cache.UID) time.Duration {
	return b.pace.settings.soon(b.truth.size(uid)) + 3*b.cutOff(uid)
}

// excuses reports whether the pod's error in the cache, or an unanswered reinspection, excuses an
// unkept promise. Unreadable items are no excuse, as long as reads yield the other items.
func (b *boundary) excuses(uid cache.UID) bool {
	x := b.podPace(uid)
	if b.truth.spoilt(uid) && b.listless(uid, time.Now()) {
		return true // nothing but a list shows the phase of such an item
	}
	return x.open && (x.failed || !b.truth.spoilt(uid))
}

// owedSince returns the time since which no excuse for an unkept promise stands. A slow read beside
// an unreadable item is within the time of such a pod; once its items are readable again, the time
// is shorter, and the read was slow.
func (b *boundary) owedSince(x promise) time.Time {
	p := &b.prompt
	var waited time.Time
	if !b.truth.spoilt(x.pod) {
		waited = p.waited[x.pod]
	}
	return latest(
		waited,
		b.settled(x),
		x.at,
		x.excused,
		b.truth.moved(x.pod),
		p.troubled,
		p.ailing[x.pod],
		p.ahead[x.pod].Add(3*b.pace.settings.grace),
		b.podPace(x.pod).closed,
	)
}

// untold reports whether Watch still has to deliver a phase. Of an ID that has gone, Watch need not
// deliver the end if Watch never delivered the start.
func untold(told, phase, shown pleg.Phase) bool {
	return phase >= pleg.PhaseRunning && told < phase && (told != 0 || shown != pleg.PhaseRemoved)
}

// phaseIn returns the phase of an ID in a status, Removed without the ID.
func phaseIn(items []pleg.Item, id string) pleg.Phase {
	for _, it := range items {
		if it.ID == id {
			return it.Phase
		}
	}
	return pleg.PhaseRemoved
}

// long reports whether a read of a pod under way takes long.
func (b *boundary) long(uid cache.UID, now time.Time) bool {
	begun, under := b.begun[uid]
	return under && now.Sub(begun) > b.pace.settings.quick(b.truth.size(uid))+b.cutOff(uid)
}

// busy reports whether the read of a pod under way, or the list of everything, takes long, or slow
// reads of others have all workers.
func (b *boundary) busy(uid cache.UID, now time.Time) bool {
	return b.long(uid, now) || b.occupied(now) || b.listing > 0 && now.Sub(b.listBegun) > b.pace.settings.quick(0)
}

// occupied reports whether reads have all workers that take long, and not so much longer than reads
// did before that a generator takes them to hang: hardly another read begins beside them.
func (b *boundary) occupied(now time.Time) bool {
	slow := 0
	for uid, begun := range b.begun {
		if b.lingers(uid, now) && now.Sub(begun) <= b.patience()+besideHung {
			slow++
		}
	}
	return slow >= b.workers-b.fewer[0]
}

// lingers reports whether a read of a pod under way takes longer than a quick one, perhaps because
// of an item that cannot be read. For its own pod that is in time (see soon), and for a pod without
// such an item it is a worker less, until the read ends, or takes long. The reads of pods whose
// last read failed have workers of their own, and hold up no other pod.
func (b *boundary) lingers(uid cache.UID, now time.Time) bool {
	begun, under := b.begun[uid]
	return under && !b.podPace(uid).again && now.Sub(begun) > b.pace.settings.quick(b.truth.size(uid))
}

// besideHung is how much longer the read of a pod may wait beside reads that take long.
const besideHung = 1500 * time.Millisecond

// beside returns how much longer a pod may wait because reads of others take long.
func (b *boundary) beside(now time.Time) time.Duration {
	for uid := range b.begun {
		if b.long(uid, now) && !b.podPace(uid).again { // else it has workers of its own
			return besideHung
		}
	}
	return 0
}

// latest returns the latest of times.
func latest(times ...time.Time) time.Time {
	last := times[0]
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
