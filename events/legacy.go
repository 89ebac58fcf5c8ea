// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// legacy is the path for servers that do not serve events.k8s.io/v1: client-go's correlator (compression, aggregation, spam filter), in order, behind
// the same gate. Guarded by the broadcaster's lock, but for the correlator, which belongs to the one writer that is busy with the head.
type legacy struct {
	active     bool
	queue      []*legacyItem
	busy       bool
	nextProbe  time.Time
	serial     uint16 // makes names differ that were made within one tick of the clock
	correlator *record.EventCorrelator
}

// legacyItem is an event that waits, and how many occurrences it stands for.
type legacyItem struct {
	event  *corev1.Event
	n      int64
	result *record.EventCorrelateResult // what the correlator made of it, once asked
	tried  bool                         // an earlier create may have got through
}

// takeLegacy books one occurrence while the server knows core/v1 Events only. The lock is held.
func (b *Broadcaster) takeLegacy(e *emission, built *eventsv1.Event, now time.Time) (wake, more bool) {
	switch {
	case len(b.old.queue) >= b.opts.MaxQueue:
		b.count.drop(DropQueueFull, 1)
		return false, false
	case built == nil:
		return false, true
	}
	b.count.unsent++
	b.old.queue = append(b.old.queue, &legacyItem{event: b.coreEvent(built, e.key.source, now, now, 1), n: 1})
	return true, false
}

// coreEvent is the core/v1 form of an event.
func (b *Broadcaster) coreEvent(e *eventsv1.Event, src uint32, first, last time.Time, n int64) *corev1.Event {
	namespace := e.Regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	b.old.serial++
	suffix := fmt.Sprintf(".%x%04x", first.UnixNano(), b.old.serial)
	out := &corev1.Event{
		InvolvedObject:      e.Regarding,
		Reason:              e.Reason,
		Message:             e.Note,
		Type:                e.Type,
		Source:              b.sources[src].eventSource(),
		FirstTimestamp:      metav1.NewTime(first),
		LastTimestamp:       metav1.NewTime(last),
		Count:               count32(n),
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
	}
	out.Name = subdomain(e.Regarding.Name, 253-len(suffix)) + suffix
	out.Namespace = namespace
	out.Annotations = e.Annotations
	return out
}

// performLegacy writes the head of the queue.
func (b *Broadcaster) performLegacy(ctx, call context.Context, item *legacyItem) {
	if item.result == nil {
		result, err := b.old.correlator.EventCorrelate(item.event)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Event not correlated", "err", err)
		}
		if result == nil {
			result = &record.EventCorrelateResult{Event: item.event}
		}
		item.result = result
	}
	var stored *corev1.Event
	var err error
	if r := item.result; !r.Skip {
		if len(r.Patch) > 0 {
			stored, err = b.opts.Legacy.Patch(call, r.Event, r.Patch)
		}
		if len(r.Patch) == 0 || judge(ctx, err).verdict == verdictMissing {
			r.Event.ResourceVersion = ""
			stored, err = b.opts.Legacy.Create(call, r.Event)
		}
		if err == nil && stored != nil {
			b.old.correlator.UpdateState(stored)
		}
	}
	v, now := judge(ctx, err), time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned {
		return
	}
	b.inflight--
	b.old.busy = false
	v = b.doubted(v, now)
	if v.verdict == verdictExists && !item.tried { // somebody else's: another name
		item.result.Event.Name += "x"
		return
	}
	switch v.verdict {
	case verdictTrouble, verdictFault, verdictConflict:
		item.tried = true
		b.lastErr = err
		b.count.retries[v.reason]++
		b.shutGate(ctx, v, err, now)
		return
	case verdictStopped:
		item.tried = true
		return
	case verdictRefused, verdictMissing:
		b.count.rejected[v.reason]++
		b.count.drop(DropRejected, item.n)
	case verdictOK, verdictExists: // it exists: an earlier try got through
		if item.result.Skip {
			b.count.drop(DropSpamFilter, item.n)
		} else {
			b.count.acked += item.n
		}
	}
	if !item.result.Skip {
		b.openGate(ctx)
	}
	b.count.unsent -= item.n
	b.old.queue[0] = nil
	b.old.queue = b.old.queue[1:]
}

// createMissing decides about a create that was answered with 404: does the server lack the namespace, this object's place, or Events as a whole?
func (b *Broadcaster) createMissing(s *series, v judged, err error) judged {
	switch {
	case b.opts.Probe != nil && !s.probed:
		s.probed = true
		b.askGroup = true
		v.verdict = verdictStopped // it stays at the head until we know
	case b.opts.Probe == nil && routeMissing(err):
		v.verdict, v.reason = verdictTrouble, "GroupAbsent"
	default:
		v.verdict = verdictRefused
	}
	return v
}

// performProbe asks whether the server serves events.k8s.io/v1.
func (b *Broadcaster) performProbe(ctx, call context.Context) {
	served, err := b.opts.Probe(call)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abandoned {
		return
	}
	b.inflight--
	b.asking = false
	if err != nil {
		if v := judge(ctx, err); v.verdict != verdictStopped {
			b.lastErr = err
			b.count.retries[v.reason]++
			b.shutGate(ctx, v, err, now)
		}
		return
	}
	b.askGroup = false
	b.openGate(ctx)
	b.old.nextProbe = now.Add(time.Duration(float64(b.opts.ProbeEvery) * (0.9 + 0.2*rand.Float64())))
	switch logger := klog.FromContext(ctx); {
	case served && b.old.active:
		b.old.active = false
		logger.Info("Server serves events.k8s.io/v1 again, recording series")
	case served || b.old.active:
	case b.opts.Legacy == nil:
		b.forgetProbes()
		b.shutGate(ctx, judged{verdict: verdictTrouble, reason: "GroupAbsent"}, nil, now)
	default:
		b.old.active = true
		b.old.correlator = record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{})
		b.convert()
		logger.Info("Server does not serve events.k8s.io/v1, recording core/v1 Events")
	}
}

// forgetProbes lets the next 404 ask again.
func (b *Broadcaster) forgetProbes() {
	for s := b.tab.queue.head; s != nil; s = s.qnext {
		s.probed = false
	}
	for s := b.tab.urgent.head; s != nil; s = s.qnext {
		s.probed = false
	}
}

// convert turns what the server was not told of yet into legacy events, those that wait in the order in which they do, and empties the table.
func (b *Broadcaster) convert() {
	move := func(s *series) {
		if n := s.st.count - s.st.stored; n > 0 {
			b.old.queue = append(b.old.queue, &legacyItem{event: b.coreEvent(s.template, s.key.source, s.st.first, s.st.last, n), n: n})
		}
		b.tab.forget(s)
	}
	for _, list := range []*seriesList{&b.tab.urgent, &b.tab.queue} {
		for list.head != nil {
			move(list.head)
		}
	}
	for s := b.tab.aged.oldest(); s != nil; s = b.tab.aged.oldest() {
		move(s)
	}
}
