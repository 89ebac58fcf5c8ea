// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveScope is what may happen in a search. The fields are named by the letters of the scope.
type proveScope struct {
	name  string
	lives []proveLife
	proveOptions
}

type proveOptions struct {
	lists, deltas, claims, payloads, nameless, lies  bool
	unknown, waits, forces, fails, scarce, quick     bool
	acks, knows, makes, times, loses                 bool
	streams, restarts, still, housekeeps, sweepsSoon bool
}

// proveLetters are the letters of a scope's name.
var proveLetters = []struct {
	letter, means string
	option        func(*proveOptions) *bool
}{
	{"L", "lists begin when they are due, and whenever somebody asks", func(o *proveOptions) *bool { return &o.lists }},
	{"D", "lists, which show only what differs from the list before", func(o *proveOptions) *bool { return &o.deltas }},
	{"C", "claims", func(o *proveOptions) *bool { return &o.claims }},
	{"P", "claims with payloads", func(o *proveOptions) *bool { return &o.payloads }},
	{"N", "claims that name no pod", func(o *proveOptions) *bool { return &o.nameless }},
	{"X", "claims of what never was", func(o *proveOptions) *bool { return &o.lies }},
	{"U", "reads may show UNKNOWN", func(o *proveOptions) *bool { return &o.unknown }},
	{"W", "GetNewerThan", func(o *proveOptions) *bool { return &o.waits }},
	{"I", "RequestReinspect", func(o *proveOptions) *bool { return &o.forces }},
	{"F", "reads fail", func(o *proveOptions) *bool { return &o.fails }},
	{"1", "one worker, for which pods wait", func(o *proveOptions) *bool { return &o.scarce }},
	{"q", "no read takes longer than the grace", func(o *proveOptions) *bool { return &o.quick }},
	{"A", "own calls", func(o *proveOptions) *bool { return &o.acks }},
	{"K", "Config.TellsCalls: nobody else makes or starts anything", func(o *proveOptions) *bool { return &o.knows }},
	{"m", "own calls only make containers", func(o *proveOptions) *bool { return &o.makes }},
	{"T", "a call that has failed may work later", func(o *proveOptions) *bool { return &o.times }},
	{"O", "there may be no room for an own call", func(o *proveOptions) *bool { return &o.loses }},
	{"E", "the stream ends and is opened again", func(o *proveOptions) *bool { return &o.streams }},
	{"R", "a new generator takes over the cache", func(o *proveOptions) *bool { return &o.restarts }},
	{"z", "time stands still, but for the rests", func(o *proveOptions) *bool { return &o.still }},
	{"h", "every turn prunes what is gone", func(o *proveOptions) *bool { return &o.housekeeps }},
	{"G", "a list replaces the read of even one pod", func(o *proveOptions) *bool { return &o.sweepsSoon }},
}

// Besides: 2 two containers, 3 two pods with one container each, S a container beside a sandbox
// that recovers, s no created phase, t nor an exited one.

// proveLife is the life of one ID: its stages, and what a read shows in each; phaseNone is nothing.
// In the last but one the removal has been decided, and may be announced, though reads show the ID.
type proveLife struct {
	id    string
	pod   cache.UID
	kind  Kind
	shows []Phase
}

func (l *proveLife) leaving() uint8 { return uint8(len(l.shows) - 2) }
func (l *proveLife) gone() uint8    { return uint8(len(l.shows) - 1) }

var (
	proveContainer = []Phase{phaseNone, PhaseCreated, PhaseRunning, PhaseExited, PhaseExited, phaseNone}
	proveShort     = []Phase{phaseNone, PhaseRunning, PhaseExited, PhaseExited, phaseNone}
	proveTiny      = []Phase{phaseNone, PhaseRunning, PhaseRunning, phaseNone}
	proveSandbox   = []Phase{phaseNone, PhaseRunning, PhaseExited, PhaseRunning, PhaseExited, PhaseExited, phaseNone}
)

func parseProveScope(name string) (*proveScope, error) {
	sc := &proveScope{name: name}
	var known strings.Builder
	known.WriteString("23Sst")
	for _, l := range proveLetters {
		known.WriteString(l.letter)
		*l.option(&sc.proveOptions) = strings.Contains(name, l.letter)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune(known.String(), r) }); i >= 0 {
		return nil, fmt.Errorf("scope %q: unknown letter %q: letters are %q", name, name[i], known.String())
	}
	sc.lists, sc.claims = sc.lists || sc.deltas, sc.claims || sc.payloads || sc.nameless || sc.lies
	life := proveContainer
	if strings.Contains(name, "s") {
		life = proveShort
	} else if strings.Contains(name, "t") {
		life = proveTiny
	}
	sc.lives = []proveLife{{"a", "p", Container, life}}
	switch {
	case strings.Contains(name, "2"):
		sc.lives = append(sc.lives, proveLife{"b", "p", Container, life})
	case strings.Contains(name, "3"):
		sc.lives = append(sc.lives, proveLife{"b", "q", Container, life})
	case strings.Contains(name, "S"):
		sc.lives = append(sc.lives, proveLife{"b", "p", Sandbox, proveSandbox})
	}
	return sc, nil
}

// judged reports whether the trust in the stream is a part of the states.
func (sc *proveScope) judged() bool { return sc.streams || sc.restarts }

// sandbox reports whether there is one.
func (sc *proveScope) sandbox() bool { return sc.lives[len(sc.lives)-1].kind == Sandbox }

// proveIDs bounds the IDs of a search.
const proveIDs = 2

// proveWorld is all of a state that is not the core's: the runtime, reads under way, the cache, and
// ghosts, on which checks alone depend.
type proveWorld struct {
	ids     [proveIDs]proveID
	list    *proveRead
	reads   []*proveRead // of single pods
	looks   []proveLook  // ghosts: the stages when the reads began that entries may be as of
	entries []proveEntry
	gone    []proveTomb
	global  instant `prove:"marks,nameless:begins"`
	floor   instant `prove:"marks"` // the cache was pruned before

	waiting bool    // GetNewerThan of pod p waits for a read begun after since
	since   instant `prove:"demands"`

	call    proveCall // under way
	late    proveCall // failed, and may work yet
	opening bool      // the stream has carried nothing yet
	listed  [proveIDs]Phase
	now     instant // last: the codec relies on it
}

// proveID is the truth about one ID.
type proveID struct {
	stage uint8
	late  uint8 // how often time has passed since the removal was decided
	fair  uint8 // ghost: reads of other pods begun since the pod waits for a worker
	heard bool  // ghost: a claim, a call or a list has told of the present stage
	ever  uint8 // ghost: events sent
}

// proveRead is a read under way.
type proveRead struct {
	uid            cache.UID // empty: everything
	began          instant
	started        instant         `prove:"dated"`
	low            [proveIDs]uint8 // the stages when the read was started
	since          Revision
	listed, builds bool
	items, have    []Item
}

type proveLook struct {
	at  instant `prove:"ordered"`
	low [proveIDs]uint8
}

// proveEntry is what the cache has of a pod.
type proveEntry struct {
	uid            cache.UID
	items          []Item
	status, failed bool
	at             instant `prove:"marks,payloads:ordered,judged:begins"`
}

type proveTomb struct {
	uid cache.UID
	at  instant `prove:"marks"`
}

// proveCall is a call of the agent's own that brings an ID to a phase.
type proveCall struct {
	is, works, lost bool
	id              uint8
	verb            Phase
	began           instant `prove:"-"`
}

type proveStatus []Item

// prover is a state under examination: a core with a real cache and executor, and the world around.
type prover struct {
	sc       *proveScope
	cfg      Config[proveStatus]
	clk      clock
	core     *core[proveStatus]
	exec     *executor[proveStatus]
	w        proveWorld
	codec    *proveCodec
	form     proveForm
	template core[proveStatus] // with what a search never changes

	begun    []action[proveStatus] // reads and streams that the core has begun
	views    []proveView           // what the cache showed at each event of the present input
	before   proveView             // what the cache showed before the present move
	beforeAt [proveIDs]instant     // and as of when
	known    [proveIDs]bool        // whether the generator knew the ID before
	told     [proveIDs]proveView   // what the cache showed at the last event of each ID's pod
	ticked   bool                  // in the present move
	// The first list begins later than the stream is connected, even if time stands still.
	beginning bool
	draining  bool
	list      []proveMove
	wrong     string
}

// proveView is the phase in which the cache shows each ID.
type proveView [proveIDs]Phase

var noView = proveView{phaseNone, phaseNone}

type noStream struct{}

func (noStream) Events(context.Context) iter.Seq2[Claim[proveStatus], error] { return nil }

// The time of a search. An input takes a moment of a few nanoseconds; time passes by a rest, which
// is longer than each delay of the core but the grace, and more than half of the grace. So the core
// decides by the order of instants within a rest, and by the number of rests between, up to two.
const (
	proveUnit   = instant(1 << 20)
	proveRest   = 64 * proveUnit
	proveDelay  = 40 * time.Duration(proveUnit)
	proveGrace  = 96 * time.Duration(proveUnit)
	proveMoment = instant(4)
)

func newProver(sc *proveScope, codec *proveCodec) *prover {
	v := &prover{sc: sc, codec: codec, clk: clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
	const d = proveDelay
	v.cfg = Config[proveStatus]{
		Stream: noStream{}, Capacity: 16, Jitter: -1, TellsCalls: sc.knows, Metrics: proveMetrics{v: v},
		RelistBase: d, RelistMax: d, RelistSlow: time.Hour, CallSettle: d, RetryBase: d, RetryMax: d, RereadBase: d, EndSettle: -1, Reread: -1, Settle: d,
		StableAfter: d, ReconnectBase: d, ReconnectMax: d, ReconnectSteady: d, Grace: proveGrace,
	}
	if sc.scarce {
		v.cfg.InspectWorkers = 1
	}
	if sc.sweepsSoon {
		v.cfg.SweepAt = 1
	}
	v.cfg = v.cfg.withDefaults()
	limits := v.cfg.limits()
	limits.LateCall = proveDelay
	limits.CallBurst = 2 * proveDelay // up to two rests
	v.template = core[proveStatus]{book: newBook[proveStatus](limits, v.clk)}
	v.template.stream.cfg = v.cfg.conn()
	v.exec = newExecutor(&v.cfg, v.clk, nil)
	v.exec.known = func(uid cache.UID) bool { return v.core.pods[uid] != nil }
	v.exec.child = func(a *action[proveStatus]) { v.begun = append(v.begun, *a) }
	v.exec.record = func(Report) {}
	return v
}

// proveMetrics records what the cache shows whenever an event is sent.
type proveMetrics struct {
	noMetrics
	v *prover
}

func (m proveMetrics) Add(name string, n int) {
	if name == MetricEvents {
		m.v.views = append(m.v.views, m.v.view())
	}
}

// view returns what the cache shows of every ID.
func (v *prover) view() (shown proveView) {
	for i := range shown {
		shown[i] = phaseNone
	}
	for i := range v.sc.lives {
		l := &v.sc.lives[i]
		s, _ := v.cfg.Cache.Get(l.pod)
		for _, it := range *s {
			if it.ID == l.id {
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

// begin makes the first state: a generator that is connected, on a runtime that has nothing.
func (v *prover) begin() {
	v.w = proveWorld{now: 4*proveRest + proveMoment}
	v.w.listed, v.before, v.beginning = noView, noView, true
	v.cfg.Cache = cache.New[proveStatus](nil)
	v.core = newCore(&v.cfg, v.clk, 1)
	v.core.peeks.of = nil // none
	v.core.cfg = v.template.cfg
	v.tell(input[proveStatus]{kind: inputStart})
	v.turn()
	v.w.opening = false
	v.input(input[proveStatus]{kind: inputClaims, claims: &batch[proveStatus]{claims: 1}})
	for v.w.list != nil {
		v.endList(&proveMove{sees: noSight})
	}
	v.beginning = false
}

// moment lets a moment pass.
func (v *prover) moment() {
	if !v.sc.still || v.beginning {
		v.w.now += proveMoment
	}
}

// tell feeds the core, and then the outcome of its actions, as the loop does.
func (v *prover) tell(in input[proveStatus]) {
	for {
		v.core.apply(&in, v.w.now)
		for _, a := range v.core.out.todo.actions {
			if a.kind == actPrune {
				v.w.floor = a.at
			}
		}
		v.exec.carryOut(&v.core.out.todo, &v.core.out.count)
		if v.take(); !v.exec.owesFeedback() {
			return
		}
		in = v.exec.feedback()
	}
}

// input feeds the core a moment later, and turns.
func (v *prover) input(in input[proveStatus]) {
	v.moment()
	v.tell(in)
	v.turn()
}

// turn is the next turn of the loop.
func (v *prover) turn() {
	v.moment()
	v.tick(v.sc.housekeeps)
}

// tick does what is due, and what becomes due within the moment. Lists are due in scopes with lists
// only. Housekeeping is due at rests.
func (v *prover) tick(prune bool) {
	for {
		c := v.core
		if (!v.sc.lists || v.draining) && c.lists.appliedBegan != 0 {
			c.trust.sched.ended = v.w.now - 1
		}
		if c.pruned = v.w.now; prune {
			c.pruned = 0
		}
		v.ticked = true
		v.forgetTimes()
		v.tell(input[proveStatus]{kind: inputTick})
		if v.sc.still || c.deadline() >= v.w.now+proveMoment {
			break
		}
		v.w.now += proveMoment
	}
	v.look()
}

// take takes up what the core has begun, and checks what Watch was sent.
func (v *prover) take() {
	w := &v.w
	for i := range v.begun {
		a := &v.begun[i]
		switch a.kind {
		case actOpen:
			w.opening = true
		case actCut:
			if !v.sc.judged() && v.sc.claims { // without claims the stream is mute
				v.fail("CUT: a stream that works is ended")
			}
		case actList:
			if w.list != nil {
				v.fail("TWICE: two lists are under way")
			}
			w.list = &proveRead{began: a.at, started: a.at, low: v.stages(), since: a.since}
			v.noteLook(a.at)
		case actInspect:
			if slices.ContainsFunc(w.reads, func(r *proveRead) bool { return r.uid == a.uid }) {
				v.fail("TWICE: two reads of pod %s are under way", a.uid)
			}
			v.checkFair(a.uid)
			w.reads = append(w.reads, &proveRead{
				uid: a.uid, began: a.at, started: w.now, low: v.stages(),
				listed: a.read.listed, builds: a.read.builds, items: inIDs(a.read.ref.Items), have: inIDs(a.read.have),
			})
			if a.at == w.now {
				v.noteLook(a.at)
			}
		}
	}
	v.begun = v.begun[:0]
	v.hear()
}

// inIDs returns a copy in the order of the IDs, nil if empty.
func inIDs(items []Item) []Item {
	s := slices.Clone(items)
	slices.SortFunc(s, func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func (v *prover) stages() (s [proveIDs]uint8) {
	for i := range v.w.ids {
		s[i] = v.w.ids[i].stage
	}
	return s
}

// noteLook records the stages at the begin of a read. Of several reads at one instant the first
// counts.
func (v *prover) noteLook(at instant) {
	if !slices.ContainsFunc(v.w.looks, func(l proveLook) bool { return l.at == at }) {
		v.w.looks = append(v.w.looks, proveLook{at, v.stages()})
	}
}

// truth returns what a read that looks now shows of an ID.
func (v *prover) truth(i int) Phase { return v.sc.lives[i].shows[v.w.ids[i].stage] }

// asOf returns the cache's time for a pod; 0 if none.
func (v *prover) asOf(uid cache.UID) instant {
	at := v.cfg.Cache.AsOf(uid)
	if at.IsZero() {
		return 0
	}
	return v.clk.instant(at)
}

var errProve = errors.New("the search lets the read fail")
