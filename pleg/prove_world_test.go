// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveScope is what may happen in a search.
type proveScope struct {
	name     string
	ids      []proveLife
	lists    bool // lists begin when they are due, and whenever they are asked for
	deltas   bool // they tell only what differs from the last one
	claims   bool
	payloads bool
	unknown  bool // reads may show UNKNOWN
	waits    bool // GetNewerThan
	acks     bool // the agent's own calls
	knows    bool // the agent tells of all of them, and nobody else makes or starts anything: Config.TellsCalls
	makes    bool // they do nothing but make containers
	times    bool // a call that has failed may work later
	loses    bool // there may be no room for what the agent tells of a call
	streams  bool // the stream ends and is opened again
	restarts bool // the generator is made anew, over the same cache
	lies     bool // claims of what never was
	fails    bool // reads fail
	scarce   bool // there is one worker, for which pods wait
	quick    bool // no read takes longer than the grace
}

const proveLetters = "1 one worker, 2 two containers, 3 two pods with one each, S a container beside a sandbox that recovers, s no created phase, t nor an exited one, " +
	"L lists, D lists that tell only differences, C claims, P payloads, U UNKNOWN, W a waiter, A own calls, m that only make something, K all of them told, T one that failed works later, O some find no room, " +
	"E the stream ends, R restarts, X false claims, F failures, q no read takes longer than the grace"

// proveLife is the life of one ID: its stages, and what a read shows in each; phaseNone is nothing.
// In the last but one its removal has been decided, and may be told of, though reads still show it.
type proveLife struct {
	id    string
	pod   cache.UID
	kind  Kind
	shows []Phase
}

var (
	proveContainer = []Phase{phaseNone, PhaseCreated, PhaseRunning, PhaseExited, PhaseExited, phaseNone}
	proveShort     = []Phase{phaseNone, PhaseRunning, PhaseExited, PhaseExited, phaseNone}
	proveTiny      = []Phase{phaseNone, PhaseRunning, PhaseRunning, phaseNone}
	proveSandbox   = []Phase{phaseNone, PhaseRunning, PhaseExited, PhaseRunning, PhaseExited, PhaseExited, phaseNone}
)

// parseProveScope makes a scope of letters.
func parseProveScope(name string) *proveScope {
	has := func(c string) bool { return strings.Contains(name, c) }
	life := proveContainer
	switch {
	case has("s"):
		life = proveShort
	case has("t"):
		life = proveTiny
	}
	sc := &proveScope{
		name: name, lists: has("L") || has("D"), deltas: has("D"), claims: has("C"), payloads: has("P"), unknown: has("U"), waits: has("W"),
		acks: has("A"), knows: has("K"), makes: has("m"), times: has("T"), loses: has("O"), streams: has("E"), restarts: has("R"), lies: has("X"), fails: has("F"), scarce: has("1"), quick: has("q"),
		ids: []proveLife{{"a", "p", Container, life}},
	}
	switch {
	case has("2"):
		sc.ids = append(sc.ids, proveLife{"b", "p", Container, life})
	case has("3"):
		sc.ids = append(sc.ids, proveLife{"b", "q", Container, life})
	case has("S"):
		sc.ids = append(sc.ids, proveLife{"b", "p", Sandbox, proveSandbox})
	}
	return sc
}

// judged says that it matters what the stream is believed.
func (sc *proveScope) judged() bool { return sc.streams }

// sandboxes says that there is one.
func (sc *proveScope) sandboxes() bool {
	return slices.ContainsFunc(sc.ids, func(l proveLife) bool { return l.kind == Sandbox })
}

func (l *proveLife) leaving() uint8 { return uint8(len(l.shows) - 2) }
func (l *proveLife) gone() uint8    { return uint8(len(l.shows) - 1) }

// proveIDs bounds the IDs of a search.
const proveIDs = 2

// proveWorld is all of a state that is not the core's: the runtime, what is under way, the cache,
// and ghosts, which serve the checks alone.
type proveWorld struct {
	ids     [proveIDs]proveID
	list    *proveRead
	reads   []*proveRead // of single pods
	looks   []proveLook  // ghosts: what there was when the reads began that something is as of
	entries []proveEntry
	gone    []proveTomb
	global  instant

	waiting bool // somebody waits for pod p, for a read begun after
	since   instant

	calling   bool // a call of the agent's own is under way
	works     bool // and has had its effect
	call      uint8
	verb      Phase
	callBegan instant
	lost      bool  // there was no room for it
	failed    bool  // one has failed that may work yet:
	failing   uint8 // the ID that it is about,
	fails     Phase // and what it will bring that to

	opening  bool            // the stream has told nothing yet
	listed   [proveIDs]Phase // what the last list that was told showed
	revision Revision
	now      instant // last, so that it is the last instant of a state
}

// proveID is the truth about one ID.
type proveID struct {
	stage uint8
	late  uint8 // how often time has passed since its removal was decided
	fair  uint8 // ghost: how many reads of other pods have begun since its pod waits for a worker
	heard bool  // ghost: a claim or a call has told of the present stage
	ever  uint8 // ghost: the events that Watch was told
	knows Phase // ghost: what the cache showed when Watch last told of the pod
	over  bool  // ghost: the cache has shown that it is gone
}

// proveRead is a read under way.
type proveRead struct {
	uid         cache.UID // empty: everything
	began       instant
	asked       instant
	low         [proveIDs]uint8 // the stages when it was started
	since       Revision
	listed      bool
	builds      bool
	byIDs       bool
	interrupted bool
	items, have []Item
}

// proveLook is what there was at an instant.
type proveLook struct {
	at  instant
	low [proveIDs]uint8
}

// proveEntry is what the cache has of a pod.
type proveEntry struct {
	uid    cache.UID
	items  []Item
	status bool
	failed bool
	at     instant
}

// proveTomb is a tombstone of the cache.
type proveTomb struct {
	uid cache.UID
	at  instant
}

// prover is a state that is being looked at: a real core with a real cache and a real executor, and
// the world around them.
type prover struct {
	*driver[status]
	scope *proveScope
	cfg   Config[status]
	clk   clock
	world proveWorld
	wrong string

	template core[status] // with what a search never changes

	enc      encoder
	q        quotient
	list     []proveMove
	ticked   instant           // when the last tick was
	pinned   bool              // lists are not due
	before   proveView         // what the cache showed before the present input
	beforeAt [proveIDs]instant // and as of when
	views    []proveView       // what the cache showed at each event of the present input
}

type proveView [proveIDs]Phase

var proveEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newProver(sc *proveScope) *prover {
	v := &prover{scope: sc, clk: clock{proveEpoch}}
	v.cfg = Config[status]{
		Source: newToy(), Stream: newToy(), Capacity: 16, Jitter: -1, TellsCalls: sc.knows,
		RelistBase: proveDelay, RelistMax: proveDelay, RelistSlow: time.Hour, RetryBase: proveDelay, RetryMax: proveDelay,
		RereadBase: proveDelay, Grace: proveGrace, Settle: proveDelay, StableAfter: proveDelay,
		ReconnectBase: proveDelay, ReconnectMax: proveDelay, ReconnectSteady: proveDelay,
		Metrics: proveMetrics{noMetrics{}, v},
	}
	if sc.scarce {
		v.cfg.InspectWorkers = 1
	}
	v.cfg.Cache = newProveCache()
	v.cfg = v.cfg.withDefaults()
	v.driver = newDriver(v.cfg, v.clk)
	v.template = core[status]{cfg: v.cfg.limits(), clock: v.clk}
	v.template.connCfg = v.cfg.conn()
	v.exec.known = func(uid cache.UID) bool { return v.core.pods[uid] != nil }
	return v
}

func newProveCache() *cache.Cache[status] {
	return cache.New(func(uid cache.UID) *status { return &status{UID: uid} })
}

// proveMetrics notes what the cache shows whenever Watch is told.
type proveMetrics struct {
	noMetrics
	v *prover
}

func (m proveMetrics) Add(name string, n int) {
	if name == MetricEvents {
		m.v.views = append(m.v.views, m.v.view())
	}
}

// view is what the cache shows of every ID.
func (v *prover) view() (shown proveView) {
	for i := range v.scope.ids {
		shown[i] = phaseNone
		s, _ := v.cache.Get(v.scope.ids[i].pod)
		for _, it := range s.Items {
			if it.ID == v.scope.ids[i].id {
				shown[i] = it.Phase
			}
		}
	}
	return shown
}

func (v *prover) fail(format string, args ...any) {
	if v.wrong == "" {
		v.wrong = fmt.Sprintf(format, args...)
	}
}

// begin makes the first state: a generator that has started, on a runtime that has nothing, and is
// connected.
func (v *prover) begin() {
	v.world = proveWorld{now: proveNow + 2}
	for i := range v.world.ids {
		v.world.ids[i].knows, v.world.listed[i], v.before[i] = phaseNone, phaseNone, phaseNone
	}
	v.core = newCore(&v.cfg, v.clk, 1)
	v.cache = newProveCache()
	v.exec.cfg.Cache = v.cache
	v.tell(input[status]{kind: inputStart}, v.world.now)
	v.turn()
	v.world.opening = false
	v.input(input[status]{kind: inputClaims, claims: &batch[status]{claims: 1}})
	for v.world.list != nil {
		v.endList(&proveMove{looks: [proveIDs]proveGlance{{phaseNone, phaseNone}, {phaseNone, phaseNone}}})
	}
	v.core.sched.period = v.cfg.RelistMax
}

// input has a moment pass, tells the core, and turns.
func (v *prover) input(in input[status]) {
	v.world.now += proveMoment
	v.tell(in, v.world.now)
	v.take()
	v.turn()
}

// turn is one turn of the loop.
func (v *prover) turn() {
	v.world.now += proveMoment
	v.tickNow()
}

// tickNow does whatever is due, and what becomes due within the moment.
func (v *prover) tickNow() {
	for {
		if (!v.scope.lists || v.pinned) && v.core.lists.applied != 0 {
			v.core.pin(v.world.now)
		}
		v.ticked = v.world.now
		v.tick(v.world.now)
		v.take()
		if v.core.deadline() >= v.world.now+proveMoment {
			break
		}
		v.world.now += proveMoment
	}
	v.look()
}

// take takes up the reads that the core wants.
func (v *prover) take() {
	w := &v.world
	for i := range v.begun {
		a := &v.begun[i]
		switch a.kind {
		case actOpen:
			w.opening = true
		case actCut:
			if !v.scope.judged() {
				v.fail("CUT: the stream is ended, which has not hung")
			} // else its end is among the moves
		case actList:
			if w.list != nil {
				v.fail("TWICE: two lists are under way")
			}
			w.list = &proveRead{began: a.at, asked: a.at, low: v.stages(), since: a.since}
			v.noteLook(a.at)
		case actInspect:
			if slices.ContainsFunc(w.reads, func(r *proveRead) bool { return r.uid == a.uid }) {
				v.fail("TWICE: two reads of pod %s are under way", a.uid)
			}
			v.begins(a.uid)
			w.reads = append(w.reads, &proveRead{
				uid: a.uid, began: a.at, asked: a.read.asked, low: v.stages(),
				listed: a.read.listed, builds: a.read.builds, byIDs: a.read.byIDs,
				items: sortedItems(a.read.ref.Items), have: sortedItems(a.read.have),
			})
			if a.at == a.read.asked {
				v.noteLook(a.at)
			}
		case actInterrupt:
			for _, r := range w.reads {
				r.interrupted = r.interrupted || r.uid == a.uid
			}
		}
	}
	v.begun, v.reports = v.begun[:0], v.reports[:0]
	v.hear()
}

// sortedItems returns a copy in the order of the IDs; nil if there are none.
func sortedItems(items []Item) []Item {
	if len(items) == 0 {
		return nil
	}
	s := slices.Clone(items)
	slices.SortFunc(s, func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
	return s
}

// stages are those of all IDs.
func (v *prover) stages() (s [proveIDs]uint8) {
	for i := range v.world.ids {
		s[i] = v.world.ids[i].stage
	}
	return s
}

func (v *prover) noteLook(at instant) {
	for _, l := range v.world.looks {
		if l.at == at {
			return
		}
	}
	v.world.looks = append(v.world.looks, proveLook{at, v.stages()})
}

// proveFair is how many reads of another pod may begin while one waits for the only worker: one from
// each of the other queues.
const proveFair = 3

// begins checks that whoever else waits for a worker gets one in turn.
func (v *prover) begins(uid cache.UID) {
	for i := range v.scope.ids {
		l, d := &v.scope.ids[i], &v.world.ids[i]
		switch {
		case l.pod == uid || !v.queued(l.pod):
		case d.fair == proveFair:
			v.fail("UNFAIR: pod %s waits for a worker, and %d reads of others have begun", l.pod, d.fair+1)
		default:
			d.fair++
		}
	}
}

// queued says that a pod waits for a worker.
func (v *prover) queued(uid cache.UID) bool {
	p := v.core.pods[uid]
	return p != nil && p.queued != notQueued
}

// truth is what a read that looks now shows of an ID.
func (v *prover) truth(i int) Phase { return v.scope.ids[i].shows[v.world.ids[i].stage] }

// hear checks what Watch was told, in order.
func (v *prover) hear() {
	k := 0
	for e := range v.watched {
		if k < len(v.views) {
			v.hearEvent(&e, &v.views[k])
		}
		k++
	}
	if k != len(v.views) {
		v.fail("WATCH: %d events, %d counted", k, len(v.views))
	}
	v.views = v.views[:0]
}

const proveOver = maskStarted | maskDied | maskRemoved

func (v *prover) hearEvent(e *Event, shown *proveView) {
	for i := range v.scope.ids {
		l, d := &v.scope.ids[i], &v.world.ids[i]
		if l.pod != e.Pod {
			continue
		}
		d.knows = shown[i]
		if e.ID != l.id {
			continue
		}
		var bit, later uint8
		ok := false
		switch e.Type {
		case ContainerStarted:
			bit, later, ok = maskStarted, proveOver, shown[i] == PhaseRunning
		case ContainerDied:
			bit, later, ok = maskDied, maskDied|maskRemoved, shown[i] == PhaseExited || shown[i] == phaseNone
		case ContainerRemoved:
			bit, later, ok = maskRemoved, maskRemoved, shown[i] == phaseNone
		}
		if d.ever&later != 0 {
			v.fail("EVENTS: %s of %s after %03b", e.Type, l.id, d.ever)
		}
		if !ok && l.kind == Container && shown[i] != PhaseUnknown {
			v.fail("WATCH BEFORE CACHE: %s of %s, and the cache shows %v", e.Type, l.id, shown[i])
		}
		d.ever |= bit
	}
}
