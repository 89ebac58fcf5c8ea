// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// caller is a generator that accepts reports of the agent's own calls.
type caller interface {
	Calling(pleg.OwnCall) (returned func(error, ...pleg.Item))
}

// ownCall is a call of the agent, reported to the generator.
type ownCall struct {
	about    pleg.OwnCall
	pod      cache.UID           // its pod
	now      pleg.Item           // its effect
	work     func(telling) error // at the runtime
	how      telling             // the fate of its event
	takes    time.Duration       // until the return
	makes    bool                // makes its subject
	works    time.Duration       // until the effect, which may be later
	fails    bool                // does nothing, and reports so
	timesOut bool                // reports a failure, and works all the same
	returned func(error, ...pleg.Item)
	boundary *boundary
}

// agentPhases are the effects of the agent's calls.
var agentPhases = map[string]pleg.Phase{
	"sandbox":   pleg.PhaseRunning,
	"container": pleg.PhaseCreated,
	"start":     pleg.PhaseRunning,
	"stop":      pleg.PhaseExited,
	"remove":    pleg.PhaseRemoved,
	"update":    pleg.PhaseUnknown, // changes fields, and no phase
}

// parseCall takes the words of
//
//	agent sandbox p1 s1, container s1 c1 [NAME=D] [fails] [times-out] [how…]
//	agent start c1, stop c1, stop s1, remove c1, remove s1, update c1   likewise
//
// which is a call of the agent's own that does at the runtime what it says works=D after it began,
// and returns takes=D after it began, and returns the names in it. How is what becomes of its
// event.
func parseCall(what string, args []string) (c ownCall, names []string, err error) {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		ok := true
		switch key {
		case "takes":
			c.takes, err = time.ParseDuration(value)
		case "works":
			c.works, err = time.ParseDuration(value)
		case "fails":
			c.fails = true
		case "times-out":
			c.timesOut = true
		default:
			ok, err = c.how.parse(a)
		}
		if err != nil {
			return c, nil, errUsage
		}
		if !ok {
			names = append(names, a)
		}
	}
	phase, ok := agentPhases[what]
	want := 1
	c.makes = what == "sandbox" || what == "container"
	if c.makes {
		want = 2
	}
	if !ok || len(names) != want || c.how.lag > 0 || c.takes < 0 || c.works < 0 ||
		!c.timesOut && c.works > c.takes {
		return c, nil, errUsage
	}
	c.now.Phase = phase
	if strings.HasPrefix(names[want-1], "s") {
		c.now.Kind = pleg.Sandbox
	}
	return c, names, nil
}

// agent makes a call of the agent's own. Calls under way about an ID wait for each other, as an
// agent's do.
func (t *toySide) agent(w *world, what string, args []string) error {
	c, names, err := parseCall(what, args)
	if err != nil {
		return err
	}
	if !t.plan(w, &c, what, names) {
		return errUsage
	}
	t.call(w, &c)
	return nil
}

// plan fills in the effect of a call.
func (t *toySide) plan(w *world, c *ownCall, what string, names []string) bool {
	r := t.toy
	id := names[len(names)-1]
	c.now.ID = id
	if !c.makes {
		c.about.ID = id
		c.work = func(how telling) error {
			if what == "update" {
				return r.rewrite(id)
			}
			if what == "start" && r.phase(id) != pleg.PhaseCreated {
				return errWrongWay // also with an unknown state: the container may have ended
			}
			err := r.set(id, c.now.Phase, how)
			if err != nil && r.made(id) && r.phase(id) >= c.now.Phase {
				err = nil // already so
			}
			return err
		}
		return true
	}
	x := toyItem{id: id, kind: c.now.Kind, pod: cache.UID(names[0])}
	if what == "container" {
		x.sandbox = names[0]
		x.pod, _ = w.truth.phaseOf(names[0])
	}
	c.pod = x.pod
	c.about.Pod = named(x.pod)
	c.now.Name = x.name()
	w.truth.Mention(c.pod)
	c.work = func(how telling) error { return r.add(&x, c.now.Phase, how) }
	return c.pod != ""
}

// named is a pod by its name.
func named(uid cache.UID) pleg.PodRef {
	return pleg.PodRef{UID: uid, Name: string(uid), Namespace: "default"}
}

// made reports whether the runtime has ever had an ID: no agent knows another's name.
func (r *toy) made(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id] != nil
}

// phase returns how far an ID has come; Removed if there is none.
func (r *toy) phase(id string) pleg.Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.byID[id]; x != nil {
		return x.phase
	}
	return pleg.PhaseRemoved
}

// call makes a call, in the background if the call takes time or has to wait.
func (t *toySide) call(w *world, c *ownCall) {
	before, done := t.line.queue(c.now.ID)
	if before == nil && c.takes == 0 && c.works == 0 {
		defer close(done)
		c.begin(w)
		c.end(w, c.do())
		return
	}
	w.children.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		c.begin(w)
		if c.works > c.takes {
			_ = sleep(w.ctx, c.takes)
			c.end(w, errVirtual)
			_ = sleep(w.ctx, c.works-c.takes)
			_ = c.do()
			return
		}
		_ = sleep(w.ctx, c.works)
		err := c.do()
		_ = sleep(w.ctx, c.takes-c.works)
		c.end(w, err)
	})
}

// begin reports the begin of the call to the generator.
func (c *ownCall) begin(w *world) {
	if c.pod == "" {
		c.pod, _ = w.truth.phaseOf(c.now.ID)
		if c.pod != "" && strings.ContainsAny(c.now.ID[len(c.now.ID)-1:], "02468") {
			c.about.Pod = named(c.pod) // some calls name their pod
		}
	}
	w.toldMu.Lock()
	sys := w.system
	l := w.boundary
	w.toldMu.Unlock()
	if g, ok := sys.(caller); ok {
		c.returned = g.Calling(c.about)
		c.boundary = l
		l.calling(c, 1)
	}
}

// do carries out the call at the runtime.
func (c *ownCall) do() error {
	if c.fails {
		return errVirtual
	}
	err := c.work(c.how)
	if c.timesOut && err == nil {
		err = errVirtual
	}
	return err
}

// end tells the generator how the call has ended.
func (c *ownCall) end(w *world, err error) {
	if c.returned == nil {
		return
	}
	c.boundary.calling(c, -1)
	if c.pod == "" { // the ID may have been made since the call began
		c.pod, _ = w.truth.phaseOf(c.now.ID)
	}
	c.boundary.returned(c, err)
	w.upset(time.Now())
	if err != nil {
		c.returned(err)
		return
	}
	if c.now.Phase == pleg.PhaseUnknown { // only fields have changed
		c.returned(nil)
		return
	}
	if c.now.Phase >= pleg.PhaseExited {
		w.truth.BornOut(c.now.ID)
	}
	c.returned(nil, c.now)
}

// agentAt is the agent's activity in a pod.
type agentAt struct {
	calls int       // under way
	since time.Time // the first of them began
	until time.Time // their changes need not have been read before
	ends  time.Time // nor what the agent itself has ended
	bare  bool      // the agent has made a sandbox, and a container is to follow
	heard time.Time // until when a generator that stood still may take the burst to go on
}

// calling notes the begin or the end of a call.
func (b *boundary) calling(c *ownCall, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.own == nil {
		b.own = make(map[cache.UID]*agentAt)
	}
	if b.own[c.pod] == nil {
		b.own[c.pod] = new(agentAt)
	}
	o := b.own[c.pod]
	now := time.Now()
	if o.calls == 0 {
		o.since = now
	}
	o.calls += by
	if by > 0 && (now.Before(latest(o.until, o.ends)) || b.promisedAt(c.pod, now)) {
		// A further call of the burst, or the generator may hear of the call before the claim.
		b.hold(o, now)
	}
	b.touched[c.now.ID] = now
	b.pace.news = now
}

// settling notes that news of a pod may wait for a moment, because the agent is active in the pod.
func (b *boundary) settling(uid cache.UID, now time.Time, acked bool) {
	if o := b.own[uid]; o != nil && (acked || o.calls > 0 || now.Before(latest(o.until, o.ends))) {
		b.hold(o, now)
	}
}

// hold prolongs the agent's burst of calls: until a moment after the last call, and for a while at
// most, as long as a call is under way or a new sandbox has no container. A generator counts from
// the first news of the burst, and claims without news begin no burst; here every claim counts.
func (b *boundary) hold(o *agentAt, now time.Time) {
	s := b.pace.settings
	o.bare = o.bare && now.Before(o.until)
	o.until = now.Add(s.callSettle)
	o.ends = now.Add(s.callWait())
	if o.calls > 0 || o.bare {
		o.until = now.Add(s.callBurst())
		o.ends = o.until
	}
}

// makes notes that the agent has made a sandbox.
func (b *boundary) makes(c *ownCall, err error, now time.Time) {
	if o := b.own[c.pod]; o != nil && err == nil && c.now.Kind == pleg.Sandbox && c.now.Phase == pleg.PhaseRunning {
		o.until = now.Add(b.pace.settings.callBurst())
		o.bare = true
	}
}

// settled returns until when a promise may wait for the agent's calls in the pod: not for long if
// none of the burst has begun or ended about the ID.
func (b *boundary) settled(x promise) (until time.Time) {
	if o := b.own[x.pod]; o != nil {
		until = o.until
		if x.phase >= pleg.PhaseExited && b.ended[x.id] {
			until = latest(until, o.ends)
		}
	}
	s := b.pace.settings
	explained := b.touched[x.id].After(x.at.Add(-s.callBurst()))
	if most := x.at.Add(s.callWait()); !explained && until.After(most) {
		return most
	}
	return until
}

// mixesUp reports whether a generator may take what it finds in a pod for what a call under way
// makes, because it has not read the pod, or looks have lied about an ID, which it has forgotten.
// The cost: it tells of what was there before once the call has ended, or the longest burst is
// over.
func (b *boundary) mixesUp(uid cache.UID, now time.Time) bool {
	o := b.own[uid]
	if o == nil || o.calls == 0 || !b.unread(uid) && !b.truth.forgotten(uid) {
		return false
	}
	s := b.pace.settings
	return now.Before(o.since.Add(s.callBurst() + s.quick(0)))
}

// returned notes how a call has ended, before the generator is told.
func (b *boundary) returned(c *ownCall, err error) {
	b.truth.refresh()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.pace.on || b.closed { // the informed generator is over
		return
	}
	if c.pod != "" {
		x := b.podPace(c.pod)
		b.cause(x, now)
		b.settling(c.pod, now, true)
		b.makes(c, err, now)
		b.unnamed[c.now.ID] = b.unnamed[c.now.ID] || c.about.Pod.UID == ""
	}
	known := c.about.ID == "" ||
		!b.pace.applied.IsZero() &&
			slices.ContainsFunc(b.shows(c.pod), func(it pleg.Item) bool { return it.ID == c.now.ID })
	b.pace.news = now
	if err == nil && c.now.Phase >= pleg.PhaseExited {
		b.ended[c.now.ID] = true
	}
	if err == nil && c.now.Phase == pleg.PhaseRemoved {
		b.removes(c.pod, now)
	}
	switch {
	case err != nil || !known || !b.pace.settings.roomy():
	case c.now.Phase == pleg.PhaseUnknown:
		b.prompt.rewrites[c.now.ID] = promise{id: c.now.ID, pod: c.pod, at: now}
	default:
		b.promise(c.pod, c.now, now)
	}
}

// callLine serialises the agent's calls about an ID. Safe for concurrent use.
type callLine struct {
	mu    sync.Mutex
	calls map[string]chan struct{} // closed when the last call about an ID is over
}

// queue makes a call wait for the earlier call about the same ID.
func (l *callLine) queue(id string) (before <-chan struct{}, done chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[string]chan struct{})
	}
	if last := l.calls[id]; last != nil {
		select {
		case <-last:
		default:
			before = last
		}
	}
	done = make(chan struct{})
	l.calls[id] = done
	return before, done
}

// finish waits for the calls under way.
func (l *callLine) finish() {
	l.mu.Lock()
	calls := slices.Collect(maps.Values(l.calls))
	l.mu.Unlock()
	for _, over := range calls {
		<-over
	}
}
