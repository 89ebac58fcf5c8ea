// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Generator generates pod lifecycle events and keeps a cache of pod statuses. Make one with
// [New].
type Generator[S any] struct {
	cfg   Config[S] // with defaults; read only
	clock clock
	mail  *mailbox[S]
	acks  *ackBox
	core  *core[S]     // owned by the goroutine in Run
	exec  *executor[S] // likewise
	wake  chan struct{}

	journal func(in input[S], now instant, do *todo[S]) // in tests: sees each input and its actions

	mu       sync.Mutex // owns the fields below; never held while anything blocks
	ran      bool
	requests map[request]struct{}
	snapshot snapshot
}

// New checks the configuration and returns a generator for Run; errors name every unworkable
// field.
func New[S any](cfg Config[S]) (*Generator[S], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	g := &Generator[S]{
		cfg:      cfg,
		clock:    clock{epoch: time.Now()},
		mail:     newMailbox[S](cfg.MailboxMax),
		acks:     newAckBox(cfg.MailboxMax, cfg.UnconfirmedMax),
		wake:     make(chan struct{}, 1),
		requests: make(map[request]struct{}),
	}
	g.core = newCore(&g.cfg, g.clock, seed)
	g.exec = newExecutor(&g.cfg, g.clock, g.core)
	g.snapshot.stats = g.core.stats()
	return g, nil
}

// Watch returns the channel of pod lifecycle events, of size Config.Capacity, closed when Run
// returns. A reader that falls behind loses detail, never news: pods whose events found the
// channel full are owed one PodSync each, delivered as soon as there is room.
func (g *Generator[S]) Watch() <-chan Event {
	return g.exec.out.ch
}

// HasSynced reports whether the cache holds the whole runtime: a list of everything has been
// applied, and the status of each of its pods was read as far as it can be read, with an error
// beside the status of the others: Stats counts them as UnreadPods. Once true, always true. Safe
// for concurrent use.
func (g *Generator[S]) HasSynced() bool {
	return !g.Stats().GlobalTime.IsZero()
}

// RequestRelist requests a read of the pod now, whatever the relist period is; an empty UID
// requests a list of everything. It does not wait: use the cache's GetNewerThan for that. Safe
// for concurrent use; without effect when Run is over.
func (g *Generator[S]) RequestRelist(uid cache.UID) {
	g.request(request{uid: uid})
}

// RequestReinspect requests a read of the pod's statuses, even if no phase has changed: now, or a
// base period after the last such request for the pod. Watch then gets an event of the pod, a
// PodSync if nothing else has changed. Safe for concurrent use; without effect when Run is over.
func (g *Generator[S]) RequestReinspect(uid cache.UID) {
	g.request(request{uid: uid, inspect: true})
}

func (g *Generator[S]) request(r request) {
	g.mu.Lock()
	if !g.ran || g.snapshot.running {
		g.requests[r] = struct{}{} // requests of a pod merge: no more than pods named in a turn
	}
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// takeRequests returns the requests since the last call, in order of their pods.
func (g *Generator[S]) takeRequests() []request {
	g.mu.Lock()
	taken := g.requests
	g.requests = make(map[request]struct{})
	g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(taken), request.compare)
}

// Run generates events until ctx ends, and returns nil once everything it started has ended; calls
// of Source and Stream get a context that ends with ctx, and are waited for. A generator runs once;
// a second call returns [ErrAlreadyRun] at once. While another generator runs over the cache, Run
// returns [ErrCacheInUse]. Whatever ends Run, Watch is closed.
//
// Run does not end the waits in the cache: a GetNewerThan whose context goes on waits for the next
// generator over the same cache. Give such calls a context that ends with ctx.
//
// Run logs by the klog logger of ctx (klog.NewContext), else by the global one, under the name
// pleg: each report to Config.Recorder, why the stream cannot be opened, and with verbosity 4 its
// states.
func (g *Generator[S]) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.ran {
		g.mu.Unlock()
		return ErrAlreadyRun
	}
	g.ran = true
	release, owns := g.cfg.Cache.Own()
	if owns {
		g.snapshot.running = true
		g.snapshot.appliedAt = g.clock.now() // requests count at once
	}
	g.mu.Unlock()
	defer g.end()
	if !owns {
		return ErrCacheInUse
	}
	defer release()

	ctx, cancel := context.WithCancel(ctx)
	l := newLoop(g, ctx)
	l.run()
	cancel()
	l.children.Wait()
	return nil
}

// end closes Watch, and drops what would be kept for the loop.
func (g *Generator[S]) end() {
	close(g.exec.out.ch)
	g.acks.close()
	g.mu.Lock()
	g.snapshot.running = false
	g.snapshot.stats.State = StreamIdle
	clear(g.requests)
	g.mu.Unlock()
}

// loop is the goroutine that owns the core and the executor, and so the only writer of the cache
// and of Watch. Everything that may block on an RPC is a child, touches no shared state, and
// sends its result back: one child for the stream, one for the list of everything, and at most
// (lanes + 1) × allReads × InspectWorkers for reads of single pods and peeks.
type loop[S any] struct {
	g        *Generator[S]
	core     *core[S]
	exec     *executor[S]
	ctx      context.Context
	log      klog.Logger
	children sync.WaitGroup

	listed    chan *listedAll    // capacity 1: one list at a time, so sending never blocks
	inspected chan *inspected[S] // capacity: reads at once, of all lanes, likewise
	ended     chan error         // capacity 1: one stream at a time
	cut       context.CancelFunc // ends the stream; nil before the first
	batch     batch[S]
	acks      []ack
	state     StreamState // last logged
	openError string      // why the stream could not be opened, as last logged
	reports   int         // made so far
	pause     func()      // in tests: runs between the steps of a turn
	due       instant     // when the loop runs next at the latest, or since when an input waits for it; never if nothing is due
}

func newLoop[S any](g *Generator[S], ctx context.Context) *loop[S] {
	l := &loop[S]{
		g:         g,
		core:      g.core,
		exec:      g.exec,
		ctx:       ctx,
		log:       klog.FromContext(ctx).WithName("pleg"),
		listed:    make(chan *listedAll, 1),
		inspected: make(chan *inspected[S], (lanes+1)*allReads*g.cfg.InspectWorkers),
		ended:     make(chan error, 1),
		pause:     func() {},
		due:       never,
	}
	if o, ok := g.cfg.Metrics.(stepObserver); ok {
		l.pause = o.BetweenSteps
	}
	l.exec.child = l.child
	l.exec.record = l.record
	return l
}

// stepObserver is an optional interface of Config.Metrics, besides [Metrics], for tests: others
// may act while BetweenSteps runs, which the loop calls after the acks are taken, before it
// waits, and between the choice of an input and its application.
type stepObserver interface{ BetweenSteps() }

// run turns until ctx ends.
func (l *loop[S]) run() {
	c := l.core
	timer := time.NewTimer(time.Hour) // set below
	defer timer.Stop()
	l.apply(&input[S]{kind: inputStart, held: l.g.cfg.Cache.UIDs()})
	l.g.cfg.Cache.RenewDemand()
	for l.ctx.Err() == nil {
		now := l.g.clock.now()
		l.takeAcks(now)
		l.pause()
		l.applyAt(&input[S]{kind: inputTick}, now)
		l.check(now)
		l.publish()
		l.pause()
		var owed chan<- Event
		var next Event
		if out := &l.exec.out; len(out.owed) > 0 {
			owed = out.ch
			next = out.next()
		}
		var due <-chan time.Time
		l.runs(l.g.clock.now())
		l.due = c.deadline()
		if l.due != never {
			timer.Reset(max(1, l.due.sub(l.g.clock.now())))
			due = timer.C
		}
		select {
		case <-l.ctx.Done():
			return
		case <-due:
		case <-l.g.acks.wake: // the next turn begins with the acks
		case <-l.g.mail.wake:
			l.claims()
		case r := <-l.inspected:
			l.drain(r)
		case r := <-l.listed:
			l.apply(&input[S]{kind: inputListed, listed: r})
		case err := <-l.ended:
			l.streamEnded(err)
		case <-l.g.cfg.Cache.Demand():
			demand := l.g.cfg.Cache.TakeDemand()
			l.takeAcks(l.g.clock.now()) // a waiter has seen its own calls return
			l.apply(&input[S]{kind: inputDemand, demand: demand})
		case <-l.g.wake:
			for _, r := range l.g.takeRequests() {
				l.apply(&input[S]{kind: inputRequest, request: r})
			}
		case owed <- next:
			l.exec.out.delivered()
		}
	}
}

// apply feeds an input to the core, and then the outcome of the actions. After the end of ctx
// there are no more inputs: a call that fails with ctx tells nothing of the runtime.
func (l *loop[S]) apply(in *input[S]) {
	l.due = min(l.due, l.g.clock.now()) // an input has come: whatever stops the loop from here on is a standstill
	l.pause()
	if l.ctx.Err() == nil {
		l.applyAt(in, l.g.clock.now())
	}
}

// standsAtLeast is how much later than due the loop runs of a generator that has stood still. A
// process at the limit of its share of processors loses less than 100 ms at a time, often without
// end: to make light of that would be never to find a list that hangs.
const standsAtLeast = 200 * time.Millisecond

// runs notes that the loop runs. The core hears if the loop has stood still: what was due has not
// been done.
func (l *loop[S]) runs(now instant) {
	if now > l.due.add(standsAtLeast) {
		l.feed(&input[S]{kind: inputStood}, now)
	}
	l.due = now
}

// applyAt is apply as of a given time.
func (l *loop[S]) applyAt(in *input[S], now instant) {
	l.runs(now)
	l.feed(in, now)
	for l.exec.owesFeedback() {
		in := l.exec.feedback()
		l.feed(&in, now)
	}
}

// feed feeds one input to the core, and carries out the actions.
func (l *loop[S]) feed(in *input[S], now instant) {
	c := l.core
	c.apply(in, now)
	if l.g.journal != nil {
		l.g.journal(*in, now, &c.out.todo)
	}
	l.exec.carryOut(&c.out.todo, &c.out.count)
}

// check reports violated invariants to an observer, if there is one.
func (l *loop[S]) check(now instant) {
	if o, ok := l.g.cfg.Metrics.(invariantObserver); ok {
		if err := errors.Join(l.core.checkInvariants(now), l.exec.check(l.core)); err != nil {
			o.InvariantBroken(err)
		}
	}
}

// takeAcks applies the acks from before a turn, ahead of everything else: later acks are later
// than the reads that begin in this turn.
func (l *loop[S]) takeAcks(now instant) {
	acks, lost := l.g.acks.take(l.acks, now)
	l.acks = acks
	if lost.some || len(acks) > 0 {
		l.applyAt(&input[S]{kind: inputAcks, acks: acks, lost: lost}, now)
	}
}

// claims applies the contents of the mailbox.
func (l *loop[S]) claims() {
	l.g.mail.take(&l.batch)
	l.apply(&input[S]{kind: inputClaims, claims: &l.batch})
	l.g.mail.recycle(&l.batch)
}

// drain applies an inspection, and all others ended since.
func (l *loop[S]) drain(r *inspected[S]) {
	for {
		l.apply(&input[S]{kind: inputInspected, inspected: r})
		select {
		case r = <-l.inspected:
		default:
			return
		}
	}
}

// streamEnded applies the last claims of the stream, and then its end.
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
	was := l.core.stream.state
	reports := l.reports
	l.apply(&input[S]{kind: inputEnded, in: in, ended: err})
	if openError := err.Error(); l.ctx.Err() == nil && l.reports == reports &&
		openError != l.openError { // else a report has it
		l.openError = openError
		l.log.Info("The container event stream could not be opened, and is tried again",
			"was", was, "err", err)
	}
}

// child starts and ends the children of the loop.
func (l *loop[S]) child(a *action[S]) {
	switch a.kind {
	case actOpen:
		var ctx context.Context
		ctx, l.cut = context.WithCancel(l.ctx)
		l.children.Go(func() { l.stream(ctx) })
	case actCut:
		l.cut()
	case actList:
		began := a.at
		since := a.since
		l.children.Go(func() { l.list(began, since) })
	case actInspect:
		var prev *S
		if a.read.builds {
			prev, _ = l.g.cfg.Cache.Get(a.uid)
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.g.cfg.InspectTimeout)
		began := a.at
		r := a.read
		l.children.Go(func() {
			defer cancel()
			l.inspect(ctx, began, r, prev)
		})
	}
}

// record logs a report with its pod, in one line, and hands the report on.
func (l *loop[S]) record(r Report) {
	l.reports++
	about := []any{"reason", r.Reason, "note", r.Note}
	if r.Held > 0 {
		about = append(about, "held", r.Held)
	}
	if r.Pod != nil {
		about = append(about, "pod", klog.KRef(r.Pod.Namespace, r.Pod.Name),
			"podUID", r.Pod.UID)
	}
	l.log.Info("PLEG report", about...)
	l.g.cfg.Recorder.Record(r)
}

// stream is the child that only puts the runtime's events into the mailbox.
func (l *loop[S]) stream(ctx context.Context) {
	err := error(io.EOF)
	cfg := &l.g.cfg
	opened := l.g.cfg.WallClock()
	for claim, e := range cfg.Stream.Events(ctx) {
		if e != nil {
			err = e
			break
		}
		replayed := false
		if at := claim.CreatedAt; !at.IsZero() {
			now := cfg.WallClock()
			replayed = at.Before(opened) || at.After(now)
			if !replayed {
				cfg.Metrics.Observe(MetricLatency, now.Sub(at))
			}
		}
		l.g.mail.put(claim, replayed)
	}
	l.ended <- err
}

// list is the child for a list of everything.
func (l *loop[S]) list(began instant, since Revision) {
	ctx, cancel := context.WithTimeout(l.ctx, l.g.cfg.RelistTimeout)
	defer cancel()
	listing, err := l.g.cfg.Source.List(ctx, since)
	l.listed <- &listedAll{began: began, listing: listing, err: err}
}

// inspect is a child that reads a pod: its listing unless known, and its statuses if the listing
// differs from the cache. Prev is the status in the cache if the read may build on it, else nil.
func (l *loop[S]) inspect(ctx context.Context, began instant, a *podRead, prev *S) {
	start := time.Now()
	r := &inspected[S]{
		look: look{uid: a.ref.UID, began: began},
		peek: a.peek,
	}
	pod := a.ref
	if !a.listed {
		var listing Pod
		if listing, r.err = l.g.cfg.Source.ListPod(ctx, a.ref.UID); r.err == nil {
			r.listing = &listing
			pod.Items = listing.Items
			if listing.Name != "" || listing.Namespace != "" {
				pod.Name = listing.Name
				pod.Namespace = listing.Namespace
			}
		}
	}
	if r.err == nil && len(pod.Items) > 0 &&
		(a.listed || prev == nil || !sameItems(pod.Items, a.have)) {
		var got Inspection[S]
		got, r.err = l.statuses(ctx, pod, prev)
		r.take(pod, got)
	} else if r.listing == nil && r.err == nil {
		r.listing = &Pod{UID: a.ref.UID}
	}
	l.g.cfg.Metrics.Observe(MetricInspectionDuration, time.Since(start))
	l.inspected <- r
}

// take takes the statuses read of the items asked for, as far as they could be read. If none
// could, the items stand as asked for.
func (r *inspected[S]) take(asked Pod, got Inspection[S]) {
	r.status = got.Status
	r.shows = got.Pod
	r.unread = setOf(got.Unread)
	if got.Status != nil {
		return
	}
	if r.err == nil {
		r.err = errNilStatus
	}
	r.shows = asked
	ids := make([]string, 0, len(asked.Items))
	for _, it := range asked.Items {
		ids = append(ids, it.ID)
	}
	r.unread = setOf(ids)
}

// statuses reads a pod's statuses, at least those that differ from prev's.
func (l *loop[S]) statuses(ctx context.Context, pod Pod, prev *S) (Inspection[S], error) {
	if u, ok := l.g.cfg.Source.(Updater[S]); ok && prev != nil {
		return u.Update(ctx, pod, prev)
	}
	return l.g.cfg.Source.Inspect(ctx, pod)
}

var errNilStatus = errors.New("pleg: the source returned neither a status nor an error")

// publish makes the core's state visible to other goroutines.
func (l *loop[S]) publish() {
	c := l.core
	s := snapshot{
		running:   true,
		stats:     c.stats(),
		appliedAt: c.lists.appliedAt,
		listErr:   c.lists.err,
	}
	s.stats.Owed = l.exec.owed
	s.stats.OwedPods = len(l.exec.out.owed)
	s.stats.DiscardedEvents = l.exec.discarded
	l.g.mu.Lock()
	s.fell = l.g.snapshot.fell
	if s.stats.RelistPeriod < l.g.snapshot.stats.RelistPeriod {
		s.fell = min(l.g.clock.now(), s.appliedAt.add(l.g.snapshot.stats.RelistPeriod)) // a list was due then
	}
	l.g.snapshot = s
	l.g.mu.Unlock()
	if l.state != c.stream.state {
		l.log.V(4).Info("Container event stream changed state",
			"from", l.state,
			"to", c.stream.state,
			"attempts", c.stream.attempts)
		l.state = c.stream.state
		if l.state == StreamConnected {
			l.openError = ""
		}
	}
}
