// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// toySide is the runtime's side of the first tier.
type toySide struct {
	toy   *toy
	w     *world
	cache *cache.Cache[Status]
	line  callLine
}

func newToySide(w *world) (side, error) {
	s := &w.settings
	r := newToy(w.truth, s.seed)
	if err := r.setProfile(s.profile); err != nil {
		return nil, err
	}
	r.latency = s.latency
	r.torn = s.torn
	r.apart = w.opts.Strict && !s.together
	r.sends = s.sends
	r.delta = s.delta
	r.lacks = s.lacks
	r.bundles = s.bundles
	r.work = s.work
	r.cpu.Set(s.processors)
	t := &toySide{toy: r, w: w, cache: cache.New(func(uid cache.UID) *Status { return &Status{UID: uid} })}
	w.store = view[Status]{
		Cache:  t.cache,
		items:  itemsOf,
		fields: fieldsOf,
		unread: (*Status).lacking,
	}
	w.oracle = newOracle(w.truth, w.store, s)
	r.upset = w.upset
	return t, nil
}

func (t *toySide) system(w *world) (System, *boundary, error) {
	s := &w.settings
	l := newBoundary(w.truth, s.workers, w.oracle.fail)
	l.doubt = w.oracle.doubtful
	l.mood = w.oracle.mood
	l.ofList = w.oracle.lists
	b := &crossing[Status]{boundary: l, source: t.toy, stream: t.toy}
	wall := func() time.Time {
		t.toy.mu.Lock()
		defer t.toy.mu.Unlock()
		return t.toy.wall()
	}
	cfg := configOf(s, t.cache, b, hook{w.oracle, &w.within}, wall)
	cfg.Same = sameContent
	cfg.Without = withoutID
	sys, err := pleg.New(cfg)
	return sys, l, err
}

func (t *toySide) restless() bool {
	r := t.toy
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range []*readFault{&r.list, &r.pods, &r.inspect} {
		if f.err != nil || f.slow > 0 || f.late > 0 || f.hang {
			return true
		}
	}
	return r.down || slices.ContainsFunc(r.items, func(x *toyItem) bool { return x.ghost })
}

func (t *toySide) calm(w *world) {
	t.toy.calm()
}

func (t *toySide) name(id string) string { return id }

func (t *toySide) offersEvents() bool {
	t.toy.mu.Lock()
	defer t.toy.mu.Unlock()
	return t.toy.mode == streamOn && !t.toy.down
}

func (t *toySide) finishCalls() { t.line.finish() }

func (t *toySide) empty(w *world) {
	t.finishCalls()
	t.toy.mu.Lock()
	items := slices.Clone(t.toy.items)
	t.toy.mu.Unlock()
	for _, it := range items {
		if it.kind == pleg.Sandbox {
			_ = t.toy.set(it.id, pleg.PhaseRemoved, telling{})
		}
	}
}

func (t *toySide) close() {
	t.toy.calm() // lets go of hanging reads
}

// command runs:
//
//	runtime sandbox p1 s1 [how…]      a ready sandbox
//	runtime container s1 c1 [how…]    a created container
//	runtime start c1, exit c1, remove c1, unready s1, recover s1 [how…], lose c1, blur c1, clear c1
//	runtime update c1 …               see bad in toybad.go
//	agent …                           what the agent does itself, see agent.go
//	runtime down, up                  the process
//	stream cut, eof, stall, refuse, unimplemented, empty, ok, replay N
//	claim p1 c1 Exited [c1=Exited s1=Running …]    a made-up event, with a payload if given
//	flood 5000 pods=20 over=1s        claims of so many IDs that never were
//	reads list|pod|inspect fail|hang|ok, or slow D before they look, or late D after [only=p1,p2]
//	reads list empty N                the next N lists show nothing
//	clock D                           the wall clock steps
//	work D                            the statuses of a pod take so much work of a processor
//
// How is the fate of the event: drop late=D twice stale torn nil-sandbox nil-statuses oversize
// lag=D, and settles=D: the content changes so long after.
func (t *toySide) command(w *world, verb string, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch verb {
	case "runtime":
		return t.runtime(w, args[0], args[1:])
	case "agent":
		return t.agent(w, args[0], args[1:])
	case "stream":
		return t.stream(w, args)
	case "claim":
		return t.claim(w, args)
	case "flood":
		return t.flood(w, args)
	case "reads":
		return t.reads(args)
	case "work":
		d, err := one(args)
		if err != nil {
			return err
		}
		t.toy.mu.Lock()
		t.toy.work = d
		t.toy.mu.Unlock()
		w.settings.work = d
		return nil
	case "clock":
		d, err := one(args)
		if err != nil {
			return err
		}
		t.toy.mu.Lock()
		t.toy.skew += d
		t.toy.mu.Unlock()
		return nil
	}
	return errNotHere
}

func (t *toySide) runtime(w *world, what string, args []string) error {
	r := t.toy
	var names []string
	var how telling
	for _, a := range args {
		ok, err := how.parse(a)
		if err != nil {
			return err
		}
		if !ok {
			names = append(names, a)
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	id := names[len(names)-1]
	_, before := w.truth.phaseOf(id)
	lost := what == "lose" && before != pleg.PhaseUnknown
	if lost || how.no && what != "lose" {
		defer t.silent(w, what, id, before)
	}
	switch what {
	case "sandbox", "container":
		if len(names) != 2 {
			return errUsage
		}
		if what == "sandbox" {
			w.truth.Mention(cache.UID(names[0]))
			defer t.settle(w, id, how)
			return r.add(&toyItem{id: id, pod: cache.UID(names[0]), kind: pleg.Sandbox}, pleg.PhaseRunning, how)
		}
		return r.add(&toyItem{id: id, sandbox: names[0], kind: pleg.Container}, pleg.PhaseCreated, how)
	case "start":
		defer t.settle(w, id, how)
		return r.set(id, pleg.PhaseRunning, how)
	case "recover":
		w.recovers(id)
		r.upset(
			time.Now().Add(w.settings.grace + 50*time.Millisecond),
		) // an event of its end may just have been sent
		how.again = true
		return r.set(id, pleg.PhaseRunning, how)
	case "exit", "unready":
		defer t.settle(w, id, how)
		return r.set(id, pleg.PhaseExited, how)
	case "remove":
		return t.remove(w, id, how)
	case "lose":
		return r.lose(id)
	case "update", "spoil", "hide", "haunt":
		return t.bad(what, names, how)
	case "blur", "clear":
		return r.blur(id, what == "blur")
	case "down", "up":
		r.mu.Lock()
		r.down = what == "down"
		if r.down {
			r.backlog = nil
			r.breakStreams(fmt.Errorf("unavailable: %w", errDown))
		}
		r.mu.Unlock()
		r.upset(time.Now())
		return nil
	}
	return errUsage
}

// silent notes a change without an event at the boundary. Creations and removals count only if the
// core prices them.
func (t *toySide) silent(w *world, what, id string, before pleg.Phase) {
	phase := map[string]pleg.Phase{
		"start":     pleg.PhaseRunning,
		"exit":      pleg.PhaseExited,
		"unready":   pleg.PhaseExited,
		"lose":      pleg.PhaseUnknown,
		"container": pleg.PhaseCreated,
		"remove":    pleg.PhaseRemoved,
	}
	want, ok := phase[what]
	pod, now := w.truth.phaseOf(id)
	made := want == pleg.PhaseCreated || want == pleg.PhaseRemoved
	if !ok || now != want || now == before || w.boundary == nil || w.system == nil || made && !w.settings.strict {
		return
	}
	if want == pleg.PhaseRemoved && (t.kind(id) == pleg.Sandbox || t.toy.profile.silentCascade) {
		return
	}
	w.boundary.silent(pod, id, want)
}

// remove removes an ID now, or announces the removal now and removes later.
func (t *toySide) remove(w *world, id string, how telling) error {
	if how.lag == 0 {
		return t.toy.set(id, pleg.PhaseRemoved, how)
	}
	w.truth.Told(id, pleg.PhaseRemoved, false)
	if err := t.toy.announce(id, how); err != nil {
		return err
	}
	if how.lag > w.settings.grace-50*time.Millisecond {
		pod, _ := w.truth.phaseOf(id)
		w.oracle.mood(time.Now().Add(how.lag), pod) // a read may overrule the claim
	}
	w.children.Go(func() {
		_ = sleep(w.ctx, how.lag)
		_ = t.toy.set(id, pleg.PhaseRemoved, telling{no: true})
	})
	return nil
}

// parse takes a word about the fate of an event, and reports whether the word is known.
func (h *telling) parse(word string) (ok bool, err error) {
	key, value, valued := strings.Cut(word, "=")
	switch key {
	case "drop":
		h.no = true
	case "twice":
		h.twice = true
	case "stale":
		h.stale = true
	case "nil-sandbox":
		h.noPod = true
	case "nil-statuses":
		h.noLoad = true
	case "oversize":
		h.oversize = true
	case "torn":
		h.torn = true
	case "late":
		h.late, err = time.ParseDuration(value)
	case "settles":
		h.settles, err = time.ParseDuration(value)
	case "lag":
		h.lag, err = time.ParseDuration(value)
	default:
		if valued {
			err = errUsage
		}
		return false, err
	}
	return true, err
}

// keepRunning implements containerMaker.
func (t *toySide) keepRunning(pod cache.UID, cycle int) string {
	own := t.toy.live(pod, func(x *toyItem) bool { return x.worker && x.phase <= pleg.PhaseRunning })
	for _, x := range own {
		if x.phase != pleg.PhaseUnknown {
			return x.id
		}
		_ = t.toy.set(x.id, pleg.PhaseExited, telling{}) // like a kubelet with a container in an unknown state
	}
	ready := t.toy.live(
		pod,
		func(x *toyItem) bool { return x.kind == pleg.Sandbox && x.phase == pleg.PhaseRunning },
	)
	if len(ready) == 0 {
		return ""
	}
	id := fmt.Sprintf("w-%s-%d", pod, cycle)
	x := &toyItem{
		id:      id,
		sandbox: ready[len(ready)-1].id,
		kind:    pleg.Container,
		worker:  true,
	}
	made := t.workerCall(
		x,
		pod,
		pleg.OwnCall{Pod: named(pod)},
		pleg.PhaseCreated,
		func() error { return t.toy.add(x, pleg.PhaseCreated, telling{}) },
	)
	if made == nil {
		_ = t.workerCall(
			x,
			pod,
			pleg.OwnCall{ID: id},
			pleg.PhaseRunning,
			func() error { return t.toy.set(id, pleg.PhaseRunning, telling{}) },
		)
	}
	return ""
}

// workerCall acts for a pod worker, by a reported call if the generator accepts reports.
func (t *toySide) workerCall(
	x *toyItem,
	pod cache.UID,
	about pleg.OwnCall,
	phase pleg.Phase,
	work func() error,
) error {
	c := ownCall{about: about, pod: pod, now: pleg.Item{ID: x.id, Kind: x.kind, Phase: phase, Name: x.name()}}
	if t.w.settings.tells {
		c.begin(t.w)
	}
	err := work()
	c.end(t.w, err)
	return err
}
