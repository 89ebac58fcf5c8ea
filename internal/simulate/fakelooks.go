// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// fakeLooks is the real client of the second tier, and reports to the truth the living IDs missed
// by its lists, where the fake runtime has returned an empty list.
type fakeLooks struct {
	*cri.Client
	f *fakeSide
}

var _ pleg.Updater[cri.PodStatus] = fakeLooks{}

// List implements pleg.Source.
func (l fakeLooks) List(ctx context.Context, since pleg.Revision) (pleg.Listing, error) {
	begun := time.Now()
	before := l.f.rt.Stats().EmptyLists
	listing, err := l.Client.List(ctx, since)
	if err != nil {
		return listing, err
	}
	empty := l.f.rt.Stats().EmptyLists != before
	if !listing.Delta {
		clear(l.f.listed)
	}
	for _, p := range listing.Pods {
		l.f.listed[p.UID] = p.Items
	}
	for _, uid := range listing.Gone {
		delete(l.f.listed, uid)
	}
	for _, uid := range l.f.w.truth.UIDs() {
		l.f.looked(uid, l.f.listed[uid], begun, empty)
	}
	return listing, nil
}

// ListPod implements pleg.Source.
func (l fakeLooks) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	begun := time.Now()
	before := l.f.rt.Stats().EmptyLists
	p, err := l.Client.ListPod(ctx, uid)
	if err == nil {
		l.f.w.truth.refresh()
		l.f.looked(uid, p.Items, begun, l.f.rt.Stats().EmptyLists != before)
	}
	return p, err
}

// Inspect implements pleg.Source.
func (l fakeLooks) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[cri.PodStatus], error) {
	begun := time.Now()
	i, err := l.accusing(ctx, func() (pleg.Inspection[cri.PodStatus], error) { return l.Client.Inspect(ctx, pod) })
	for _, it := range i.Pod.Items {
		if !slices.Contains(i.Unread, it.ID) {
			l.f.w.truth.Refutes(it.ID, begun)
		}
	}
	return i, err
}

// Update implements pleg.Updater.
func (l fakeLooks) Update(
	ctx context.Context,
	pod pleg.Pod,
	prev *cri.PodStatus,
) (pleg.Inspection[cri.PodStatus], error) {
	return l.accusing(
		ctx,
		func() (pleg.Inspection[cri.PodStatus], error) { return l.Client.Update(ctx, pod, prev) },
	)
}

// accusing passes a read of statuses through, and checks its list of unreadable items: each must be
// unreadable, and no other fault may count against an item. The faults must have been the same for
// a while: a hanging call is not made again before its end.
func (l fakeLooks) accusing(
	ctx context.Context,
	read func() (pleg.Inspection[cri.PodStatus], error),
) (pleg.Inspection[cri.PodStatus], error) {
	before := l.f.callsFail()
	begun := time.Now()
	i, err := read()
	after := l.f.callsFail()
	lasting := after == before && time.Since(after.since) > 2*l.f.w.settings.inspectTimeout
	// The deadline of the read is that of its calls, whose timers may be the first to tell of it.
	deadline, ends := ctx.Deadline()
	over := ctx.Err() != nil || ends && !time.Now().Before(deadline)
	if i.Status == nil || over || after.fail || !lasting {
		return i, err
	}
	accused := l.f.readable(i.Unread, begun)
	if len(accused) > 0 {
		l.f.w.truth.refresh() // a sandbox may have lost its metadata since the list
	}
	for _, id := range l.f.readable(accused, begun) {
		l.f.w.oracle.fail("accused", "%s can be read, and a read says that it cannot: %v", id, err)
	}
	return i, err
}

// readable returns those of some items that a read begun at a time could get, as far as is known.
func (f *fakeSide) readable(ids []string, begun time.Time) (some []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		if f.bad[id] {
			continue
		}
		f.noteSlow(begun)
		if !f.newlySlow(begun) {
			some = append(some, id)
		}
	}
	return some
}

// noteSlow notes since when it can be told that all containers are slow: from the first read that
// gave one up on, begun at a time, or from the first after one whose connection broke before it was
// answered. The caller holds the mutex.
func (f *fakeSide) noteSlow(begun time.Time) {
	slow := f.rt.Faults().SlowContainer
	if slow == 0 {
		return
	}
	cut := f.cut.Load()
	untaught := cut != nil && !cut.Before(f.slowSince) && cut.Before(f.slowSince.Add(slow)) && begun.After(*cut)
	if f.slowSince.IsZero() || untaught {
		f.slowSince = time.Now()
	}
}

// newlySlow reports whether a read begun at a time may have given up a container because nothing
// told yet that all containers are slow. The caller holds the mutex.
func (f *fakeSide) newlySlow(begun time.Time) bool {
	slow := f.rt.Faults().SlowContainer
	return slow > 0 && begun.Before(f.slowSince.Add(slow))
}

// weather reports whether calls fail for a reason outside of the items, and since when the faults
// are the same.
type weather struct {
	fail  bool
	since time.Time
}

// callsFail returns the weather.
func (f *fakeSide) callsFail() weather {
	fail := f.failing()
	f.mu.Lock()
	defer f.mu.Unlock()
	return weather{fail: fail, since: f.faultsSet}
}

// looked notes a look at a pod, part of which may have been an empty list.
func (f *fakeSide) looked(uid cache.UID, shown []pleg.Item, begun time.Time, empty bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range shown {
		delete(f.unseen, it.ID)
		if f.leftovers[it.ID] {
			f.w.truth.Haunts(it.ID)
		}
	}
	if !empty {
		return
	}
	begun = begun.Add(1) // creations in the same instant come before
	for _, id := range f.w.truth.missed(uid, shown, begun) {
		f.unseen[id]++
		f.w.truth.Hide(id, f.unseen[id])
		f.w.upset(time.Now())
	}
}

// missed returns the IDs of a pod alive since a time and absent from a look, as of the last
// refresh.
func (t *Truth) missed(pod cache.UID, shown []pleg.Item, since time.Time) (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.pods[pod] {
		lives := l.phases(since)&(1<<absent) == 0 && l.now() != pleg.PhaseRemoved
		if lives && phaseIn(shown, l.id) == pleg.PhaseRemoved {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// bare reports whether a sandbox has no metadata, or had none as of the given time. Such a sandbox
// is a pod of its own, without a name, and its reads fail.
func (t *Truth) bare(id string, asOf time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	return l != nil && l.kind == pleg.Sandbox && (t.bad[id] || !t.mended[id].Before(asOf))
}

// spoil reports to the truth the unreadable items, the items without metadata, and the removed
// items still in lists. The caller holds the mutex, and has taken over the history.
func (f *fakeSide) spoil() {
	now := f.rt.Truth()
	clear(f.leftovers)
	for _, id := range now.Leftovers {
		f.leftovers[id] = true
		if !f.w.truth.ghost(id) {
			f.w.truth.Haunt(id)
		}
	}
	for _, p := range now.Pods {
		for _, s := range p.Sandboxes {
			if f.spoilt(s.ID, s.Bare) {
				f.w.truth.vanish(s.ID)
			}
			for _, c := range s.Containers {
				f.spoilt(c.ID, c.Unreadable)
			}
		}
	}
}

// spoilt is spoil for an item, and reports whether the state of the item is news.
func (f *fakeSide) spoilt(id string, yes bool) (news bool) {
	if yes == f.bad[id] {
		return false
	}
	f.bad[id] = yes
	f.w.truth.Spoil(id, yes)
	return true
}

// vanish notes an apparent end or return of an ID without an event: a sandbox has lost its
// metadata, or has them again. That is a lie about the ID: what is told of a returned ID comes
// again.
func (t *Truth) vanish(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil {
		l.hid++
		t.lied[id] = true
	}
}
