// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// crossing is a source and a stream that pass everything through, and note the calls in the
// boundary.
type crossing[S any] struct {
	*boundary
	source pleg.Source[S]
	stream pleg.Stream[S]
}

func (b *crossing[S]) List(ctx context.Context, since pleg.Revision) (pleg.Listing, error) {
	b.truth.refresh()
	b.mu.Lock()
	begun := b.enter()
	b.listBegun = begun
	b.unnoticed = 0
	stood := begun.Sub(b.turnStood)
	if begun.Sub(b.resumed) <= withinTurn && stood <= unnoticed {
		b.unnoticed = stood // the turn that has begun the list stood before the call
	}
	b.lists++
	b.outcome.read("list", "")
	b.listBegins(begun)
	b.ofList(begun, false)
	b.listing++
	if b.listing > 1 {
		b.fail("greedy", "two lists of everything at once")
	}
	b.mu.Unlock()
	b.brake(ctx)
	l, err := b.source.List(ctx, since)
	b.truth.refresh()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listing--
	b.listEnd = time.Now()
	b.listTook = b.listEnd.Sub(begun)
	b.compareList(begun, &l, err)
	b.changes()
	b.outlived(begun)
	b.trouble("", begun, time.Now(), 0, err)
	defer func() {
		b.listEnds(begun, time.Now(), &l, err)
		b.ofList(begun, true)
	}()
	if err == nil {
		b.listOK = begun
		b.listOKEnd = time.Now()
		b.believed = b.halved && since == b.revision && since != 0
		b.halved = b.halves(&l)
		b.revision = l.Revision
		if begun.After(b.disturbed) && b.listFirst.IsZero() {
			b.listFirst = b.listOKEnd
		}
		b.listedAfterHang(begun, b.listOKEnd)
	}
	return l, err
}

func (b *crossing[S]) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	begun := b.begin(ctx, uid, false)
	b.brake(ctx)
	p, err := b.source.ListPod(ctx, uid)
	b.compare(uid, p.Items, nil, begun, err)
	b.end(ctx, uid, false, p.Items, begun, err)
	return p, err
}

func (b *crossing[S]) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[S], error) {
	begun := time.Now()
	i, at, err := b.inspect(
		ctx,
		pod,
		func() (pleg.Inspection[S], error) { return b.source.Inspect(ctx, pod) },
	)
	if err == nil || i.Status != nil && b.truth.spoilt(pod.UID) { // nobody can read the rest
		b.inspected(pod.UID, begun, at)
	}
	return i, err
}

func (b *crossing[S]) Update(ctx context.Context, pod pleg.Pod, prev *S) (pleg.Inspection[S], error) {
	u, ok := b.source.(pleg.Updater[S])
	if !ok {
		return b.Inspect(ctx, pod)
	}
	i, _, err := b.inspect(ctx, pod, func() (pleg.Inspection[S], error) { return u.Update(ctx, pod, prev) })
	return i, err
}

// inspect passes a read of statuses through, and tells of which read it is a part.
func (b *crossing[S]) inspect(
	ctx context.Context,
	pod pleg.Pod,
	read func() (pleg.Inspection[S], error),
) (i pleg.Inspection[S], at looked, err error) {
	if b.peeks(ctx, pod.UID) {
		i, err = b.peek(pod, read)
		return i, looked{peek: true}, err
	}
	begun := b.begin(ctx, pod.UID, true)
	i, err = read()
	b.compareStatuses(&pod, &i, begun, err)
	at = b.end(ctx, pod.UID, true, i.Pod.Items, begun, err)
	return i, at, err
}

// compareStatuses compares the readable part of a read of statuses with the truth.
func (b *crossing[S]) compareStatuses(asked *pleg.Pod, i *pleg.Inspection[S], begun time.Time, err error) {
	if i.Status != nil {
		err = nil
	}
	b.compare(asked.UID, i.Pod.Items, asked.Items, begun, err)
}

func (b *crossing[S]) begin(ctx context.Context, uid cache.UID, statuses bool) time.Time {
	b.truth.refresh()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.podReads++
	if statuses {
		b.statuses++
		b.outcome.read("statuses", uid)
	} else {
		b.outcome.read("pod", uid)
	}
	b.readBegins(uid, statuses, ctx.Done(), time.Now())
	b.inflight[uid]++
	if b.inflight[uid] > 1+len(b.peekPace.maybe[uid]) {
		b.fail("greedy", "two reads of pod %s at once", uid)
	}
	b.most = max(b.most, len(b.inflight))
	b.lookCrowd(time.Now())
	begun := b.enter()
	if _, two := b.begun[uid]; !two {
		b.begun[uid] = begun
	}
	if len(b.inflight) == b.workers {
		b.prompt.troubled = begun
	}
	b.podPace(uid).begins(ctx.Done(), begun)
	return begun
}

// looked is a read of a pod.
type looked struct {
	began time.Time // from its list on
	peek  bool      // it was, or may have been, a peek
}

// end notes the end of a read of a pod, or of its first half.
func (b *crossing[S]) end(
	ctx context.Context,
	uid cache.UID,
	statuses bool,
	items []pleg.Item,
	begun time.Time,
	err error,
) looked {
	b.truth.refresh()
	b.mu.Lock()
	defer b.mu.Unlock()
	cut := err != nil && errors.Is(ctx.Err(), context.Canceled)
	peek := b.peekPace.maybe[uid][ctx.Done()]
	began := b.podPace(uid).ends(ctx.Done(), begun, statuses || err != nil || len(items) == 0)
	if time.Since(b.podPace(uid).started) >= mayHang {
		b.peekPace.answers = time.Now() // a peek may begin before the generator hears of the end
	}
	if !cut {
		b.readEnds(uid, statuses, peek, items, time.Now(), err)
	} else if b.pace.on && !b.stopping {
		b.fail("greedy", "the read of pod %s is given up", uid)
	}
	b.podTrouble(uid, begun, time.Now(), len(items), err)
	if len(items) > 0 {
		b.foundBy(uid, items)
	}
	if statuses {
		b.emptied(uid, begun, len(items), err)
	}
	if statuses && err == nil && !peek {
		b.answered(uid, items, began)
	}
	if err == nil && !peek {
		b.podWhole[uid] = latest(b.podWhole[uid], began)
	}
	if err == nil && !peek { // the list of the pod and the statuses after it are one read
		b.peekPace.slowest = max(b.peekPace.slowest, time.Since(began))
	}
	if peek || statuses && err != nil && len(items) == 0 && !cut { // single statuses do not answer either
		b.peekHurts(begun, time.Now(), len(items), err)
	}
	if !cut && (!peek || err != nil) &&
		(statuses || err != nil || len(items) == 0) { // a possible peek may be none
		b.timedOut(b.podPace(uid), time.Now(), err)
	}
	if len(b.inflight) == b.workers {
		b.prompt.troubled = time.Now()
	}
	b.inflight[uid]--
	if peek {
		delete(b.peekPace.maybe[uid], ctx.Done())
		b.peekPace.ended[uid] = time.Now()
	}
	if b.inflight[uid] == 0 {
		delete(b.inflight, uid)
		delete(b.begun, uid)
	}
	b.podOutlived(uid, began) // its first half may have been slow
	if !cut && begun.After(b.podEnd[uid]) {
		b.podEnd[uid] = begun
	}
	if err != nil && !cut && begun.After(b.podFail[uid]) {
		b.podFail[uid] = begun
	}
	return looked{began: began, peek: peek}
}

func (b *crossing[S]) Events(ctx context.Context) iter.Seq2[pleg.Claim[S], error] {
	return func(yield func(pleg.Claim[S], error) bool) {
		b.mu.Lock()
		b.enter()
		b.streams++
		if b.streams > 1 {
			b.fail("greedy", "two streams at once")
		}
		b.listened = append(b.listened, [2]time.Time{time.Now()})
		b.pace.opening(time.Now())
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			b.listened[len(b.listened)-1][1] = time.Now()
			b.pace.ending(time.Now())
			b.streams--
			b.mu.Unlock()
		}()
		for c, err := range b.stream.Events(ctx) {
			now := time.Now()
			if err == nil {
				b.truth.Told(c.Item.ID, c.Item.Phase, true)
				for _, it := range c.Payload {
					b.truth.Told(it.ID, it.Phase, false)
				}
				b.told(c.Pod, c.Item, c.Payload, now)
				b.disturb(now.Add(b.doubt()))
			}
			more := yield(c, err)
			if d := time.Since(now); d > 0 {
				b.fail("blocking", "the stream was not read for %v", d)
			}
			if !more {
				return
			}
		}
	}
}
