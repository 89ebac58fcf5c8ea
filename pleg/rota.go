// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// rota has the statuses of all pods read again, one pod after another: once in Config.Reread, and
// soon after a reconnect. No event announces a changed limit or a lost address.
type rota struct {
	// pods are the pods with a status, the next one in front; none if there are no turns. A forgotten
	// pod leaves at its turn, or before: see forgotten.
	pods fifo[*pod]
	// next is when the pod in front has its turn.
	next instant
	// since is when the stream was last connected again. Pods read before have their turn soon.
	since instant
	// soon is the number of pods in front that may have been read before since.
	soon int
	// putUntil is until when the last read was put off for which no worker was free.
	putUntil instant
}

const (
	// rotaSoon is the pause between two reads after a reconnect.
	rotaSoon = 50 * time.Millisecond
	// rotaSpares is the part of a round, one in so many, within which a pod is not read again:
	// other reads have just read its statuses. So a status is at most a round and this part old.
	rotaSpares = 4
	// rotaLeast is the least pause between two reads of the slow round.
	rotaLeast = time.Millisecond
	// putOffLeast is the least pause between two reads that were put off.
	putOffLeast = 100 * time.Microsecond
)

// join adds a pod, unless it is there. Its turn comes last, and within the time of a round: the
// turns are as far apart as they are from now on. Every is negative if there are no turns.
func (r *rota) join(p *pod, every time.Duration, now instant) {
	if p.onRota || every < 0 {
		return
	}
	p.onRota = true
	was := r.next
	if r.pods.len() == 0 {
		was = never
	}
	r.pods.push(p)
	r.next = min(was, now.add(max(every/time.Duration(r.pods.len()), rotaLeast)))
}

// reconnected gives every pod a turn soon.
func (r *rota) reconnected(now instant) {
	r.since = now // no read has begun at exactly this time
	r.soon = r.pods.len()
	r.next = now.add(rotaSoon)
}

// due returns when the pod in front has its turn. Every is negative if there are no turns.
func (r *rota) due(every time.Duration) instant {
	if r.pods.len() == 0 || every < 0 {
		return never
	}
	return r.next
}

// reread returns the pod whose statuses are to be read again now; nil if there is none. Known
// reports whether a pod is still there. A pod whose statuses were read of late is left out. The
// next turn is later, so that there is one pod at most.
func (r *rota) reread(every time.Duration, known func(*pod) bool, now instant) *pod {
	for r.due(every) <= now {
		p := r.turn(every, now)
		if !known(p) || p.entry == noEntry {
			r.leave(p)
			r.next = now // the next pod has the turn
			continue
		}
		if p.read <= r.since || now.sub(p.read) > every/rotaSpares {
			return p
		}
	}
	return nil
}

// turn moves the pod in front to the end, and returns it.
func (r *rota) turn(every time.Duration, now instant) *pod {
	p := r.pods.pop()
	r.pods.push(p)
	pause := every / time.Duration(r.pods.len())
	if r.soon > 0 {
		r.soon--
		pause = rotaSoon
	}
	r.next = now.add(max(pause, rotaLeast))
	return p
}

// leave removes the pod that has just had its turn.
func (r *rota) leave(p *pod) {
	p.onRota = false
	last := len(r.pods.items) - 1
	r.pods.items[last] = nil
	r.pods.items = r.pods.items[:last]
}

// forgotten removes all forgotten pods if they are more than the others, now that a pod has been
// forgotten: a round may be longer than any pod lives. Pods is the number of pods there are, and
// known reports whether a pod is one of them.
func (r *rota) forgotten(pods int, known func(*pod) bool) {
	if r.pods.len() <= 2*pods {
		return
	}
	soon := r.soon
	turn := 0
	r.pods.keep(func(p *pod) bool {
		turn++
		if known(p) {
			return true
		}
		p.onRota = false
		if turn <= soon {
			r.soon--
		}
		return false
	})
}

// check reports each violated invariant of the room: it has the memory of the pods there are. Those
// forgotten since they were last removed are twice as many at most.
func (r *rota) check(check checker, pods int) {
	check(r.pods.len() <= 3*pods, "the rota has %d pods, and there are %d", r.pods.len(), pods)
}

// putOff returns until when a read nobody waits for is put off while the workers are busy: the
// reads put off have a turn each, as fast as the workers make them.
func (r *rota) putOff(l *limiter, now instant) instant {
	r.putUntil = max(r.putUntil, now).add(max(putOffLeast, l.longest(now)/time.Duration(l.workers)))
	return r.putUntil
}
