// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// told is an Event that pleg-agent printed.
type told struct {
	Time        time.Time         `json:"time"`
	Reason      string            `json:"reason"`
	Name        string            `json:"name"`
	FieldPath   string            `json:"fieldPath"`
	Count       int               `json:"count"`
	Note        string            `json:"note"`
	Annotations map[string]string `json:"annotations"`
}

const annotation = "exits.evented-pleg.io/"

// finishedAt returns the runtime's time of the end, zero if unknown.
func (e *told) finishedAt() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, e.Annotations[annotation+"finished-at"]) // "" where it is unknown
	return at
}

// after returns how long after the end a moment is, as text.
func (e *told) after(at time.Time) string {
	if e.finishedAt().IsZero() {
		return "at " + at.Format(time.RFC3339Nano)
	}
	return bench.Short(at.Sub(e.finishedAt())) + " after"
}

// teller is a process of cmd/pleg-agent that prints its Events.
type teller struct {
	t     *T
	cmd   *exec.Cmd
	ended chan struct{} // closed when its output is read
	over  bool          // end was called

	mu     sync.Mutex // owns events
	events []told
}

// newTeller starts the agent behind the proxy. Tellers of a scenario share their memory of what was
// reported.
func (t *T) newTeller() *teller {
	program := filepath.Join(t.Dir, "pleg-agent")
	if _, err := os.Stat(program); err != nil {
		build := exec.CommandContext(t.ctx, "go", "build", "-o", program, "./cmd/pleg-agent")
		build.Dir = run.root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build pleg-agent: %v\n%s", err, out)
		}
	}
	log := testkit.Must(os.OpenFile(filepath.Join(t.Dir, "pleg-agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))(t)
	defer log.Close()
	x := &teller{t: t, ended: make(chan struct{})}
	x.cmd = exec.Command(
		program,
		"--endpoint",
		t.Proxy.Endpoint(),
		"--state",
		filepath.Join(t.Dir, "reported.json"),
		"--print",
		"--output",
		"json",
		"--node-events=false",
		"-v",
		"--kinds",
		"oom,failed,killed,lost,sandbox,completed,stopped,not-started",
	)
	x.cmd.Stderr = log
	out := testkit.Must(x.cmd.StdoutPipe())(t)
	t.Check(x.cmd.Start())
	go x.read(out)
	t.Cleanup(func() { x.end(syscall.SIGKILL) })
	return x
}

func (x *teller) read(out io.Reader) {
	defer close(x.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e told
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			x.mu.Lock()
			x.events = append(x.events, e)
			x.mu.Unlock()
		}
	}
}

// end ends the process, and returns all that it has told. Later calls return the same. A process
// that has ended by itself, or takes SIGTERM and does not end with 0, fails the scenario.
func (x *teller) end(signal syscall.Signal) []told {
	if !x.over {
		x.over = true
		_ = x.cmd.Process.Signal(signal) // the end tells whether it was there
		<-x.ended
		_ = x.cmd.Wait() // the state tells
		status := x.cmd.ProcessState.Sys().(syscall.WaitStatus)
		killed := status.Signaled() && status.Signal() == syscall.SIGKILL && signal == syscall.SIGKILL
		if ended := status.Exited() && status.ExitStatus() == 0 && signal == syscall.SIGTERM; !killed && !ended {
			x.t.Errorf("pleg-agent ended with %v, want an end at our signal %v: see pleg-agent.log",
				x.cmd.ProcessState, signal)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.events
}

// of returns the Events of a container, or of a sandbox.
func (x *teller) of(id string) (all []told) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.events {
		if e.Annotations[annotation+"id"] == id {
			all = append(all, e)
		}
	}
	return all
}

// tells waits for the Event of an end, one of the reasons, with one of the codes if any is named.
// The Event must be as the runtime shows the container, if that is still there.
func (t *T) tells(x *teller, id, what string, reasons []string, codes ...string) told {
	t.Eventually("the Event of "+what, func() error {
		if len(x.of(id)) == 0 {
			return fmt.Errorf("no Event yet")
		}
		return nil
	})
	e := x.of(id)[0]
	code := e.Annotations[annotation+"exit-code"]
	if !slices.Contains(reasons, e.Reason) || len(codes) > 0 && !slices.Contains(codes, code) {
		t.Errorf(
			"%s: %s, code %q: %s; want %v, codes %v; %s",
			what,
			e.Reason,
			code,
			e.Note,
			reasons,
			codes,
			t.shownAfter(id, &e),
		)
	}
	t.asShown(&e)
	t.Logf("%-28s %s: %s (reported %s)", what, e.Reason, e.Note, e.after(e.Time))
	return e
}

// asShown compares an Event with what the runtime shows of the container, if it is still there.
func (t *T) asShown(e *told) {
	id := e.Annotations[annotation+"id"]
	shown, err := t.endOf(id)
	code := e.Annotations[annotation+"exit-code"]
	if err == nil &&
		(shown.Reason != e.Annotations[annotation+"reason"] || fmt.Sprint(shown.ExitCode) != code) {
		t.Errorf("%s, code %q: %s; %s", e.Reason, code, e.Note, t.shownAfter(id, e))
	}
}

// endOf returns the runtime's status of a container.
func (t *T) endOf(id string) (*runtimeapi.ContainerStatus, error) {
	answer, err := t.ContainerStatus(t.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return answer.GetStatus(), err
}

// lateness is how long a failed scenario follows the runtime for a reason that comes late.
const lateness = 10 * time.Second

// shownAfter follows what the runtime shows of a container whose Event is wrong, and returns each
// change with its time after the end. It shows whether a reason came after the report, or never.
func (t *T) shownAfter(id string, e *told) string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"reported %s with the reason %q; the runtime",
		e.after(e.Time),
		e.Annotations[annotation+"reason"],
	)
	last := ""
	for began := time.Now(); time.Since(began) < lateness; t.Sleep(10 * time.Millisecond) {
		status, err := t.endOf(id)
		now := fmt.Sprintf("%v, code %d, %q", status.GetState(), status.GetExitCode(), status.GetReason())
		if err != nil {
			now = err.Error()
		}
		if now != last {
			fmt.Fprintf(&b, ", %s: %s", e.after(time.Now()), now)
		}
		last = now
	}
	fmt.Fprintf(&b, ", and no other for %v", lateness)
	return b.String()
}

// why ends containers in every way, under an agent that reports why: each end once, with its final
// code and reason, whatever is restarted or killed meanwhile.
func why(t *T) {
	x := t.newTeller()
	early := t.Container(t.Pod("early"), "c", "exit", "3")
	t.tells(x, early, "exit 3", []string{"ContainerFailed"}, "3")

	pod := t.Pod("ends")
	ok := t.Container(pod, "ok", "exit", "0")
	oom := t.Made(pod, crikit.Spec{Name: "oom", Args: []string{"eat", "64", "usr1"}, Memory: 20 << 20})
	segv := t.Container(pod, "segv", "sleep", "1h")
	killed := t.Container(pod, "killed", "sleep", "1h")
	stopped := t.Container(pod, "stopped", "sleep", "1h")
	t.End(oom, t.pidOf(oom))
	t.Check(syscall.Kill(t.pidOf(segv), syscall.SIGSEGV))
	t.Check(syscall.Kill(t.pidOf(killed), syscall.SIGKILL))
	t.Check(t.Client.Stop(t.ctx, stopped, 10*time.Second))
	t.tells(x, ok, "exit 0", []string{"ContainerCompleted"}, "0")
	t.tells(x, oom, "out of memory at 20 MiB", []string{"ContainerOOMKilled"}, "137")
	t.tells(
		x,
		segv,
		"SIGSEGV",
		[]string{"ContainerKilled", "ContainerFailed"},
		"139",
		"2",
	) // Go's own handler exits with 2
	t.tells(x, killed, "SIGKILL", []string{"ContainerKilled"}, "137")
	t.tells(x, stopped, "SIGTERM", []string{"ContainerStopped", "ContainerKilled"}, "143", "137")
	var ends []string
	ends = append(ends, early, ok, oom, segv, killed, stopped)
	if !t.Traits.CreateFails {
		broken := t.failedStart(pod)
		t.tells(x, broken, "a failed start", []string{"ContainerNotStarted"})
		ends = append(ends, broken)
	}

	fast := t.Pod("removed-at-once")
	gone := t.Container(fast, "c", "exit", "5")
	t.Exited(gone)
	t.Check(t.Delete(t.ctx, fast.SandboxID))
	t.tells(x, gone, "a pod removed at once", []string{"ContainerFailed"}, "5")
	ends = append(ends, gone)

	ends = append(ends, t.quickOOMs(x)...)
	ends = append(ends, t.initAndSidecar(x)...)
	var victim *crikit.Pod // of a killed shim
	if !t.Traits.KeeperTells {
		ends = append(ends, t.withoutMonitor(x)...)
	} else {
		victim = t.Pod("shim")
		id := t.Container(victim, "c", "sleep", "1h")
		t.Sleep(2 * time.Second)
		stops := t.stops()
		t.Check(syscall.Kill(t.keeperOf(victim.SandboxID), syscall.SIGKILL))
		if !t.Traits.EndsTogether {
			t.tells(x, victim.SandboxID, "kill -9 of the shim", []string{"SandboxDied"})
			ends = append(ends, victim.SandboxID)
		}
		t.tells(x, id, "its container", []string{"ContainerLost", "ContainerFailed", "ContainerKilled"})
		ends = append(ends, id)
		order := stops()
		t.Figure("sandbox, container of the killed shim", "stops %d and %d of the stream",
			slices.Index(order, victim.SandboxID)+1, slices.Index(order, id)+1)
		t.deletePod(victim)
	}

	// The runtime is killed, and a container ends meanwhile.
	long := t.Pod("long")
	away, pid := t.Mortal(long, "away", 4)
	agentless, agentlessPID := t.Mortal(long, "agentless", 6)
	t.StopRuntime(syscall.SIGKILL)
	t.End(away, pid)
	t.StartRuntime()
	t.tells(
		x,
		away,
		"an end while the runtime was killed",
		[]string{"ContainerFailed", "ContainerLost"},
		"4",
		"255",
	)
	ends = append(ends, away)

	// The agent is killed, and a container ends meanwhile.
	events := x.end(syscall.SIGKILL)
	t.End(agentless, agentlessPID)
	t.Exited(agentless)
	x = t.newTeller()
	t.tells(x, agentless, "an end while the agent was killed", []string{"ContainerFailed"}, "6")
	ends = append(ends, agentless)
	t.Sleep(3 * time.Second) // for what must not come
	events = append(events, x.end(syscall.SIGTERM)...)
	x = t.newTeller()
	t.Sleep(3 * time.Second)
	events = append(events, x.end(syscall.SIGTERM)...)

	// A container that is shown as ended first did not run in the dead sandbox: then its end tells
	// all. Where it was shown as running, the sandbox's death is told too.
	if t.Traits.EndsTogether {
		died := slices.ContainsFunc(events, func(e told) bool {
			return e.Annotations[annotation+"id"] == victim.SandboxID && e.Reason == "SandboxDied"
		})
		if died {
			ends = append(ends, victim.SandboxID)
		}
		t.Figure("SandboxDied beside the container's end", "%v", died)
	}
	t.onceEach(events, ends)
}

// stops returns what lists the IDs of the ends that the runtime's stream tells from now on, in its
// order.
func (t *T) stops() func() []string {
	var mu sync.Mutex
	var order []string
	t.tap(func(message []byte) {
		var e runtimeapi.ContainerEventResponse
		if proto.Unmarshal(message, &e) == nil &&
			e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, e.ContainerId)
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(order)
	}
}

// quickOOMs has several containers run out of memory as soon as they start. Each end is told as the
// runtime shows it, which may have missed the kernel's notice.
func (t *T) quickOOMs(x *teller) (ends []string) {
	reasons := []string{"ContainerOOMKilled"}
	if t.Traits.LosesQuickOOMs {
		reasons = append(reasons, "ContainerKilled")
	}
	pod := t.Pod("quick")
	ends = make([]string, 10)
	var all errgroup.Group
	for i := range ends {
		all.Go(func() (err error) {
			spec := crikit.Spec{Name: fmt.Sprint("oom", i), Args: []string{"eat", "64"}, Memory: 20 << 20}
			ends[i], err = t.CreateAndStart(t.ctx, pod, spec)
			return err
		})
	}
	t.Check(all.Wait())
	lost := 0
	for _, id := range ends {
		if t.tells(x, id, "out of memory at once", reasons, "137").Reason != "ContainerOOMKilled" {
			lost++
		}
	}
	t.Figure("OOM kills at once, shown as Error", "%d of %d", lost, len(ends))
	return ends
}

// initAndSidecar runs a pod as a kubelet does that has an init container, which fails and is tried
// again, and a sidecar, which is started before the main container and stopped after its end.
func (t *T) initAndSidecar(x *teller) (ends []string) {
	pod := t.Pod("init-and-sidecar")
	first := t.Container(pod, "init", "exit", "7")
	t.tells(x, first, "an init container that fails", []string{"ContainerFailed"}, "7")
	again := t.Made(pod, crikit.Spec{Name: "init", Attempt: 1, Args: []string{"exit", "0"}})
	t.Exited(again)
	t.Check(t.Remove(t.ctx, first)) // a kubelet keeps its last attempt only
	sidecar := t.Container(pod, "sidecar", "sleep", "1h")
	main := t.Container(pod, "main", "sleep", "1s")
	t.tells(x, again, "its second attempt", []string{"ContainerCompleted"}, "0")
	t.tells(x, main, "the main container", []string{"ContainerCompleted"}, "0")
	t.Check(t.Client.Stop(t.ctx, sidecar, 10*time.Second))
	t.tells(x, sidecar, "the sidecar", []string{"ContainerStopped"}, "143")
	t.deletePod(pod)
	return []string{first, again, sidecar, main}
}

// withoutMonitor kills the monitor of a container, and then the container: the runtime shows it as
// running until it is asked to stop it. The agent tells no end before, and one then.
func (t *T) withoutMonitor(x *teller) (ends []string) {
	pod := t.Pod("monitor")
	id := t.Container(pod, "c", "sleep", "1h")
	process := t.pidOf(id)
	t.Check(syscall.Kill(t.keeperOf(id), syscall.SIGKILL))
	t.Check(syscall.Kill(process, syscall.SIGKILL))
	t.Sleep(3 * time.Second)
	if early := x.of(id); len(early) > 0 {
		t.Errorf("the runtime shows %s, and the agent has told %+v", t.stateOf(id), early)
	}
	t.deletePod(pod)
	t.tells(x, id, "kill -9 of the monitor", []string{"ContainerLost"})
	return []string{id}
}

// stateOf returns the runtime's state of a container.
func (t *T) stateOf(id string) string {
	answer := testkit.Must(t.ContainerStatus(t.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}))(t)
	return answer.GetStatus().GetState().String()
}

// onceEach checks that each end was told once, and as the runtime shows it by now. It records the
// times from the ends to their Events.
func (t *T) onceEach(events []told, ends []string) {
	counts := make(map[string]int)
	var took []time.Duration
	for _, e := range events {
		id := e.Annotations[annotation+"id"]
		counts[id]++
		t.asShown(&e)
		if !slices.Contains(ends, id) {
			t.Errorf("told of another end: %+v", e)
		}
		if finished := e.finishedAt(); !finished.IsZero() {
			took = append(took, e.Time.Sub(finished))
		}
	}
	for _, id := range ends {
		if counts[id] != 1 {
			t.Errorf("the end of %s is told %d times, want once", id, counts[id])
		}
	}
	slices.Sort(took)
	t.Figure("end→Event", "%s", quantiles(took))
}
