// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// The contestants.
const (
	floors    = "floor"
	generated = "generated"
	ours      = "ours"
	kubelet   = "kubelet-v1.36.3"
)

var everybody = []string{floors, generated, ours, kubelet}

// envContestant makes this program a contestant.
const envContestant = "PEER_CONTESTANT"

var (
	agents = flag.String(
		"agents",
		strings.Join([]string{floors, generated, ours}, ","),
		"measure these contestants",
	)
	program = flag.String("kubelet", "", "the program of folder kubelet, for the contestant "+kubelet)
	shrink  = flag.Int("shrink", 1, "divide the number of pods of every row, and its work, by this")
	idle    = flag.Duration("idle", 5*time.Minute, "length of each of the two windows of row idle")
	settle  = flag.Duration(
		"settle",
		2*time.Second,
		"time for the effects of the start, and for a polling PLEG",
	)
)

func TestMain(m *testing.M) {
	var err error
	switch name := os.Getenv(envContestant); name {
	case "":
		os.Exit(m.Run())
	case ours:
		err = worker.Serve(context.Background(), os.Stdin, os.Stdout)
	default:
		err = child.Serve(os.Stdin, os.Stdout, &floor{decode: name == generated})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// never is a relist period longer than any run.
const never = 24 * time.Hour

// The ways to run a PLEG.
var (
	manual  = worker.Config{Mode: worker.Generic, RelistBase: never} // lists on request
	generic = worker.Config{Mode: worker.Generic}
	evented = worker.Config{Mode: worker.Evented}
	intake  = worker.Config{Mode: worker.Evented, RelistBase: never} // one list, at the start
)

// row is a row of the table in docs/performance.md.
type row struct {
	name   string
	agents []string
	// pods is the size of the node, streams whether it has the streaming list calls, delay how much
	// longer a status call takes.
	pods    int
	streams bool
	delay   time.Duration
	config  worker.Config
	measure func(*node)
}

func rows() []row {
	plegs := everybody[2:]
	var all []row
	for _, pods := range []int{500, 2500, 5000} {
		all = append(all, row{
			name: fmt.Sprintf("relist/containers=%d", 2*pods), agents: everybody, pods: pods, config: manual,
			measure: func(n *node) { n.relist(max(10, 50_000/pods)) },
		})
	}
	return append(
		all,
		// the streaming list calls are unused by the kubelet by default
		row{
			"streaming/containers=10000",
			[]string{floors, ours, kubelet},
			5000,
			true,
			0,
			manual,
			func(n *node) { n.relist(10) },
		},
		row{"changed/containers=10000", plegs, 5000, false, 0, manual, (*node).changed},
		row{"intake/exit", everybody, 5000, false, 0, intake, (*node).intake},
		row{"first/pods=5000", plegs, 5000, false, time.Millisecond, manual, (*node).first},
		row{"newer/pods=500", []string{generated, ours}, 500, false, 0, evented, (*node).newer},
		row{"newer/pods=500", []string{kubelet}, 500, false, 0, generic, (*node).newer},
		row{"latency/evented/changes/s=1000", plegs, 5000, false, 0, evented, (*node).latency},
		row{"latency/generic/changes/s=1000", plegs, 5000, false, 0, generic, (*node).latency},
		row{"memory/containers=10000", []string{kubelet}, 5000, false, 0, manual, (*node).memory},
		row{"memory/containers=10000", []string{ours}, 5000, true, 0, manual, (*node).memory},
		row{"memory/containers=100000", []string{ours}, 50_000, true, 0, manual, (*node).memory},
		row{"idle/evented", plegs, 500, false, 0, evented, (*node).idle},
		row{"idle/generic", plegs, 500, false, 0, generic, (*node).idle},
	)
}

func BenchmarkPeer(b *testing.B) {
	chosen := strings.Split(*agents, ",")
	for _, agent := range chosen {
		if !slices.Contains(everybody, agent) {
			b.Fatalf("-agents names %q: the contestants are %s", agent, strings.Join(everybody, ", "))
		}
	}
	for _, r := range rows() {
		for _, agent := range r.agents {
			if slices.Contains(chosen, agent) {
				b.Run(r.name+"/agent="+agent, func(b *testing.B) { r.run(b, agent, b.Log) })
			}
		}
	}
}

// size returns a number of the documents, shrunk.
func size(n int) int { return max(1, n / *shrink) }

// node is the fake runtime with a contestant.
type node struct {
	b       *testing.B
	log     func(...any)
	rt      *fakeruntime.Runtime
	calls   child.Calls
	config  worker.Config
	running []string // containers left to exit, one of every pod, then the next of every pod
}

// run measures a contestant on a node of its own. The reason of a failure goes to log: what
// [testing.Benchmark] runs has no log of its own.
func (r row) run(b *testing.B, agent string, log func(...any)) {
	n := &node{b: b, log: log, config: r.config}
	n.rt, n.config.Endpoint = startRuntime(b, r)
	pods := n.rt.Truth().Pods
	for i := range 2 {
		for _, p := range pods {
			n.running = append(n.running, p.Sandboxes[0].Containers[i].ID)
		}
	}
	self, err := os.Executable()
	n.must(err)
	if agent == kubelet {
		self = *program
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), envContestant+"="+agent), os.Stderr
	c, err := child.Run(agent, cmd)
	n.must(err)
	b.Cleanup(func() {
		err := c.Stop(10 * time.Second)
		if err != nil {
			log(err)
			b.Fail()
		}
	})
	n.calls = c.Calls
	r.measure(n)
}

// containerBytes is the size of a container's status with the labels, annotations and mounts of a
// kubelet's.
const containerBytes = 1850

// startRuntime serves a fake runtime with the row's pods of two containers until the end of the
// test, and returns its socket.
func startRuntime(tb testing.TB, r row) (*fakeruntime.Runtime, string) {
	profile, err := fakeruntime.ProfileByName(fakeruntime.DefaultProfile)
	if err != nil {
		tb.Fatal(err)
	}
	if !r.streams {
		profile.StreamBatch = 0
	}
	rt, err := fakeruntime.New(fakeruntime.Config{
		Profile: profile, Faults: fakeruntime.Faults{SlowStatus: r.delay}, ContainerBytes: containerBytes,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := rt.Populate(fakeruntime.Population{Pods: size(r.pods), Containers: 2}); err != nil {
		tb.Fatal(err)
	}
	return rt, crikit.Serve(tb, rt)
}

func (n *node) must(err error) {
	n.b.Helper()
	if err != nil {
		n.log(err)
		n.b.FailNow()
	}
}

// ask makes a call of the contestant.
func ask[A any](n *node, method string, argument any) A {
	n.b.Helper()
	answer, err := child.Ask[A](context.Background(), n.calls, method, argument)
	n.must(err)
	return answer
}

// start starts the contestant, and waits until it is at work unless it lists on request.
func (n *node) start() (claims int) {
	ask[worker.Hello](n, "Start", n.config)
	if n.config.Mode == manual.Mode && n.config.RelistBase == manual.RelistBase {
		return 0
	}
	claims = ask[int](n, "Await", 0)
	for limit := time.Now().Add(time.Minute); n.config.Mode == worker.Evented && n.rt.Stats().Subscribers == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			n.must(errors.New("nobody subscribes to the events"))
		}
	}
	return claims
}

// cost reports what the contestant uses in f for an operation, by the cost of some.
func (n *node) cost(operations int, f func()) {
	n.b.ReportAllocs()
	before := ask[worker.Cost](n, "Used", true)
	f()
	after, per := ask[worker.Cost](n, "Used", false), float64(operations)
	n.b.ReportMetric(float64(after.CPU-before.CPU)/per, "cpu-ns/op")
	n.b.ReportMetric(float64(after.Wall-before.Wall)/per, "ns/op")
	n.b.ReportMetric(float64(after.Bytes-before.Bytes)/per, "B/op")
	n.b.ReportMetric(float64(after.Objects-before.Objects)/per, "allocs/op")
	n.b.ReportMetric(float64(after.Wakeups-before.Wakeups)/per, "wakeups/op")
}

// quantiles reports those of latencies.
func (n *node) quantiles(took []time.Duration) {
	q := bench.Summarize(took)
	n.b.ReportMetric(float64(q.P50), "p50-ns")
	n.b.ReportMetric(float64(q.P99), "p99-ns")
	n.b.ReportMetric(float64(q.Max), "max-ns")
}

// exit makes the next containers exit, so many a second, or as fast as possible.
func (n *node) exit(count, rate int) {
	begin := time.Now()
	for i, id := range n.running[:count] {
		if rate > 0 {
			time.Sleep(time.Duration(i)*time.Second/time.Duration(rate) - time.Since(begin))
		}
		n.must(n.rt.Exit(id, 0))
	}
	n.running = n.running[count:]
}

// lists has everything listed so many times.
func (n *node) lists(times int) { ask[bool](n, "Relists", times) }

// relist measures lists of a node on which nothing changes.
func (n *node) relist(times int) {
	n.start()
	n.lists(3) // the first inspects every pod
	n.cost(size(times), func() { n.lists(size(times)) })
}

// changed measures lists of a node with 1 % of the containers changed since the list before, with
// their inspection.
func (n *node) changed() {
	n.start()
	n.lists(3)
	n.exit(size(100), 0)
	n.cost(1, func() { n.lists(1) })
}

// intake measures the event stream: every container of the node exits as fast as the runtime can.
func (n *node) intake() {
	before, exits := n.start(), len(n.running)
	n.cost(exits, func() {
		n.exit(exits, 0)
		ask[int](n, "Await", before+exits)
	})
}

// first measures the first list of a node on a runtime with slow status calls.
func (n *node) first() {
	n.cost(1, func() {
		n.start()
		n.lists(1)
	})
}

// wait returns how long a pod worker waits for a status of the pod newer than the present moment,
// and without an error: on a crowded machine a read may end without an item that is late.
func (n *node) wait(uid string) (took time.Duration) {
	for limit := time.Now().Add(time.Minute); ; {
		answer := ask[worker.Newer](n, "Newer", uid)
		took += answer.Took
		if len(answer.Pod.Items) > 0 && answer.Pod.Err == "" {
			return took
		}
		if time.Now().After(limit) {
			n.must(fmt.Errorf("pod %s: nothing newer: %s", uid, answer.Pod.Err))
		}
	}
}

// newer measures how long a pod worker waits for a status of its pod newer than now.
func (n *node) newer() {
	n.start()
	var took []time.Duration
	pods := n.rt.Truth().Pods
	for i := range size(500) {
		took = append(took, n.wait(pods[i%len(pods)].UID))
		time.Sleep(7 * time.Millisecond)
	}
	n.quantiles(took)
}

// latency measures the time from a container's exit to its event on Watch, at 1000 exits a second.
func (n *node) latency() {
	n.start()
	time.Sleep(*settle)
	ask[worker.News](n, "News", true)
	_, next := fakeproc.Changes(n.rt, 0)
	n.exit(size(8000), 1000)
	time.Sleep(*settle + time.Second) // two periods of a polling PLEG, and more
	ledger := bench.NewLedger()
	changes, _ := fakeproc.Changes(n.rt, next)
	for _, c := range changes {
		ledger.Happened(c)
	}
	v := n.delivered(ledger)
	n.quantiles(v.Latency)
	n.b.ReportMetric(float64(v.Unseen), "lost")
}

// delivered returns the verdict once each change was seen. A contestant without a CPU may list, or
// deliver, much later than it would: only what does not come within a minute is lost.
func (n *node) delivered(ledger *bench.Ledger) bench.Verdict {
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		for _, d := range ask[worker.News](n, "News", true).Deliveries {
			ledger.Delivered(d)
		}
		v := ledger.Judge(func(int64) bool { return true })
		if v.Unseen == 0 || time.Now().After(limit) {
			return v
		}
	}
}

// memory measures the live heap on big nodes, and the statuses in it.
func (n *node) memory() {
	n.start()
	n.lists(3)
	m, containers := ask[worker.Memory](n, "Memory", true), float64(len(n.running))
	n.b.ReportMetric(float64(m.Heap)/containers, "B/container")
	n.b.ReportMetric(float64(m.Statuses)/containers, "status-B/container")
	n.b.ReportMetric(float64(m.Heap-m.Statuses)/containers, "other-B/container")
}

// idle measures the cost of an idle node in two windows: from the contestant's start, and with
// earned trust. The fake runtime builds every answer like real runtimes.
func (n *node) idle() {
	n.start()
	for _, window := range []string{"first", "next"} {
		runtime := bench.OwnUsage().CPUSeconds
		before := ask[worker.Cost](n, "Used", false) // an idle agent collects at its own times
		time.Sleep(*idle)
		after := ask[worker.Cost](n, "Used", false)
		n.b.ReportMetric(float64(after.CPU-before.CPU), window+"-cpu-ns")
		n.b.ReportMetric(float64(after.Wakeups-before.Wakeups), window+"-wakeups")
		n.b.ReportMetric(
			float64(after.CPU-before.CPU)+1e9*(bench.OwnUsage().CPUSeconds-runtime),
			window+"-total-cpu-ns",
		)
	}
}

// setFlags gives flags other values until the end of a test.
func setFlags(t *testing.T, values map[string]string) {
	t.Helper()
	for name, value := range values {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
}

// TestRowsAreMeasured runs every row small: each reports its measures, and no contestant loses a
// change for good.
func TestRowsAreMeasured(t *testing.T) {
	setFlags(t, map[string]string{"test.benchtime": "1x", "shrink": "100", "idle": "50ms", "settle": "100ms"})
	measures := map[string]string{ // by the beginning of a row's name, one that must be above 0
		"relist":    "cpu-ns/op",
		"streaming": "allocs/op",
		"changed":   "allocs/op",
		"intake":    "cpu-ns/op",
		"first":     "ns/op",
		"newer":     "p50-ns",
		"latency":   "p99-ns",
		"memory":    "status-B/container",
		"idle":      "next-total-cpu-ns",
	}
	for _, r := range rows() {
		for _, agent := range r.agents {
			if agent == kubelet {
				continue // a program of its own
			}
			t.Run(r.name+"/"+agent, func(t *testing.T) {
				kind, _, _ := strings.Cut(r.name, "/")
				got := testing.Benchmark(func(b *testing.B) { r.run(b, agent, t.Log) })
				if got.N != 1 || got.Extra[measures[kind]] <= 0 || got.Extra["lost"] != 0 {
					t.Errorf("measured %v", got.Extra)
				}
			})
		}
	}
}

// TestLateIsNotLost has a contestant list two seconds after all others would have.
func TestLateIsNotLost(t *testing.T) {
	setFlags(t, map[string]string{"test.benchtime": "1x", "shrink": "100", "settle": "1ms"})
	r := row{
		pods:    5000,
		config:  worker.Config{Mode: worker.Generic, RelistBase: 3 * time.Second},
		measure: (*node).latency,
	}
	got := testing.Benchmark(func(b *testing.B) { r.run(b, ours, t.Log) })
	if got.N != 1 || got.Extra["lost"] != 0 {
		t.Errorf("measured %v", got.Extra)
	}
}

// TestWaitIsForTheWholeStatus has a container's status come too late for a read, which ends without
// it: a pod worker waits until the generator has read the pod again.
func TestWaitIsForTheWholeStatus(t *testing.T) {
	r := row{pods: 1, config: generic}
	r.measure = func(n *node) {
		n.start()
		uid := n.rt.Truth().Pods[0].UID
		n.must(n.rt.SetFaults(fakeruntime.Faults{HangItem: 1}))
		reads := func() uint64 { return n.rt.Stats().RPCs["PodSandboxStatus"] }
		before := reads()
		answers := make(chan error, 1)
		go func() {
			for reads() < before+2 { // it reads again
				time.Sleep(time.Millisecond)
			}
			answers <- n.rt.SetFaults(fakeruntime.Faults{})
			n.rt.Restart(0, 0) // the call that hangs has an answer
		}()
		n.wait(uid)
		select {
		case err := <-answers:
			n.must(err)
		default:
			n.must(errors.New("the status came while a container hung"))
		}
	}
	setFlags(t, map[string]string{"test.benchtime": "1x"})
	if got := testing.Benchmark(func(b *testing.B) { r.run(b, ours, t.Log) }); got.N != 1 {
		t.Error("no status")
	}
}
