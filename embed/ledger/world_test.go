// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// thing is a sandbox or a container on the toy runtime.
type thing struct {
	id, sandbox, pod string
	sandboxed        bool // a sandbox
	labelled         bool
	phase            Phase
	unready          bool // being made: lists show it as not ready
	raw              bool // a sandbox that others make: Created, which lists show as not ready, and then Running
	murky            bool // lists show its state as unknown
	shown            bool // has been served
	shownReady       bool // has been served as running
	made             int  // the step of the answer to its making call
	// at is the step at which it came to a phase, due marks an event or an own call about the phase.
	at  [Gone + 1]int
	due [Gone + 1]bool
	// heard is the step of the event that is the only evidence of a phase; zero if there is other.
	heard [Gone + 1]int
}

// ownCall is a call of the agent's own on its way.
type ownCall struct {
	op      Op
	target  *thing
	call    Call
	began   int
	fails   bool
	made    *thing
	kill    []*thing // left to end for a StopPodSandbox
	effects int      // the finished part
	late    bool     // fails, and works later
	pod     string   // the subject of a RunPodSandbox
	gaveUp  int      // the step of its answer
}

// toyRead is a list on its way: it looks at the things in turn.
type toyRead struct {
	read      Read
	began     int
	sandboxes bool
	filter    filter
	status    *thing // the subject of a read of a status; nil for a list
	state     Phase  // what a read of a status has seen
	looked    map[*thing]bool
	listedSB  []*runtimeapi.PodSandbox
	listedCT  []*runtimeapi.Container
}

// letter is an event on its way.
type letter struct {
	about *thing
	phase Phase
	arise int // the step of its delivery
}

// world is a toy runtime, an agent that calls it, and a ledger that hears of both.
type world struct {
	rng       *rand.Rand
	l         *Ledger
	step      int
	things    []*thing
	calls     []*ownCall
	made      map[madeOf]makingSteps
	orphans   []*ownCall // failed making calls with an effect to come
	reads     []*toyRead
	letters   []letter
	connected bool
	// full is when the last finished full list began, by kind (sandboxes first).
	full [2]int
	// busy are the spans of finished reads and own calls.
	busy [][2]int
	// before are the phases in the last served lists of everything, and revision is their revision.
	before   map[string]Phase
	revision uint64
	// served counts the served lists in each of the situations.
	served       []int
	refused, ids int
	wrong        string
	weather
}

// weather is what a history has more of than others have.
type weather struct {
	// murk, loss and decay are one in how many: of the attempts at a container whose state is unknown
	// to lists, at losing the stream, and at ending a sandbox without a call.
	murk, loss, decay int
	// slow is one in how many turns of a call under way that it makes progress in.
	slow int
	// mostReads is how many reads are under way at most.
	mostReads int
}

// newWeather returns the weather of a history: half of them have the usual one.
func newWeather(rng *rand.Rand) weather {
	one := func(usual, often int) int {
		if rng.IntN(5) == 0 {
			return often
		}
		return usual
	}
	return weather{
		murk:      one(12, 1),
		loss:      one(8, 1),
		decay:     one(3, 1),
		mostReads: one(4, 8),
		slow:      one(1, 6),
	}
}

// madeOf is what making calls under way make: sandboxes of a pod, or containers.
type madeOf struct {
	pod       string
	sandboxes bool
}

// makingSteps are the making calls under way of one pod, and the step at which the first began.
type makingSteps struct{ calls, began int }

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 14))
	w := &world{
		rng:     rng,
		l:       New(time.Hour),
		step:    1,
		full:    [2]int{-1, -1},
		made:    make(map[madeOf]makingSteps),
		served:  make([]int, len(situations)),
		weather: newWeather(rng),
	}
	w.l.late = lateSteps * time.Millisecond
	return w
}

// lateSteps is how long an unanswered call may still work.
const lateSteps = 60

func (w *world) now() time.Time { return time.Unix(0, 0).Add(time.Duration(w.step) * time.Millisecond) }

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf("step %d: ", w.step) + fmt.Sprintf(format, args...)
	}
}

// pick returns a thing of the kind in the runtime, or nil.
func (w *world) pick(sandbox bool) *thing {
	all := slices.DeleteFunc(
		slices.Clone(w.things),
		func(t *thing) bool { return t.sandboxed != sandbox || t.phase == Gone },
	)
	if len(all) == 0 {
		return nil
	}
	return all[w.rng.IntN(len(all))]
}

// come brings a thing to a phase and sends the events.
func (w *world) come(t *thing, p Phase) {
	if p <= t.phase {
		return
	}
	early := w.connected && w.oneIn(20)
	if early { // premature, and no evidence
		w.l.Claim(t.id, w.kind(t), p, t.pod)
	}
	w.step++
	t.phase, t.at[p] = p, w.step
	t.due[p], t.heard[p] = !w.connected && p != Gone, 0 // nobody is told, so lists must be full and later
	for !early && w.connected && !w.oneIn(8) {
		w.letters = append(w.letters, letter{about: t, phase: p, arise: w.step + w.rng.IntN(12)})
		if !w.oneIn(8) {
			break
		}
	}
}

func (w *world) kind(t *thing) Kind {
	switch {
	case w.oneIn(10):
		return EitherKind
	case t.sandboxed:
		return SandboxKind
	}
	return ContainerKind
}

func (w *world) somePod() string { return fmt.Sprintf("p%d", w.rng.IntN(4)) }

// make makes a sandbox of a pod, or a container in a sandbox.
func (w *world) make(pod string, sandbox *thing, p Phase, labelled bool) *thing {
	t := w.thing(labelled)
	if t.sandboxed = sandbox == nil; t.sandboxed {
		t.pod, t.sandbox = pod, t.id
	} else {
		t.pod, t.sandbox = sandbox.pod, sandbox.id
	}
	w.come(t, p)
	return t
}

// thing returns a new thing.
func (w *world) thing(labelled bool) *thing {
	t := &thing{id: fmt.Sprintf("t%d", len(w.things)), labelled: labelled}
	w.things = append(w.things, t)
	return t
}

// raw makes a sandbox without the agent. It is announced when it is ready.
func (w *world) raw() {
	t := w.thing(w.oneIn(2))
	t.sandboxed, t.raw = true, true
	t.pod, t.sandbox = w.somePod(), t.id
	w.step++
	t.phase, t.at[Created], t.due[Created] = Created, w.step, !w.connected
}

// foreign makes changes without the agent.
func (w *world) foreign() {
	sandbox, container := w.pick(true), w.pick(false)
	switch n := w.rng.IntN(10); {
	case n == 0 && w.oneIn(2):
		w.raw()
	case n == 0:
		w.make(w.somePod(), nil, Running, w.oneIn(2))
	case n == 1 && sandbox != nil:
		w.make("", sandbox, Created, w.oneIn(2))
	case n == 2 && container != nil && container.phase == Created:
		w.come(container, Running)
	case n < 6 && container != nil && container.phase == Running:
		w.come(container, Exited)
	case n == 6 && container != nil:
		w.come(container, Gone)
	case n == 7 && sandbox != nil && w.oneIn(w.decay):
		w.come(sandbox, Exited)
	case n == 9 && sandbox != nil && sandbox.phase < Running:
		w.come(sandbox, Running)
	case n == 8 && container != nil:
		container.murky = !container.murky && w.oneIn(w.murk)
	}
}

// start starts a call of the agent's own.
func (w *world) start() {
	sandbox, container := w.pick(true), w.pick(false)
	c := &ownCall{op: Op(w.rng.IntN(7)), fails: w.oneIn(6), began: w.step}
	switch c.op {
	case RunPodSandbox:
		c.pod = w.somePod()
	case CreateContainer, StopPodSandbox, RemovePodSandbox:
		if c.target = sandbox; sandbox == nil {
			return
		}
	default:
		if c.target = container; container == nil {
			return
		}
	}
	if c.op == StopPodSandbox {
		for _, t := range w.things {
			if t != c.target && t.sandbox == c.target.id {
				c.kill = append(c.kill, t)
			}
		}
	}
	for _, other := range w.calls {
		if other.op == StopContainer && w.oneIn(3) { // its stopper and its starter are independent
			c.op, c.target = StartContainer, other.target
		}
	}
	c.late = c.fails && w.oneIn(2)
	about := Subject{Pod: c.pod}
	switch c.op {
	case RunPodSandbox:
	case CreateContainer:
		about = Subject{Pod: c.target.pod, Sandbox: c.target.id}
	default:
		about = Subject{ID: c.target.id}
	}
	c.call = w.l.Start(c.op, about)
	w.calls = append(w.calls, c)
	w.makes(c, +1)
}

// makes counts a making call that begins or ends.
func (w *world) makes(c *ownCall, by int) {
	of := madeOf{pod: c.pod, sandboxes: true}
	switch c.op {
	case RunPodSandbox:
	case CreateContainer:
		of = madeOf{pod: c.target.pod}
	default:
		return
	}
	m := w.made[of]
	if m.calls == 0 {
		m.began = c.began
	}
	m.calls += by
	w.made[of] = m
}

// unanswered reports whether a thing is known by an event alone, which an own call under way makes
// or starts, as far as the agent knows: what is being made need not be shown.
func (w *world) unanswered(t *thing, p Phase) bool {
	heard := t.heard[p]
	if heard == 0 {
		return false
	}
	if p == t.first() || t.raw && p == Running {
		m := w.made[madeOf{pod: t.pod, sandboxes: t.sandboxed}]
		return m.calls > 0 && heard >= m.began
	}
	return p == Running && slices.ContainsFunc(w.calls, func(c *ownCall) bool {
		return c.op == StartContainer && c.target == t && heard >= c.began
	})
}

// know notes evidence of a phase of a thing beside events.
func (t *thing) know(p Phase) {
	t.due[p] = true
	t.heard[p] = 0
}

// work does the next part of a call's work and says whether all is done.
func (w *world) work(c *ownCall) bool {
	c.effects++
	switch c.op {
	case RunPodSandbox:
		if c.made == nil {
			c.made = w.make(c.pod, nil, Running, true)
			c.made.unready = !c.fails && w.oneIn(2)
			return !c.made.unready
		}
		c.made.unready = false
	case CreateContainer:
		if c.target.phase == Gone {
			c.fails = true
		} else if c.made == nil {
			c.made = w.make("", c.target, Created, true)
		}
	case StartContainer:
		if c.target.phase == Created && c.effects == 1 {
			w.come(c.target, Running)
		} else if c.effects == 1 {
			c.fails = true
		}
	case StopContainer:
		if c.target.phase == Running && c.effects == 1 {
			w.come(c.target, Exited)
		}
	case RemoveContainer:
		w.come(c.target, Gone)
	case StopPodSandbox:
		if len(c.kill) > 0 {
			if c.kill[0].phase == Running {
				w.come(c.kill[0], Exited)
			}
			c.kill = c.kill[1:]
			return false
		}
		w.come(c.target, Exited)
	case RemovePodSandbox:
		w.come(c.target, Gone)
		for _, t := range w.things {
			if t.sandbox == c.target.id {
				w.come(t, Gone)
			}
		}
	}
	return true
}

// proceed works on a call, or answers it.
func (w *world) proceed(i int) {
	c := w.calls[i]
	if c.fails && (c.late || w.oneIn(2)) {
		w.answer(i)
		switch { // the agent has given up, the runtime has not
		case c.late && (c.op == RunPodSandbox || c.op == CreateContainer):
			w.orphans = append(w.orphans, c)
		case c.late:
			w.work(c)
		}
		return
	}
	if w.work(c) && (c.effects > 1 || w.oneIn(2)) {
		w.answer(i)
	}
}

// orphan lets an abandoned call take effect. The effect must be looked for, with or without an
// event, unless too late.
func (w *world) orphan() {
	c := w.orphans[0]
	w.orphans = w.orphans[1:]
	w.work(c)
	if t := c.made; t != nil && t.at[t.first()] <= c.gaveUp+lateSteps {
		t.know(t.first())
	}
}

// answer ends a call and notes the agent's certain knowledge.
func (w *world) answer(i int) {
	c := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	w.step++
	w.makes(c, -1)
	a := Answer{Failed: c.fails, Unanswered: c.late}
	c.gaveUp = w.step
	if c.made != nil && !c.fails {
		a.Made, c.made.made = c.made.id, w.step
	}
	w.l.End(c.call, a, w.now())
	w.busy = append(w.busy, [2]int{c.began, w.step})
	if c.fails {
		if c.made != nil {
			c.made.know(c.made.first()) // a list of its pod must look for it
		}
		return
	}
	switch c.op {
	case RunPodSandbox:
		c.made.know(Running)
	case CreateContainer:
		c.made.know(Created)
	case StartContainer:
		c.target.know(Running)
	case StopContainer, StopPodSandbox:
		w.tell(c, Exited)
	default:
		w.tell(c, Gone)
	}
}

// tell notes the certain ends of a call: its target, and its content.
func (w *world) tell(c *ownCall, p Phase) {
	for _, t := range w.things {
		if (t == c.target || t.sandbox == c.target.id) && t.phase >= p {
			t.know(p)
		}
	}
}

// disconnect loses the stream and its events.
func (w *world) disconnect() {
	for _, x := range w.letters {
		x.about.due[x.phase] = x.phase != Gone || x.about.due[x.phase]
	}
	w.connected, w.letters = false, nil
	w.l.Trust(false)
}

// deliver delivers arrived events, and now and then invented events.
func (w *world) deliver() {
	if w.connected && len(w.things) > 0 && w.oneIn(40) {
		t := w.things[w.rng.IntN(len(w.things))]
		w.l.Claim(t.id, w.kind(t), Phase(1+w.rng.IntN(4)), t.pod)
	}
	if w.connected && w.oneIn(200) {
		w.l.Claim("nobody", EitherKind, Running, "")
	}
	for i := 0; i < len(w.letters); i++ {
		x := w.letters[i]
		if x.arise > w.step {
			continue
		}
		w.letters = slices.Delete(w.letters, i, i+1)
		i--
		w.l.Claim(x.about.id, w.kind(x.about), x.phase, x.about.pod)
		if !x.about.due[x.phase] {
			x.about.due[x.phase] = true
			x.about.heard[x.phase] = w.step
		}
	}
}
