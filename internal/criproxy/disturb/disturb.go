// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package disturb

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/criproxy"
)

// A Disturber carries a plan out.
type Disturber struct {
	proxy *criproxy.Proxy
	plan  Plan

	ruling sync.Mutex // owns force and ended; may be held while the proxy is called
	// force holds the faults in force, by the rule's place in the plan.
	force map[int][]*criproxy.Injected
	ended bool // nothing comes into force any more

	mu    sync.Mutex // owns the fields below; the proxy's callbacks take it, so its holder never calls the proxy
	rand  *rand.Rand
	tally Tally
	// sandboxes are the IDs of sandboxes in the statuses of events: the last event of a sandbox has
	// no status.
	sandboxes map[string]bool
}

const (
	// maxSandboxes bounds the remembered sandboxes.
	maxSandboxes = 100_000
	// maxID bounds the length of a remembered ID. Those of real runtimes have 64 bytes or fewer.
	maxID = 1024
)

// New puts the rules that begin at once in force. The seed decides which events and calls a share
// takes.
func New(proxy *criproxy.Proxy, plan Plan, seed uint64) *Disturber {
	d := &Disturber{
		proxy:     proxy,
		plan:      plan,
		force:     make(map[int][]*criproxy.Injected),
		rand:      rand.New(rand.NewPCG(seed, 0xd15)),
		tally:     Tally{Events: map[string]EventCount{}, Calls: map[string]CallCount{}},
		sandboxes: make(map[string]bool),
	}
	proxy.Observe(d.observe)
	for i, r := range plan {
		if r.From == 0 {
			d.begin(i)
		}
	}
	return d
}

// Run puts the other rules in force when their time comes, lifts each at its end, and all when ctx
// ends.
func (d *Disturber) Run(ctx context.Context) {
	var group sync.WaitGroup
	for i, r := range d.plan {
		group.Go(func() { d.play(ctx, i, r) })
	}
	group.Wait()
	d.Lift()
}

// Lift ends all rules for good. What they held is delivered.
func (d *Disturber) Lift() {
	d.ruling.Lock()
	d.ended = true
	d.ruling.Unlock()
	for i := range d.plan {
		d.end(i)
	}
}

// play is the time of a rule.
func (d *Disturber) play(ctx context.Context, place int, r Rule) {
	begun := time.Now()
	if r.From > 0 {
		if !wait(ctx, r.From) {
			return
		}
		d.begin(place)
	}
	if r.To > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, begun.Add(r.To))
		defer cancel()
	}
	if r.Kind == Cut {
		d.cutEach(ctx, r.For)
	}
	<-ctx.Done()
	d.end(place)
}

// cutEach closes all connections at the end of each pause, until ctx ends or all rules do.
func (d *Disturber) cutEach(ctx context.Context, pause time.Duration) {
	for wait(ctx, pause) {
		if !d.cut() {
			return
		}
	}
}

// cut closes all connections, unless nothing is in force any more.
func (d *Disturber) cut() bool {
	d.ruling.Lock()
	defer d.ruling.Unlock()
	if d.ended {
		return false
	}
	cut := d.proxy.CutAll()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tally.Cuts += cut
	return true
}

// wait waits, and reports false if ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin puts a rule in force.
func (d *Disturber) begin(place int) {
	r := d.plan[place]
	d.ruling.Lock()
	defer d.ruling.Unlock()
	if d.ended || r.Kind == Cut {
		return
	}
	for _, method := range r.Methods {
		fault := criproxy.Fault{Method: method, Do: r.action()}
		switch r.Kind {
		case Drop:
			fault.Match = func(reply []byte) bool { return r.drops(d.eventOf(reply)) && d.takes(r.Share) }
		case Hang:
			if r.ID != "" {
				fault.Request = func(request []byte) bool { return bytes.Contains(request, []byte(r.ID)) }
			}
		case Refuse:
			fault.Request = func([]byte) bool { return d.takes(r.Share) }
		}
		d.force[place] = append(d.force[place], d.proxy.Inject(fault))
	}
}

// end lifts a rule.
func (d *Disturber) end(place int) {
	d.ruling.Lock()
	injected := d.force[place]
	delete(d.force, place)
	d.ruling.Unlock()
	for _, i := range injected {
		i.Remove()
	}
}

// action is the proxy's for the rule.
func (r Rule) action() criproxy.Action {
	switch r.Kind {
	case Drop:
		return criproxy.Drop{}
	case Delay:
		return criproxy.Delay{For: r.For}
	case Stall:
		return criproxy.Stall{}
	case Hang:
		return criproxy.Hold{}
	}
	return criproxy.Refuse{Code: refusal, Message: "refused by the proxy of pleg-bench, not by the runtime"}
}

// takes reports whether a share takes the next event or call.
func (d *Disturber) takes(share float64) bool {
	if share >= 1 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Float64() < share
}

// eventTypes are the CRI's without prefix and suffix, in the order of a life.
var eventTypes = []string{"CREATED", "STARTED", "STOPPED", "DELETED"}

// event is what a rule and the tally know of an event.
type event struct {
	// kind is the type, such as STOPPED, or "unknown" or "malformed"; item is sandbox or container.
	kind, item string
}

// name is the event in a tally.
func (e event) name() string {
	if e.item == "" {
		return e.kind
	}
	return e.item + "/" + e.kind
}

// drops reports whether a Drop concerns an event.
func (r Rule) drops(e event) bool {
	return (r.Type == "" || r.Type == e.kind) && (r.Item == "" || r.Item == e.item)
}

// eventOf decodes an event.
func (d *Disturber) eventOf(reply []byte) event {
	var m runtimeapi.ContainerEventResponse
	if proto.Unmarshal(reply, &m) != nil || m.GetContainerId() == "" {
		return event{kind: "malformed"}
	}
	e := event{item: "container", kind: typeOf(&m)}
	id := m.GetPodSandboxStatus().GetId()
	memorable := id != "" && len(id) <= maxID
	d.mu.Lock()
	defer d.mu.Unlock()
	if memorable && len(d.sandboxes) < maxSandboxes {
		d.sandboxes[id] = true
	}
	if d.sandboxes[m.GetContainerId()] {
		e.item = "sandbox"
	}
	return e
}

// typeOf is the type of an event, one for all numbers that the CRI does not know: a tally has few
// kinds, whatever a runtime sends.
func typeOf(m *runtimeapi.ContainerEventResponse) string {
	number := m.GetContainerEventType()
	if _, known := runtimeapi.ContainerEventType_name[int32(number)]; !known {
		return "unknown"
	}
	return strings.TrimSuffix(strings.TrimPrefix(number.String(), "CONTAINER_"), "_EVENT")
}

// observe counts an outcome; see [criproxy.Proxy.Observe].
func (d *Disturber) observe(o criproxy.Outcome) {
	name := ""
	if o.Method == "GetContainerEvents" && o.Reply != nil {
		name = d.eventOf(o.Reply).name()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if name != "" {
		count := d.tally.Events[name]
		count.add(o)
		d.tally.Events[name] = count
		return
	}
	count := d.tally.Calls[o.Method]
	count.add(o)
	d.tally.Calls[o.Method] = count
}

// Tally returns a copy of the counts.
func (d *Disturber) Tally() Tally {
	begun := d.proxy.Calls()
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tally
	t.Events = maps.Clone(t.Events)
	t.Calls = maps.Clone(t.Calls)
	for method, n := range begun {
		count := t.Calls[method]
		count.Begun = n
		t.Calls[method] = count
	}
	return t
}

// Tally is what a Disturber has done, kind by kind.
type Tally struct {
	// Events counts the events by item and type, such as container/STOPPED.
	Events map[string]EventCount `json:"events"`
	// Calls counts the calls by method.
	Calls map[string]CallCount `json:"calls"`
	// Cuts counts the connections of clients that were closed.
	Cuts int `json:"cuts"`
}

// EventCount is the fate of events of a kind.
type EventCount struct {
	// Received counts the runtime's events; what is none of the below passed unchanged.
	Received int `json:"received"`
	// Dropped counts those that no client got.
	Dropped int `json:"dropped"`
	// Delayed counts those that came later.
	Delayed int `json:"delayed"`
	// Stalled counts those that were held while the stream stood still.
	Stalled int `json:"stalled"`
}

func (c *EventCount) add(o criproxy.Outcome) {
	c.Received++
	if lost(o) {
		c.Dropped++
		return
	}
	for _, a := range o.Acted {
		switch a.(type) {
		case criproxy.Delay:
			c.Delayed++
		case criproxy.Stall:
			c.Stalled++
		}
	}
}

// lost reports whether no client got a reply: one that is dropped, or in whose place the call
// fails, does not come later.
func lost(o criproxy.Outcome) bool {
	return slices.ContainsFunc(o.Acted, func(a criproxy.Action) bool {
		switch a.(type) {
		case criproxy.Drop, criproxy.Fail, criproxy.Cut:
			return true
		}
		return false
	})
}

// CallCount is the fate of calls of a method.
type CallCount struct {
	// Begun counts the calls of clients.
	Begun int `json:"begun"`
	// Failed counts those that the runtime answered with an error, or that found no runtime. What the
	// client itself gave up is none.
	Failed int `json:"failed"`
	// Refused counts those refused in place of the runtime.
	Refused int `json:"refused"`
	// Hung counts those kept from the runtime without an answer.
	Hung int `json:"hung"`
	// Delayed counts replies that came later.
	Delayed int `json:"delayed"`
	// Stalled counts replies that were held while the connection stood still.
	Stalled int `json:"stalled"`
}

func (c *CallCount) add(o criproxy.Outcome) {
	if o.Ended && o.Err != nil && len(o.Acted) == 0 && !o.GivenUp {
		c.Failed++
	}
	if lost(o) {
		return
	}
	for _, a := range o.Acted {
		switch a.(type) {
		case criproxy.Refuse:
			c.Refused++
		case criproxy.Hold:
			c.Hung++
		case criproxy.Delay:
			c.Delayed++
		case criproxy.Stall:
			c.Stalled++
		}
	}
}

// Dropped is how many events of all kinds were dropped, of how many received.
func (t Tally) Dropped() (dropped, received int) {
	for _, c := range t.Events {
		dropped += c.Dropped
		received += c.Received
	}
	return dropped, received
}

// Kinds are the names of the counted events, in the order of a life.
func (t Tally) Kinds() []string {
	place := func(name string) int {
		_, kind, _ := strings.Cut(name, "/")
		return slices.Index(eventTypes, kind)
	}
	return slices.SortedFunc(maps.Keys(t.Events), func(a, b string) int {
		if by := place(a) - place(b); by != 0 {
			return by
		}
		return strings.Compare(a, b)
	})
}

// Methods are the names of the counted calls, in order.
func (t Tally) Methods() []string { return slices.Sorted(maps.Keys(t.Calls)) }
