// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Check compares a status with the runtime's state at some moment from just before since until now,
// and returns the differences.
func (t *Truth) Check(pod cache.UID, shown []pleg.Item, since time.Time) (kind, what string) {
	t.refresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, it := range shown {
		if t.excused(it.ID) {
			continue
		}
		l := t.lives[it.ID]
		if l == nil || l.pod != pod {
			return "invented", "shows " + it.ID + ", which was never there"
		}
		for _, other := range shown[:i] {
			if other.ID == it.ID {
				return "invented", "shows " + it.ID + " twice"
			}
		}
		set := l.phases(since)
		if has(set, it.Phase) {
			continue
		}
		if set == 1<<pleg.PhaseRemoved {
			return "resurrected", "shows " + it.ID + " " + it.Phase.String() + ", which had been removed"
		}
		if set>>(it.Phase+1) != 0 && set&(1<<absent) == 0 {
			return "stale", "shows " + it.ID + " " + it.Phase.String() + ", which was further already"
		}
		return "invented", "shows " + it.ID + " " + it.Phase.String() + ", which it was not yet"
	}
	for _, l := range t.pods[pod] {
		if t.excused(l.id) || slices.ContainsFunc(shown, func(it pleg.Item) bool { return it.ID == l.id }) {
			continue
		}
		if set := l.phases(since); set&(1<<absent|1<<pleg.PhaseRemoved) == 0 {
			return "stale", "does not show " + l.id + ", which was there"
		}
	}
	return "", ""
}

// Compare notes the IDs about which a read has lied: those shown as they were at no moment since
// its begin, or in another pod, and those missing although present all the time. Asked is the scope
// of the read; nil means everything of the pod. Check then skips them.
func (t *Truth) Compare(pod cache.UID, shown, asked []pleg.Item, begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shows := make(map[string]bool, len(shown))
	for _, it := range shown {
		l := t.lives[it.ID]
		if l == nil || l.pod != pod || shows[it.ID] || !has(l.phases(begun), it.Phase) {
			t.lied[it.ID] = true
		}
		shows[it.ID] = true
	}
	for _, l := range t.pods[pod] {
		wanted := asked == nil || slices.ContainsFunc(asked, func(it pleg.Item) bool { return it.ID == l.id })
		if set := l.phases(begun); wanted && !shows[l.id] && set&(1<<absent|1<<pleg.PhaseRemoved) == 0 {
			t.lied[l.id] = true
		}
	}
}

// Trust forgets the lies, and reports whether there were any.
func (t *Truth) Trust() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	lies := len(t.lied) > 0
	maps.DeleteFunc(
		t.lied,
		func(id string, _ bool) bool { // an unreadable item may still be missing in the status
			_, bad := t.bad[id]
			return !bad
		},
	)
	return lies
}

// LiedOf reports whether a read has lied about an ID.
func (t *Truth) LiedOf(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lied[id]
}

// Live returns the present items of a pod.
func (t *Truth) Live(pod cache.UID) []pleg.Item {
	t.refresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	var items []pleg.Item
	for _, l := range t.pods[pod] {
		if p := l.now(); p != pleg.PhaseRemoved {
			items = append(items, pleg.Item{ID: l.id, Kind: l.kind, Phase: p})
		}
	}
	return items
}

// unreadable reports whether the status of an ID cannot be read, or could not when its pod was last
// read.
func (t *Truth) unreadable(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, noted := t.bad[id]
	return noted
}

// holdsUnreadable reports whether a pod has, or had when last read, an ID whose status cannot be
// read.
func (t *Truth) holdsUnreadable(uid cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.pods[uid], func(l *life) bool {
		_, noted := t.bad[l.id]
		return noted
	})
}

// forgotten reports whether looks have lied about an ID of a pod that is not removed.
func (t *Truth) forgotten(uid cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.pods[uid], func(l *life) bool {
		return t.lied[l.id] && l.now() != pleg.PhaseRemoved
	})
}

// bereft returns the number of pods of which an ID has gone.
func (t *Truth) bereft() (pods int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lives := range t.pods {
		gone := func(l *life) bool { return len(l.steps) > 0 && l.steps[len(l.steps)-1].phase == pleg.PhaseRemoved }
		if slices.ContainsFunc(lives, gone) {
			pods++
		}
	}
	return pods
}

// slows notes that the runtime answers about single items as slowly as that from now on.
func (t *Truth) slows(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slow = max(t.slow, d)
}

// remembersMost is what a client waits at most for an item that hangs, because the last answers
// about items of its kind were slow. While items of the kind do nothing but hang, the client knows
// no better. The excuse ends with the history: a waiter beside an unreadable item that waits longer
// after statuses were slow once goes unseen.
const remembersMost = time.Second

// waitsAtOnce is for how many items of a pod a client waits at once.
const waitsAtOnce = 4

// remembered is how long a read waits for items that hang, because of slow answers before.
func (t *Truth) remembered() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(remembersMost, hungTimes*t.slow)
}

// lacks reports whether a status may lack an item for good: the status names the item as
// unreadable, or the item is a sandbox without metadata, and no read shows the sandbox's pod.
func (t *Truth) lacks(it pleg.Item, unread []string) bool {
	return t.unreadable(it.ID) && (it.Kind == pleg.Sandbox || slices.Contains(unread, it.ID))
}

// Differs returns the difference of a status from the pod's present state, empty without any. A
// phase unknown to the runtime is a phase like any other.
func (t *Truth) Differs(pod cache.UID, shown []pleg.Item, unread []string) string {
	live := t.Live(pod)
	for _, it := range live {
		i := slices.IndexFunc(shown, func(s pleg.Item) bool { return s.ID == it.ID })
		switch {
		case i < 0 && t.lacks(it, unread):
		case i < 0:
			return it.ID + " is " + it.Phase.String() + " and not shown"
		case shown[i].Phase == pleg.PhaseUnknown && t.unreadable(it.ID): // lists need not know the state either
		case shown[i].Phase != it.Phase:
			return it.ID + " is " + it.Phase.String() + " and shown " + shown[i].Phase.String()
		}
	}
	for _, s := range shown {
		if !slices.ContainsFunc(live, func(it pleg.Item) bool { return s.ID == it.ID }) {
			return s.ID + " is gone and shown " + s.Phase.String()
		}
	}
	return ""
}
