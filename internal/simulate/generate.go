// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// generator makes the history of a seed. It keeps a rough picture of the existing items, so that
// most commands make sense.
type generator struct {
	rng        *rand.Rand
	lines      History
	pods       []string
	sandboxes  []string // live
	ready      []string
	containers []string // live
	running    []string
	created    []string
	of         map[string]string // sandbox of a container, pod of a sandbox
	unknown    map[string]string // of a container: "lose" or "blur", once its state is not known
	next       int
	running1   bool       // the generator runs
	agent      *rand.Rand // of the choices of an agent that reports its calls; nil without such an agent
	worker     *rand.Rand // of those of its pod workers, likewise
	tells      bool       // and nobody else makes anything
	busy       bool       // its pod workers wait again and again
	lies       bool
	faults     float64 // how often an event goes wrong
	waits      int
	phases     *rand.Rand // of the waiters for phases only; its draws move no other choice
}

// Generate makes the history of a seed for the first tier. It has the kinds of every search by
// chance, and the named ones in any case. The same seed gives the same history.
func Generate(seed uint64, named ...string) History { return weave(seed, generate(seed), named) }

// generate makes the history of a seed without any kinds.
func generate(seed uint64) History {
	g := &generator{
		rng:     rand.New(rand.NewPCG(seed, 7)),
		phases:  rand.New(rand.NewPCG(seed, 23)),
		of:      make(map[string]string),
		unknown: make(map[string]string),
	}
	g.config(seed)
	for range 1 + g.rng.IntN(4) {
		g.pods = append(g.pods, fmt.Sprintf("p%d", len(g.pods)+1))
	}
	g.lies = g.chance(0.15)
	if r := rand.New(rand.NewPCG(seed, 91)); r.Float64() < 0.5 { // without an agent everything else stays the same
		g.agent = r
		g.worker = rand.New(rand.NewPCG(seed, 93))
		if g.worker.Float64() < 0.1 {
			g.add(
				"config call-settle %v",
				[]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second}[g.worker.IntN(3)],
			)
		}
		g.tells = r.Float64() < 0.5
		if g.tells {
			g.add("config tells-calls true")
			g.busy = g.worker.Float64() < 0.5
		}
	}
	g.faults = g.pick(0, 0, 0.1, 0.3, 0.6)
	if g.chance(0.7) {
		g.start()
	}
	for _, p := range g.pods {
		if g.chance(0.3) {
			g.add("worker %s", p)
		}
	}
	for range 8 + g.rng.IntN(40) {
		g.step()
	}
	g.finish()
	if r := rand.New(rand.NewPCG(seed, 97)); r.Float64() < 0.3 {
		return g.withinTurns(r)
	}
	return g.lines
}

// withinTurns puts changes, calls and waiters between the steps of turns of the generator's loop.
func (g *generator) withinTurns(r *rand.Rand) (lines History) {
	for _, line := range g.lines {
		verb, _, _ := strings.Cut(line, " ")
		steps := 1 + r.IntN(8)
		switch {
		case verb != "agent" && verb != "wait" && verb != "claim" && (verb != "runtime" || strings.HasSuffix(line, "down")) || r.Float64() < 0.6:
			lines = append(lines, line)
			continue
		case verb == "agent" && r.Float64() < 0.7: // the call returns within the turn
			line = strings.Join(slices.DeleteFunc(strings.Fields(line), func(word string) bool {
				return strings.HasPrefix(word, "takes=") || strings.HasPrefix(word, "works=")
			}), " ")
		}
		lines = append(lines, fmt.Sprintf("within %d %s", steps, line))
		if r.Float64() < 0.5 {
			lines = append(
				lines,
				fmt.Sprintf("within %d wait %s", steps+r.IntN(2), g.pods[r.IntN(len(g.pods))]),
			)
		}
	}
	return lines
}

func (g *generator) chance(p float64) bool { return g.rng.Float64() < p }

func (g *generator) pick(of ...float64) float64 { return of[g.rng.IntN(len(of))] }

func (g *generator) word(of ...string) string { return of[g.rng.IntN(len(of))] }

func (g *generator) add(format string, args ...any) {
	g.lines = append(g.lines, fmt.Sprintf(format, args...))
}

// config writes the config lines. Most are at their defaults most of the time.
func (g *generator) config(seed uint64) {
	g.add("config seed %d", seed)
	if g.chance(0.6) {
		g.add("config profile %s", toyProfiles[g.rng.IntN(len(toyProfiles))].name)
	}
	g.add("config relist-max %s", g.word("1s", "4s", "8s", "30s", "300s"))
	g.add("config latency %s", g.word("0s", "1ms", "5ms", "20ms"))
	for _, o := range []struct {
		p    float64
		name string
		of   []string
	}{
		{0.5, "torn", []string{"true"}},
		{0.5, "delta", []string{"true"}},
		{0.05, "generic", []string{"true"}},
		{0.3, "workers", []string{"2", "3"}},
		{0.4, "sweep-at", []string{"1", "2", "3"}},
		{0.3, "capacity", []string{"1", "2", "4"}},
		{0.15, "mailbox", []string{"1", "2"}},
		{0.15, "unconfirmed", []string{"1", "2"}},
		{0.5, "list-timeout", []string{"1s", "5s"}},
		{0.5, "inspect-timeout", []string{"1s", "5s"}},
		{0.2, "grace", []string{"500ms", "5s"}},
	} {
		if g.chance(o.p) {
			g.add("config %s %s", o.name, g.word(o.of...))
		}
	}
}

func (g *generator) start() {
	if !g.running1 {
		g.add("start")
		g.running1 = true
	}
}

// step writes a happening, and now and then lets time pass.
func (g *generator) step() {
	switch n := g.rng.IntN(100); {
	case n < 58:
		g.change()
	case n < 66:
		g.wait()
	case n < 70:
		g.add("%s %s", g.word("relist", "reinspect"), g.anyPod())
	case n < 71:
		g.add("relist")
	case n < 74:
		g.add("watch %s", g.word("stall", "resume", "resume"))
	case n < 82:
		g.stream()
	case n < 88:
		g.add(
			"reads %s %s%s",
			g.word("list", "pod", "inspect"),
			g.word(
				"fail",
				"hang",
				"ok",
				"ok",
				"slow 10ms",
				"slow 300ms",
				"slow 3s",
				"late 10ms",
				"late 300ms",
				"late 3s",
			),
			g.only(),
		)
	case n < 90:
		g.add("clock %s", g.word("-1h", "-30s", "-1s", "1s", "30s", "1h"))
	case n < 92:
		g.add("runtime %s", g.word("down", "up", "up"))
	case n < 94:
		if g.running1 {
			g.add("stop")
			g.running1 = false
		} else {
			g.start()
		}
	case n < 95:
		g.add("calm")
		if g.running1 {
			g.add("settle")
		}
	case n < 98 && g.lies:
		g.lie()
	default:
		g.start()
	}
	if g.chance(0.7) {
		g.pass()
	}
	if g.busy {
		g.waitAgain()
	}
}

// waitAgain writes pod workers with a wait now and then, like workers after a sync.
func (g *generator) waitAgain() {
	word := func(of ...string) string { return of[g.worker.IntN(len(of))] }
	for g.worker.Float64() < 0.5 {
		g.add(
			"wait %s ago=%s%s",
			g.pods[g.worker.IntN(len(g.pods))],
			word("10µs", "200µs", "1ms", "20ms", "1s"),
			g.ofPhases(),
		)
		if g.worker.Float64() < 0.5 {
			g.add("advance %s", word("10µs", "300µs", "2ms", "30ms", "2s"))
		}
	}
}

// pass lets a time pass: mostly a very short time, so that changes meet calls under way.
func (g *generator) pass() {
	var d time.Duration
	switch n := g.rng.IntN(20); {
	case n < 8:
		d = time.Duration(g.rng.Int64N(int64(3 * time.Millisecond)))
	case n < 14:
		d = time.Duration(g.rng.Int64N(int64(50 * time.Millisecond)))
	case n < 17:
		d = time.Duration(g.rng.Int64N(int64(time.Second)))
	case n < 19:
		d = time.Duration(g.rng.Int64N(int64(5 * time.Second)))
	default:
		d = time.Duration(g.rng.Int64N(int64(100 * time.Second)))
	}
	g.add("advance %v", max(d.Round(10*time.Microsecond), 10*time.Microsecond))
}

func (g *generator) anyPod() string {
	if g.chance(0.05) {
		return "nobody"
	}
	return g.pods[g.rng.IntN(len(g.pods))]
}

func (g *generator) some(of []string) (string, bool) {
	if len(of) == 0 {
		return "", false
	}
	return of[g.rng.IntN(len(of))], true
}

// change writes a change of the runtime.
func (g *generator) change() {
	for range 3 {
		if g.tryChange() {
			return
		}
	}
}

func (g *generator) tryChange() bool {
	switch n := g.rng.IntN(100); {
	case n < 22:
		if len(g.sandboxes) >= 2*len(g.pods) {
			return false
		}
		g.next++
		id := fmt.Sprintf("s%d", g.next)
		g.does("sandbox", fmt.Sprintf("%s %s", g.pods[g.rng.IntN(len(g.pods))], id))
		g.sandboxes = append(g.sandboxes, id)
		g.ready = append(g.ready, id)
	case n < 45:
		s, ok := g.some(g.ready)
		if !ok || len(g.containers) > 8 {
			return false
		}
		g.next++
		id := fmt.Sprintf("c%d", g.next)
		g.does("container", fmt.Sprintf("%s %s", s, id))
		g.of[id] = s
		g.containers = append(g.containers, id)
		g.created = append(g.created, id)
		if g.chance(0.6) {
			if g.chance(0.3) {
				g.pass()
			}
			g.startContainer(id)
		}
	case n < 55:
		c, ok := g.some(g.created)
		if !ok {
			return false
		}
		g.startContainer(c)
	case n < 72:
		c, ok := g.some(g.running)
		if !ok {
			return false
		}
		g.does("exit", c)
		g.running = drop(g.running, c)
	case n < 84:
		c, ok := g.some(g.containers)
		if !ok {
			return false
		}
		g.does("remove", c)
		g.forget(c)
	case n < 91:
		s, ok := g.some(g.ready)
		if !ok {
			return false
		}
		g.does("unready", s)
		g.ready = drop(g.ready, s)
	case n < 98:
		s, ok := g.some(g.sandboxes)
		if !ok {
			return false
		}
		g.does("remove", s)
		g.sandboxes = drop(g.sandboxes, s)
		g.ready = drop(g.ready, s)
		for _, c := range slices.Clone(g.containers) {
			if g.of[c] == s {
				g.forget(c)
			}
		}
	default:
		if s, ok := g.some(g.sandboxes); ok && g.lies && g.chance(0.6) {
			g.add("runtime recover %s%s", s, g.how(false))
		} else if c, ok := g.some(g.containers); ok {
			g.lose(c, g.word("lose", "lose", "blur", "clear"))
		}
	}
	return true
}

// lose has the runtime lose the state of a container: in lists and statuses, in lists only, or no
// longer in lists. No container has two of these. This is a hole in the search, for a reason: a
// list without a state confirms a status without the state (ADR 11). So if only the statuses learn
// the state, the change stays hidden until an event or another change causes a read of the pod.
// Real runtimes make lists and statuses from the same record.
func (g *generator) lose(c, how string) {
	if was := g.unknown[c]; how != "clear" && was != "" && was != how {
		how = "clear"
	} else if how != "clear" {
		g.unknown[c] = how
	}
	g.add("runtime %s %s", how, c)
}

func (g *generator) startContainer(c string) {
	g.does("start", c)
	g.created = drop(g.created, c)
	g.running = append(g.running, c)
}

func (g *generator) forget(c string) {
	g.containers = drop(g.containers, c)
	g.created = drop(g.created, c)
	g.running = drop(g.running, c)
}

func drop(list []string, s string) []string {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// does writes a change of the runtime: by itself, or by a call of the agent's own.
func (g *generator) does(what, names string) {
	how := g.how(what == "remove")
	others := !g.tells || what != "sandbox" && what != "container"
	if g.agent == nil || strings.HasPrefix(how, " lag") || others && g.agent.Float64() < 0.3 {
		g.add("runtime %s %s%s", what, names, how)
		return
	}
	if what == "exit" || what == "unready" {
		what = "stop"
	}
	word := func(of ...time.Duration) time.Duration { return of[g.agent.IntN(len(of))] }
	takes := word(
		0,
		0,
		200*time.Microsecond,
		time.Millisecond,
		5*time.Millisecond,
		25*time.Millisecond,
		300*time.Millisecond,
		3*time.Second,
	)
	works := word(0, 100*time.Microsecond, time.Millisecond, 25*time.Millisecond, 300*time.Millisecond)
	line := fmt.Sprintf("agent %s %s", what, names)
	n := g.agent.IntN(12)
	switch {
	case n == 0:
		line += " fails"
		works = 0
	case n == 1:
		line += " times-out"
	default:
		works = min(works, takes)
	}
	if takes > 0 {
		line += fmt.Sprintf(" takes=%v", takes)
	}
	if works > 0 {
		line += fmt.Sprintf(" works=%v", works)
	}
	g.add("%s%s", line, how)
}

// how is the fate of a change's event, mostly nothing.
func (g *generator) how(removal bool) string {
	if removal && g.chance(0.2) {
		return " lag=" + g.word("1ms", "20ms", "300ms", "1900ms")
	}
	if !g.chance(g.faults) {
		return ""
	}
	return " " + g.word(
		"drop",
		"drop",
		"twice",
		"stale",
		"stale",
		"nil-sandbox",
		"nil-statuses",
		"oversize",
		"late=1ms",
		"late=30ms",
		"late=700ms",
		"late=4s",
		"stale late=10ms",
		"nil-sandbox late=20ms",
		"twice stale",
	)
}

// only names the pod with the faulty reads, now and then.
func (g *generator) only() string {
	if !g.chance(0.3) {
		return ""
	}
	return " only=" + g.pods[g.rng.IntN(len(g.pods))]
}

func (g *generator) wait() {
	if g.chance(0.1) {
		g.add("keep %s %s", g.anyPod(), g.word("200ms", "3s"))
		return
	}
	g.waits++
	line := fmt.Sprintf("wait %s as=w%d", g.anyPod(), g.waits)
	if g.chance(0.3) {
		line += " ago=" + g.word("1ms", "50ms", "1s", "10s", "-20ms", "-3s")
	}
	if g.chance(0.2) {
		line += " limit=" + g.word("1ms", "100ms", "3s")
	}
	if g.chance(0.15) {
		line += " wall"
	}
	g.add("%s", line+g.ofPhases())
	if g.chance(0.1) {
		g.add("cancel w%d", 1+g.rng.IntN(g.waits))
	}
}

// ofPhases makes every third waiter a waiter for phases only.
func (g *generator) ofPhases() string {
	if g.phases.IntN(3) == 0 {
		return " phases"
	}
	return ""
}

func (g *generator) stream() {
	if g.chance(0.3) {
		g.add("stream replay %d", 1+g.rng.IntN(20))
		return
	}
	g.add("stream %s", g.word("cut", "cut", "eof", "stall", "refuse", "unimplemented", "empty", "ok", "ok"))
}

// lie makes up an event.
func (g *generator) lie() {
	if g.chance(0.1) {
		g.add("flood %d pods=%d over=%s", 1+g.rng.IntN(40), 1+g.rng.IntN(4), g.word("0s", "20ms", "1s"))
		return
	}
	pod := g.pods[g.rng.IntN(len(g.pods))]
	id, ok := g.some(append(slices.Clone(g.containers), g.sandboxes...))
	if !ok || g.chance(0.2) {
		id = "c999"
	}
	phase := g.word("Created", "Running", "Exited", "Exited", "Removed")
	if g.chance(0.2) {
		pod = "-"
	}
	line := fmt.Sprintf("claim %s %s %s", pod, id, phase)
	if g.chance(0.5) && phase != "Removed" {
		line += " " + id + "=" + phase
		if s, ok := g.some(g.sandboxes); ok && s != id {
			line += " " + s + "=Running"
		}
	}
	g.add("%s", line)
}

// finish ends every fault and lets everything come to rest; now and then everything is removed
// after the rest.
func (g *generator) finish() {
	g.start()
	g.add("watch resume")
	g.add("calm")
	g.add("settle")
	if g.chance(0.25) {
		g.wait()
		g.add("advance 500ms")
	}
	if g.chance(0.3) {
		g.add("empty")
	}
}
