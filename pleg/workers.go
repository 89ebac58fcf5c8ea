// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// flight is a read of one pod that holds a worker.
type flight struct {
	began       instant // as of when its result is: when the list began on which it builds, or as started
	started     instant // when the worker took it up
	slow        bool    // the pod's read before it hung
	interrupted bool
}

// reads says that the pod is being read.
func (c *core[S]) reads(p *pod) bool {
	_, ok := c.inflight[p]
	return ok
}

// hungAfter, in base periods, is how long a read of one pod may be under way before it counts as
// hung. By then polling would have listed the whole runtime.
const hungAfter = 1

// mayHang returns how many workers hung reads may hold: half of them, or the only one.
func (c *core[S]) mayHang() int { return max(1, c.cfg.InspectWorkers/2) }

// hangs returns when a read that is under way counts as hung.
func (c *core[S]) hangs(f flight) instant {
	if f.slow {
		return f.started
	}
	return f.started.add(hungAfter*c.cfg.RelistBase) + 1
}

// hung counts the reads under way that hang, and those of pods whose last read did.
func (c *core[S]) hung(now instant) int {
	n := 0
	for _, f := range c.inflight {
		if !f.interrupted && now >= c.hangs(f) {
			n++
		}
	}
	return n
}

// interruptHung ends the youngest of the reads that hang, as many as are more than may, if pods
// wait for their workers of which none is known to hang. What it ends has not failed: it waits for
// one of the workers that hung reads may hold, and is not interrupted again.
func (c *core[S]) interruptHung(now instant) {
	excess := c.hung(now) - c.mayHang()
	if excess <= 0 || !c.othersQueued() {
		return
	}
	c.requeue(now)
	for ; excess > 0 && c.othersQueued(); excess-- {
		p := c.youngestHung(now)
		f := c.inflight[p]
		f.interrupted = true
		c.inflight[p] = f
		c.count.interrupted++
		c.todo.do(action[S]{kind: actInterrupt, uid: p.uid})
	}
}

// othersQueued says that pods wait for a worker whose last reads did not hang.
func (c *core[S]) othersQueued() bool {
	for kind := inListed; kind < inSlow; kind++ {
		if c.queues[kind].len() > 0 {
			return true
		}
	}
	return false
}

// youngestHung returns the pod of the read that began to hang last. There must be one that is not
// of a pod known to be slow, of which no more than may hang are started.
func (c *core[S]) youngestHung(now instant) *pod {
	var found *pod
	for p, f := range c.inflight {
		if f.interrupted || f.slow || now < c.hangs(f) {
			continue
		}
		if g := c.inflight[found]; found == nil || f.started > g.started || f.started == g.started && p.uid > found.uid {
			found = p
		}
	}
	return found
}

// nextHung returns when the next read begins to hang of those for whose workers pods wait.
func (c *core[S]) nextHung() instant {
	at := never
	if len(c.inflight) < c.cfg.InspectWorkers || !c.othersQueued() {
		return at
	}
	for _, f := range c.inflight {
		if h := c.hangs(f); h > c.expired { // else it was seen to by the last tick
			at = min(at, h)
		}
	}
	return at
}

// landed is told of the end of a read, and says that it failed only because it was interrupted.
func (c *core[S]) landed(p *pod, failed bool, now instant) (interrupted bool) {
	f := c.inflight[p]
	delete(c.inflight, p)
	interrupted = f.interrupted && failed
	f.slow = false
	p.slow = interrupted || now >= c.hangs(f)
	return interrupted
}
