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

// kind is a sort of fault in the world, woven into a share of the histories of the first tier. Each
// has its own random choices: without a kind, a seed's history stays the same.
type kind struct {
	name  string
	on    bool    // the core withstands the kind, which is in every search
	share float64 // of the histories
	weave func(v *weaver, h History) History
}

// kinds are all kinds.
var kinds = []kind{
	{name: "content", on: true, share: 0.4, weave: (*weaver).content},
	{name: "unread", on: true, share: 0.15, weave: (*weaver).unread},
	{name: "doubt", on: true, share: 0.15, weave: (*weaver).doubt},
	{name: "hung", on: true, share: 0.1, weave: (*weaver).hung},
	{name: "late", on: true, share: 0.3, weave: (*weaver).late},
	{name: "silent", on: true, share: 1, weave: (*weaver).silent},
	{name: "crowd", on: true, share: 0.004, weave: (*weaver).crowd},
	{name: "ghosts", on: true, share: 0.15, weave: (*weaver).ghosts},
	{name: "bundles", on: true, share: 0.15, weave: (*weaver).bundles},
	{name: "breaks", on: true, weave: (*weaver).breaks}, // of the second tier: the toy has no connection
	{name: "lacks", on: true, share: 0.5, weave: (*weaver).lacks},
	{name: "ages", on: true, share: 0.15, weave: (*weaver).ages}, // of the second tier, likewise
	{name: "pauses", on: true, share: 0.1, weave: (*weaver).pauses},
	{name: "deaf", on: true, share: 0.1, weave: (*weaver).deaf},
	{name: "large", on: true, weave: (*weaver).large}, // of the second tier: the toy has no calls about single items
	{name: "recovers", on: true, share: 0.1, weave: (*weaver).recovers},
	{name: "crossed", on: true, share: 0.1, weave: (*weaver).crossed},
	{name: "sends", on: true, share: 0.2, weave: (*weaver).sends},
	{name: "wakes", on: true, share: 0.1, weave: (*weaver).wakes},
	{name: "hurries", on: true, share: 0.1, weave: (*weaver).hurries},
	{name: "queues", on: true, share: 0.1, weave: (*weaver).queues},
	{name: "reboots", on: true, share: 0.1, weave: (*weaver).reboots},
	{name: "arrives", on: true, share: 0.002, weave: (*weaver).arrives},
	{name: "patient", on: true, share: 0.1, weave: (*weaver).patient},
	{name: "never", on: true, share: 0.1, weave: (*weaver).never},
	{name: "giants", on: true, share: 0.002, weave: (*weaver).giants},
}

// KindNames returns the names of all kinds, and of the kinds in every search.
func KindNames() (all, on []string) {
	for _, k := range kinds {
		all = append(all, k.name)
		if k.on {
			on = append(on, k.name)
		}
	}
	return all, on
}

// weave weaves kinds into the history of a seed: those that are on by their share of the histories,
// the named ones always, apart from the kinds of the second tier.
func weave(seed uint64, h History, named []string) History {
	for i, k := range kinds {
		if !k.on && !slices.Contains(named, k.name) {
			continue
		}
		rng := rand.New(rand.NewPCG(seed, 200+uint64(i)))
		chosen := rng.Float64() < k.share
		if chosen || k.share > 0 && slices.Contains(named, k.name) {
			h = k.weave(&weaver{rng: rng}, h)
		}
	}
	return h
}

// weaver changes a history.
type weaver struct {
	rng  *rand.Rand
	ids  []string // made so far
	pods []string

	harmless bool // the added lines are no faults of reads
}

func (v *weaver) chance(p float64) bool { return v.rng.Float64() < p }

func (v *weaver) word(of ...string) string { return of[v.rng.IntN(len(of))] }

// id returns an ID made so far, most often one of the latest; empty if there is none.
func (v *weaver) id() string {
	if len(v.ids) == 0 {
		return ""
	}
	return v.ids[max(v.rng.IntN(len(v.ids)), v.rng.IntN(len(v.ids)))]
}

// each returns a history with the lines of add behind each line with an effect, and notes the new
// IDs. Add may change the line.
func (v *weaver) each(h History, add func(line string) []string) (out History) {
	calm := len(h) - 1 // from here on nothing goes wrong
	for calm > 0 && h[calm] != "calm" {
		calm--
	}
	for i, line := range h {
		words := strings.Fields(line)
		at := slices.IndexFunc(words, func(w string) bool { return w == "sandbox" || w == "container" })
		if at >= 0 && at+2 < len(words) {
			v.ids = append(v.ids, words[at+2])
			if words[at] == "sandbox" && !slices.Contains(v.pods, words[at+1]) {
				v.pods = append(v.pods, words[at+1])
			}
		}
		if words[0] == "config" || line == "calm" || i > calm && !v.harmless {
			out = append(out, line)
			continue
		}
		out = append(out, add(line)...)
	}
	return out
}

// content has fields of statuses change, payloads be torn between two moments, and every pod be
// read again at the end.
func (v *weaver) content(h History) History {
	v.harmless = true
	h = slices.Insert(h, 0, "config reread "+v.word("20s", "60s", "10m0s"))
	return v.each(h, func(line string) []string {
		plain := strings.HasPrefix(line, "runtime ") && !strings.Contains(line, "=") &&
			!strings.Contains(line, " drop")
		word := ""
		if words := strings.Fields(line); len(words) > 1 {
			word = words[1]
		}
		if plain && slices.Contains([]string{"sandbox", "start", "exit", "unready"}, word) {
			switch n := v.rng.IntN(10); {
			case n < 2:
				line += " torn"
			case n < 4:
				line += " settles=" + v.word("1ms", "20ms", "200ms", "900ms", "3s")
			}
		}
		lines := []string{line}
		id := v.id()
		switch n := v.rng.IntN(20); {
		case id == "":
		case n < 3:
			lines = append(lines, "runtime update "+id)
		case n < 4:
			lines = append(
				lines,
				"agent update "+id+v.word(
					"",
					" takes=1ms",
					" takes=30ms works=10ms",
					" fails",
					" times-out works=3s",
				),
			)
		case n < 5:
			lines = append(
				lines,
				"runtime update "+id,
				"wait "+v.pods[v.rng.IntN(len(v.pods))]+v.word("", " ago=1ms", " ago=50ms"),
			)
		}
		if line == "settle" && v.chance(0.5) {
			lines = append(lines, "reread")
		}
		return lines
	})
}

// contentFake is content for the second tier, whose faults have contents change late.
func (v *weaver) contentFake(h History) History {
	v.harmless = true
	h = slices.Insert(slices.Clone(h), 1, "config content true", "config reread "+v.word("20s", "60s", "10m0s"))
	return v.each(h, func(line string) []string {
		lines := []string{line}
		id := v.id()
		switch n := v.rng.IntN(20); {
		case !strings.HasPrefix(id, "c"):
		case n < 3:
			lines = append(lines, "runtime update "+id)
		case n < 4:
			lines = append(lines, "agent update "+id+v.word("", " takes=1ms", " fails"))
		case n < 6:
			lines = append(
				lines,
				"runtime update "+id,
				"wait "+v.pods[v.rng.IntN(len(v.pods))]+v.word("", " ago=1ms", " ago=50ms"),
			)
		}
		if line == "settle" && v.chance(0.5) {
			lines = append(lines, "reread")
		}
		return lines
	})
}

// breaks has the client's connection break, most often in the middle of a read. A break due after
// some bytes never lasts into a settling, because a settling may have few reads.
func (v *weaver) breaks(h History) History {
	return v.each(h, func(line string) []string {
		const cut = "runtime disconnect"
		pause := "advance " + v.word("100µs", "500µs", "900µs", "1.3ms", "2.1ms", "5ms", "20ms")
		switch n := v.rng.IntN(20); {
		case n >= 3:
			return []string{line}
		case n == 0:
			return []string{fmt.Sprintf("within %d %s", v.rng.IntN(8), cut), line}
		case v.chance(0.3):
			return []string{line, pause, cut}
		default:
			return []string{line, fmt.Sprintf("%s %d", cut, v.rng.IntN(3000))}
		}
	})
}

// kindOn reports whether a kind is in every search.
func kindOn(name string) bool {
	_, on := KindNames()
	return slices.Contains(on, name)
}

// unread has items with an unreadable status.
func (v *weaver) unread(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		if id == "" || !v.chance(0.2) {
			return []string{line}
		}
		return []string{line, "runtime spoil " + id + v.word(" fails", " fails", " hangs", " not", " not")}
	})
}

// doubt has looks without a living ID, and empty lists.
func (v *weaver) doubt(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		switch n := v.rng.IntN(20); {
		case id == "":
		case n == 0:
			return []string{line, "reads list empty 1", v.word("relist", "advance 1s", "stream cut")}
		case n < 3:
			return []string{line, "runtime hide " + id + v.word(" 1", " 1", " 1", " 2", " 5")}
		}
		return []string{line}
	})
}

// recovers has sandboxes that are not ready recover, be missed by a look, and end again. The event
// of an end may be lost, the event of a recovery is one of a start that has been told before.
func (v *weaver) recovers(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		if !strings.HasPrefix(id, "s") || strings.HasPrefix(line, "within ") || !v.chance(0.25) {
			return []string{line} // a command within a turn may stand between calm and settle
		}
		lines := []string{
			line,
			"runtime unready " + id + v.word("", "", " drop", " late=30ms"),
			"advance " + v.word("1ms", "50ms", "3s", "20s"),
			"runtime recover " + id + v.word("", " drop"),
			"advance " + v.word("1ms", "1s", "20s"),
		}
		switch v.rng.IntN(4) {
		case 0:
			lines = append(lines, "runtime hide "+id+v.word(" 1", " 1", " 2"), "reinspect "+v.word(v.pods...))
		case 1:
			lines = append(lines, "runtime unready "+id+" drop", "advance "+v.word("3s", "20s"))
		}
		return lines
	})
}

// crossed has reads of statuses last longer than it is from one list to the next.
func (v *weaver) crossed(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		if id == "" || strings.HasPrefix(line, "within ") || !v.chance(0.15) {
			return []string{line}
		}
		lines := []string{line, "reads inspect late " + v.word("300ms", "300ms", "1500ms")}
		if strings.HasPrefix(id, "c") && v.chance(0.5) {
			lines = append(lines, "runtime haunt "+id+v.word("", "", " drop"))
		}
		for range 5 + v.rng.IntN(20) {
			lines = append(lines, "relist", "advance "+v.word("100ms", "700ms", "1s"))
		}
		return append(lines, "reads inspect ok")
	})
}

// sends has events come late, and their payloads show the runtime when they are sent.
func (v *weaver) sends(h History) History {
	v.harmless = true
	h = slices.Insert(h, 0, "config sends true")
	return v.each(h, func(line string) []string {
		words := strings.Fields(line)
		plain := len(words) > 2 && words[0] == "runtime" && !strings.Contains(line, "=") &&
			slices.Contains([]string{"sandbox", "container", "start", "exit", "unready"}, words[1])
		switch {
		case plain && v.chance(0.15): // a read has looked between the change and its event, and its answer is slow
			return []string{
				"reads inspect late " + v.word("50ms", "300ms", "1500ms"),
				line + " late=" + v.word("30ms", "300ms"),
				"wait " + v.pods[v.rng.IntN(len(v.pods))],
				"advance " + v.word("1ms", "10ms", "100ms"),
				"runtime update " + v.id(),
				"advance " + v.word("30ms", "300ms", "2s"),
				"reads inspect ok",
			}
		case plain && v.chance(0.5):
			line += " late=" + v.word("1ms", "30ms", "300ms", "1s")
		}
		lines := []string{line}
		if id := v.id(); id != "" && v.chance(0.1) {
			lines = append(lines, "runtime update "+id)
		}
		return lines
	})
}

// ghosts has gone containers that lists show for ever.
func (v *weaver) ghosts(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		if !strings.HasPrefix(id, "c") || !v.chance(0.1) {
			return []string{line}
		}
		return []string{line, "runtime haunt " + id + v.word("", "", " drop", " late=30ms", " nil-statuses")}
	})
}

// ages has the server tell clients to reconnect, and close their connections later. The calls on
// the agent's own connection have ended by then.
func (v *weaver) ages(h History) History {
	age := "config age " + v.word("2s", "5s", "20s", "90s")
	return slices.Insert(h, 0, age, "config age-grace "+v.word("5s", "10s", "30s"))
}

// pauses has the generator's loop stand still within a turn while time passes.
func (v *weaver) pauses(h History) History {
	return v.each(h, func(line string) []string {
		if !v.chance(0.1) {
			return []string{line}
		}
		pause := v.word("10ms", "200ms", "1s", "1s", "5s", "40s", "10m0s")
		return []string{fmt.Sprintf("within %d pause %s", 1+v.rng.IntN(8), pause), line}
	})
}

// lacks has statuses without their unreadable items. In the other histories such an item stands in
// the status as in the list.
func (v *weaver) lacks(h History) History { return slices.Insert(h, 0, "config lacks true") }

// bundles has statuses bring all IDs of their pod.
func (v *weaver) bundles(h History) History { return slices.Insert(h, 0, "config bundles true") }

// hung has lists hang or fail while statuses are read as ever.
func (v *weaver) hung(h History) History {
	return v.each(h, func(line string) []string {
		if !v.chance(0.1) {
			return []string{line}
		}
		how := v.word("hang", "hang", "fail", "ok")
		return []string{
			line,
			"reads list " + how,
			"reads pod " + how,
			"advance " + v.word("100ms", "2s", "10s"),
		}
	})
}

// wakes has lists hang and answer again in turns, while the status of an item hangs or fails and
// items change with or without a word: reads and peeks of a pod begin and end beside each other.
func (v *weaver) wakes(h History) History {
	return v.each(h, func(line string) []string {
		if len(v.ids) == 0 || strings.HasPrefix(line, "within ") || !v.chance(0.12) {
			return []string{line} // a command within a turn may stand between calm and settle
		}
		lines := []string{line}
		if v.chance(0.6) {
			lines = append(lines, "runtime spoil "+v.id()+v.word(" hangs", " hangs", " fails"))
		}
		if v.chance(0.3) {
			lines = append(lines, "reads inspect late "+v.word("50ms", "300ms", "1500ms"))
		}
		for range 1 + v.rng.IntN(4) {
			pods := v.word("hang", "hang", "fail", "ok")
			lines = append(lines, "reads list hang", "reads pod "+pods, "advance "+v.word("500ms", "3s", "6s", "12s"))
			lines = append(lines, v.change()...)
			lines = append(lines, "advance "+v.word("1ms", "1s", "3s"), "reads list ok")
			if v.chance(0.5) {
				lines = append(lines, "reads pod ok")
			}
			lines = append(lines, "advance "+v.word("1ms", "50ms", "1s", "5s"))
		}
		if v.chance(0.6) {
			lines = append(lines, "runtime spoil "+v.id()+" not")
		}
		return append(lines, "reads pod ok", "reads inspect ok")
	})
}

// hurries has containers of a pod start and end faster than reads of the pod end, while somebody
// waits for the pod.
func (v *weaver) hurries(h History) History {
	maker := "runtime "
	if slices.Contains(h, "config tells-calls true") { // nobody else makes containers
		maker = "agent "
	}
	made := 0
	return v.each(h, func(line string) []string {
		sandbox := v.id()
		if made > 4 || !strings.HasPrefix(sandbox, "s") || strings.HasPrefix(line, "within ") || !v.chance(0.1) {
			return []string{line} // a command within a turn may stand between calm and settle
		}
		first := made
		made += 3 + v.rng.IntN(3)
		lines := []string{line}
		id := func(n int) string { return fmt.Sprintf("c%dh", n) }
		for n := first; n < made; n++ {
			lines = append(lines, maker+"container "+sandbox+" "+id(n), maker+"start "+id(n))
		}
		lines = append(lines, "advance "+v.word("10ms", "1s", "3s"), "reads inspect late "+v.word("20ms", "100ms", "300ms", "1500ms"))
		for n := first; n < made; n++ {
			if n == first || v.chance(0.5) {
				lines = append(lines, "wait "+v.pods[v.rng.IntN(len(v.pods))]+v.word("", "", " phases"))
			}
			lines = append(lines, "runtime exit "+id(n)+v.word("", "", "", " late=30ms", " drop"), "advance "+v.word("5ms", "50ms", "200ms", "1s"))
		}
		return append(lines, "reads inspect ok")
	})
}

// queues has many wait for one pod, for reads begun after different times, and give up in any
// order.
func (v *weaver) queues(h History) History {
	made := 0
	return v.each(h, func(line string) []string {
		if len(v.pods) == 0 || strings.HasPrefix(line, "within ") || !v.chance(0.15) {
			return []string{line} // a command within a turn may stand between calm and settle
		}
		pod := v.word(v.pods...)
		first := made
		made += 3 + v.rng.IntN(5)
		lines := []string{line}
		for n := first; n < made; n++ {
			ago := v.word("", "", " ago=1ms", " ago=1s", " ago=-20ms", " ago=-2s", " limit=50ms")
			lines = append(lines, fmt.Sprintf("wait %s as=q%d%s%s", pod, n, ago, v.word("", "", " phases")))
			if v.chance(0.3) {
				lines = append(lines, "advance "+v.word("10µs", "1ms", "30ms"))
			}
		}
		for _, n := range v.rng.Perm(made - first)[:1+v.rng.IntN(made-first)] {
			lines = append(lines, fmt.Sprintf("cancel q%d", first+n))
			if v.chance(0.5) {
				lines = append(lines, "advance "+v.word("10µs", "1ms", "300ms"))
			}
		}
		return lines
	})
}

// reboots has the runtime go down and come back with other containers: those from before are gone,
// and nobody tells of them.
func (v *weaver) reboots(h History) History {
	maker := "runtime "
	if slices.Contains(h, "config tells-calls true") { // nobody else makes containers
		maker = "agent "
	}
	made := 0
	return v.each(h, func(line string) []string {
		if len(v.pods) == 0 || made > 8 || strings.HasPrefix(line, "within ") || !v.chance(0.06) {
			return []string{line} // a command within a turn may stand between calm and settle
		}
		lines := []string{line, "runtime down", "advance " + v.word("1ms", "300ms", "5s", "3m0s")}
		for _, id := range v.ids {
			if strings.HasPrefix(id, "s") && v.chance(0.8) {
				lines = append(lines, "runtime remove "+id)
			}
		}
		lines = append(lines, "runtime up")
		for _, pod := range v.pods {
			if v.chance(0.3) {
				continue
			}
			made++
			s := fmt.Sprintf("s%db", made)
			c := fmt.Sprintf("c%db", made)
			lines = append(
				lines,
				maker+"sandbox "+pod+" "+s,
				maker+"container "+s+" "+c,
				maker+"start "+c,
				"advance "+v.word("1ms", "1ms", "2s"),
			)
		}
		return lines
	})
}

// change has an item change, with or without a word.
func (v *weaver) change() []string {
	id := v.id()
	told := v.word("", " drop", " drop", " late=300ms")
	switch n := v.rng.IntN(8); {
	case n < 3:
		return []string{"runtime exit " + id + told}
	case n == 3:
		return []string{"runtime remove " + id + told}
	case n < 6 && strings.HasPrefix(id, "s"):
		return []string{"runtime unready " + id + told, "advance " + v.word("1ms", "1s"), "runtime recover " + id}
	case n == 6:
		return []string{"runtime hide " + id + v.word(" 1", " 2")}
	}
	return nil
}

// deaf has nothing told of what ends or goes while lists hang for long.
func (v *weaver) deaf(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		if id == "" || strings.HasPrefix(line, "within ") || !v.chance(0.1) {
			return []string{line} // a command within a turn may stand between calm and settle
		}
		return []string{
			line,
			"reads list hang",
			"reads pod hang",
			"advance " + v.word("10ms", "3s", "15s"),
			"runtime " + v.word("exit ", "exit ", "remove ") + id + " drop",
			"advance " + v.word("5s", "25s", "45s"),
		}
	})
}

// deafFake is deaf for the second tier. The next line of a fault ends the hang, as calm does.
func (v *weaver) deafFake(h History) History {
	return v.each(h, func(line string) []string {
		id := v.id()
		if !strings.HasPrefix(id, "c") || strings.HasPrefix(line, "within ") || !v.chance(0.1) {
			return []string{line}
		}
		return []string{
			line,
			"fault hang-list=1 drop=1",
			"advance " + v.word("10ms", "3s", "15s"),
			"runtime exit " + id,
			"advance " + v.word("5s", "25s", "45s"),
		}
	})
}

// large has pods of many containers, several of which end, go or hang at once: a client asks a
// runtime for a few items of a pod at a time.
func (v *weaver) large(h History) History {
	var made []string // loops over the containers of a pod, each with its IDs
	most := []int{8, 16, 40}[v.rng.IntN(3)]
	return v.each(h, func(line string) []string {
		words := strings.Fields(line)
		lines := []string{line}
		if len(words) == 4 && words[0] == "runtime" && words[1] == "sandbox" && v.chance(0.5) {
			id := "c" + words[3] + "l$"
			all := fmt.Sprintf("each 1..%d ", most)
			made = append(made, id)
			lines = append(lines, all+"runtime container "+words[3]+" "+id, all+"runtime start "+id)
		}
		if len(made) == 0 || strings.HasPrefix(line, "within ") || !v.chance(0.3) {
			return lines // a command within a turn may stand between calm and settle
		}
		id := made[v.rng.IntN(len(made))]
		first := 1 + v.rng.IntN(most)
		some := fmt.Sprintf("each %d..%d runtime ", first, min(most, first+v.rng.IntN(most)))
		switch v.rng.IntN(6) {
		case 0:
			lines = append(lines, "fault hang-item="+v.word("0.1", "0.5", "1"))
		case 1:
			lines = append(lines, "fault slow-status="+v.word("100ms", "1s", "3s"))
		case 2:
			lines = append(lines, some+"remove "+id)
		default:
			lines = append(lines, some+"exit "+id)
		}
		return lines
	})
}

// silent has creations and removals without a word cost trust, as all other changes do.
func (v *weaver) silent(h History) History { return slices.Insert(h, 0, "config strict true") }

// late has calls of the agent take effect minutes after the agent gave them up.
func (v *weaver) late(h History) History {
	return v.each(h, func(line string) []string {
		if !strings.HasPrefix(line, "agent ") || !v.chance(0.25) {
			return []string{line}
		}
		words := slices.DeleteFunc(strings.Fields(line), func(w string) bool {
			return strings.HasPrefix(w, "works=") || strings.HasPrefix(w, "takes=") || w == "fails" ||
				w == "times-out"
		})
		works := v.word("4s", "40s", "3m0s", "6m0s", "9m30s")
		line = strings.Join(words, " ") + " times-out takes=" + v.word("1ms", "2s") + " works=" + works
		if v.chance(0.5) {
			return []string{line, "advance " + works, "advance 2ms", "wait " + v.pods[v.rng.IntN(len(v.pods))]}
		}
		return []string{line}
	})
}

// crowd is a history of its own: a runtime of few processors, and hundreds of pods. No call fails
// or hangs, so every pod is read within the time of the work.
func (v *weaver) crowd(h History) History {
	pods := 60 + v.rng.IntN(200)
	processors := 1 + v.rng.IntN(3)
	work := []int{2, 10, 30, 80, 150}[v.rng.IntN(5)]
	bound := func(n int) string { return fmt.Sprintf("%dms", 1500+n*work*12/10/processors) }
	out := History{
		h[0],
		fmt.Sprintf("config processors %d", processors),
		fmt.Sprintf("config work %dms", work),
		"config capacity 10000",
	}
	if v.chance(0.5) {
		out = append(out, "config inspect-timeout 10s")
	}
	all := fmt.Sprintf("each 1..%d ", pods)
	out = append(out, all+"runtime sandbox p$ s$")
	if v.chance(0.7) {
		out = append(out, all+"runtime container s$ c$", all+"runtime start c$")
	}
	out = append(out, "start", "served "+bound(pods), "advance 20s")
	for range v.rng.IntN(4) {
		out = append(
			out,
			all+v.word(
				"runtime exit c$",
				"runtime exit c$ nil-statuses",
				"runtime remove c$",
				"wait p$",
				"runtime update c$",
			),
		)
		out = append(out, v.word("relist", "stream cut", "advance 10ms"), "advance "+bound(3*pods))
	}
	return append(out, "served "+bound(pods), "unfailed", "settle")
}

// arrives is a history of its own: many pods at once, and then one after another, as fast as the
// runtime reads them. No call fails or hangs, so the first of them are read in a few times their
// work, whoever comes meanwhile.
func (v *weaver) arrives(h History) History {
	first := 20 + v.rng.IntN(20)
	work := time.Duration([]int{30, 90, 110, 150, 250}[v.rng.IntN(5)]) * time.Millisecond
	out := History{
		h[0],
		"config processors 1",
		fmt.Sprintf("config work %v", work),
		"config capacity 10000",
		fmt.Sprintf("each 1..%d runtime sandbox p$ s$", first),
		"start",
	}
	even := v.chance(0.5)
	comers := 4 * first
	for i := range comers {
		pause := work * 19 / 20
		if !even {
			pause = time.Duration(v.rng.ExpFloat64() * float64(pause))
		}
		out = append(
			out,
			fmt.Sprintf("runtime sandbox q%d t%d nil-statuses", i, i),
			fmt.Sprintf("advance %v", max(pause.Round(time.Millisecond), time.Millisecond)),
		)
	}
	all := time.Duration(first+comers) * work * 12 / 10
	return append(out, "served 1ms p", fmt.Sprintf("served %v", all), "unfailed", "settle")
}

// patient has an agent that polls rarely, or often.
func (v *weaver) patient(h History) History {
	v.harmless = true
	base := v.word("100ms", "5s", "20s", "60s")
	h = v.each(h, func(line string) []string {
		if strings.HasPrefix(line, "config relist-max ") || strings.HasPrefix(line, "config relist-base ") {
			return nil
		}
		return []string{line}
	})
	return slices.Insert(h, 0, "config relist-base "+base, "config relist-max "+v.word("60s", "300s"))
}

// never has statuses read again only when something tells of a change.
func (v *weaver) never(h History) History {
	h = slices.DeleteFunc(slices.Clone(h), func(line string) bool {
		return line == "reread" || strings.HasPrefix(line, "config reread ")
	})
	return slices.Insert(h, 0, "config reread -1s")
}

// giants has pods of hundreds of containers, of which some end, go or change at once.
func (v *weaver) giants(h History) History {
	maker := "runtime "
	if slices.Contains(h, "config tells-calls true") { // nobody else makes containers
		maker = "agent "
	}
	most := []int{60, 120, 300}[v.rng.IntN(3)]
	var made []string // loops over the containers of a pod, each with its IDs
	return v.each(h, func(line string) []string {
		words := strings.Fields(line)
		lines := []string{line}
		if len(words) >= 4 && words[1] == "sandbox" && len(made) < 2 && v.chance(0.5) {
			id := "c" + words[3] + "g$"
			all := fmt.Sprintf("each 1..%d ", most)
			made = append(made, id)
			lines = append(lines, all+maker+"container "+words[3]+" "+id, all+maker+"start "+id)
		}
		if len(made) == 0 || strings.HasPrefix(line, "within ") || !v.chance(0.3) {
			return lines // a command within a turn may stand between calm and settle
		}
		id := made[v.rng.IntN(len(made))]
		first := 1 + v.rng.IntN(most)
		some := fmt.Sprintf("each %d..%d runtime ", first, min(most, first+v.rng.IntN(most)))
		return append(lines, some+v.word("exit ", "exit ", "remove ", "update ")+id+v.word("", "", " drop"))
	})
}
