// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

var (
	seeds     = flag.Int("seeds", 12, "random histories")
	firstSeed = flag.Uint64("from", 0, "seed of the first random history")
)

// TestEachEndIsReportedOnce plays random histories of a node: containers start, end and are
// removed, the runtime restarts, the API server goes away, the agent is stopped and killed and
// starts again. Each end that an agent could know of is reported once, with its final code, and
// never twice. In every third history most of the ends are combined, and counted as exactly. In
// every other third the API server takes nothing of a namespace that is being deleted, and has
// trouble with another for a while; and the recorder combines Events of different codes. All have
// the same goroutines: under the race detector every third is played.
func TestEachEndIsReportedOnce(t *testing.T) {
	for n := range uint64(*seeds) {
		if raceDetector && *seeds > 2 && n%3 != 2 {
			continue
		}
		seed := *firstSeed + n
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playRandom(t, seed) })
		})
	}
}

// span is a time in which an agent and the runtime both worked.
type span struct{ from, to time.Time }

// fact is what the test knows of a container.
type fact struct {
	id, name, uid string
	ranSince      time.Time
	endedAt       time.Time
	removedAt     time.Time
	code          int32 // as the runtime last showed it
	reason        string
	endedBefore   bool // before the first agent
}

// history is a random history under way.
type history struct {
	*world
	rng    *rand.Rand
	agent  *agent
	upAt   time.Time // when agent and runtime began to work together; zero: one of them does not
	spans  []span
	first  time.Time // start of the first agent
	rtDown bool
	facts  map[string]*fact
	seq    uint64

	reports []report
	kills   int
	// lost is the number of occurrences that killed agents had not sent.
	lost int64
	// again is the number of reports that the server took within the last second of killed agents, so
	// that they are repeated.
	again int64
	rates func(*Config[cri.PodStatus]) // of the agents; nil: each end has an Event of its own
	// weather: the API server refuses or fails the Events of some namespaces, and the recorder's limits
	// are low.
	weather bool
	log     []string
	pods    []string // sandbox IDs
	live    []string // container IDs
}

// deleted is the namespace that is being deleted in histories with weather.
const deleted = "deleted"

func playRandom(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 46))
	profiles := fakeruntime.Profiles()
	profile := profiles[rng.IntN(len(profiles))]
	h := &history{
		world: newWorld(t, fakeruntime.Config{Profile: profile, Seed: seed, HistoryLimit: -1}),
		rng:   rng,
		facts: make(map[string]*fact),
	}
	h.note("profile %s", profile.Name)
	if seed%3 == 1 {
		h.note("most ends are combined")
		h.rates = func(c *Config[cri.PodStatus]) { c.NamespaceRate = Rate{PerSecond: 0.02, Burst: 2} }
	}
	if seed%3 == 2 {
		h.note("the recorder combines, and namespaces are deleted and sick")
		h.burst = 1 + rng.IntN(3)
		h.deleteNamespace(deleted)
		h.weather = true
	}
	for range 2 + rng.IntN(4) {
		h.addPod()
	}
	h.pass(time.Duration(rng.IntN(20)) * time.Second)
	for _, f := range h.observeTruth() {
		f.endedBefore = !f.endedAt.IsZero()
	}
	h.pass(time.Second)
	h.startAgent()
	for range 60 + rng.IntN(60) {
		h.act()
		h.observeTruth()
	}
	h.runtimeUp()
	h.serverBack()
	h.sick.Store("")
	h.startAgent()
	h.pass(time.Minute)
	if h.weather { // a namespace in trouble is tried more and more rarely
		h.pass(10 * time.Minute)
	}
	h.observeTruth()
	h.stopAgent()
	h.judge()
	if t.Failed() {
		t.Log(strings.Join(h.log, "\n"))
		t.Logf("once more: go test ./exits -run '^TestEachEndIsReportedOnce$' -args -seeds=1 -from=%d", seed)
	}
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (h *history) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// act does one random thing, and lets time pass.
func (h *history) act() {
	switch n := h.rng.IntN(100); {
	case n < 8:
		h.addPod()
	case n < 30:
		h.restartContainer()
	case n < 60:
		h.exit()
	case n < 68:
		h.remove()
	case n < 72:
		h.removePod()
	case n < 75:
		h.killShim()
	case n < 79 && h.rtDown:
		h.runtimeUp()
	case n < 79:
		h.runtimeDown()
	case n < 84 && h.away.Load():
		h.serverBack()
	case n < 84:
		h.note("the API server goes away")
		h.away.Store(true)
	case n >= 96 && h.weather:
		sick := []string{"", "sick"}[h.rng.IntN(2)]
		h.note("the API server has trouble with namespace %q", sick)
		h.sick.Store(sick)
	case n < 94 && h.agent == nil:
		h.startAgent()
	case n < 88:
		h.stopAgent()
	case n < 91:
		h.killAgent()
	}
	passes := []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, 2 * time.Minute}
	h.pass(passes[h.rng.IntN(len(passes))])
}

// one returns a random element, false if there is none.
func one[T any](h *history, all []T) (x T, ok bool) {
	if len(all) == 0 {
		return x, false
	}
	return all[h.rng.IntN(len(all))], true
}

func (h *history) addPod() {
	namespace := "ns"
	if h.weather {
		namespace = []string{"ns", "sick", deleted}[h.rng.IntN(3)]
	}
	id, err := h.runtime.AddPod(fakeruntime.PodSpec{Name: fmt.Sprintf("p%d", len(h.log)), Namespace: namespace})
	if err != nil || len(h.pods) > 8 {
		return // the runtime is down
	}
	h.pods = append(h.pods, id)
	h.note("pod %.8s", id)
	for i := range 1 + h.rng.IntN(3) {
		h.addContainer(id, fmt.Sprintf("c%d", i))
	}
}

func (h *history) addContainer(sandbox, name string) {
	var life fakeruntime.Life
	if h.rng.IntN(3) == 0 {
		life = fakeruntime.After(time.Duration(h.rng.IntN(30000))*time.Millisecond, int32([]int{0, 1, 2, 137, 139, 143}[h.rng.IntN(6)]))
	}
	id, err := h.runtime.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: name, Life: life})
	if err != nil {
		return
	}
	err = h.runtime.Start(id)
	h.live = append(h.live, id)
	h.note("container %.8s %s of %.8s, %v: %v", id, name, sandbox, life, err)
}

func (h *history) restartContainer() {
	if pod, ok := one(h, h.pods); ok {
		h.addContainer(pod, fmt.Sprintf("c%d", h.rng.IntN(3)))
	}
}

func (h *history) exit() {
	id, ok := one(h, h.live)
	switch {
	case !ok:
	case h.rng.IntN(4) == 0:
		late := time.Duration(h.rng.IntN(4)*100) * time.Millisecond
		h.note("OOM kill of %.8s, told %v later: %v", id, late, h.runtime.OOMKill(id, late))
	default:
		code := int32([]int{0, 1, 2, 137, 139, 143, 255}[h.rng.IntN(7)])
		h.note("exit %.8s %d: %v", id, code, h.runtime.Exit(id, code))
	}
}

func (h *history) remove() {
	if id, ok := one(h, h.live); ok {
		h.note("remove %.8s: %v", id, h.runtime.Remove(id))
	}
}

func (h *history) removePod() {
	if id, ok := one(h, h.pods); ok {
		h.note("remove pod %.8s: %v", id, h.runtime.RemoveSandbox(id))
		h.pods = slices.DeleteFunc(h.pods, func(x string) bool { return x == id })
	}
}

func (h *history) killShim() {
	if id, ok := one(h, h.pods); ok {
		h.note("kill the shim of %.8s: %v", id, h.runtime.KillShim(id))
		h.pods = slices.DeleteFunc(h.pods, func(x string) bool { return x == id })
	}
}

func (h *history) runtimeDown() {
	h.note("the runtime goes down")
	h.endSpan()
	h.runtime.Down()
	h.down.Store(true)
	h.rtDown = true
}

func (h *history) runtimeUp() {
	if h.rtDown {
		h.note("the runtime is back")
		h.runtime.Up(0)
		h.down.Store(false)
		h.rtDown = false
	}
	h.beginSpan()
}

func (h *history) serverBack() {
	h.note("the API server is back")
	h.away.Store(false)
}

func (h *history) startAgent() {
	if h.agent == nil {
		h.note("an agent starts")
		_, err := os.Stat(h.ledger)
		if err != nil {
			h.first = time.Now() // an agent killed before its first write leaves nothing
		}
		h.agent = h.start(h.rates)
	}
	h.beginSpan()
}

func (h *history) stopAgent() {
	if h.agent != nil {
		h.note("the agent stops")
		h.endSpan()
		h.reports = append(h.reports, h.agent.stop()...)
		h.agent = nil
	}
}

func (h *history) killAgent() {
	if h.agent == nil {
		return
	}
	h.note("the agent is killed")
	h.endSpan()
	reports, unsent, again := h.agent.kill()
	h.reports = append(h.reports, reports...)
	h.lost += unsent
	h.again += again
	h.kills++
	h.agent = nil
}

func (h *history) beginSpan() {
	if h.agent != nil && !h.rtDown && h.upAt.IsZero() {
		h.upAt = time.Now()
	}
}

func (h *history) endSpan() {
	if !h.upAt.IsZero() {
		h.spans = append(h.spans, span{h.upAt, time.Now()})
		h.upAt = time.Time{}
	}
}

// observeTruth updates the facts, and returns them.
func (h *history) observeTruth() map[string]*fact {
	changes, next := h.runtime.History(h.seq)
	h.seq = next
	for _, c := range changes {
		if c.ContainerID == "" {
			continue
		}
		f := h.facts[c.ContainerID]
		if f == nil {
			f = &fact{id: c.ContainerID, uid: c.PodUID}
			h.facts[f.id] = f
		}
		switch c.New {
		case fakeruntime.StateRunning:
			f.ranSince = c.Time
		case fakeruntime.StateExited:
			f.endedAt = c.Time
			f.code = c.ExitCode
		case fakeruntime.StateRemoved:
			f.removedAt = c.Time
		}
	}
	for _, pod := range h.runtime.Truth().Pods {
		for _, s := range pod.Sandboxes {
			for _, c := range s.Containers {
				f := h.facts[c.ID]
				if f == nil {
					continue
				}
				f.name = c.Name
				if c.State == fakeruntime.StateExited {
					f.code = c.ExitCode
					f.reason = c.Reason
				}
			}
		}
	}
	return h.facts
}

// within reports whether agent and runtime worked together all the time.
func (h *history) within(from, to time.Time) bool {
	return slices.ContainsFunc(h.spans, func(s span) bool { return !s.from.After(from) && !s.to.Before(to) })
}

// enough is more than any agent needs to learn of what the runtime shows, and to report it: the
// reconnect of a lost stream takes up to a minute, and lists come every second then.
const enough = 15 * time.Second

// required reports whether an agent had to report the end.
func (h *history) required(f *fact) bool {
	if f.endedAt.Sub(h.first) < time.Second {
		return false // by its stamp, which is older, it may be no news
	}
	gone := f.removedAt
	if gone.IsZero() {
		gone = time.Now()
	}
	for _, s := range h.spans { // shown as ended for long enough
		from, to := s.from, s.to
		if f.endedAt.After(from) {
			from = f.endedAt
		}
		if gone.Before(to) {
			to = gone
		}
		if to.Sub(from) >= enough {
			return true
		}
	}
	longEnough := !f.ranSince.IsZero() && f.endedAt.Sub(f.ranSince) >= enough
	return longEnough && h.within(f.endedAt.Add(-enough), f.endedAt.Add(enough))
}

// judge compares the reports with the facts, and the Events with the reports.
func (h *history) judge() {
	t := h.t
	told := make(map[string][]report)
	for _, r := range h.reports {
		if r.Kind != SandboxDied {
			told[r.ID] = append(told[r.ID], r)
		}
	}
	ends := 0
	for _, id := range slices.Sorted(maps.Keys(h.facts)) {
		f, all := h.facts[id], told[id]
		delete(told, id)
		ended := !f.endedAt.IsZero()
		switch {
		case len(all) > 1:
			t.Errorf("%.8s is reported %d times: %s and %s", id, len(all), all[0].Note, all[1].Note)
		case len(all) == 1 && (!ended || f.endedBefore):
			t.Errorf("%.8s is reported, and has not ended, or before the first start: %s", id, all[0].Note)
		case len(all) == 0 && ended && !f.endedBefore && h.required(f):
			t.Errorf("%.8s (%s) ended at %v with %d and is not reported", id, f.name, f.endedAt.Format("15:04:05.000"), f.code)
		case len(all) == 1 && all[0].CodeKnown && all[0].ExitCode != f.code:
			t.Errorf("%.8s is reported with code %d, not %d: %s", id, all[0].ExitCode, f.code, all[0].Note)
		case len(all) == 1 && !all[0].CodeKnown && f.removedAt.IsZero():
			t.Errorf("%.8s is reported without its code %d", id, f.code)
		case len(all) == 1 && all[0].Settled && all[0].Reason != f.reason:
			t.Errorf("%.8s is reported with the reason %s, not %s: %s", id, all[0].Reason, f.reason, all[0].Note)
		}
		ends += len(all)
	}
	for id, all := range told {
		t.Errorf("%.8s is no container of this history: %s", id, all[0].Note)
	}
	h.judgeEvents()
	stats := fmt.Sprintf("%d ends reported, %d containers, %d kills, %d occurrences lost with them", ends, len(h.facts), h.kills, h.lost)
	h.note("%s", stats)
	if ends == 0 && len(h.facts) > 20 {
		t.Errorf("no end was reported: %s", stats)
	}
}

// about identifies ends that are counted together: with a low limit of the recorder those of all
// containers of a pod.
func (h *history) about(uid, container, kind string) string {
	if h.weather {
		return uid + " " + kind
	}
	return uid + " " + container + " " + kind
}

// judgeEvents compares the counts on the server with the reports. Only reports of a killed agent's
// last second may be missing, and only those of which the server's answer came in that second are
// counted twice: see the package's documentation.
func (h *history) judgeEvents() {
	want := make(map[string]int64)
	for _, r := range h.reports {
		switch {
		case r.Pod.Namespace == deleted:
		case r.outcome == Reported:
			want[h.about(string(r.Pod.UID), r.Container, string(r.Kind))]++
		case r.outcome == Combined && h.rates != nil:
			want[fmt.Sprintf("%s %s", r.Pod.Namespace, r.Kind)]++
		default:
			h.t.Errorf("%.8s: %s", r.ID, r.outcome)
		}
	}
	got := make(map[string]int64)
	for _, e := range h.server.Events() {
		name := strings.TrimSuffix(strings.TrimPrefix(e.Regarding.FieldPath, "spec.containers{"), "}")
		count := int64(1)
		if e.Series != nil {
			count = int64(e.Series.Count)
		}
		switch e.Regarding.Kind {
		case "Pod":
			got[h.about(string(e.Regarding.UID), name, e.Reason)] += count
		case "Namespace":
			got[fmt.Sprintf("%s %s", e.Regarding.Namespace, e.Reason)] += count
		}
	}
	missing, twice := int64(0), int64(0)
	for key, n := range want {
		twice += max(0, got[key]-n)
		missing += max(0, n-got[key])
	}
	for key, n := range got {
		if want[key] == 0 {
			h.t.Errorf("%s: %d on the server, none reported", key, n)
		}
	}
	if twice > h.again {
		h.t.Errorf("%d ends are counted twice, and %d were repeated after a kill", twice, h.again)
	}
	if missing > h.lost {
		h.t.Errorf("%d ends are missing on the server, and killed agents had not sent %d", missing, h.lost)
	}
}
