// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// mainFaults returns the independent faults; the others tune them.
func mainFaults() []fakeruntime.Fault {
	return slices.DeleteFunc(fakeruntime.FaultList(), func(f fakeruntime.Fault) bool {
		return f.Example == ""
	})
}

// GenerateFake makes the history of a seed for the second tier. Seeds go through every pair of
// first fault and profile in turn, and add faults of any kind at random. Kinds are as in
// [Generate].
func GenerateFake(seed uint64, first []fakeruntime.Fault, named ...string) History {
	h := generateFake(seed, first)
	mix := func(kind string, stream uint64, share float64, change func(*weaver, History) History) {
		rng := rand.New(rand.NewPCG(seed, stream))
		chosen := rng.Float64() < share
		if chosen && kindOn(kind) || slices.Contains(named, kind) {
			h = change(&weaver{rng: rng}, h)
		}
	}
	mix("content", 300, 0.5, (*weaver).contentFake)
	mix("breaks", 301, 0.3, (*weaver).breaks)
	mix("pauses", 302, 0.2, (*weaver).pauses)
	mix("deaf", 303, 0.1, (*weaver).deafFake)
	mix("large", 304, 0.1, (*weaver).large) // last: the others take no ID out of a loop
	return h
}

// generateFake makes the history of a seed without any kinds.
func generateFake(seed uint64, first []fakeruntime.Fault) History {
	g := &generator{
		rng:     rand.New(rand.NewPCG(seed, 11)),
		phases:  rand.New(rand.NewPCG(seed, 29)),
		of:      make(map[string]string),
		unknown: make(map[string]string),
	}
	names := fakeruntime.ProfileNames()
	faults := mainFaults()
	profile := names[int(seed)%len(names)]
	main := first[int(seed)/len(names)%len(first)]
	g.add("config tier fake")
	g.add("config seed %d", seed)
	g.add("config profile %s", profile)
	g.add("config relist-max %s", g.word("1s", "8s", "60s"))
	g.add("config latency %s", g.word("400µs", "2ms"))
	g.add("config list-timeout 5s")
	g.add("config inspect-timeout %s", g.word("1s", "5s"))
	if g.chance(0.3) {
		g.add("config sweep-at 2")
	}
	if g.chance(0.2) {
		g.add("config capacity 2")
	}
	for i := range 1 + g.rng.IntN(4) {
		g.pods = append(g.pods, "p"+string(rune('1'+i)))
	}
	g.lies = g.chance(0.1)
	if r := rand.New(rand.NewPCG(seed, 94)); r.Float64() < 0.4 { // without an agent everything else stays the same
		g.agent = r
		g.tells = r.Float64() < 0.5
		if g.tells {
			g.add("config tells-calls true")
			g.worker = rand.New(rand.NewPCG(seed, 95))
			g.busy = g.worker.Float64() < 0.5
		}
	}
	if g.chance(0.8) {
		g.start()
	}
	g.fault(main)
	for range 6 + g.rng.IntN(24) {
		g.stepFake(faults)
	}
	if g.chance(0.5) {
		g.secondAct()
	}
	g.finish()
	return slices.DeleteFunc(g.lines, func(line string) bool { return strings.HasPrefix(line, "worker") })
}

// secondAct lets everything come to rest and goes on without any fault: earlier faults must not
// matter any more.
func (g *generator) secondAct() {
	g.start()
	g.add("watch resume")
	g.add("calm")
	g.add("settle")
	g.add("advance 5s")
	for range 3 + g.rng.IntN(10) {
		if g.chance(0.8) {
			g.change()
		} else {
			g.wait()
		}
		g.pass()
		if g.busy {
			g.waitAgain()
		}
	}
}

// fault puts a fault in force, often enough to strike.
func (g *generator) fault(f fakeruntime.Fault) {
	value := f.Example
	if f.Kind == "probability" {
		value = g.word("0.1", "0.5", "1")
	}
	line := "fault " + f.Name + "=" + value
	switch f.Name {
	case "oversize":
		line += " oversize-bytes=300000"
	case "delay":
		line += " delay-by=" + g.word("20ms", "700ms", "4s")
	case "slow-list", "slow-status", "slow-sandbox-list", "slow-container-list":
		line = "fault " + f.Name + "=" + g.word(value, "300ms", "3s")
	}
	g.add("%s", line)
}

func (g *generator) stepFake(faults []fakeruntime.Fault) {
	switch n := g.rng.IntN(100); {
	case n < 66:
		g.change()
	case n < 74:
		g.wait()
	case n < 78:
		g.add("%s %s", g.word("relist", "reinspect"), g.anyPod())
	case n < 80:
		g.add("watch %s", g.word("stall", "resume", "resume"))
	case n < 86:
		g.add("stream %s", g.word("cut", "cut", "eof", "stall"))
	case n < 92:
		g.fault(faults[g.rng.IntN(len(faults))])
	case n < 94:
		g.add("fault")
	case n < 96:
		g.add("runtime restart %s %s", g.word("10ms", "400ms", "5s"), g.word("10ms", "1s"))
	case n < 97:
		g.add("runtime %s", g.word("down", "up"))
	case n < 98:
		if g.running1 {
			g.add("stop")
			g.running1 = false
		}
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
