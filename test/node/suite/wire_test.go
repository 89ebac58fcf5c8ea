// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// eventStream is the method of the event stream.
const eventStream = "GetContainerEvents"

// wireFaults are the faults of the event stream and the calls.
var wireFaults = []struct {
	name  string
	fault criproxy.Fault
	// lossy: the agent loses some changes, so it may count missed events and lose the stream.
	lossy bool
}{
	{name: "late", fault: criproxy.Fault{Method: eventStream, Do: criproxy.Delay{For: 700 * time.Millisecond}}},
	{
		name:  "half dropped",
		fault: criproxy.Fault{Method: eventStream, Match: every(2), Do: criproxy.Drop{}},
		lossy: true,
	},
	{
		name:  "cut",
		fault: criproxy.Fault{Method: eventStream, Match: every(15), Do: criproxy.Cut{}},
		lossy: true,
	},
	{
		name:  "truncated",
		fault: criproxy.Fault{Method: eventStream, Match: every(15), Do: criproxy.Truncate{}},
		lossy: true,
	},
	{
		name: "failed",
		fault: criproxy.Fault{
			Method: eventStream,
			Match:  every(15),
			Do:     criproxy.Fail{Code: codes.ResourceExhausted, Message: "too many clients"},
		},
		lossy: true,
	},
	{name: "stalled", fault: criproxy.Fault{Method: eventStream, Do: criproxy.Stall{}}, lossy: true},
	{
		name:  "answers delayed",
		fault: criproxy.Fault{Method: "ContainerStatus", Do: criproxy.Delay{For: 300 * time.Millisecond}},
	},
	// A number of answers, and not every fourth: a pod of four changed containers is read with four
	// of them, and would fail for ever.
	{
		name: "answers failed",
		fault: criproxy.Fault{
			Method: "ContainerStatus",
			Times:  6,
			Do:     criproxy.Fail{Code: codes.Unavailable, Message: "try again"},
		},
	},
	// The first answers, and not every second: a new pod causes a single call, and of two pods
	// either may be gone before a poll.
	{
		name:  "answers truncated",
		fault: criproxy.Fault{Method: "PodSandboxStatus", Times: 2, Do: criproxy.Truncate{}},
	},
	{
		name:  "lists cut",
		fault: criproxy.Fault{Method: "StreamContainers", Times: 3, Do: criproxy.Cut{}},
		lossy: true,
	},
}

// every matches each nth message.
func every(n int64) func([]byte) bool {
	var count atomic.Int64
	return func([]byte) bool { return count.Add(1)%n == 0 }
}

// wire disturbs the wire in each way while pods live and die, round by round until the fault has
// acted, and demands that the cache equals the runtime during the fault.
func wire(t *T) {
	// The period bounds the cost of a silent loss.
	a := t.Connect(stableAfter(time.Second), func(c *worker.Config) {
		c.RelistMax, c.ReconnectMax, c.ReconnectSteady = 5*time.Second, 4*time.Second, 4*time.Second
	})
	for i, w := range wireFaults {
		if w.fault.Method == "StreamContainers" && !t.Traits.StreamingLists {
			w.fault.Method = "ListContainers"
		}
		if w.fault.Method == eventStream && !t.Traits.Events {
			continue // nothing to harm
		}
		before := a.Stats()
		injected := t.Proxy.Inject(w.fault)
		var pods []*crikit.Pod
		var converged time.Duration
		round := 0
		t.Eventually("the fault acts: "+w.name, func() error {
			pods = append(pods, t.liveThrough(fmt.Sprintf("w%dr%d", i, round))...)
			converged = max(converged, a.Converge())
			round++
			if injected.Hits() == 0 {
				return fmt.Errorf("not in %d rounds", round)
			}
			return nil
		})
		hits := injected.Hits()
		injected.Remove()
		a.Converge()
		a.WaitConnected()
		t.Clear(nil, pods)
		a.Converge()
		after := a.Stats()
		if !w.lossy {
			a.noneMissed(after.Missed-before.Missed, ", "+w.name)
		}
		t.Logf(
			"%s: %d hits in %d rounds; missed %d, connects %d, errors %d",
			w.name,
			hits,
			round,
			after.Missed-before.Missed,
			after.Connects-before.Connects,
			after.ConnectErrors-before.ConnectErrors,
		)
		t.Figure(w.name, "%dms", converged.Milliseconds())
	}
	frozen(t, a)
}

// liveThrough runs the containers of a few pods to their end, and removes a pod. It returns the
// rest.
func (t *T) liveThrough(prefix string) []*crikit.Pod {
	var pods []*crikit.Pod
	for p := range t.Size(4, 2) {
		pods = append(pods, t.Pod(fmt.Sprintf("%sp%d", prefix, p)))
	}
	t.Exited(t.Burst(pods, 4, 2, "sleep", "200ms", "2")...)
	t.Check(t.Delete(t.ctx, pods[0].SandboxID))
	return pods[1:]
}

// frozen stops every answer of the runtime without closing anything.
func frozen(t *T, a *Agent) {
	pod := t.Pod("frozen")
	a.Converge()
	freeze := t.Proxy.Inject(criproxy.Fault{Do: criproxy.Stall{}})
	id := t.Container(pod, "c", "exit", "6")
	t.Exited(id)
	t.Sleep(3 * time.Second)
	if held := bench.Find(a.Cache(), pod.UID, id); held.ID != "" {
		t.Errorf("the agent learned of a container through a frozen wire")
	}
	freeze.Remove()
	t.Figure("frozen", "%dms", a.Converge().Milliseconds())
	a.WaitConnected()
}
