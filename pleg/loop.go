// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// loop is the one goroutine that owns the core: the only writer of the cache and of Watch.
// Everything that may block on an RPC is a child that touches no shared state and sends its result
// back. There is one child for the stream, one for the list of everything, and InspectWorkers at
// most for reads of one pod.
type loop[S any] struct {
	g        *Generator[S]
	core     *core[S]
	ctx      context.Context
	log      klog.Logger
	children sync.WaitGroup

	listed    chan *listedAll             // capacity 1: one list at a time, so sending never blocks
	inspected chan *inspected[S]          // capacity InspectWorkers, likewise
	ended     chan error                  // capacity 1: one stream at a time
	cut       context.CancelFunc          // ends the stream; nil before the first
	reads     map[*pod]context.CancelFunc // end the reads of single pods that are under way
	batch     batch[S]
	state     StreamState // last logged
	said      string      // why the stream could not be opened, as last logged
}

func newLoop[S any](g *Generator[S], ctx context.Context) *loop[S] {
	return &loop[S]{
		g: g, core: g.core, ctx: ctx, log: klog.FromContext(ctx).WithName("pleg"),
		listed:    make(chan *listedAll, 1),
		inspected: make(chan *inspected[S], g.cfg.InspectWorkers),
		ended:     make(chan error, 1),
		reads:     make(map[*pod]context.CancelFunc),
	}
}

// run turns until ctx ends.
func (l *loop[S]) run() {
	c, timer := l.core, time.NewTimer(0)
	defer timer.Stop()
	c.start(l.g.clock.now())
	for l.ctx.Err() == nil {
		now := l.g.clock.now()
		c.tick(now)
		l.check(now)
		l.act()
		l.publish()

		var owed chan<- Event
		var next Event
		if len(c.out.owed) > 0 {
			owed, next = c.out.ch, c.out.next()
		}
		var due <-chan time.Time
		if d := c.deadline(); d != never {
			timer.Reset(max(0, d.sub(l.g.clock.now())))
			due = timer.C
		}
		select {
		case <-l.ctx.Done():
			return
		case <-due:
		case <-l.g.mail.wake:
			l.claims()
		case r := <-l.inspected:
			l.drain(r)
		case r := <-l.listed:
			c.onListed(r, l.g.clock.now())
		case err := <-l.ended:
			l.streamEnded(err)
		case <-l.g.cfg.Cache.Demand():
			c.onDemand(l.g.cfg.Cache.TakeDemand(), l.g.clock.now())
		case <-l.g.wake:
			for r := range l.g.takeRequests() {
				c.onRequest(r, l.g.clock.now())
			}
		case owed <- next:
			c.out.delivered()
		}
	}
}

// check tells whoever wants to know what does not hold after a tick.
func (l *loop[S]) check(now instant) {
	if o, ok := l.g.cfg.Metrics.(invariantObserver); ok {
		if err := l.core.checkInvariants(now); err != nil {
			o.InvariantBroken(err)
		}
	}
}

// claims applies what the mailbox holds.
func (l *loop[S]) claims() {
	l.g.mail.take(&l.batch)
	l.core.onClaims(&l.batch, l.g.clock.now())
	l.g.mail.recycle(&l.batch)
}

// drain applies an inspection, and those that have ended since.
func (l *loop[S]) drain(r *inspected[S]) {
	for {
		delete(l.reads, r.pod)
		l.core.onInspected(r, l.g.clock.now())
		select {
		case r = <-l.inspected:
		default:
			return
		}
	}
}

// streamEnded applies what the stream told last, and then its end.
func (l *loop[S]) streamEnded(err error) {
	l.cut()
	l.claims()
	in := inLost
	switch {
	case errors.Is(err, ErrNoEvents):
		in = inNoEvents
	case errors.Is(err, io.EOF):
		in = inEOF
	}
	was := l.core.conn.state
	l.core.ended = err
	reports := len(l.core.reports)
	l.core.step(in, l.g.clock.now())
	if said := err.Error(); len(l.core.reports) == reports && said != l.said { // else the report says it
		l.said = said
		l.log.Info("The container event stream could not be opened, and is tried again", "was", was, "err", err)
	}
}

// act does what the core wants done.
func (l *loop[S]) act() {
	c := l.core
	for i := range c.todo {
		a := c.todo[i]
		c.todo[i] = action[S]{}
		switch a.kind {
		case actOpen:
			var ctx context.Context
			ctx, l.cut = context.WithCancel(l.ctx)
			l.children.Go(func() { l.stream(ctx) })
		case actCut:
			l.cut()
		case actList:
			l.children.Go(func() { l.list(a) })
		case actInspect:
			ctx, cancel := context.WithTimeout(l.ctx, l.g.cfg.InspectTimeout)
			l.reads[a.pod] = cancel
			l.children.Go(func() {
				defer cancel()
				l.inspect(ctx, a)
			})
		case actInterrupt:
			l.reads[a.pod]()
		}
	}
	c.todo = c.todo[:0]
	for _, r := range c.reports {
		l.tell(r)
		l.g.cfg.Recorder.Record(r)
	}
	c.reports = c.reports[:0]
}

// tell logs a report, with its pod: it is the only line of what it says.
func (l *loop[S]) tell(r Report) {
	about := []any{"reason", r.Reason, "note", r.Note}
	if r.Held > 0 {
		about = append(about, "held", r.Held)
	}
	if r.Pod != nil {
		about = append(about, "pod", klog.KRef(r.Pod.Namespace, r.Pod.Name), "podUID", r.Pod.UID)
	}
	l.log.Info("PLEG report", about...)
}

// stream is the child that receives the runtime's events. It does nothing but put them into the
// mailbox.
func (l *loop[S]) stream(ctx context.Context) {
	err := error(io.EOF)
	cfg, opened := &l.g.cfg, l.g.cfg.WallClock()
	for claim, e := range cfg.Stream.Events(ctx) {
		if e != nil {
			err = e
			break
		}
		replayed := false
		if at, now := claim.CreatedAt, cfg.WallClock(); !at.IsZero() {
			if replayed = at.Before(opened) || at.After(now); !replayed {
				cfg.Metrics.Observe(MetricLatency, now.Sub(at))
			}
		}
		l.g.mail.put(claim, replayed)
	}
	l.ended <- err
}

// list is the child that lists everything.
func (l *loop[S]) list(a action[S]) {
	ctx, cancel := context.WithTimeout(l.ctx, l.g.cfg.RelistTimeout)
	defer cancel()
	listing, err := l.g.cfg.Source.List(ctx, a.since)
	l.listed <- &listedAll{began: a.began, listing: listing, err: err}
}

// inspect is a child that reads one pod: its listing unless it is known, and its statuses if the
// listing is not what the cache shows.
func (l *loop[S]) inspect(ctx context.Context, a action[S]) {
	start := time.Now()
	r := &inspected[S]{pod: a.pod, began: a.began, asked: a.asked}
	pod := a.ref
	if !a.listed {
		var listing Pod
		if listing, r.err = l.g.cfg.Source.ListPod(ctx, a.ref.UID); r.err == nil {
			r.listing = &listing
			pod.Items = listing.Items
			if listing.Name != "" || listing.Namespace != "" {
				pod.Name, pod.Namespace = listing.Name, listing.Namespace
			}
		}
	}
	if r.err == nil && len(pod.Items) > 0 && (a.listed || a.prev == nil || !sameItems(pod.Items, a.have)) {
		var got Inspection[S]
		if got, r.err = l.statuses(ctx, pod, a.prev); r.err == nil {
			r.status, r.shows = got.Status, got.Pod
			if got.Status == nil {
				r.err = errNilStatus
			}
		}
	} else if r.listing == nil && r.err == nil {
		r.listing = &Pod{UID: a.ref.UID}
	}
	l.g.cfg.Metrics.Observe(MetricInspectionDuration, time.Since(start))
	l.inspected <- r
}

// statuses reads a pod's statuses, those that differ from prev's at least.
func (l *loop[S]) statuses(ctx context.Context, pod Pod, prev *S) (Inspection[S], error) {
	if u, ok := l.g.cfg.Source.(Updater[S]); ok && prev != nil {
		return u.Update(ctx, pod, prev)
	}
	return l.g.cfg.Source.Inspect(ctx, pod)
}

var errNilStatus = errors.New("pleg: the source returned neither a status nor an error")

// sameItems says that two reports show the same IDs in the same phases, in any order.
func sameItems(a, b []Item) bool {
	same, _ := compareItems(a, b)
	return same
}

// compareItems does so, and returns how many items were looked at: a test holds that number to a
// few for each item. Reports mostly come in the same order; what follows the first difference is
// looked up by ID.
func compareItems(a, b []Item) (same bool, looks int) {
	if len(a) != len(b) {
		return false, 0
	}
	for len(a) > 0 && a[0].same(b[0]) {
		a, b = a[1:], b[1:]
		looks++
	}
	if len(a) <= fewItems {
		return sameFew(a, b), looks + len(a)*len(b)
	}
	phases := make(map[string]Phase, len(b))
	for _, it := range b {
		phases[it.ID] = it.Phase
	}
	for _, it := range a {
		looks += 2
		if phase, ok := phases[it.ID]; !ok || phase != it.Phase {
			return false, looks
		}
		delete(phases, it.ID) // or an ID shown twice would stand for one that is not shown
	}
	return true, looks
}

// sameFew does so for a few items, for which a map costs more than it saves.
func sameFew(a, b []Item) bool {
	var used [fewItems]bool
	for _, it := range a {
		i := slices.IndexFunc(b, func(x Item) bool { return x.ID == it.ID })
		if i < 0 || used[i] || b[i].Phase != it.Phase {
			return false
		}
		used[i] = true
	}
	return true
}

// publish makes the core's state visible to other goroutines.
func (l *loop[S]) publish() {
	c := l.core
	s := snapshot{running: true, stats: c.stats(), finished: c.lists.finished, listErr: c.lists.err}
	l.g.mu.Lock()
	l.g.snapshot = s
	l.g.mu.Unlock()
	if l.state != c.conn.state {
		l.log.V(4).Info("Container event stream changed state", "from", l.state, "to", c.conn.state, "attempts", c.conn.attempts)
		if l.state = c.conn.state; l.state == StreamConnected {
			l.said = ""
		}
	}
}
