// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

var (
	_ pleg.Source[Status] = (*toy)(nil)
	_ pleg.Stream[Status] = (*toy)(nil)
)

// pause lets a random part of the latency pass, and never none: time moves on in any real read.
func (r *toy) pause(ctx context.Context) error {
	r.mu.Lock()
	d := time.Microsecond
	if r.latency > 0 {
		d += time.Duration(r.rng.Int64N(int64(r.latency)))
	}
	r.mu.Unlock()
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dally delays or fails a read after its look.
func (r *toy) dally(ctx context.Context, f *readFault, uid cache.UID) error {
	r.mu.Lock()
	late := f.late
	if !f.strikes(uid) {
		late = 0
	}
	r.mu.Unlock()
	if err := sleep(ctx, late); err != nil {
		return err
	}
	return r.pause(ctx)
}

// suffer delays or fails a read before its look.
func (r *toy) suffer(ctx context.Context, all *readFault, uid cache.UID) error {
	r.mu.Lock()
	f := all
	if !f.strikes(uid) {
		f = &readFault{}
	}
	var free chan struct{}
	if f.hang {
		if f.free == nil {
			f.free = make(chan struct{})
		}
		free = f.free
	}
	slow := f.slow
	r.mu.Unlock()
	if free != nil {
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if slow > 0 {
		if err := sleep(ctx, slow); err != nil {
			return err
		}
	}
	if err := r.pause(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	work := r.work
	r.mu.Unlock()
	if all != &r.inspect {
		work /= 8 // a list is less work than the statuses
	}
	if err := r.cpu.Serve(ctx, work); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.down:
		return errDown
	case f.err != nil && f.strikes(uid):
		return f.err
	}
	return nil
}

// List implements [pleg.Source]. A torn toy looks at containers and sandboxes at different moments.
func (r *toy) List(ctx context.Context, since pleg.Revision) (pleg.Listing, error) {
	if err := r.suffer(ctx, &r.list, ""); err != nil {
		return pleg.Listing{}, err
	}
	began := time.Now()
	found := make(map[cache.UID][]pleg.Item)
	if r.showsNothing() {
		return pleg.Listing{}, nil
	}
	if err := r.look(ctx, "", found); err != nil {
		return pleg.Listing{}, err
	}
	if err := r.dally(ctx, &r.list, ""); err != nil {
		return pleg.Listing{}, err
	}
	for _, items := range found {
		r.delivered(items, false, began)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := pleg.Listing{Total: len(found)}
	if r.delta {
		l.Delta = since != 0 && since == r.revision
		r.revision++
		l.Revision = r.revision
	}
	for uid, items := range found {
		if !l.Delta || !slices.Equal(items, r.shown[uid]) {
			l.Pods = append(l.Pods, pleg.Pod{
				UID:       uid,
				Name:      string(uid),
				Namespace: "default",
				Items:     items,
			})
		}
	}
	slices.SortFunc(l.Pods, func(a, b pleg.Pod) int {
		if a.UID < b.UID {
			return -1
		}
		return 1
	})
	if l.Delta {
		for uid := range r.shown {
			if _, ok := found[uid]; !ok {
				l.Gone = append(l.Gone, uid)
			}
		}
		slices.Sort(l.Gone)
	}
	if r.delta {
		r.shown = found
	}
	return l, nil
}

// look adds the content of every pod, or of a single pod.
func (r *toy) look(ctx context.Context, only cache.UID, found map[cache.UID][]pleg.Item) error {
	for i, kind := range []pleg.Kind{pleg.Sandbox, pleg.Container} {
		if i > 0 && r.torn {
			if err := r.pause(ctx); err != nil {
				return err
			}
		}
		r.mu.Lock()
		for _, x := range r.items {
			if x.kind == kind && (only == "" || x.pod == only) && (x.ghost || r.sees(x)) {
				phase := x.phase
				switch {
				case x.ghost:
					phase = x.haunts
				case x.blurred:
					phase = pleg.PhaseUnknown
				}
				found[x.pod] = append(found[x.pod], pleg.Item{
					ID:    x.id,
					Kind:  x.kind,
					Phase: phase,
					Name:  x.name(),
				})
			}
		}
		r.mu.Unlock()
	}
	return nil
}

// ListPod implements [pleg.Source].
func (r *toy) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	if err := r.suffer(ctx, &r.pods, uid); err != nil {
		return pleg.Pod{}, err
	}
	began := time.Now()
	found := make(map[cache.UID][]pleg.Item)
	if err := r.look(ctx, uid, found); err != nil {
		return pleg.Pod{}, err
	}
	if err := r.dally(ctx, &r.pods, uid); err != nil {
		return pleg.Pod{}, err
	}
	r.delivered(found[uid], false, began)
	return pleg.Pod{
		UID:       uid,
		Name:      string(uid),
		Namespace: "default",
		Items:     found[uid],
	}, nil
}

// Inspect implements [pleg.Source]. Each ID is looked at on its own.
func (r *toy) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[Status], error) {
	return r.Update(ctx, pod, &Status{})
}

// Update implements [pleg.Updater].
func (r *toy) Update(ctx context.Context, pod pleg.Pod, prev *Status) (pleg.Inspection[Status], error) {
	if err := r.suffer(ctx, &r.inspect, pod.UID); err != nil {
		return pleg.Inspection[Status]{}, err
	}
	begun := time.Now()
	next := &Status{UID: pod.UID} // a status has no names: the consumers compare IDs and phases
	var shows []pleg.Item
	var looked []pleg.Item // shown by a look of this read
	var bad []string
	for i, want := range pod.Items {
		name := want.Name
		want.Name = ""
		if at := slices.Index(prev.Items, want); at >= 0 && want.Phase != pleg.PhaseUnknown {
			next.add(want, prev.Texts[at])
			want.Name = name
			shows = append(shows, want)
			continue
		}
		if i > 0 && r.torn {
			if err := r.pause(ctx); err != nil {
				return pleg.Inspection[Status]{}, err
			}
		}
		if r.spoilt(want.ID) {
			next.add(want, "")
			want.Name = name
			shows = append(shows, want)
			bad = append(bad, want.ID)
			continue
		}
		r.mu.Lock()
		if x := r.byID[want.ID]; x != nil && x.pod == pod.UID && r.sought(x) {
			next.add(pleg.Item{ID: x.id, Kind: x.kind, Phase: x.phase}, x.content())
			shows = append(shows, pleg.Item{
				ID:    x.id,
				Kind:  x.kind,
				Phase: x.phase,
				Name:  x.name(),
			})
			looked = append(looked, want)
		}
		r.mu.Unlock()
	}
	looked = append(looked, r.unasked(&pod, next, &shows)...)
	var unread []string
	var failure error
	until := time.Now().Add(max(hungAtLeast, hungTimes*time.Since(begun)))
	for _, id := range bad {
		err := r.wait(ctx, id, until)
		if err != nil {
			failure = err
			unread = append(unread, id)
			continue
		}
		shows = r.readNow(next, shows, id)
		if slices.ContainsFunc(shows, func(it pleg.Item) bool { return it.ID == id }) {
			looked = append(looked, pleg.Item{ID: id})
		}
	}
	if r.lacks {
		next.lose(unread)
	}
	if err := r.dally(ctx, &r.inspect, pod.UID); err != nil {
		return pleg.Inspection[Status]{}, err
	}
	r.delivered(looked, true, begun)
	read := pleg.Inspection[Status]{
		Status: next,
		Pod:    pleg.Pod{UID: pod.UID, Name: string(pod.UID), Namespace: "default", Items: shows},
	}
	if failure != nil && !setUnread(&read, unread) {
		return pleg.Inspection[Status]{}, failure
	}
	for _, it := range looked {
		r.truth.Refutes(it.ID, begun)
	}
	return read, failure
}

// unasked adds the pod's IDs beside the requested items, if statuses bring them, and returns the
// result.
func (r *toy) unasked(pod *pleg.Pod, next *Status, shows *[]pleg.Item) (looked []pleg.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.bundles {
		return nil
	}
	for _, x := range r.items {
		asked := slices.ContainsFunc(pod.Items, func(it pleg.Item) bool { return it.ID == x.id })
		if asked || x.pod != pod.UID || x.spoilt != spoilNot || !r.sought(x) {
			continue
		}
		next.add(pleg.Item{ID: x.id, Kind: x.kind, Phase: x.phase}, x.content())
		it := pleg.Item{
			ID:    x.id,
			Kind:  x.kind,
			Phase: x.phase,
			Name:  x.name(),
		}
		*shows = append(*shows, it)
		looked = append(looked, it)
	}
	return looked
}

// readNow puts a newly readable ID into a status, in place of the stand-in for the ID.
func (r *toy) readNow(next *Status, shows []pleg.Item, id string) []pleg.Item {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(shows, func(it pleg.Item) bool { return it.ID == id })
	x := r.byID[id]
	if !r.sought(x) {
		next.Items = slices.Delete(next.Items, at, at+1)
		next.Texts = slices.Delete(next.Texts, at, at+1)
		return slices.Delete(shows, at, at+1)
	}
	next.Items[at].Phase = x.phase
	next.Texts[at] = x.content()
	shows[at].Phase = x.phase
	shows[at].Name = x.name()
	return shows
}

// setUnread notes the unreadable IDs. A core with only whole statuses has no place for them.
func setUnread(read *pleg.Inspection[Status], ids []string) bool {
	place := reflect.ValueOf(read).Elem().FieldByName("Unread")
	if place.IsValid() {
		place.Set(reflect.ValueOf(ids))
	}
	return place.IsValid()
}

// showsNothing reports whether a list of everything is empty although the runtime is not.
func (r *toy) showsNothing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list.none == 0 {
		return false
	}
	r.list.none--
	for _, x := range r.items {
		if x.phase != pleg.PhaseRemoved {
			r.unseen(x)
		}
	}
	return true
}

// spoilt reports whether the status of an ID cannot be read.
func (r *toy) spoilt(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byID[id]
	return x != nil && x.spoilt != spoilNot && x.phase != pleg.PhaseRemoved
}
