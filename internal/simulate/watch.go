// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// emitting runs in the generator's loop before an event goes to Watch, and keeps the cache's
// present content.
func (o *oracle) emitting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owing {
		return
	}
	e := emission{shown: make(map[cache.UID][]pleg.Item), failed: make(map[cache.UID]bool), at: time.Now()}
	for _, uid := range o.truth.UIDs() {
		var err error
		e.shown[uid], err = o.store.Get(uid)
		e.failed[uid] = err != nil
	}
	o.emitted = append(o.emitted, e)
}

// emission is the cache's content when an event was handed to Watch.
type emission struct {
	shown  map[cache.UID][]pleg.Item
	failed map[cache.UID]bool // beside an error stands an older status
	at     time.Time
}

// oweing notes an event without room in Watch.
func (o *oracle) oweing() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.owing && len(o.emitted) > 0 {
		o.emitted = o.emitted[:len(o.emitted)-1] // earlier events are still on their way
	}
	o.owing = true
}

const (
	toldStarted uint8 = 1 << iota
	toldDied
	toldRemoved
)

// event notes an event received by the reader of Watch.
func (o *oracle) event(e pleg.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pod(e.Pod)
	shown, err := o.store.Get(e.Pod)
	failed := err != nil
	late := o.owing // the cache's content at the emission is unknown
	if late {
		o.excuse(excuseOwing)
	}
	at := time.Time{}
	if len(o.emitted) > 0 {
		shown = o.emitted[0].shown[e.Pod]
		late = false
		at = o.emitted[0].at
		failed = o.emitted[0].failed[e.Pod]
		o.emitted = o.emitted[1:]
	}
	if e.Type == pleg.PodSync {
		now, _ := o.store.Get(e.Pod)
		// A consumer keeps its knowledge of unreadable items: an error in the cache reports them.
		now = slices.Clip(now)
		for _, id := range o.store.Unread(e.Pod) {
			if phase, known := p.told[id]; known {
				now = append(now, pleg.Item{ID: id, Phase: phase})
			}
		}
		clear(p.told)
		clear(p.owe)
		for _, it := range now {
			p.told[it.ID] = it.Phase
		}
		return
	}
	if e.ID == "" {
		o.fail("event", "pod %s: %s without an ID", e.Pod, e.Type)
		return
	}
	if o.named && (e.PodName == "" || (e.ContainerName == "") != (e.Kind == pleg.Sandbox)) {
		o.fail(
			"nameless",
			"pod %s: %s of %s %s calls the pod %q and the container %q",
			e.Pod,
			e.Type,
			e.Kind,
			e.ID,
			e.PodName,
			e.ContainerName,
		)
	}
	phase := pleg.PhaseRemoved
	present := false
	for _, it := range shown {
		if it.ID == e.ID {
			phase = it.Phase
			present = true
		}
	}
	bit := uint8(0)
	atLeast := pleg.PhaseRunning
	switch e.Type {
	case pleg.ContainerStarted:
		bit = toldStarted
	case pleg.ContainerDied:
		bit = toldDied
		atLeast = pleg.PhaseExited
	case pleg.ContainerRemoved:
		bit = toldRemoved
		atLeast = pleg.PhaseRemoved
	default:
		o.fail("event", "pod %s: unknown type %q", e.Pod, e.Type)
	}
	// An unknown state excuses no shown status, but Watch may deliver a claim of a container in an
	// unknown state.
	if present && phase < atLeast && !failed && phase != pleg.PhaseUnknown && !o.truth.LiedOf(e.ID) &&
		!(late && o.inMood(e.Pod)) {
		o.fail("order", "pod %s: Watch tells %s of %s while the cache shows it %v", e.Pod, e.Type, e.ID, phase)
	}
	if !at.IsZero() {
		o.lookTold(e.ID, atLeast, at)
	}
	before := p.mask[e.ID]
	if before >= bit && !o.truth.LiedOf(e.ID) {
		o.fail("repeated", "pod %s: Watch tells %s of %s again, or after what comes later", e.Pod, e.Type, e.ID)
	}
	p.mask[e.ID] |= bit
	p.told[e.ID] = atLeast
	// an event of a pod makes the reader look at the pod: an unknown state may be known now, or the
	// reverse
	for _, it := range shown {
		if told, ok := p.told[it.ID]; ok && (told == pleg.PhaseUnknown || it.Phase == pleg.PhaseUnknown) {
			p.told[it.ID] = it.Phase
			if it.Phase == pleg.PhaseUnknown {
				delete(p.owe, it.ID)
			}
		}
	}
	if p.owe[e.ID] <= atLeast {
		delete(p.owe, e.ID)
	}
}

// settled checks the state one base period after a list begun at rest, and after a read that waits
// for a further call of the agent's: the cache equals the runtime, and a consumer of Watch alone
// knows everything. Before this time, settled returns false.
func (o *oracle) settled(reading bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	uids, open := o.rested()
	if len(open) > 0 {
		return false
	}
	if reading && o.result() == nil {
		for _, uid := range uids {
			o.consumer(uid)
		}
		o.believe(uids)
		o.forgive()
	}
	return true
}

// rests reports whether a pod is at rest.
func (o *oracle) rests(uid cache.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, open := o.rested()
	return !slices.Contains(open, uid) && !slices.Contains(open, "")
}

// rested checks the cache of every pod that has come to rest, and returns all pods, and those that
// have not; the pod without a name is the node. The caller holds the mutex.
func (o *oracle) rested() (uids, open []cache.UID) {
	uids = o.truth.UIDs() // refreshes: what has changed just now ends the rest, and need not be shown
	b := o.boundary
	if b == nil {
		return uids, []cache.UID{""}
	}
	now := time.Now()
	b.mu.Lock()
	b.changes()
	reads := len(uids)
	if o.settings.processors > 0 {
		// An end that no event has told of takes a second look. Which ends those are is not known here,
		// so that with many of them a pod that is late by as much goes unseen.
		reads += o.truth.bereft()
	}
	// Calls in turn: a list under way, the next, a read under way, its retry, and two looks.
	const inTurn = 6
	// The next list comes after a base period, the next try of a read that failed after retryBase.
	base := max(o.settings.base, retryBase)
	bound := base + o.settings.callSettle + inTurn*o.settings.latency + o.settings.load(reads)
	var calm []cache.UID
	if b.listFirst.IsZero() || b.waitingFor() || b.callsGoOn(now) || now.Sub(b.listFirst) <= bound {
		open = append(open, "")
	} else {
		for _, uid := range uids {
			first := b.podFirst(uid)
			// A peek beside lists that failed may have hidden a read that waits for an item.
			waits := max(bound, base+2*b.cutOff(uid))
			if first.IsZero() || now.Sub(first) <= waits || b.mixesUp(uid, now) || b.heldUp(uid) {
				open = append(open, uid)
				continue
			}
			calm = append(calm, uid)
		}
	}
	first := b.listFirst
	b.mu.Unlock()
	if differs := o.differs(calm); differs != "" {
		o.fail("diverged", "%v after a list that began when all was at rest, %s", now.Sub(first), differs)
	}
	return uids, open
}

// differs returns the difference of the cache from the runtime, empty without any.
func (o *oracle) differs(uids []cache.UID) string {
	for _, uid := range uids {
		items, err := o.store.Get(uid)
		differs := o.truth.Differs(uid, items, o.store.Unread(uid))
		if differs == "" && err != nil && !o.truth.spoilt(uid) {
			differs = "the error " + err.Error() + " stays"
		}
		if differs != "" {
			return "pod " + string(uid) + ": " + differs
		}
	}
	return ""
}

// consumer checks that Watch has delivered everything about a pod.
func (o *oracle) consumer(uid cache.UID) {
	p := o.pod(uid)
	live := o.truth.Live(uid)
	present := make(map[string]bool, len(live))
	for _, it := range live {
		present[it.ID] = true
		if o.truth.unreadable(it.ID) {
			continue // lists need not know its state either
		}
		if told := p.told[it.ID]; it.Phase >= pleg.PhaseRunning && told != it.Phase {
			o.fail("lost-event", "pod %s: %s is %v, and Watch has told %v", uid, it.ID, it.Phase, told)
		} else if it.Phase == pleg.PhaseUnknown && told != it.Phase {
			o.fail(
				"lost-event",
				"pod %s: the runtime does not know how %s is, and Watch has told %v",
				uid,
				it.ID,
				told,
			)
		}
	}
	for id, told := range p.told {
		if !present[id] && told != pleg.PhaseRemoved {
			o.fail("lost-event", "pod %s: %s is gone, and Watch has told %v", uid, id, told)
		}
	}
	if o.inMood(uid) {
		return // changes taken back before their delivery need no delivery
	}
	for id, phase := range p.owe {
		if o.truth.LiedOf(id) {
			continue // looks missed the ID, and a later generator never knew of the ID
		}
		if told := p.told[id]; told < phase && (told != 0 || phase != pleg.PhaseRemoved) {
			o.fail(
				"lost-event",
				"pod %s: the cache has shown %s %v, and Watch has told %v",
				uid,
				id,
				phase,
				told,
			)
		}
	}
}
