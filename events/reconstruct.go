// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/klog/v2"
)

const (
	maxPages   = 40 // of a list: enough for what a table can hold
	nameEpochs = 64 // epochs that are tried to recognise a name of our own making
)

// reconstruct rebuilds the series of earlier processes from a list, where the role allows one: those of the recorders made so far, whose last
// occurrence is within the threshold. It is an optimisation: where it fails, they are found by name as their next occurrence comes.
func (b *Broadcaster) reconstruct(ctx context.Context) {
	if b.opts.List == nil {
		return
	}
	b.mu.Lock()
	controllers := map[string][]source{}
	for _, src := range b.sources {
		controllers[src.controller] = append(controllers[src.controller], src)
	}
	b.mu.Unlock()
	for controller, sources := range controllers {
		token := ""
		for range maxPages {
			call, cancel := context.WithTimeout(ctx, b.opts.WriteTimeout)
			page, next, err := b.opts.List(call, controller, token)
			cancel()
			b.mu.Lock()
			b.count.calls["list"]++
			if err != nil {
				b.mu.Unlock()
				klog.FromContext(ctx).V(2).Info("Event series not listed, they will be found by name", "controller", controller, "err", err)
				break
			}
			for i := range page {
				for _, src := range sources {
					if page[i].ReportingInstance == src.instance {
						b.rebuild(&page[i], b.indexOf[src], time.Now())
						break
					}
				}
			}
			b.mu.Unlock()
			if token = next; token == "" {
				break
			}
		}
	}
}

// rebuild takes one stored event into the table. The lock is held.
func (b *Broadcaster) rebuild(e *eventsv1.Event, src uint32, now time.Time) {
	group, version := splitVersion(e.Regarding.APIVersion)
	key := seriesKey{source: src, eventType: e.Type, reason: e.Reason, action: e.Action}
	key.regarding = refKey{e.Regarding.Kind, group, version, e.Regarding.Namespace, e.Regarding.Name, string(e.Regarding.UID), e.Regarding.FieldPath}
	if r := e.Related; r != nil {
		group, version := splitVersion(r.APIVersion)
		key.related = refKey{r.Kind, group, version, r.Namespace, r.Name, string(r.UID), r.FieldPath}
	}
	s := b.tab.byKey[key]
	known := s != nil
	if !known {
		template := e.DeepCopy()
		template.ObjectMeta.Reset()
		template.Namespace = e.Namespace
		template.Series = nil
		s = &series{key: key, id: key.id(b.sources[src]), object: key.regarding.object(), template: template}
	}
	seen := s.look(e)
	age := now.Round(0).Sub(seen.last)
	if age.Abs() >= b.policy.threshold || seen.state == stateFinished || known && (s.st.phase != settling || s.inflight) || b.tab.aged.len >= b.opts.MaxSeries {
		return
	}
	epoch, ours := uint32(0), false
	for ; epoch < nameEpochs && !ours; epoch++ {
		ours = eventName(e.Regarding.Name, s.id, epoch) == e.Name
	}
	if epoch--; !ours { // another recorder named it: keep the name, and do not count epochs from it
		s.name, epoch = e.Name, saltEpochs
	}
	if known {
		s.st.epoch = epoch
		b.step(s, input{kind: inDone, op: op{kind: opRead, epoch: max(epoch, 1)}, seen: seen, now: now})
		return
	}
	last := now.Add(-max(age, 0))
	s.st = state{phase: single, epoch: epoch, count: seen.count, stored: seen.count, eventTime: seen.eventTime, first: last, last: last}
	if seen.series {
		s.st.phase = ongoing
	}
	s.st = s.st.written(input{now: now, rand: 0.5}, &b.policy)
	b.count.transitions["adopted"]++
	b.tab.add(s)
	b.apply(s, effects{wake: s.st.deadline(&b.policy)})
}
